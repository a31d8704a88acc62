"""Rows of other patches, or of other numbers of frames, than a run's own are a curve of their own."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from sightline.reports import explain, grids, series
from sightline.reports.content import SeenSizes
from sightline.reports.html import render
from sightline.reports.series import Study
from sightline.reports.tables import print_accuracy
from tests.reports.synthetic import accuracy_rows, full_report, row

LINE = {"looker": (0.2, 0.9, 0.8, 0.7)}


def in_patches(size, values=(0.1, 0.5, 0.4, 0.3)):
    """Synthetic rows of `looker`, measured in patches of so many pixels."""
    return [
        replace(one, patch_size=size, grid=(one.resolution // size,) * 2, patches=float((one.resolution // size) ** 2))
        for one in accuracy_rows({"looker": values})
    ]


def of_clips(frames, value, run="looker"):
    return row(run, value, frames=frames, grid=(frames, 8, 8))


def test_other_patches_are_another_curve():
    study = Study.of([*accuracy_rows(LINE), *in_patches(2), *in_patches(1)])
    lines = {line.label: [point.value for point in line.points.values()] for line in study.lines()}
    assert lines == {
        "looker": [0.2, 0.9, 0.8, 0.7],
        "looker, patches of 2 px": [0.1, 0.5, 0.4, 0.3],
        "looker, patches of 1 px": [0.1, 0.5, 0.4, 0.3],
    }


def test_rows_of_other_patches_alone_say_so_too():
    assert [line.label for line in Study.of(in_patches(2)).lines()] == ["looker, patches of 2 px"]


def test_sizes_of_training_are_those_of_the_run():
    seen = {"looker": SeenSizes(16.0, 32.0, "16 to 32 px")}
    study = Study.of([*accuracy_rows(LINE), *in_patches(2)], seen=seen)
    assert {line.seen.low for line in study.lines()} == {16.0}


@pytest.mark.parametrize("frames", [(4, 8), (1, 2)])
def test_other_numbers_of_frames_are_another_curve(frames):
    study = Study.of([of_clips(frames[0], 0.5), of_clips(frames[1], 0.75)])
    found = [[point.value for point in line.points.values()] for line in study.lines()]
    assert found == [[0.5], [0.75]]
    assert len({line.label for line in study.lines()}) == 2


def test_patches_and_frames_together_are_told_apart():
    rows = [of_clips(4, 0.5), of_clips(8, 0.6)]
    rows += [replace(one, patch_size=8, value=one.value / 2) for one in rows]
    values = [point.value for line in Study.of(rows).lines() for point in line.points.values()]
    assert sorted(values) == [0.25, 0.3, 0.5, 0.6]


def test_a_grid_is_named_where_all_rows_of_a_size_have_it():
    plain = accuracy_rows(LINE)
    assert series.grids(plain)[32] == (8, 8)
    assert series.grids([*plain, *in_patches(2)[:1]]) == {20: (), 32: (8, 8), 64: (16, 16), 148: (37, 37)}
    table = grids.by_resolution(Study.of([*plain, *in_patches(2)]), "top1")
    assert [heading.below for heading in table.headings] == [""] * 4


def test_clips_have_the_patches_of_their_frames():
    rows = [of_clips(2, 0.5)]
    seen = {"looker": SeenSizes.of_one(32)}
    assert explain.introduction([], rows, seen)["details"] == ["patches of 4 \u00d7 4 px"]


def test_the_page_and_the_terminal_say_which():
    rows = [*accuracy_rows(LINE), *in_patches(2)]
    assert "looker, patches of 2 px" in render(full_report(rows=rows))
    screen = io.StringIO()
    print_accuracy(rows, Console(file=screen, width=120))
    assert "looker, patches of 2 px" in screen.getvalue()


def test_clips_are_not_called_images():
    rows = [replace(one, data="clips:DIR", task="classification") for one in (of_clips(4, 0.5), of_clips(8, 0.6))]
    said = explain.introduction([], rows, {"looker": SeenSizes.of_one(32)})["trainings"]
    assert [words.split(" of ")[0] for words in said] == ["on clips"]
    assert explain.data_words(rows[0]) == "The clips are those of clips:DIR."
    assert "eight directions" in explain.data_words(replace(rows[0], data="moving"))
