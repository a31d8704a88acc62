"""Ranks that hold a model in parts (FSDP2) train what those do that hold it whole, and leave no pickle."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import stat

import pytest
import torch
from safetensors import safe_open

from sightline.distributed.ranks import Ranks
from sightline.errors import InputError, RanksError, StoppedError, StorageError
from sightline.hub.load import load_model, save_model
from sightline.io.checkpoint import verify_checkpoint
from sightline.io.sharded import read_tensors, tensor_shapes, write_together
from sightline.models import create_model
from sightline.training import train
from sightline.training.config import OptimizerConfig, ValidationConfig
from sightline.training.parallel import parallelize
from tests.ranks import together
from tests.tiny import log_lines, tiny_config
from tests.training.test_ranks import CHANCE, IDLE, PACKED, UNEVEN, alone, run, stop_after

# So large that Adam's step is no sign of a gradient near zero, which the order of a sum decides.
EPS = 1e-3
OPTIMIZERS = {
    name: OptimizerConfig(name=name, eps=None if name == "sgd" else EPS, ema=0.9 if name == "adamw" else None)
    for name in ("adamw", "adam", "lamb", "sgd")
}


def in_parts(config, **changes):
    options = {**config.model_options, "depth": 2}
    return dataclasses.replace(config, sharing="fsdp", model_options=options, **changes)


def assert_same(first, second, tolerance=2e-6):
    """The same steps with the same losses, and weights that differ by so much of their norm."""
    records = [[json.loads(line) for line in log_lines(run)] for run in (first, second)]
    for one, other in zip(*records, strict=True):
        assert other.pop("loss") == pytest.approx(one.pop("loss"), rel=1e-5)
        assert one == other
    one, other = (load_model(run).state_dict() for run in (first, second))
    assert one.keys() == other.keys()
    for name, weight in one.items():
        assert float((other[name] - weight).norm()) <= tolerance * float(weight.norm()) + 1e-7, name


def assert_in_parts(run, ranks):
    names = sorted(one.name for one in (run / "checkpoint").iterdir() if one.suffix == ".safetensors")
    assert names == [
        f"{what}-{rank + 1:05d}-of-{ranks:05d}.safetensors" for what in ("model", "training") for rank in range(ranks)
    ]


CASES = {
    "uneven": in_parts(UNEVEN, optimizer=OPTIMIZERS["adamw"]),
    "packed": in_parts(PACKED),
    "idle": in_parts(IDLE, accumulate=3),
    "chance": in_parts(CHANCE, recompute=True),
}


@pytest.mark.parametrize("name", ["uneven", *(pytest.param(one, marks=pytest.mark.slow) for one in list(CASES)[1:])])
def test_parts_train_as_the_whole(name, tmp_path):
    config = CASES[name]
    assert together(2, run, config, tmp_path / "parts") == [0, 1]
    assert together(2, run, dataclasses.replace(config, sharing="ddp"), tmp_path / "whole") == [0, 1]
    assert_same(tmp_path / "whole", tmp_path / "parts")
    assert_in_parts(tmp_path / "parts", 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adam", "lamb"])
def test_every_optimizer_keeps_parts(name, tmp_path):
    config = in_parts(UNEVEN, optimizer=OPTIMIZERS[name])
    alone(config, tmp_path / "one")
    assert together(2, run, config, tmp_path / "parts") == [0, 1]
    assert_same(tmp_path / "one", tmp_path / "parts")


@pytest.mark.parametrize(
    ("name", "size", "sharing"),
    [
        ("adamw", 1, "fsdp"),
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in (("adamw", 3, "fsdp"), ("lamb", 2, "ddp"), ("sgd", 4, "fsdp"), ("adam", 4, "ddp"))
        ),
    ],
)
def test_any_number_of_ranks_goes_on(name, size, sharing, tmp_path):
    config = in_parts(UNEVEN, images=132, optimizer=OPTIMIZERS[name])
    alone(config, tmp_path / "one")
    said = together(2, stop_after, config, tmp_path / "two", 2)
    assert [type(one) for one in said] == [StoppedError, StoppedError]
    assert_in_parts(tmp_path / "two", 2)
    config = dataclasses.replace(config, sharing=sharing)
    if size == 1:
        train(config, tmp_path / "two", resume=True)
    else:
        assert together(size, run, config, tmp_path / "two", {"resume": True}) == list(range(size))
    assert_same(tmp_path / "one", tmp_path / "two")
    if sharing == "ddp" or size == 1:
        assert (tmp_path / "two" / "checkpoint" / "model.safetensors").exists()
    else:
        assert_in_parts(tmp_path / "two", size)


@pytest.mark.slow
def test_what_ranks_held_whole_goes_on_in_parts(tmp_path):
    config = in_parts(UNEVEN, images=132, optimizer=OPTIMIZERS["adamw"])
    alone(config, tmp_path / "one")
    together(2, stop_after, dataclasses.replace(config, sharing="ddp"), tmp_path / "two", 2)
    assert together(2, run, config, tmp_path / "two", {"resume": True}) == [0, 1]
    assert_same(tmp_path / "one", tmp_path / "two")


@pytest.mark.slow
def test_parts_are_measured_while_they_train(tmp_path):
    """The curve on minival and the best model are those of a process alone."""
    config = in_parts(
        tiny_config(data="scenes", images=96, batch_size=32, optimizer=OptimizerConfig(eps=EPS, ema=0.5)),
        checkpoint_every=32, validation=ValidationConfig(times=3, images=8),
    )  # fmt: skip
    alone(config, tmp_path / "one")
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


def other_forwards(ranks: Ranks, images):
    torch.manual_seed(0)
    model = create_model("vit_micro_patch4", depth=2, num_classes=5).eval()
    before = [one.clone() for one in _asked(model, images)]
    parallelize(model, ranks, "fsdp")
    after = _asked(model, images)
    parts = sum(one.to_local().numel() for one in model.parameters())
    return max(float((one - other).abs().max()) for one, other in zip(before, after, strict=True)), parts


@torch.no_grad()
def _asked(model, images):
    features = model.forward_features(images)
    return [features, model.forward_head(features), *model.get_intermediate_layers(images, n=2), model(images)]


def test_what_computes_beside_forward(tmp_path):
    images = torch.randn(2, 3, 24, 40, generator=torch.Generator().manual_seed(1))
    said = together(2, other_forwards, images)
    whole = sum(one.numel() for one in create_model("vit_micro_patch4", depth=2, num_classes=5).parameters())
    assert all(difference < 1e-6 for difference, _ in said)
    assert sum(parts for _, parts in said) == whole
    assert max(parts for _, parts in said) < 0.6 * whole


def written(ranks: Ranks, place, fail=None, value=None):
    """Three tensors, of which the ranks hold parts: uneven ones, one that only the first holds, one that all have."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (ranks.size,))
    given = {"a": torch.arange(15.0).reshape(5, 3), "b": torch.ones(1, 4)}
    tensors: dict = {name: distribute_tensor(one, mesh, [Shard(0)]) for name, one in given.items()}
    tensors["step"] = torch.tensor(3.0) if value is None else value
    if fail == ranks.rank:
        from sightline.io import sharded

        def full(*_):
            raise OSError(28, "No space left on device")

        sharded.sealed = full
    write_together(
        place, {"config.json": b"{}\n"}, {"model.safetensors": tensors}, ranks.cpu_group(), keep_previous=True
    )
    return ranks.rank


def model_parts(place):
    return sorted(place.glob("model-*.safetensors"))


def test_what_ranks_write_together_anyone_reads(tmp_path):
    assert together(3, written, tmp_path / "it") == [0, 1, 2]
    files = verify_checkpoint(tmp_path / "it")
    assert len(files) == 4
    parts = model_parts(tmp_path / "it")
    assert {name: list(one.shape) for name, one in tensor_shapes(parts).items()} == {
        "a": [5, 3], "b": [1, 4], "step": [],
    }  # fmt: skip
    into = {"a": torch.zeros(5, 3), "b": torch.zeros(1, 4), "step": torch.zeros(())}
    read_tensors(parts, into)
    assert torch.equal(into["a"], torch.arange(15.0).reshape(5, 3))
    assert torch.equal(into["b"], torch.ones(1, 4))
    assert float(into["step"]) == 3
    assert len({stat.S_IMODE(one.stat().st_mode) for one in (tmp_path / "it").iterdir()}) == 1
    assert sorted(os.listdir(tmp_path)) == ["it"]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_whose_disk_is_full_leaves_what_was_there(rank, tmp_path):
    together(2, written, tmp_path / "it")
    before = {one.name: one.read_bytes() for one in (tmp_path / "it").iterdir()}
    said = together(2, written, tmp_path / "it", rank)
    assert [type(one) for one in said] == ([StorageError, RanksError] if rank == 0 else [RanksError, StorageError])
    assert "No space left on device" in str(said[rank])
    assert {one.name: one.read_bytes() for one in (tmp_path / "it").iterdir()} == before
    assert sorted(os.listdir(tmp_path)) == ["it"]


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "it").write_text("a file")
    said = together(2, written, tmp_path / "it")
    assert isinstance(said[0], InputError)


def test_what_is_no_tensor_is_refused_before_it_is_written(tmp_path):
    said = together(2, written, tmp_path / "it", None, 3)
    # Nobody waits for the other: one may find that it ended already.
    assert TypeError in {type(one) for one in said} <= {TypeError, RanksError}
    assert not (tmp_path / "it").exists()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    place = tmp_path_factory.mktemp("parts")
    assert together(2, run, in_parts(UNEVEN, images=66), place / "run") == [0, 1]
    return place / "run"


@pytest.fixture
def parts(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    return tmp_path / "run" / "checkpoint"


def test_damaged_and_missing_parts_are_named(parts, tmp_path):
    second = model_parts(parts)[1]
    content = second.read_bytes()
    second.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InputError, match=r"model-00002-of-00002.safetensors: differs from its checksum"):
        load_model(parts)
    second.unlink()
    with pytest.raises(InputError, match=r"model-00002-of-00002.safetensors: is missing"):
        load_model(parts)
    second.write_bytes(content)
    with pytest.raises(InputError, match=r"of \d+ values are there"):
        tensor_shapes([second])
    second.write_bytes(content[:100])
    with pytest.raises(InputError, match=r"is damaged, or another part of it"):
        tensor_shapes(model_parts(parts))


def test_a_model_in_parts_is_a_model(parts, tmp_path):
    model = load_model(parts.parent)
    save_model(model, tmp_path / "whole")
    again = load_model(tmp_path / "whole").state_dict()
    assert all(torch.equal(again[name], weight) for name, weight in model.state_dict().items())
    with pytest.raises(InputError, match="holds the state of a training"):
        save_model(model, parts)


def test_no_file_of_a_checkpoint_is_a_pickle(parts):
    for file in sorted(parts.iterdir()):
        content = file.read_bytes()
        if file.suffix == ".safetensors":
            with safe_open(file, "pt") as opened:
                assert len(list(opened.keys())) > 0
        else:
            text = content.decode("utf-8")
            assert "\0" not in text
            for line in [text] if file.suffix == ".json" else text.splitlines():
                if file.suffix in (".json", ".jsonl"):
                    json.loads(line)


def test_sharing_is_named_where_it_is_not_known():
    with pytest.raises(InputError, match=r"sharing 'fsdpp'.*fsdp"):
        tiny_config(sharing="fsdpp")


def test_a_process_alone_holds_all(tmp_path):
    train(in_parts(UNEVEN, images=33), tmp_path / "run")
    assert (tmp_path / "run" / "checkpoint" / "model.safetensors").exists()
