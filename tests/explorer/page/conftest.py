"""One server for all tests of the page; `browser` of tests/conftest.py skips them where there is no browser."""

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
def base(material, chromium):
    """The address of a server that is a process of its own."""
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    with browsing.served(*material) as address:
        yield address


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
