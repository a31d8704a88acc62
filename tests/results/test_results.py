"""Rows of any metric: what they hold and where their value lies."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch

from sightline.errors import InputError
from sightline.results.rows import (
    MetricValue,
    ResultRow,
    dump_rows,
    measured_on_more_images,
    merge_rows,
    read_rows,
    wilson_interval,
)

ORIGIN = {
    "run": "r", "encoding": "none", "task": "depth", "data": "d", "split": "test", "train_resolution": 16, "seed": 0,
    "commit": "c", "hardware": "h", "resolution": 16, "grid": (4, 4), "knob": None, "tuned": False, "seconds": 1.0,
}  # fmt: skip
ERROR = MetricValue("error", -3.5, "px", 4096, 0.5, {"part": "edge", "level": 2}, better="lower", counted="patches")
SHARE = MetricValue("top1", 0.75, "fraction", 40)


def row(measured=ERROR, **changes) -> ResultRow:
    return ResultRow(**{**vars(measured), **ORIGIN, **changes})


def test_a_row_of_any_metric_is_read_as_it_was_written(tmp_path):
    rows = [row(), row(SHARE), row(interval=(-4.0, -3.25), stderr=None, slices={}), row(grid=(2, 3, 5))]
    (tmp_path / "rows").write_text(dump_rows(rows))
    assert read_rows(tmp_path / "rows") == rows
    assert [set(one.record()) & {"count", "counted", "images"} for one in rows[:2]] == [
        {"count", "counted"}, {"images"},
    ]  # fmt: skip
    # The error of a share is the binomial one, of others what the metric says.
    assert rows[1].stderr == pytest.approx((0.75 * 0.25 / 40) ** 0.5)
    assert (rows[0].stderr, rows[2].stderr) == (0.5, None)


def test_where_a_value_lies():
    assert SHARE.limits() == wilson_interval(0.75, 40)
    assert SHARE.limits(3.0) == wilson_interval(0.75, 40, 3.0)
    assert ERROR.limits() == pytest.approx((-3.5 - 1.959964 * 0.5, -3.5 + 1.959964 * 0.5))
    assert ERROR.limits(1.0) == (-4.0, -3.0)
    assert MetricValue("x", 1.0, "", 3).limits() is None
    # Given, it is not made up, and not symmetric at another certainty either.
    given = MetricValue("share of pixels", 0.5, "fraction", 10, interval=(0.4, 0.7))
    assert given.limits() == pytest.approx((0.4, 0.7))
    assert given.limits(2 * 1.959964) == pytest.approx((0.3, 0.9))


@pytest.mark.parametrize("key", ["unit", "value", "images", "run"])
def test_a_row_that_lacks_what_has_no_default_is_refused(tmp_path, key):
    record = row(SHARE).record()
    del record[key]
    (tmp_path / "rows").write_text(json.dumps(record) + "\n")
    with pytest.raises(InputError, match="rows:1:"):
        read_rows(tmp_path / "rows")


def test_what_is_measured_again_replaces_every_metric_of_it():
    before = [row(), row(slices={}), row(SHARE, resolution=32)]
    fresh = [row(count=9, slices={}), row(count=5)]
    assert merge_rows(before, fresh) == [before[2], *fresh]
    assert merge_rows(before, fresh, fewer=False) == before
    # A metric that is not there is lost to nothing.
    other = row(metric="zero_shot_top1", count=9)
    assert merge_rows(before, [*fresh, other], fewer=False) == [*before, other]
    assert list(measured_on_more_images(before, fresh)) == [fresh[0].measurement]


def test_what_was_measured_beside_answers_stays_where_they_are_the_same_again():
    few = row(SHARE, metric="few_shot_top1", slices={"shots": 5})
    before = [row(SHARE), row(SHARE, metric="top5", value=0.9, stderr=None), few, row(SHARE, resolution=32)]
    fresh = [replace(one, seconds=2.0) for one in before[:2]]
    assert merge_rows(before, fresh) == [before[3], *fresh, few]
    # Other weights, images or settings: nothing of it may stand beside them.
    others = ({"value": 0.5}, {"count": 39}, {"knob": 0.5}, {"tuning": ({"value": "bicubic"},)})
    for changes in others:
        other = [fresh[0], replace(fresh[1], stderr=None, **changes)]
        assert merge_rows(before, other) == [before[3], *other]
    again = [*fresh, row(SHARE, metric="few_shot_top1", slices={"shots": 1})]
    assert merge_rows(before, again) == [before[3], *again]


@pytest.mark.parametrize("value", [torch.tensor(0.5), np.float32(0.5), Fraction(1, 2)])
@pytest.mark.parametrize("name", ["value", "stderr", "seconds", "patches"])
def test_a_number_that_cannot_be_written_is_refused_when_its_row_is_made(name, value):
    with pytest.raises(InputError) as caught:
        row(**{name: value})
    assert (caught.value.field, caught.value.value) == (name, value)
