"""Tables as a browser lays them out: a wide screen shows every column, and a phone has room for numbers."""

from __future__ import annotations

import pytest

from sightline.reports import comparison_page
from sightline.reports.results_page import render
from tests.compared import made_rows
from tests.reports.synthetic import accuracy_rows, full_report, run_summary

NAMES = (
    "vit_micro_patch4_lookhere_90", "vit_micro_patch4_rope_axial", "lookhere_90", "rope-axial-mixed-2d",
    "learned_1d_interpolated",
)  # fmt: skip
LONG = ("lookhere_90", "a_name_of_a_run_that_is_wider_than_the_whole_of_a_phone's_screen")
WIDE, PHONE = {"width": 1400, "height": 900}, {"width": 375, "height": 800}
CUT = """() => [...document.querySelectorAll(".scroll")].filter((frame) => {
    const box = frame.getBoundingClientRect();
    return frame.scrollWidth > frame.clientWidth || box.left < 0 || box.right > innerWidth;
}).map((frame) => frame.textContent.trim())"""
# Frames whose first column, which stays in sight, leaves no room for numbers.
COVERED = """() => [...document.querySelectorAll("th:first-child")].filter((head) =>
    getComputedStyle(head).position === "sticky" && head.offsetWidth > 0.7 * head.closest(".scroll").clientWidth
).map((head) => head.textContent)"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A report of runs with long names at many sizes and at few, and a comparison."""
    folder = tmp_path_factory.mktemp("pages")
    few, many = (32, 64), tuple(range(16, 224, 16))
    made = {
        f"{len(sizes)} sizes": render(
            full_report(
                runs=[run_summary(name) for name in names],
                rows=accuracy_rows({name: [0.9] * len(sizes) for name in names}, sizes),
            )
        )
        for names, sizes in ((LONG, few), (NAMES, many))
    }
    made["comparison"] = comparison_page.render(made_rows(folder / "runs"), command="", demonstration=48_000)
    for name, text in made.items():
        (folder / f"{name}.html").write_text(text, "utf-8")
    return [folder / f"{name}.html" for name in made]


@pytest.fixture
def asked(browser, pages):
    """`asked(script, size)` is what the script gives on each page in a window of that size, all details open."""

    def ask(script: str, size: dict[str, int]) -> list[list[str]]:
        said, shown = [], browser.new_page(viewport=size)
        for place in pages:
            shown.goto(place.as_uri())
            shown.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
            assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth"), place.name
            said.append(shown.evaluate(script))
        shown.close()
        return said

    return ask


def test_no_column_is_cut_on_a_wide_screen(asked):
    assert asked(CUT, WIDE) == [[], [], []]


def test_names_do_not_cover_the_numbers_on_a_phone(asked):
    assert asked(COVERED, PHONE) == [[], [], []]
