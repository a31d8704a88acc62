"""By keyboard alone, by screen reader, in light and dark, on a phone's width."""

from __future__ import annotations

import pytest

from tests.explorer.page.browsing import Sight, by

pytestmark = pytest.mark.slow
TWO = "#compare=models&left.model=0&right.model=1"
ONE = "#compare=none&left.model=1"
THEMES = ("light", "dark")
PHONE = {"width": 360, "height": 800}


def _tab_to(one: Sight, selector: str) -> None:
    """Tab, as often as it takes, until that is in focus."""
    for _ in range(80):
        if one.page.locator(selector).first.evaluate("(element) => element === document.activeElement"):
            return
        one.page.keyboard.press("Tab")
    raise AssertionError(f"{selector} is not reached by Tab")


def _press(one: Sight, *keys: str) -> Sight:
    for key in keys:
        one.page.keyboard.press(key)
        one.settle()
    return one


def test_everything_by_keyboard_alone(sight):
    one = sight(ONE)
    _tab_to(one, "#thumbnails input")
    assert _press(one, "ArrowRight").link["name"] == "image 1.png"
    _tab_to(one, "#show")
    _tab_to(one, ".size")
    assert _press(one, "ArrowRight").numbers()["Grid"] == by(5, 5)
    assert _press(one, "ArrowLeft").numbers()["Grid"] == by(4, 4)
    _tab_to(one, ".knob-slider")
    _press(one, "ArrowRight")
    assert "left.knob" in one.link
    _tab_to(one, ".knob-reset")
    _press(one, "Enter")
    assert "left.knob" not in one.link
    _tab_to(one, ".picture")
    assert _press(one, "Home", "PageUp").said.startswith("patch row 0 column 0, layer 0 head 0: ")
    assert _press(one, "ArrowRight", "ArrowDown").said.startswith("patch row 1 column 1, ")
    assert _press(one, "ArrowUp", "ArrowLeft", "ArrowLeft").said.startswith("patch row 0 column 0, ")
    assert _press(one, "End", "PageDown").said.startswith("patch row 3 column 3, layer 0 head 0: ")
    assert _press(one, "Shift+ArrowDown", "Shift+ArrowRight").said.startswith("patch row 3 column 3, layer 1 head 1: ")
    assert _press(one, "p").said.startswith("class token, ")
    assert _press(one, "p", "p").said.startswith("register 2, ")
    assert _press(one, "p").said.startswith("patch row 3 column 3, ")
    assert "(switched off)" in _press(one, "o").said
    assert one.link["left.off"] == "1.1"
    _tab_to(one, ".prefix button")
    assert _press(one, "Space").said.startswith("class token, ")
    _tab_to(one, ".overview")
    assert "layer 1 head 2" in _press(one, "ArrowRight").said
    assert "layer 0 head 3" in _press(one, "ArrowUp", "End").said
    _press(one, "o")
    assert one.link["left.off"] == "0.3_1.1"
    _tab_to(one, ".off-none")
    _press(one, "Enter")
    assert "left.off" not in one.link
    _tab_to(one, ".directions button")
    _press(one, "Space")
    assert len(one.link["left.off"].split("_")) == 8


def test_the_theme_follows_the_system_and_can_be_turned(sight):
    ground = "getComputedStyle(document.body).backgroundColor"
    light, dark = (sight(ONE, color_scheme=theme) for theme in THEMES)
    colours = light.page.evaluate(ground), dark.page.evaluate(ground)
    assert colours[0] != colours[1]
    light.page.get_by_role("button", name="Dark").click()
    assert light.page.evaluate(ground) == colours[1]
    light.page.reload()
    light.settle()
    assert light.page.evaluate(ground) == colours[1]
    light.page.get_by_role("button", name="Light").click()
    assert light.page.evaluate(ground) == colours[0]


@pytest.mark.parametrize("link", [ONE, TWO + "&show=lens&left.off=0.0", TWO + "&show=norms"])
def test_nothing_is_wider_than_a_phone(sight, link):
    one = sight(link, viewport=PHONE)
    assert one.page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    # Nor is anything cut off at the right.
    outside = """(width) => [...document.querySelectorAll("main *")]
        .filter((one) => !one.closest(".strip, .hidden") && one.getBoundingClientRect().right > width + 1)
        .map((one) => one.className || one.tagName)"""
    assert one.page.evaluate(outside, PHONE["width"]) == []
    one.page.get_by_role("button", name="Keys and help").click()
    assert one.page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("link", [ONE, TWO + "&show=lens&left.off=0.0_0.1", "#image=u9&name=gone&compare=none"])
def test_axe_finds_nothing_serious(sight, theme, link):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    one = sight(link, color_scheme=theme)
    found = axe.Axe().run(one.page).response["violations"]
    serious = [one for one in found if one["impact"] in ("serious", "critical")]
    assert [(one["id"], [node["target"] for node in one["nodes"]]) for one in serious] == []
    one.page.get_by_role("button", name="Keys and help").click()
    found = axe.Axe().run(one.page, context="#help").response["violations"]
    assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
