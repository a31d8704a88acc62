"""Rows as lines: runs, seeds, knobs, patches and frames told apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sightline.errors import InputError
from sightline.reports import results_tables, series
from sightline.reports.content import SeenSizes
from sightline.reports.series import Study
from tests.reports.synthetic import accuracy_rows, page, printed, row
from tests.reports.test_other_metrics import calibrated

LINE = {"looker": (0.2, 0.9, 0.8, 0.7)}


def in_patches(size, values=(0.1, 0.5, 0.4, 0.3)):
    """Synthetic rows of `looker`, measured in patches of so many pixels."""
    return [
        replace(one, patch_size=size, grid=(one.resolution // size,) * 2, patches=float((one.resolution // size) ** 2))
        for one in accuracy_rows({"looker": values})
    ]


def values_of(rows):
    return {line.label: [point.value for point in line.points.values()] for line in Study.of(rows).lines()}


def test_other_patches_and_numbers_of_frames_are_a_curve_of_their_own():
    assert values_of([*accuracy_rows(LINE), *in_patches(2), *in_patches(1)]) == {
        "looker": [0.2, 0.9, 0.8, 0.7],
        "looker, patches of 2 px": [0.1, 0.5, 0.4, 0.3],
        "looker, patches of 1 px": [0.1, 0.5, 0.4, 0.3],
    }
    assert list(values_of(in_patches(2))) == ["looker, patches of 2 px"]
    for frames in ((4, 8), (1, 2)):
        clips = [
            row(value=value, frames=count, grid=(count, 8, 8)) for count, value in zip(frames, (0.5, 0.75), strict=True)
        ]
        assert list(values_of(clips).values()) == [[0.5], [0.75]]
        both = [*clips, *(replace(one, patch_size=8, value=one.value / 3) for one in clips)]
        assert sorted(values_of(both).values()) == [[0.5 / 3], [0.25], [0.5], [0.75]]
    rows = [*accuracy_rows(LINE), *in_patches(2)]
    assert all("patches of 2 px" in text for text in (page(rows).text, printed(rows, 120)))


def test_sizes_of_training_are_those_of_the_run():
    seen = {"looker": SeenSizes(16.0, 32.0, "16 to 32 px")}
    study = Study.of([*accuracy_rows(LINE), *in_patches(2)], seen=seen)
    assert {line.seen.low for line in study.lines()} == {16.0}


def test_a_grid_is_named_where_all_rows_of_a_size_have_it():
    plain = accuracy_rows(LINE)
    assert series.grids(plain)[32] == (8, 8)
    assert series.grids([*plain, *in_patches(2)[:1]]) == {20: (), 32: (8, 8), 64: (16, 16), 148: (37, 37)}
    table = results_tables.by_resolution(Study.of([*plain, *in_patches(2)]), "top1")
    assert table is not None
    assert not any(head.below for head in (*table.columns, *(head for head, _ in table.lines)))


def test_seeds_and_fixed_knobs_are_told_apart():
    assert list(values_of([row("a", 0.5, seed=0), row("a", 0.6, seed=3)])) == ["a (seed 0)", "a (seed 3)"]
    assert list(values_of([row("a", 0.5, knob=1.0), row("a", 0.6, knob=2.0)])) == ["a (knob 1)", "a (knob 2)"]


def test_a_bin_of_one_knob_alone_is_of_that_knob():
    """A bin that holds images at the default knob, and none at the tuned one, is no line of its own."""
    rows = [one for one in calibrated() if one.run == "a"]
    tuned = [replace(one, tuned=True) for one in rows if one.slices != {"confidence_bin": 5}]
    study = Study.of([*rows, *tuned])
    names = [[line.label for line in study.lines("top1_in_bin", slices={"confidence_bin": bin})] for bin in (5, 15)]
    assert names == [["a (default knob)"], ["a (default knob)", "a (tuned knob)"]]


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [row("a", 0.5), row("a", 0.6)],
        [row("a"), row("b", task="pairs")],
        [row("a", metric="error", unit="m"), row("b", metric="error", unit="px")],
        [row(slices={"group": "b, d"})],
        [row(count=0)],
    ],
)
def test_empty_and_contradicting_rows_are_refused(rows):
    with pytest.raises(InputError):
        printed(rows)
