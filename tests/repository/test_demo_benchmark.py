"""benchmarks/demo_time.py: seeds are pairs, both sides run for each, and what differs is said."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield importlib.import_module("demo_time")
    for name in ("demo_time", "measure"):
        sys.modules.pop(name, None)


def test_the_interval_is_that_of_pairs(script: Any) -> None:
    low, high = script.paired_interval([0.01, 0.02, 0.03])
    # 4.303 deviations of .01 over the root of 3.
    assert (low, high) == pytest.approx((0.02 - 0.024844, 0.02 + 0.024844), abs=1e-5)
    assert script.paired_interval([0.0, 0.0, 0.0]) == (-0.0005, 0.0005)
    assert script.paired_interval([0.2]) == (-float("inf"), float("inf"))


def test_the_whole_runs_both_for_each_seed_in_turn(
    script: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran = []

    def run(tree: Path, seed: int, out: Path) -> dict[str, float]:
        here = tree == ROOT
        ran.append((here, seed))
        out.mkdir()
        tops = {32: 0.9 + 0.01 * seed, 148: (0.5 if here else 0.8) + 0.01 * seed}
        test = {"run": "lookhere_90", "metric": "top1", "split": "test"}
        rows = [test | {"resolution": side, "value": value} for side, value in tops.items()]
        # What is shrunk, of a group, another metric or another split is none of the curve.
        other = {"resolution": 32, "value": 0.1}
        rows += [test | other | some for some in ({"shrunk": 32}, {"slices": {"size": "small"}}, {"metric": "top5"})]
        rows.append(test | other | {"split": "heldout_fonts"})
        (out / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return {"wall": 300.0 if here else 400.0, "processor": 500.0 if here else 800.0 + seed}

    monkeypatch.setattr(script, "_run", run)
    monkeypatch.setattr(script, "_commit", lambda tree: "here" if tree == ROOT else "there")
    script.whole(SimpleNamespace(out=tmp_path / "rows.jsonl", against=tmp_path, seeds=[0, 1, 2]))
    assert ran == [(True, 0), (False, 0), (False, 1), (True, 1), (True, 2), (False, 2)]
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    wall, processor, near, far = rows
    assert (wall["what"], wall["ratio"], wall["ratios"]) == ("wall", 0.75, [0.75] * 3)
    assert (processor["what"], processor["ratio"]) == ("processor", pytest.approx(500 / 801, abs=1e-3))
    assert (near["encoding"], near["resolution"], near["difference"], near["same"]) == ("lookhere_90", 32, 0.0, True)
    assert (far["resolution"], far["difference"], far["same"]) == (148, -0.3, False)
    assert {(row["commit"], row["against"]) for row in rows} == {("here", "there")}
    assert all(row["hardware"] and row["seeds"] == [0, 1, 2] for row in rows)
