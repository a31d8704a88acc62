"""Runs that earlier versions wrote load, go on as those would have gone on, and are measured and reported."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from sightline import load_model
from sightline.cli.app import main

RUNS = Path(__file__).parents[1] / "runs"
KEPT = [f"{version}/{kind}" for version in ("9f2ed97", "33b8073") for kind in ("uniform", "packed")]
KEPT_SLOWLY = [KEPT[0], *(pytest.param(kept, marks=pytest.mark.slow) for kept in KEPT[1:])]


def steps(file: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("kept", KEPT_SLOWLY)
def test_an_old_run_goes_on_and_is_measured(kept: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = shutil.copytree(RUNS / kept, tmp_path / "run")
    before = load_model(run)
    words = ["--config", str(run / "config.yaml"), "--out", str(run), "--threads", "1", "--device", "cpu"]
    assert main(["train", *words, "--resume"]) == 0, capsys.readouterr().err
    # As the version that began it ended it: each step the same, but for how processors round.
    expected, found = steps(RUNS / kept / "log_whole.jsonl"), steps(run / "log.jsonl")
    done = len(steps(RUNS / kept / "log.jsonl"))
    assert [line["step"] for line in found] == [line["step"] for line in expected]
    assert len(found) > done
    for line, wanted in zip(found[done:], expected[done:], strict=True):
        assert {key: line[key] for key in wanted} == pytest.approx(wanted, rel=1e-3)
    after = load_model(run)
    assert any(not one.equal(other) for one, other in zip(before.parameters(), after.parameters(), strict=True))
    assert main(["evaluate", str(run), "--resolutions", "8,16", "--images", "20", "--overwrite", "--threads", "1"]) == 0
    assert main(["report", str(run), "--out", str(tmp_path / "report.html")]) == 0, capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("kept", KEPT_SLOWLY)
def test_what_an_old_version_measured_is_reported(
    kept: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(RUNS / kept, tmp_path / "run")
    for name in ("results.jsonl", "log.jsonl", "predictions.csv"):
        whole = run / name.replace(".", "_whole.")
        if whole.exists():
            whole.replace(run / name)
    assert main(["report", str(run), "--out", str(tmp_path / "report.html")]) == 0, capsys.readouterr().err
    first = json.loads((run / "results.jsonl").read_text().splitlines()[0])
    assert f"{100 * first['value']:.1f}" in capsys.readouterr().out
