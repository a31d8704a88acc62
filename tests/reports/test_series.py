"""Rows as lines: runs, seeds, knobs, patches and frames told apart."""

from __future__ import annotations

from dataclasses import replace

from sightline.reports.series import Study
from tests.reports.synthetic import accuracy_rows, page, printed, row

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


def test_seeds_and_fixed_knobs_are_told_apart():
    assert list(values_of([row("a", 0.5, seed=0), row("a", 0.6, seed=3)])) == ["a (seed 0)", "a (seed 3)"]
    assert list(values_of([row("a", 0.5, knob=1.0), row("a", 0.6, knob=2.0)])) == ["a (parameter 1)", "a (parameter 2)"]
