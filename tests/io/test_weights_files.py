"""Weights files and configurations that ask for more than there is, or hold something else than plain numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from sightline.convert import import_weights
from sightline.errors import InputError
from sightline.hub.load import load_model, save_model
from sightline.io.tensors import load_tensors
from sightline.models import VisionTransformer, ViTConfig, create_model
from tests.tiny import put, reseal

SMALL = {"image_size": 16, "depth": 2, "dim": 48, "heads": 4, "num_classes": 5}


def one_line(error: pytest.ExceptionInfo[InputError], *words: str) -> None:
    assert "\n" not in str(error.value)
    for word in words:
        assert word in str(error.value)


@pytest.fixture
def folder(tmp_path):
    """A model's folder, and a function that rewrites its configuration as somebody would on purpose."""
    save_model(create_model("vit_micro_patch4", **SMALL), tmp_path / "m")
    file = tmp_path / "m" / "config.json"

    def rewrite(**changes) -> Path:
        record = json.loads(file.read_text())
        put(record, **changes)
        file.write_text(json.dumps(record))
        reseal(tmp_path / "m")
        return tmp_path / "m"

    return rewrite


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"depth": 10**9}, ["depth = 1000000000: expected at most 512"]),
        ({"depth": 500}, ["depth 500: model.safetensors holds 2 blocks"]),
        ({"dim": 60_000, "heads": 12}, ["model.safetensors: weights do not fit", "[1, 1, 48], expected [1, 1, 60000]"]),
        ({"dim": 10**30}, ["dim = 10000", "expected at most 65,536"]),
        ({"mlp_ratio": 1e30}, ["mlp_ratio", "expected at most 1,000"]),
        ({"num_registers": 10**8}, ["num_registers = 100000000: expected at most"]),
        ({"image_size": 16 * 10**9}, ["image_size = 16000000000: expected at most"]),
        ({"table_grid": [100_000] * 2}, ["weights do not fit", "expected [10000000000, 48]"]),
        ({"num_classes": 10**9, "class_names": None}, ["num_classes = 1000000000: expected at most"]),
    ],
)
def test_a_configuration_that_asks_for_more_than_its_file_has(changes, words, folder, monkeypatch):
    built = []
    init = VisionTransformer.__init__

    def watched(self, config):
        built.append(torch.empty(0).device.type)
        init(self, config)

    path = folder(**changes)
    monkeypatch.setattr(VisionTransformer, "__init__", watched)
    with pytest.raises(InputError) as error:
        load_model(path)
    one_line(error, str(path), *words)
    # Nothing was built that has memory.
    assert set(built) <= {"meta"}


@pytest.mark.parametrize("name", ["dim", "depth", "heads", "patch_size", "channels", "head_dim", "head_hidden"])
def test_every_size_has_a_bound(name):
    with pytest.raises(InputError, match=f"{name} = 1000000000: expected at most "):
        ViTConfig(**{name: 10**9})


def test_a_training_of_a_hundred_million_layers_is_refused(refused, tmp_path):
    option = "model_options.depth=100000000"
    refused("train", "--data", "digits", "--out", tmp_path / "run", f"--{option}", says=["depth = 100000000", "512"])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("key", "value"), [("depth", 30_000), ("img_size", [10**9, 32]), ("embed_dim", 10**9), ("mlp_ratio", 1e300)]
)
def test_a_folder_of_timm_is_bounded_before_timm_builds_it(key, value, tmp_path):
    record = {"architecture": "vit_tiny_patch16_224", "model_args": {key: value}, "num_classes": 3}
    (tmp_path / "config.json").write_text(json.dumps(record))
    torch.save({"head.weight": torch.zeros(3, 192)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError) as error:
        load_model(tmp_path)
    one_line(error, f"timm: {key}", "expected at most")


def unfolds(file: Path, *words: str, unwrap=None) -> None:
    with pytest.raises(InputError) as error:
        load_tensors(file, unwrap=unwrap)
    one_line(error, file.name, *words)


ODD = {
    "sparse": lambda: torch.eye(4).to_sparse(),
    "sparse rows": lambda: torch.eye(4).to_sparse_csr(),
    "meta": lambda: torch.empty(4, device="meta"),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "quantised": lambda: torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ODD)
def test_tensors_of_other_kinds_in_a_torch_file(kind, tmp_path):
    torch.save({"head.weight": ODD[kind]()}, tmp_path / "a.pt")
    unfolds(tmp_path / "a.pt", "head.weight is", kind.split()[0])


def test_a_fault_of_our_own_is_not_called_the_users(monkeypatch):
    from sightline.convert import _projects, export_weights

    state, given = export_weights(create_model("vit_micro_patch4", depth=1, gelu="tanh", pool="mean",
        encoding_options={"interpolation": "corner_aligned", "prefix": False}), "big_vision")  # fmt: skip

    def broken(*_):
        raise TypeError("ours")

    monkeypatch.setattr(type(_projects()["big_vision"]), "tensor_maps", broken)
    with pytest.raises(TypeError, match="ours"):
        import_weights("big_vision", state, given)
