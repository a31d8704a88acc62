"""`evaluate` and `predict` under torchrun: one result, said once, ended together, gone on with by any number."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from sightline.cli.app import main
from tests.cli.test_torchrun import environment, ranks_of
from tests.ranks import free_port
from tests.tiny import pictures

pytestmark = pytest.mark.slow


def command(size, *words, program=("-m", "sightline")):
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", str(size), "--master-port", str(free_port()))
    return [sys.executable, *launcher, *program, *map(str, words), "--device", "cpu"]


def run(size, *words):
    return subprocess.run(
        command(size, *words), capture_output=True, text=True, timeout=600, env=environment(), check=False
    )


@pytest.fixture
def asked(run_copy):
    words = ["--resolutions", "104,96", "--no-shrink", "--precision", "float32", "--threads", "1"]
    return [run_copy, *words, "--data", "digits", "--suite", "digits", "--logits"]


@pytest.fixture
def one(asked, tmp_path):
    """Rows and answers of one process."""
    place = shutil.copytree(asked[0], tmp_path / "one", symlinks=True)
    assert main(["evaluate", str(place), *asked[1:]]) == 0
    return place


def rows(folder):
    found = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name not in ("seconds", "ranks", "run")} for row in found]


# `sightline` whose processes each wait, once they have finished a measurement, for the file that is named first.
WAITING = """
import sys, time
from pathlib import Path
from sightline.cli.app import main
from sightline.evaluation.parts import WorkFolder

go, once = Path(sys.argv.pop(1)), WorkFolder.once

def wait(self, *item):
    value = once(self, *item)
    while not go.exists():
        time.sleep(0.05)
    return value

WorkFolder.once = wait
sys.exit(main())
"""


def started(size, asked, tmp_path):
    """A launcher whose processes finished a measurement and wait; and what has them go on."""
    script, go = tmp_path / "waiting.py", tmp_path / "go"
    script.write_text(WAITING)
    words = command(size, go, "evaluate", *asked, program=(str(script),))
    launcher = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    while not list(asked[0].glob(".*writing-parts*/*.json")):
        assert launcher.poll() is None, launcher.communicate()
        time.sleep(0.05)
    return launcher, go.touch


def test_a_killed_rank_ends_all_and_four_go_on(asked, one, tmp_path):
    before = (asked[0] / "results.jsonl").read_bytes()
    launcher, go_on = started(2, asked, tmp_path)
    os.kill(ranks_of(launcher)[1], signal.SIGKILL)
    go_on()
    launcher.communicate(timeout=60)
    assert launcher.returncode != 0
    assert (asked[0] / "results.jsonl").read_bytes() == before
    done = run(4, "evaluate", *asked)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("rows: ") == 1
    assert rows(asked[0]) == rows(one)
    assert (asked[0] / "predictions.csv").read_bytes() == (one / "predictions.csv").read_bytes()
    assert not list(asked[0].glob(".*writing*"))
    assert {row["ranks"] for row in map(json.loads, (asked[0] / "results.jsonl").read_text().splitlines()[-2:])} == {4}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_to_one_rank_ends_all_and_one_goes_on(number, code, asked, one, tmp_path):
    launcher, go_on = started(2, asked, tmp_path)
    os.kill(ranks_of(launcher)[0 if number == signal.SIGINT else 1], number)
    go_on()
    _, said = launcher.communicate(timeout=240)
    assert launcher.returncode != 0
    assert str(code) in re.findall(r"exitcode  : (-?\d+)", said)
    assert "KeyboardInterrupt" not in said
    assert main(["evaluate", *map(str, asked)]) == 0
    assert rows(asked[0]) == rows(one)


def test_two_processes_predict_what_one_predicts(asked, tmp_path):
    pictures(tmp_path / "photos", count=9)
    words = ["predict", asked[0], tmp_path / "photos", "--precision", "float32", "--predictions"]
    done = run(2, *words, tmp_path / "two.jsonl")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("predictions: ") == 1
    assert main([*map(str, words), str(tmp_path / "one.jsonl")]) == 0
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()
    assert (tmp_path / "one.jsonl").read_text().count("\n") == 36
