"""A suite under torchrun: the rows of one process, and a killed one gone on with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest

from sightline.cli.app import main
from tests.cli.test_torchrun import environment, ranks_of
from tests.cli.test_torchrun_measures import command, rows, run

pytestmark = pytest.mark.slow


def test_two_processes_one_killed_and_one_goes_on(run_copy, tmp_path):
    options = ["--suite", "digits", "--resolutions", "96,104", "--precision", "float32", "--threads", "1"]
    asked, out = [run_copy, *options], tmp_path / "out"
    assert main(["evaluate", *map(str, asked), "--out", str(tmp_path / "one")]) == 0
    words = command(2, "evaluate", *asked, "--out", out)
    launcher = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    # The first size is whole.
    while not (out / "results.jsonl").exists():
        assert launcher.poll() is None, launcher.communicate()
        time.sleep(0.02)
    os.kill(ranks_of(launcher)[1], signal.SIGKILL)
    launcher.communicate(timeout=60)
    assert launcher.returncode != 0
    whole = next((out / "logits").glob("*96*.npz"))
    before = whole.read_bytes()
    done = run(2, "evaluate", *asked, "--out", out)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("rows: ") == 1
    assert whole.read_bytes() == before
    assert rows(out) == rows(tmp_path / "one")
    assert not list((out / "logits").glob(".*"))
    seen = {row["resolution"]: row.get("ranks", 1) for row in map(json.loads, (out / "results.jsonl").open())}
    assert seen == {96: 2, 104: 2}
