"""The explorer's page in a real browser, against a real server: what one does, sees, hears and takes away."""

from __future__ import annotations

import base64
import contextlib
import re

import numpy as np
import pytest

from tests.explorer.page import browsing
from tests.explorer.page.browsing import INPUTS, WIDE, Sight, alike, asked, by

slow = pytest.mark.slow
TWO = "#compare=models&left.model=0&right.model=1"
ONE = "#compare=none&left.model=0"


def _view(base: str, **changes) -> dict:
    wanted = {"client": "test", "pane": "left", "model": 0, "image": "f0", "size": 32, "knob": None, "off": []}
    return asked(base, "/api/views", {**wanted, **changes})


def _expected(base: str, view: dict, query: str, layer: int, head: int) -> tuple[float, np.ndarray]:
    """The mean distance and the shares on prefix tokens, as the server has them."""
    answer = asked(base, f"/api/views/{view['view']}/attention?query={query}")
    prefix = np.frombuffer(base64.b64decode(answer["prefix"]), "<f4").reshape(answer["layers"], answer["heads"], -1)
    return answer["distance"][layer][head], prefix[layer, head]


def test_a_page_is_loaded_and_a_patch_is_clicked(browser, material):
    """The whole way, with a server in this process: quick enough for every run."""
    page = browser.new_page(viewport=WIDE)
    with browsing.served_here(*material) as base:
        one = Sight(page, base).open(ONE)
        before = one.pixels()
        one.click_patch(2, 5, (8, 8))
        distance, _ = _expected(base, _view(base), str(2 * 8 + 5), 0, 0)
        told = r"patch row 2 column 5, layer 0 head 0: looks ([\d.]+) patches far, (< )?[\d.]+ % on the class token\."
        said = re.fullmatch(told, one.said)
        assert said, one.said
        assert float(said[1]) == pytest.approx(distance, rel=5e-3)
        assert one.numbers()["From"] == "Row 2, column 5"
        assert one.link["at"] == "0.31250,0.68750"
        assert (one.pixels() != before).mean() > 0.05
        one.check()
    page.close()


@slow
def test_an_image_is_dropped(sight):
    one = sight(ONE)
    content = (INPUTS / "bilevel.png").read_bytes()
    one.page.evaluate(
        """(text) => {
          const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
          const dataTransfer = new DataTransfer();
          dataTransfer.items.add(new File([bytes], "dropped.png"));
          for (const kind of ["dragover", "drop"]) {
            document.body.dispatchEvent(new DragEvent(kind, { dataTransfer, bubbles: true, cancelable: true }));
          }
        }""",
        base64.b64encode(content).decode(),
    )
    one.page.get_by_role("radio", name="dropped.png").wait_for(state="attached")
    assert one.settle().link["name"] == "dropped.png"
    assert not one.page.locator("#drop").is_visible()


@slow
def test_the_size_is_moved_and_two_sizes_stand_beside_each_other(sight, base):
    one = sight(ONE + "&at=0.31,0.69")
    most = int(one.pane().locator(".size").get_attribute("max"))
    assert most**2 <= asked(base, "/api/session")["limits"]["max_tokens"] < (most + 1) ** 2
    one.pane().locator(".size").fill("12")
    assert one.settle().numbers()["Grid"] == by(12, 12)
    assert one.numbers()["From"] == "Row 3, column 8"
    one.pane().locator(".sizes").select_option("64")
    assert one.settle().numbers()["Picture"] == by(64, 64) + " px"
    one.pane().locator(".shape").select_option("image")
    assert one.settle().numbers()["Grid"] == by(10, 16)
    one.pane().locator(".sizes").select_option("native")
    assert one.settle().numbers()["Picture"] == by(40, 64) + " px"
    one.pane().locator(".sizes").select_option("32")
    one.pane().locator(".shape").select_option("square")
    one.page.select_option("#compare", "sizes")
    one.settle()
    assert (one.numbers()["Grid"], one.numbers("right")["Grid"]) == (by(8, 8), by(16, 16))
    one.click_patch(2, 5, (8, 8))
    assert one.numbers("right")["From"] == "Row 5, column 11"
    assert one.said.startswith("Left: patch row 2 column 5, ")
    assert "Right: patch row 5 column 11, " in one.said


@slow
def test_two_models_look_from_the_same_place(sight, base):
    one = sight(TWO)
    assert (one.numbers()["Grid"], one.numbers("right")["Grid"]) == (by(8, 8), by(4, 4))
    one.click_patch(1, 3, (4, 4), "right")
    assert one.numbers()["From"] == "Row 3, column 7"
    distance, prefix = _expected(base, _view(base, model=1), "7", 0, 0)
    numbers = one.numbers("right")
    assert float(numbers["Mean distance"].split()[0]) == pytest.approx(distance, rel=5e-3)
    for name, share in zip(("On the class token", "On register 1", "On register 2"), prefix, strict=True):
        assert float(numbers[name].split()[0]) == pytest.approx(100 * share, abs=0.51), name
    # A head that the second does not have is its last one.
    one.page.select_option("#head", "9")
    assert one.settle().numbers("right")["Head"] == "layer 0, head 3"
    # Both are shown at one size.
    one.pane("right").locator(".sizes").select_option("64")
    assert one.settle().numbers()["Grid"] == by(16, 16)


@slow
def test_the_lens_says_the_class_of_the_patch_that_is_chosen_and_of_no_other(sight):
    one = sight("#show=lens&compare=none&layer=1&left.model=1").settle()
    title = one.pane().locator(".legend-title")
    assert title.inner_text().startswith("layer 1, here: ")
    # A prefix token stands nowhere in the picture.
    one.page.get_by_role("button", name="register 2").click()
    one.settle()
    assert title.inner_text() == "layer 1: the class of each patch"


@slow
def test_the_knob_changes_the_answer_and_is_reset(sight, base):
    one = sight(ONE)
    before = one.answer(), one.pixels(), one.numbers()["Mean distance"]
    one.pane().locator(".knob-value").fill("3")
    one.pane().locator(".knob-value").press("Enter")
    one.settle()
    view = _view(base, knob=3.0)
    assert [row[0] for row in one.answer()] == [one["name"] for one in view["classes"]]
    distance, _ = _expected(base, view, str(4 * 8 + 4), 0, 0)
    assert float(one.numbers()["Mean distance"].split()[0]) == pytest.approx(distance, rel=5e-3)
    assert one.numbers()["Mean distance"] != before[2]
    assert (one.pixels() != before[1]).mean() > 0.02
    one.pane().locator(".knob-slider").fill("0")
    assert one.settle().link["left.knob"] == "0.125"
    one.pane().locator(".knob-reset").click()
    assert one.settle().answer() == before[0]
    assert one.numbers()["Mean distance"] == before[2]
    assert "left.knob" not in one.link
    one.pane().locator(".knob-value").fill("-1")
    one.pane().locator(".knob-value").press("Enter")
    assert "0 or more" in one.settle().alert
    assert one.pane().locator(".knob-value").input_value() == "1"


@slow
def test_heads_and_directions_are_switched_off(sight, base):
    one = sight(ONE)
    whole = one.answer()
    one.page.get_by_role("button", name="Switch layer 0 head 0 off").click()
    assert one.settle().link["left.off"] == "0.0"
    one.page.get_by_role("button", name="right off", exact=True).click()
    one.settle()
    off = [tuple(int(part) for part in pair.split(".")) for pair in one.link["left.off"].split("_")]
    view = _view(base, off=off)
    shown = {row[0]: row[1:] for row in one.answer()}
    for now in view["classes"]:
        assert float(shown[now["name"]][0].split()[0]) == pytest.approx(100 * now["probability"], abs=0.51)
    assert {row[0] for row in whole} <= set(shown)
    for name, share in whole:
        assert shown[name][1] == share
    assert f"{len(off)} of 24 heads are off" in one.pane().locator(".off-said").inner_text()
    one.page.get_by_role("button", name="All heads on").click()
    assert one.settle().answer() == whole


@slow
@pytest.mark.parametrize("kind", ["lens", "colours", "rollout", "norms"])
def test_an_overlay_lies_over_the_picture(sight, kind):
    one = sight(ONE + "&layer=1")
    attention = one.pixels()
    one.page.select_option("#show", "nothing")
    plain = one.settle().pixels()
    one.page.select_option("#show", kind)
    shown = one.settle().pixels()
    assert one.alert == ""
    assert (shown != plain).mean() > 0.1
    assert (shown != attention).mean() > 0.1
    legend = one.pane().locator(".legend")
    assert "1" in legend.inner_text()
    if kind == "lens":
        assert legend.locator(".chip").count() >= 1


@slow
def test_a_link_shows_the_exact_view_again(sight, base):
    words = "&show=lens&layer=1&head=7&opacity=40&at=0.9,0.1&image=f2&name=image+2.png"
    first = sight(f"{ONE}{words}&left.size=48&left.knob=2&left.off=0.3_1.2")
    context = first.page.context
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    first.page.get_by_role("button", name="Copy link").click()
    first.page.wait_for_selector("#status:not(:empty)")
    link = first.page.evaluate("navigator.clipboard.readText()")
    assert link.startswith(f"{base}/#")
    second = sight(link.removeprefix(f"{base}/"))
    assert second.link == first.link
    assert second.link["left.off"] == "0.3_1.2"
    assert (second.said, second.answer()) == (first.said, first.answer())
    # How long a pass took is no part of a view.
    assert {**second.numbers(), "Computed in": ""} == {**first.numbers(), "Computed in": ""}
    assert alike(second.pixels(), first.pixels())


@slow
def test_an_answer_that_comes_too_late_is_dropped(sight):
    one = sight(ONE)
    held = []
    one.page.route("**/attention?query=0", lambda route: held.append(route))
    one.page.route("**/attention?query=63", lambda route: route.continue_())
    picture = one.pane().locator(".picture")
    picture.focus()
    for key in ("Home", "PageUp"):
        picture.press(key)
    picture.press("End")
    picture.press("PageDown")
    one.settle()
    assert one.said.startswith("patch row 7 column 7, ")
    assert held
    for route in held:
        # What the page called off is answered all the same.
        with contextlib.suppress(Exception):
            route.fulfill(response=route.fetch())
    # Whatever came is there before the answer to this.
    one.page.evaluate("fetch('/api/session').then((answer) => answer.json())")
    picture.press("Enter")
    one.settle()
    assert one.said.startswith("patch row 7 column 7, ")
    one.faults.clear()
