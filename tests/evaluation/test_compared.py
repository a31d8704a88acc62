"""Rows of a comparison: means, tests of pairs and orders, from runs in which all is known."""

from __future__ import annotations

import math

import pytest

from sightline.errors import InputError
from sightline.evaluation.compared import compare_runs
from sightline.results.comparison import COMPARISON_ROWS, DifferenceRow, MeanRow, RankRow, of_kind
from sightline.results.rows import dump_rows, read_rows
from tests.compared import COUNTS, made_rows, made_run, made_runs, share


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return made_rows(tmp_path_factory.mktemp("runs"))


def one_mean(rows, encoding, metric="top1", side=148, slices=None, split="test"):
    found = [
        row
        for row in of_kind(rows, MeanRow)
        if (row.encoding, row.metric, row.resolution, row.split) == (encoding, metric, side, split)
        and dict(row.slices) == (slices or {})
        and not row.fine_tuned
    ]
    assert len(found) == 1
    return found[0]


def test_means_over_seeds(rows):
    """28, 29 and 30 of 30: the mean of 2 degrees of freedom."""
    row = one_mean(rows, "lookhere_90")
    assert row.values == pytest.approx((28 / 30, 29 / 30, 1))
    assert row.value == pytest.approx(29 / 30)
    reach = 4.30265 * (1 / 30) / math.sqrt(3)
    assert row.interval == pytest.approx((29 / 30 - reach, 29 / 30 + reach), abs=1e-6)
    assert (row.seeds, row.best, row.count, row.classes, row.train_images) == ((0, 1, 2), 1, 30, 10, 640)
    assert (row.knobs, row.tuned) == ((0.5, 1.5, 2.5), True)
    assert not one_mean(rows, "learned_1d").tuned
    # The best of an error is the lowest.
    ece = one_mean(rows, "learned_1d", "ece", 32)
    assert ece.best == min(ece.values)
    assert {row.metric for row in of_kind(rows, MeanRow)} == {"top1", "top5", "ece", "nll", "top1_change"}


def test_pairs(rows):
    """Of one seed 28 and 12 of the same 30 images are right, the 12 among the 28."""
    found = {(row.first, row.second): row for row in of_kind(rows, DifferenceRow) if row.resolution == 148}
    assert set(found) == {
        ("lookhere_90", "rope_axial"), ("lookhere_90", "learned_1d"), ("rope_axial", "learned_1d"),
    }  # fmt: skip
    row = found["lookhere_90", "rope_axial"]
    assert row.alone == ((16, 0), (15, 0), (17, 0))
    assert row.ps == pytest.approx((2 / 2**16, 2 / 2**15, 2 / 2**17))
    assert row.value == pytest.approx(16 / 30)
    assert row.interval == pytest.approx((16 / 30 - 4.30265 / 30 / math.sqrt(3), 16 / 30 + 4.30265 / 30 / math.sqrt(3)))
    assert row.over_images[0] < row.value < row.over_images[1]
    assert row.odds_ratio is None
    assert row.apart is True
    # Holm's, of nine tests: the smallest of them times nine.
    smallest = min(p for one in found.values() for p in one.ps)
    assert min(p for one in found.values() for p in one.adjusted) == pytest.approx(9 * smallest)
    other = found["rope_axial", "learned_1d"]
    assert (other.apart, other.alone) == (False, ((0, 2), (2, 0), (1, 0)))
    assert other.odds_ratio == 3 / 2
    assert other.cohens_h == pytest.approx(2 * math.asin(math.sqrt(13 / 30)) - 2 * math.asin(math.sqrt(38 / 90)))
    trained = [row for row in of_kind(rows, DifferenceRow) if row.resolution == 32 and row.split == "test"]
    assert [row.apart for row in trained] == [False] * 3


def test_orders_are_beside_the_papers_sizes(rows):
    """At 148 px of 32 the paper's 1024 of 224: LookHere 71.58, 1D-learn 55.67, 2D-RoPE 51.41."""
    found = {(row.resolution, row.coefficient): row for row in of_kind(rows, RankRow)}
    assert set(found) == {(side, kind) for side in (32, 148) for kind in ("spearman", "kendall")}
    row = found[148, "spearman"]
    assert (row.table, row.shown, row.paper) == ("6", 1024, "lookhere")
    assert dict(zip(row.encodings, row.printed, strict=True)) == {
        "lookhere_90": 71.58, "rope_axial": 51.41, "learned_1d": 55.67,
    }  # fmt: skip
    assert row.value == pytest.approx(0.5)
    assert found[148, "kendall"].value == pytest.approx(1 / 3)
    assert row.over_seeds is not None
    assert (found[32, "spearman"].shown, found[32, "spearman"].table) == (224, "1")


def test_one_seed_has_no_intervals_and_no_verdict(tmp_path):
    one = made_rows(tmp_path, {name: [values[:1] for values in counts] for name, counts in COUNTS.items()})
    assert all(row.interval is None for row in of_kind(one, MeanRow))
    assert all(row.apart is None and row.interval is None for row in of_kind(one, DifferenceRow))
    assert all(row.over_seeds is None for row in of_kind(one, RankRow))


def test_rows_are_read_as_they_were_written(rows, tmp_path):
    path = tmp_path / "comparison.jsonl"
    path.write_text(dump_rows(rows))
    assert read_rows(path, *COMPARISON_ROWS) == rows
    path.write_text('{"kind": "median"}\n')
    with pytest.raises(InputError, match=r"comparison.jsonl:1"):
        read_rows(path, *COMPARISON_ROWS)


def test_what_does_not_belong_together(tmp_path):
    runs = made_runs(tmp_path)
    with pytest.raises(InputError, match="seed 0"):
        compare_runs([*runs, runs[0]])
    longer = made_run(tmp_path / "longer", "fourier", 0, {("test", 148): share(20, 40)})
    with pytest.raises(InputError, match="fourier"):
        compare_runs([*runs, longer])
    (path,) = (longer.folder / "logits").iterdir()
    path.unlink()
    with pytest.raises(InputError, match="logits"):
        compare_runs([longer])
    other = made_run(tmp_path / "longer", "fourier", 0, {("test", 148): share(20, 40)})
    kept = (other.folder / "results.jsonl").read_text()
    made_run(other.folder, "fourier", 0, {("test", 148): share(21, 40)})
    (other.folder / "results.jsonl").write_text(kept)
    with pytest.raises(InputError, match="npz"):
        compare_runs([other])
