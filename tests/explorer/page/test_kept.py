"""What one takes away from the page: a picture, and a page that works without the server."""

from __future__ import annotations

import json
import re

import pytest
from PIL import Image

from tests.explorer.page import browsing
from tests.explorer.page.browsing import Sight, alike

pytestmark = pytest.mark.slow
TWO = "#compare=models&left.model=0&right.model=1&at=0.3,0.7&layer=1&head=2"


def _download(one: Sight, button: str, folder):
    with one.page.expect_download() as waited:
        one.page.get_by_role("button", name=button).click()
    file = folder / waited.value.suggested_filename
    waited.value.save_as(file)
    one.page.wait_for_selector("#status:not(:empty)")
    return file


def test_an_exported_page_works_without_the_server(browser, material, tmp_path):
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    with browsing.served(*material) as base:
        one = Sight(context.new_page(), base).open(TWO)
        one.page.select_option("#show", "lens")
        lens = one.settle().pixels("right")
        one.page.select_option("#show", "attention")
        one.settle()
        left, right, said = one.pixels(), one.pixels("right"), one.said
        numbers, answers = one.numbers(), one.answer("right")
        one.page.select_option("#head", "3")
        head_3 = one.settle().pixels(), one.said
        one.page.select_option("#head", "2")
        one.settle()
        file = _download(one, "Export page", tmp_path)
        one.check()
        one.page.close()
    assert file.name == "sightline_image-0_first_second.html"
    assert file.stat().st_size < 10 << 20
    text = file.read_text(encoding="utf-8")
    assert base not in text
    markup = re.sub(r"<script.*?</script>", "", text, flags=re.S)
    assert not re.search(r"""(src|href)=["'](?!data:)|@import|url\(""", markup)
    kept = json.loads(re.search(r'id="kept">(.*?)</script>', text, re.S)[1])
    assert set(kept["panes"]) == {"left", "right"}

    page = context.new_page()
    two = Sight(page, file.as_uri())
    page.goto(file.as_uri())
    two.settle()
    assert two.said == said
    assert alike(two.pixels(), left)
    assert alike(two.pixels("right"), right)
    assert (two.numbers(), two.answer("right")) == (numbers, answers)
    # Heads and what lies over the picture can be chosen, another patch cannot.
    page.select_option("#head", "3")
    two.settle()
    assert two.said == head_3[1]
    assert alike(two.pixels(), head_3[0])
    page.select_option("#show", "lens")
    assert two.settle().pane().locator(".chip").count() >= 1
    assert alike(two.pixels("right"), lens)
    two.click_patch(0, 0, (8, 8))
    assert "one patch alone" in two.alert
    assert two.said == head_3[1]
    page.select_option("#show", "colours")
    two.settle()
    assert "does not hold colours" in two.alert
    assert page.locator(".size").first.is_disabled()
    assert not page.locator("#upload").is_visible()
    saved = _download(two, "Save picture", tmp_path)
    assert saved.stat().st_size > 10_000
    assert [one for one in two.asked if not one.startswith((file.as_uri(), "data:", "blob:"))] == []
    assert two.faults == []
    context.close()


def test_an_exported_page_holds_nothing_that_its_data_could_break(sight, tmp_path):
    """A name of an image may hold what ends a script."""
    one = sight(TWO)
    mine = tmp_path / "<!--<script>.png"
    Image.new("RGB", (40, 40), (9, 90, 200)).save(mine)
    one.page.set_input_files("#upload", mine)
    one.page.wait_for_selector("#thumbnails label:nth-child(4)")
    one.settle()
    file = _download(one, "Export page", tmp_path)
    page = one.page.context.new_page()
    two = Sight(page, file.as_uri())
    page.goto(file.as_uri())
    assert two.settle().said == one.said
    assert mine.name in two.pane().locator(".picture").get_attribute("aria-label")
    assert two.faults == []
