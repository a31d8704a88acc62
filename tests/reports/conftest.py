"""Pages of these tests have no figures in them: what is drawn is looked at where a test asks for `figures`."""

import pytest

from sightline.reports import style


@pytest.fixture(autouse=True)
def quick_figures(request, monkeypatch):
    if "figures" not in request.fixturenames:
        monkeypatch.setattr(style, "draw", lambda width, height, paint: f'<svg viewBox="0 0 {72 * width} 9"></svg>')


@pytest.fixture
def figures():
    """Draw what is drawn."""
