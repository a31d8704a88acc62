"""SIGTERM and SIGINT: a step is finished and saved, one line says how to go on, and no process is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from sightline.hub.load import read_config_record
from tests.processes import group, wait_for
from tests.tiny import MODEL, log_lines, weights

OPTIONS = [f"--model_options.{key}={value}" for key, value in MODEL.items()]
TINY = ["--data", "digits", "--threads", "1", "--precision=float32", *OPTIONS]
# Many steps, and no checkpoint among them.
LONG = [*TINY, "--images", "40000", "--batch_size=8", "--checkpoint_every=40000"]


def start(*words, **options):
    """A command in a process group of its own."""
    command = [sys.executable, "-m", "sightline", *map(str, words)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, **options
    )


def training(process, out):
    """Wait until it takes steps: what it says of the first one is there."""
    wait_for(lambda: (out / "progress.json").exists() or process.poll() is not None, 300)
    assert process.poll() is None, process.communicate()


def end(process):
    # A limit for what hangs: nobody waits for it.
    out, err = process.communicate(timeout=300)
    wait_for(lambda: not group(process.pid), 60)
    return process.returncode, out, err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code", "workers", "whole_group"),
    [
        (signal.SIGTERM, 143, 0, False),
        # As a terminal or a scheduler does: the workers get it as well.
        (signal.SIGINT, 130, 2, True),
        (signal.SIGTERM, 143, 2, False),
    ],
)
def test_a_signal_finishes_the_step_and_saves(number, code, workers, whole_group, cli, tmp_path):
    out = tmp_path / "a"
    process = start("train", *LONG, f"--workers={workers}", "--out", out)
    training(process, out)
    (os.killpg if whole_group else os.kill)(process.pid, number)
    returned, said, err = end(process)
    assert (returned, said) == (code, ""), err
    last = err.splitlines()[-1]
    assert last.startswith("sightline: stopped after step "), err
    assert last.endswith(f"go on with: sightline train --config {out}/config.yaml --out {out} --resume --threads 1")
    assert "Traceback" not in err
    step = read_config_record(out / "checkpoint")["training"]["step"]
    assert f"after step {step} of 50" in last
    assert len(log_lines(out)) == step
    assert {"checkpoint", "config.yaml", "log.jsonl"} <= set(os.listdir(out))
    assert ".lock" not in os.listdir(out)


def test_what_was_stopped_and_went_on_is_as_if_it_had_not_been(cli, tmp_path, monkeypatch):
    from sightline.training import loop

    words = [*TINY, "--images", 96, "--batch_size=16"]
    assert cli("train", *words, "--out", tmp_path / "whole")[0] == 0
    real = loop.train_step

    def step(state, *arguments):
        if state.step == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(state, *arguments)

    monkeypatch.setattr(loop, "train_step", step)
    code, said, err = cli("train", *words, "--out", tmp_path / "a")
    assert (code, said) == (143, "")
    assert "stopped after step 3 of 6" in err
    monkeypatch.setattr(loop, "train_step", real)
    way_on = err.rpartition("sightline train ")[2].split()
    assert cli("train", *way_on)[0] == 0
    assert weights(tmp_path / "a") == weights(tmp_path / "whole")
    assert log_lines(tmp_path / "a") == log_lines(tmp_path / "whole")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_while_saving_damages_nothing(number, code, cli, tmp_path, monkeypatch):
    from sightline.io import checkpoint
    from sightline.io.checkpoint import verify_checkpoint
    from sightline.training import loop

    real_step, real_flush = loop.train_step, checkpoint.fsync

    def step(state, *arguments):
        if state.step == 3:
            # That of the second step is done.
            saver[0].wait()
            os.kill(os.getpid(), number)
            monkeypatch.setattr(checkpoint, "fsync", flush)
        return real_step(state, *arguments)

    def flush(path):
        real_flush(path)
        os.kill(os.getpid(), number)
        if number == signal.SIGINT and not ended.wait(60):
            raise AssertionError

    def heard(self, *arguments):
        saver.append(self)
        real_saver(self, *arguments)

    ended, saver, real_saver = threading.Event(), [], loop.Checkpointer.__init__
    monkeypatch.setattr(loop.Checkpointer, "__init__", heard)
    monkeypatch.setattr(loop, "train_step", step)
    words = [*TINY, "--images", 96, "--batch_size=16", "--checkpoint_every=32"]
    returned, _, err = cli("train", *words, "--out", tmp_path / "a")
    assert returned == code
    assert "--resume" in err
    verify_checkpoint(tmp_path / "a" / "checkpoint")
    # SIGTERM again changes nothing; SIGINT again is somebody who does not want to wait.
    assert read_config_record(tmp_path / "a")["training"]["step"] == (4 if number == signal.SIGTERM else 2)
    monkeypatch.undo()
    ended.set()
    if number == signal.SIGINT:
        saver[0]._saved.exception(60)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGINT, 130, "interrupted"), pytest.param(15, 143, "terminated", marks=pytest.mark.slow)],
)
def test_a_signal_while_everything_is_imported_is_one_line(number, code, word, tmp_path):
    """At many moments of the first second, by what is imported; before Python has started there is no promise."""
    hook = "import sys, os, signal\nclass F:\n def find_spec(self, name, *_):\n  if name == os.environ['AT']:\n   "
    hook += "os.kill(os.getpid(), int(os.environ['NUMBER']))\nsys.meta_path.insert(0, F())\n"
    (tmp_path / "sitecustomize.py").write_text(hook)
    for at in ("cyclopts", "sightline.cli.commands.train", "torch", "numpy", "sightline.training.loop"):
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "AT": at, "NUMBER": str(int(number))}
        process = start("train", *TINY, "--out", tmp_path / "a", env=environment)
        returned, out, err = end(process)
        assert (returned, out, err) == (code, "", f"sightline: {word}\n"), at


@pytest.mark.slow
def test_a_second_interrupt_with_workers_is_one_line(tmp_path):
    out = tmp_path / "a"
    process = start("train", *LONG, "--workers=2", "--out", out)
    training(process, out)
    for _ in range(3):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.01)
    returned, _, err = end(process)
    assert returned == 130
    assert "Traceback" not in err
    assert "--resume" in err.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code", "whole_group"), [(signal.SIGTERM, 143, False), (signal.SIGINT, 130, True)])
def test_a_demonstration_with_its_jobs(number, code, whole_group, tmp_path):
    out = tmp_path / "d"
    process = start("demo", "--out", out)
    # Both take steps.
    wait_for(lambda: all((out / name / "progress.json").exists() for name in ("lookhere_90", "rope_axial")), 600)
    (os.killpg if whole_group else os.kill)(process.pid, number)
    returned, _, err = end(process)
    assert returned == code
    assert "Traceback" not in err
    assert err.splitlines()[-1].endswith(f"go on with: sightline demo --out {out} --resume")
    assert not (out / ".lock").exists()
    assert not (out / "rope_axial" / ".lock").exists()


@pytest.mark.parametrize(
    ("number", "code", "word"), [(signal.SIGTERM, 143, "terminated"), (signal.SIGINT, 130, "inter")]
)
def test_a_measurement_just_ends(number, code, word, cli, run_copy, monkeypatch):
    from sightline.evaluation import measure

    def interrupted(*_, **__):
        os.kill(os.getpid(), number)

    monkeypatch.setattr(measure, "measure_split", interrupted)
    before = sorted(os.listdir(run_copy))
    returned, out, err = cli("evaluate", run_copy, "--images", 5)
    assert (returned, out) == (code, "")
    assert err.splitlines()[-1].startswith(f"sightline: {word}")
    assert sorted(os.listdir(run_copy)) == before
