"""Training and loading beside other projects: small, for what the rows say."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def rows_of(script, out, *options):
    command = [sys.executable, str(BENCHMARKS / script), "--quick", "--out", str(out), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()], done.stdout


@pytest.mark.slow
def test_our_loop_beside_the_usual_one(tmp_path):
    rows, said = rows_of("training.py", tmp_path / "rows.jsonl")
    cases = [(one["encoding"], one["dtype"]) for one in rows]
    assert cases == [(name, dtype) for name in ("learned_1d", "lookhere_90") for dtype in ("float32", "bfloat16")]
    assert [one["wanted"] for one in rows] == [0.98, 0.98, None, None]
    assert "[4/4" in said
    for one in rows:
        assert (one["subject"], one["baseline"], one["rounds"]) == ("sightline", "timm", 2)
        assert one["interval"][0] <= one["ratio"] <= one["interval"][1]
        assert one["subject_images_s"] == pytest.approx(1e3 * one["batch"] / one["subject_ms"], rel=0.01)
        assert one["hardware"]


@pytest.mark.slow
def test_our_loader_beside_others_and_a_run_that_goes_on(tmp_path):
    rows, said = rows_of("loading.py", tmp_path / "rows.jsonl")
    there = {one["part"] for one in rows}
    assert there >= {"small", "large", "table", "resume"}
    # It is needed for that part alone.
    missing = importlib.util.find_spec("webdataset") is None
    assert ("shards" in there) is not missing
    assert ("pip install webdataset==1.0.2)" in said) is missing
    wanted = {"small": 1.0, "large": 4.0, "shards": 0.95, "table": None, "resume": 0.667}
    assert all(one["wanted"] == wanted[one["part"]] for one in rows)
    assert all({one["workers"] for one in rows if one["part"] == part} == {0, 2} for part in there)
    resumed = [one for one in rows if one["part"] == "resume"]
    assert {(one["data"], one["packed"]) for one in resumed} == {
        ("imagefolder", False), ("imagefolder", True), ("wds", False)
    }  # fmt: skip
    assert all((one["repeated"], one["missing"]) == (0, 0) and 0 < one["stopped_at"] < 1 for one in resumed)


@pytest.mark.slow
def test_what_forty_strengths_cost_beside_one(tmp_path):
    rows, said = rows_of("features.py", tmp_path / "rows.jsonl")
    assert "[2/2" in said
    assert [(one["shots"], one["strengths"], one["subject"], one["baseline"]) for one in rows] == [
        (25, 40, "forty", "one"), (5, 40, "forty", "one")
    ]  # fmt: skip
    assert all(one["interval"][0] <= one["ratio"] <= one["interval"][1] and one["wanted"] == 0.667 for one in rows)


@pytest.mark.slow
def test_what_the_measures_cost_beside_a_plain_pass_and_from_stored_logits(tmp_path):
    rows, said = rows_of("measures.py", tmp_path / "rows.jsonl")
    assert "[2/2" in said
    beside, again = rows
    assert (beside["part"], beside["subject"], beside["baseline"]) == ("pass", "measures", "accuracy")
    assert beside["interval"][0] <= beside["ratio"] <= beside["interval"][1]
    assert (again["part"], again["images"], again["classes"], again["wanted"]) == ("rescore", 500, 1000, 20.0)
    # top1, top5, nll, brier, three calibration errors, aurc, four of a temperature, and of each class at least.
    assert again["rows"] >= 12 + 500
    assert 0 <= again["temperature_seconds"] + again["classes_seconds"] <= again["seconds"] + 0.02
    assert 0 < again["megabytes"] < 2
