"""What several tests of attention are given."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sightline.attention import coverage
from sightline.attention.backends import rectangles


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tiles of 3 x 3 queries, open ones of 9, and keys by the cell: many rectangles on small grids too."""
    coverage._cover_head.cache_clear()
    for name, value in {"_TILE": 3, "_ROW_STEP": 2, "_COLUMN_STEP": 1}.items():
        monkeypatch.setattr(coverage, name, value)
    monkeypatch.setattr(rectangles, "_OPEN_QUERIES", 9)
    yield
    coverage._cover_head.cache_clear()
