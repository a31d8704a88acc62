"""A browser a module and one server for all tests of the page; skipped, with the reason, where there is no browser."""

from __future__ import annotations

import pytest

from tests.explorer.page import browsing
from tests.explorer.page.browsing import WIDE, Sight


@pytest.fixture(scope="session")
def material(tmp_path_factory):
    """Two models and a folder of images."""
    folder = tmp_path_factory.mktemp("explored")
    return browsing.write_models(folder), browsing.write_images(folder / "images")


@pytest.fixture(scope="session")
def base(material):
    """The address of a server that is a process of its own."""
    _there()
    with browsing.served(*material) as address:
        yield address


# Of a module and no longer: while Playwright is at work this thread has a running event loop, and what another test
# starts by `asyncio.run` (`sightline explore`) would be refused.
@pytest.fixture(scope="module")
def browser():
    """The system's Chromium."""
    playwright = _there()
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=browsing.chromium(), args=browsing.flags())
        yield found
        found.close()


def _there():
    """Playwright's library; a test without what it needs is skipped, and says so."""
    playwright = pytest.importorskip("playwright.sync_api")
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    if browsing.chromium() is None:
        pytest.skip("no Chromium here (.ci/run installs Debian's package where it may)")
    return playwright


@pytest.fixture
def sight(browser, base):
    """`sight(link, **options of a browser's context)` is the page there; what it asked for is checked afterwards."""
    opened: list[Sight] = []
    contexts = []

    def make(link: str = "", **options) -> Sight:
        contexts.append(browser.new_context(**{"viewport": WIDE, **options}))
        opened.append(Sight(contexts[-1].new_page(), base))
        return opened[-1].open(link)

    yield make
    for one in opened:
        one.check()
    for context in contexts:
        context.close()
