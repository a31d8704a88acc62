"""What is seen of a run while it trains: its speed, where its time goes, and its curves in other programs."""

from __future__ import annotations

import dataclasses
import json
import sys
import types

import pytest
import torch

from sightline.distributed import machine
from sightline.distributed.ranks import Ranks
from sightline.training import progress
from sightline.training.profiling import PHASES
from sightline.training.progress import Throughput
from sightline.training.tracking import tracking
from tests.tiny import MODEL, TRAINING, Stopped, digest, pictures, stop_at, tiny_config, train

CONFIG = tiny_config(images=160, batch_size=8)


def test_speed_is_that_of_the_last_minute(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress, "measure_peak_flops", lambda *_: 1000.0)
    seen, of_cpu = (Throughput(torch.device(name), "float32", Ranks()) for name in ("mps", "cpu"))
    assert seen.after(5, 50, 500).images_per_second is None
    for second in range(1, 201):
        now[0] = float(second)
        pace = seen.after(5 + second * 2, 50 + second * 20, 500 + second * (100 if second <= 100 else 300))
        if second == 5:
            assert (pace.images_per_second, pace.tokens_per_second, pace.peak_share) == (2, 20, None)
        assert of_cpu.after(second, second, second).peak_share is None
        if second == 60:
            assert pace.peak_share == pytest.approx(0.1)
    assert (pace.images_per_second, pace.tokens_per_second, pace.peak_share) == (2, 20, pytest.approx(0.3))
    assert 0 < pace.memory <= machine.peak_memory()


@pytest.mark.slow
def test_a_profile_changes_no_result(tmp_path):
    train(CONFIG, tmp_path / "one")
    train(CONFIG, tmp_path / "two", profile=True)
    for name in ("checkpoint/model.safetensors", f"checkpoint/{TRAINING}", "log.jsonl"):
        assert digest(tmp_path / "one" / name) == digest(tmp_path / "two" / name)
    row = json.loads((tmp_path / "two" / "profile" / "profile.json").read_text())
    assert row["profiled_steps"] == 10
    assert list(row["phases"]) == list(PHASES)
    assert sum(row["phases"].values()) == pytest.approx(1)
    assert all(row["phases"][name] > 0 for name in ("waiting for data", "forward", "backward", "optimizer", "saving"))
    assert all(one["ms"] >= 0 and one["calls"] > 0 for one in row["operators"])
    # Products are torch's own or, where it is the faster library, oneDNN's.
    assert any(name in one["operator"] for one in row["operators"] for name in ("mm", "linear"))
    trace = json.loads((tmp_path / "two" / "profile" / "trace.json").read_text())
    assert {"forward", "backward", "optimizer"} <= {event.get("name") for event in trace["traceEvents"]}


@pytest.mark.parametrize("name", ["profile", "profile/trace.json", "profile/profile.json"])
def test_a_profile_that_cannot_be_written_ends_no_run(name, tmp_path):
    """A file stands where its folder would be, or a folder where one of its files would; torch says nothing of that."""
    place, said = tmp_path / "run" / name, []
    if name == "profile":
        place.parent.mkdir()
        place.write_text("mine")
    else:
        place.mkdir(parents=True)
    train(dataclasses.replace(CONFIG, images=64), tmp_path / "run", profile=True, resume=True, warn=said.append)
    assert len(said) == 1
    assert said[0].startswith(f"--profile: {tmp_path / 'run' / 'profile'}")
    assert (tmp_path / "run" / "checkpoint" / "model.safetensors").exists()
    if name != "profile":
        assert [one.name for one in place.parent.iterdir() if one.name.startswith(".")] == []


def scalars(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    found.Reload()
    return {name: [(one.step, one.value) for one in found.Scalars(name)] for name in found.Tags()["scalars"]}


def test_tensorboard_has_each_step_once_though_it_was_killed(tmp_path):
    config = dataclasses.replace(CONFIG, checkpoint_every=16)
    log = [json.loads(line) for line in (train(config, tmp_path / "alone"), tmp_path / "alone" / "log.jsonl")[1]
           .read_text().splitlines()]  # fmt: skip
    with tracking(["tensorboard"], tmp_path / "run", {}, 0, pytest.fail) as note:

        def until(at):
            note(at)
            stop_at(7)(at)

        with pytest.raises(Stopped):
            train(config, tmp_path / "run", observe=until)
    with tracking(["tensorboard"], tmp_path / "run", {}, 6, pytest.fail) as note:
        train(config, tmp_path / "run", resume=True, observe=note)
    found = scalars(tmp_path / "run" / "tensorboard")
    assert found["train/loss"] == [(one["step"], pytest.approx(one["loss"])) for one in log]
    assert found["train/lr"] == [(one["step"], pytest.approx(one["lr"])) for one in log]


class FakeRun:
    def __init__(self, said):
        self.said, self.id = said, said.get("id") or "abc"
        self.lines, self.ended = [], False

    def log(self, values, step):
        self.lines.append((step, values))

    def finish(self):
        self.ended = True


@pytest.fixture
def wandb(monkeypatch):
    runs = []

    def init(**said):
        runs.append(FakeRun(said))
        return runs[-1]

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))
    return runs


def test_weights_and_biases_goes_on_with_its_run(wandb, tmp_path):
    for begun in (0, 20):
        (tmp_path / "run").mkdir(exist_ok=True)
        with tracking(["wandb"], tmp_path / "run", {"seed": 0}, begun, pytest.fail) as note:
            train(CONFIG, tmp_path / "run", observe=note, resume=bool(begun))
    first, second = wandb
    assert (first.said["id"], second.said["id"]) == (None, "abc")
    assert first.said["config"] == {"seed": 0}
    assert [step for step, _ in first.lines] == list(range(1, 21))
    assert all(values["train/loss"] > 0 for _, values in first.lines)
    assert first.ended
    assert second.ended


def test_a_tracker_that_fails_ends_no_run(wandb, tmp_path):
    said = []
    (tmp_path / "run").mkdir()
    with tracking(["wandb"], tmp_path / "run", {}, 0, said.append) as note:

        def fail(values, step):
            raise OSError("no network")

        wandb[0].log = fail
        train(CONFIG, tmp_path / "run", observe=note)
    assert [line.partition(": ")[0] for line in said] == ["--track wandb"]
    assert (tmp_path / "run" / "checkpoint").exists()


@pytest.mark.slow
def test_the_command_line_tracks_profiles_and_overwrites(cli, tmp_path):
    data = pictures(tmp_path / "data", count=48)
    options = [f"--model_options.{key}={value}" for key, value in MODEL.items()]
    words = ["train", "--data", f"{data},minival=0.2", "--images", 64, "--resolution", 16, "--threads", 1, *options,
             "--batch_size=8", "--out", tmp_path / "run", "--track", "tensorboard", "--profile"]  # fmt: skip
    code, out, err = cli(*words)
    assert code == 0, err
    for name in PHASES:
        assert name in out
    assert "trace: " in out
    found = scalars(tmp_path / "run" / "tensorboard")
    assert len(found["train/loss"]) == 8
    assert any(name.startswith("validation/") for name in found)
    code, _, err = cli(*words, "--overwrite")
    assert code == 0, err
    assert len(scalars(tmp_path / "run" / "tensorboard")["train/loss"]) == 8
    code, _, err = cli(*words[:-1], "--track", "nothing", "--overwrite")
    assert code == 2
    assert "nothing" in err
