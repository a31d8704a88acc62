"""Ranks that hold a model in parts (FSDP2) train what those do that hold it whole, and leave no pickle."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
import threading

import pytest
import torch

from sightline.distributed.ranks import Ranks
from sightline.errors import StoppedError, StorageError
from sightline.hub.load import load_model
from sightline.io.checkpoint import read_tensors, tensor_shapes, verify_checkpoint, write_checkpoint
from sightline.training import checkpointer, loop
from sightline.training.config import OptimizerConfig, ValidationConfig
from tests.ranks import together
from tests.tiny import log_lines, tiny_config, train, tree
from tests.training.test_ranks import CHANCE, IDLE, PACKED, PAIRS, UNEVEN, assert_alike, run, stop_after

pytestmark = pytest.mark.slow

# So large that Adam's step is no sign of a gradient near zero, which the order of a sum decides.
EPS = 1e-3
OPTIMIZERS = {
    name: OptimizerConfig(name=name, eps=None if name == "sgd" else EPS, ema=0.9 if name == "adamw" else None)
    for name in ("adamw", "adam", "lamb", "sgd")
}


def in_parts(config, **changes):
    options = {**config.model_options, "depth": 2}
    return dataclasses.replace(config, sharing="fsdp", model_options=options, **changes)


def assert_in_parts(run, ranks):
    """Of the training; the model is whole."""
    names = sorted(file.name for file in (run / "checkpoint" / "training").iterdir())
    assert names == [f"shard-{rank + 1:05d}-model-00001-of-00001.safetensors" for rank in range(ranks)]
    assert (run / "checkpoint" / "model.safetensors").exists()


CASES = {
    "uneven": in_parts(UNEVEN, optimizer=OPTIMIZERS["adamw"]),
    "packed": in_parts(PACKED),
    "idle": in_parts(IDLE, accumulate=3),
    "chance": in_parts(CHANCE, recompute=True),
    "pairs": in_parts(PAIRS, accumulate=2),
}


@pytest.mark.parametrize("name", ["uneven", *(pytest.param(one, marks=pytest.mark.slow) for one in list(CASES)[1:])])
def test_parts_train_as_the_whole(name, tmp_path):
    config = CASES[name]
    assert together(2, run, config, tmp_path / "parts") == [0, 1]
    assert together(2, run, dataclasses.replace(config, sharing="ddp"), tmp_path / "whole") == [0, 1]
    assert_alike(tmp_path / "whole", tmp_path / "parts", weights=1e-3 if name == "pairs" else 2e-6)
    assert_in_parts(tmp_path / "parts", 2)


@pytest.mark.slow
def test_one_rank_then_two_then_one_train_as_one_undisturbed(tmp_path):
    config = in_parts(UNEVEN, images=165, optimizer=OPTIMIZERS["adamw"])
    train(config, tmp_path / "one")
    steps = iter(range(1, 6))
    with pytest.raises(StoppedError):
        train(config, tmp_path / "moved", stop=lambda: next(steps) == 1)
    assert_in_parts(tmp_path / "moved", 1)
    said = together(2, stop_after, config, tmp_path / "moved", 2, {"resume": True})
    assert [type(one) for one in said] == [StoppedError, StoppedError]
    assert_in_parts(tmp_path / "moved", 2)
    assert len(log_lines(tmp_path / "moved")) == 3
    train(config, tmp_path / "moved", resume=True)
    assert_alike(tmp_path / "one", tmp_path / "moved", weights=2e-6)


def on_a_slow_disk(ranks: Ranks, config, out):
    """Train where a checkpoint is written only once the step after it is done; gives (its step, the last step done)."""
    write, step, seen = checkpointer.write_checkpoint, loop.train_step, []
    done, changed = [0], threading.Condition()

    def write_late(place, *arguments, **options):
        number = int(place.name.removeprefix("step-"))
        with changed:
            assert changed.wait_for(lambda: done[-1] > number or number == 5, 60)
            seen.append((number, done[-1]))
        write(place, *arguments, **options)

    def step_beside(state, *arguments):
        loss = step(state, *arguments)
        with changed:
            done.append(state.step + 1)
            changed.notify_all()
        return loss

    checkpointer.write_checkpoint, loop.train_step = write_late, step_beside
    run(ranks, config, out)
    return seen


@pytest.mark.slow
def test_parts_are_saved_while_steps_go_on(tmp_path):
    config = in_parts(UNEVEN, images=165, optimizer=OPTIMIZERS["adamw"], checkpoint_every=66)
    assert together(2, run, config, tmp_path / "undisturbed") == [0, 1]
    for seen in together(2, on_a_slow_disk, config, tmp_path / "slow"):
        (first, then), (second, later), last = seen
        assert (first, second, last) == (2, 4, (5, 5))
        assert then >= 3
        assert later >= 5
    assert_alike(tmp_path / "undisturbed", tmp_path / "slow", tolerance=0.0)


@pytest.mark.slow
def test_what_ranks_held_whole_goes_on_in_parts(tmp_path):
    config = in_parts(UNEVEN, images=132, optimizer=OPTIMIZERS["adamw"])
    train(config, tmp_path / "one")
    together(2, stop_after, dataclasses.replace(config, sharing="ddp"), tmp_path / "two", 2)
    assert together(2, run, config, tmp_path / "two", {"resume": True}) == [0, 1]
    assert_alike(tmp_path / "one", tmp_path / "two", weights=2e-6)


@pytest.mark.slow
def test_parts_are_measured_while_they_train(tmp_path):
    """The curve on minival and the best model are those of a process alone."""
    config = in_parts(
        tiny_config(data="scenes", images=96, batch_size=32, optimizer=OptimizerConfig(eps=EPS, ema=0.5)),
        checkpoint_every=32, validation=ValidationConfig(times=3, images=8),
    )  # fmt: skip
    train(config, tmp_path / "one")
    assert together(2, run, config, tmp_path / "parts") == [0, 1]
    lines = [
        [json.loads(line) for line in (tmp_path / one / "validation.jsonl").read_text().splitlines()]
        for one in ("one", "parts")
    ]
    assert len(lines[0]) == len(lines[1]) > 0
    for one, other in zip(*lines, strict=True):
        assert other.pop("loss") == pytest.approx(one.pop("loss"), rel=1e-5)
        assert one == other
    best = [load_model(tmp_path / one / "checkpoint.best").state_dict() for one in ("one", "parts")]
    for name, weight in best[0].items():
        torch.testing.assert_close(best[1][name], weight, rtol=1e-5, atol=1e-6)


def written(ranks: Ranks, place, fail=None):
    """Three tensors, of which the ranks hold parts: uneven ones, one that only the first holds, one that all have."""
    from torch.distributed.checkpoint import hf_storage
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (ranks.size,))
    given = {"a": torch.arange(15.0).reshape(5, 3), "b": torch.ones(1, 4)}
    tensors: dict = {name: distribute_tensor(one, mesh, [Shard(0)]) for name, one in given.items()}
    tensors["step"] = torch.tensor(3.0)
    if fail == ranks.rank:

        def full(*_):
            raise OSError(28, "No space left on device")

        hf_storage.HuggingFaceStorageWriter.write_data = full
    write_checkpoint(place, {"config.json": b"{}\n"}, {"w": torch.ones(2)}, tensors, ranks=ranks.cpu_group())
    return ranks.rank


def test_what_ranks_write_together_anyone_reads(tmp_path):
    assert together(3, written, tmp_path / "it") == [0, 1, 2]
    assert len(verify_checkpoint(tmp_path / "it")) == 5
    folder = tmp_path / "it" / "training"
    assert tensor_shapes(folder) == {"a": (5, 3), "b": (1, 4), "step": ()}
    into = {"a": torch.zeros(5, 3), "b": torch.zeros(1, 4), "step": torch.zeros(())}
    read_tensors(folder, into)
    assert torch.equal(into["a"], torch.arange(15.0).reshape(5, 3))
    assert torch.equal(into["b"], torch.ones(1, 4))
    assert float(into["step"]) == 3
    files = [file for file in (tmp_path / "it").rglob("*") if file.is_file()]
    assert len({stat.S_IMODE(file.stat().st_mode) for file in files}) == 1
    assert os.listdir(tmp_path) == ["it"]


def test_a_rank_whose_disk_is_full_leaves_what_was_there(tmp_path):
    rank = 1
    together(2, written, tmp_path / "it")
    before = tree(tmp_path / "it")
    said = together(2, written, tmp_path / "it", rank)
    assert [type(one) for one in said] == [StorageError, StorageError]
    assert f"rank {rank} " in str(said[0])
    assert tree(tmp_path / "it") == before
    assert os.listdir(tmp_path) == ["it"]
