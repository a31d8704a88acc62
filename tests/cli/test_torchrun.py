"""`sightline train` under torchrun: one run, said once, ended together, gone on with by any number of processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sightline.cli.run_config import training_config
from sightline.errors import StoppedError
from sightline.hub.load import read_config_record
from tests.ranks import free_port
from tests.tiny import Unmeasured, log_lines, train

SMALL = (
    "--data", "digits", "--model_options.depth=1", "--model_options.dim=48", "--model_options.heads=4",
    "--precision=float32", "--batch_size=32", "--checkpoint_every=64",
)  # fmt: skip


def environment():
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}


def command(size, *words):
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", str(size), "--master-port", str(free_port()))
    return [sys.executable, *launcher, "-m", "sightline", "train", "--device", "cpu", *SMALL, *map(str, words)]


def run(size, *words):
    return subprocess.run(
        command(size, *words), capture_output=True, text=True, timeout=600, env=environment(), check=False
    )


def losses(folder):
    return [json.loads(line)["loss"] for line in log_lines(folder)]


def spent(folder):
    """What each step says but for its loss, whose last bits hang on the number of ranks."""
    return [{**json.loads(line), "loss": None} for line in log_lines(folder)]


@pytest.mark.slow
def test_one_run_of_two_processes(tmp_path):
    done = run(2, "--images", 192, "--out", tmp_path / "two")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("checkpoint: ") == 1
    alone = [sys.executable, "-m", "sightline", "train", *SMALL, "--images", "192", "--out", str(tmp_path / "one")]
    subprocess.run(alone, check=True, env=environment(), capture_output=True, timeout=600)
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), rel=1e-4)
    files = {folder: sorted(one.name for one in (tmp_path / folder).iterdir()) for folder in ("one", "two")}
    assert files["one"] == files["two"]
    again = run(2, "--images", 192, "--out", tmp_path / "two")
    assert again.returncode != 0
    assert again.stderr.count("exists already; --resume continues it") == 1


def ranks_of(launcher):
    """The processes that a launcher started, by their rank."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            words = (place / "environ").read_bytes().split(b"\0")
        except (OSError, ValueError):
            continue
        rank = [word for word in words if word.startswith(b"RANK=")]
        if parent == launcher.pid and rank:
            found[int(rank[0][5:])] = int(place.name)
    return found


def started(size, out, *words):
    launcher = subprocess.Popen(
        command(size, "--images", 200_000, "--out", out, *words),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    before = len(log_lines(out)) if (out / "log.jsonl").exists() else 0
    while not (out / "log.jsonl").exists() or len(log_lines(out)) < before + 4:
        assert launcher.poll() is None, launcher.communicate()
        time.sleep(0.2)
    return launcher


@pytest.mark.slow
def test_a_killed_rank_ends_all_and_four_go_on(tmp_path):
    launcher = started(2, tmp_path / "run")
    os.kill(ranks_of(launcher)[1], signal.SIGKILL)
    _, said = launcher.communicate(timeout=60)
    assert launcher.returncode != 0
    assert "another rank of the run ended" in said or "Signal 9" in said
    saved = read_config_record(tmp_path / "run" / "checkpoint")["training"]["step"]
    # At most the steps since the last checkpoint, which is written every second one; the log comes right after it.
    assert saved >= 4
    assert saved - len(log_lines(tmp_path / "run")) in (0, 2)
    before = len(log_lines(tmp_path / "run"))
    launcher = started(4, tmp_path / "run", "--resume")
    launcher.terminate()
    launcher.communicate(timeout=240)
    assert len(log_lines(tmp_path / "run")) >= before + 4
    steps = len(log_lines(tmp_path / "run"))
    config = training_config(tmp_path / "run" / "config.yaml", {}, data=Unmeasured())
    passed = iter(range(10_000))
    with pytest.raises(StoppedError):
        train(config, tmp_path / "one", stop=lambda: next(passed) >= steps - 1)
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "one"), rel=1e-3)
    assert spent(tmp_path / "run") == spent(tmp_path / "one")


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_to_one_rank_saves_and_ends_all(number, code, tmp_path):
    launcher = started(2, tmp_path / "run")
    os.kill(ranks_of(launcher)[0 if number == signal.SIGINT else 1], number)
    _, said = launcher.communicate(timeout=240)
    assert launcher.returncode != 0
    assert said.count("which is saved in") == 1
    assert not (tmp_path / "run" / ".lock").exists()
    assert str(code) in re.findall(r"exitcode  : (-?\d+)", said)
    assert (tmp_path / "run" / "checkpoint" / "checksums.json").exists()
