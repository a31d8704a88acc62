"""Best and average by encoding, from runs' files, by value."""

from __future__ import annotations

import json

import pytest

from sightline.errors import InputError
from sightline.results.rows import MetricValue, read_rows
from sightline.sweeps.scores import CellScore, Objective, best_and_average, score_of


def run(name, encoding, rate, value, *, better="higher", metric="top1", unit="fraction"):
    settings = {"encoding": encoding, "optimizer.lr": rate, "seed": 0}
    return CellScore(name, settings, MetricValue(metric, value, unit, 100, better=better))


RUNS = [run("a", "x", 1e-3, 0.5), run("b", "x", 2e-3, 0.75), run("c", "y", 1e-3, 0.25), run("d", "y", 2e-3, 0.5)]


def test_best_and_average_of_each_encoding():
    first, second = best_and_average(RUNS)
    assert (first.by, first.runs, first.best.run, first.average) == ("x", 2, "b", 0.625)
    assert (second.by, second.runs, second.best.run, second.average) == ("y", 2, "d", 0.375)
    # What is the same in all runs is no setting of the best.
    assert first.settings == {"optimizer.lr": 2e-3}
    assert first.as_record("encoding") == {
        "encoding": "x", "runs": 2, "metric": "top1", "unit": "fraction", "better": "higher", "best": 0.75,
        "average": 0.625, "best_run": "b", "best_settings": {"optimizer.lr": 2e-3},
    }  # fmt: skip


def test_by_another_setting_and_where_lower_is_better():
    lower = [run(one.run, one.settings["encoding"], one.settings["optimizer.lr"], one.measured.value,
                 better="lower", metric="loss", unit="nats") for one in RUNS]  # fmt: skip
    first, second = best_and_average(lower, "optimizer.lr")
    assert (first.by, first.best.run, first.average, first.settings) == (1e-3, "c", 0.375, {"encoding": "y"})
    assert (second.by, second.best.run, second.average) == (2e-3, "d", 0.625)


def test_what_cannot_be_compared():
    with pytest.raises(InputError, match=r"^table: "):
        best_and_average([RUNS[0], run("e", "x", 1e-3, 3.0, metric="loss", unit="nats")])
    with pytest.raises(InputError, match="'encoding'"):
        best_and_average(RUNS, "encodign")
    with pytest.raises(InputError, match=r"^table: "):
        best_and_average([])


def test_a_run_is_scored_by_its_curve_and_by_its_rows(run_copy):
    curve = [json.loads(line) for line in (run_copy / "validation.jsonl").read_text().splitlines()]
    found = score_of(run_copy, Objective())
    assert (found.measured.metric, found.measured.value) == ("top1", curve[-1]["top1"])
    assert found.settings["optimizer.lr"] > 0
    assert found.settings["data"] == "digits"
    rows = [row for row in read_rows(run_copy / "results.jsonl") if not row.slices]
    by_rows = score_of(run_copy, Objective("top5", "test"))
    assert by_rows.measured.value == next(row.value for row in rows if row.metric == "top5")
    assert score_of(run_copy, Objective(None, "test", (rows[0].size_label,))).measured.value == rows[0].value


def test_the_mean_over_resolutions_is_what_counts(run_copy):
    lines = (run_copy / "results.jsonl").read_text().splitlines()
    row = next(record for record in map(json.loads, lines) if record["metric"] == "top1" and not record["slices"])
    other = {**row, "resolution": 2 * row["resolution"], "grid": [2 * side for side in row["grid"]], "value": 0.75}
    other["patches"] = 4 * row["patches"]
    shrunk = {**other, "shrunk": row["resolution"], "value": 0.0}
    text = "".join(json.dumps(one) + "\n" for one in ({**row, "value": 0.25}, other, shrunk))
    (run_copy / "results.jsonl").write_text(text)
    assert score_of(run_copy, Objective("top1", "test")).measured.value == 0.5
    assert score_of(run_copy, Objective("top1", "test", (f"{other['resolution']} px",))).measured.value == 0.75


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (Objective("top2"), "metric of its validation 'top2' is not known; did you mean 'top1'?"),
        (Objective(None, "tset"), "split 'tset' is not known; did you mean 'test'?"),
        (Objective("top2", "test"), "metric 'top2' is not known; did you mean"),
        (Objective(None, "test", ("64 px",)), "test at '64 px' is not known"),
    ],
)
def test_what_was_not_measured_is_named(wanted, says, run_copy):
    with pytest.raises(InputError) as error:
        score_of(run_copy, wanted)
    assert str(run_copy) in str(error.value)
    assert says in str(error.value)
