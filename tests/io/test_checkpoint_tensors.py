"""Weights files: damage, code and numbers that are not finite are refused; differences from a model are named."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from sightline.errors import InputError
from sightline.io.tensors import check_state, load_tensors, strip_wrapper_prefixes

INPUTS = Path(__file__).parents[1] / "faults" / "inputs"
PICKLES = [".pt", ".pth", ".bin", ".pkl", ".ckpt"]


def refused(file: Path, *words: str) -> None:
    """Loading is refused in one line that names the file and has the words."""
    with pytest.raises(InputError) as error:
        load_tensors(file)
    message = str(error.value)
    assert "\n" not in message
    for word in (file.name, *words):
        assert word in message, message


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("truncated.safetensors", "truncated"),
        ("huge_header.safetensors", "header too large"),
        ("shape_mismatch.safetensors", "invalid shape"),
        ("nan_weights.safetensors", "not finite (NaN or infinity) in head.weight"),
        ("empty.pt", "is empty"),
        ("truncated.pt", "truncated"),
        ("bitflip.pt", "checksum"),
        ("good.jpg", "no weights file"),
        ("missing.safetensors", "no such file"),
    ],
)
def test_bad_files(name, word):
    refused(INPUTS / name, word)


def test_nan_weights_on_request():
    tensors = load_tensors(INPUTS / "nan_weights.safetensors", allow_nonfinite=True)
    assert not tensors["head.weight"].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.float8_e4m3fn])
def test_nan_in_other_dtypes(dtype, tmp_path):
    save_file({"a": torch.tensor([1.0, float("nan")]).to(dtype), "n": torch.arange(3)}, tmp_path / "a.safetensors")
    refused(tmp_path / "a.safetensors", "not finite")


class Payload:
    """What an attacker pickles: loading it would make a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return (Path.touch, (self.marker,))


@pytest.mark.parametrize("suffix", PICKLES)
@pytest.mark.parametrize("writer", ["torch", "pickle", "old torch"])
def test_code_in_a_pickle_never_runs(suffix, writer, tmp_path):
    file, marker = tmp_path / f"weights{suffix}", tmp_path / "marker"
    content = {"a": torch.zeros(2), "b": Payload(marker)}
    if writer == "pickle":
        file.write_bytes(pickle.dumps(content))
    else:
        torch.save(content, file, _use_new_zipfile_serialization=writer == "torch")
    refused(file, "safetensors.torch.save_file")
    assert not marker.exists()
    # A name does not help either.
    shutil.copy(file, tmp_path / "weights.safetensors")
    refused(tmp_path / "weights.safetensors", "damaged")
    assert not marker.exists()


def test_torch_files_of_tensors_are_read(tmp_path):
    torch.save({"a": torch.arange(3.0)}, tmp_path / "weights.pth")
    assert torch.equal(load_tensors(tmp_path / "weights.pth")["a"], torch.arange(3.0))


def test_wrappers_names_are_stripped():
    names = ["module._orig_mod.blocks.0.w", "_orig_mod.module.a", "blocks._orig_mod.b", "submodule.c"]
    assert list(strip_wrapper_prefixes({name: torch.zeros(1) for name in names})) == [
        "blocks.0.w",
        "a",
        "blocks.b",
        "submodule.c",
    ]


EXPECTED = {"a": torch.zeros(3, 4), "b": torch.zeros(5), "c": torch.zeros(2, 2), "d": torch.zeros(1)}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"a": None}, ["1 missing: a [3, 4]"]),
        ({"x": torch.zeros(7)}, ["1 not expected: x [7]"]),
        ({"a": torch.zeros(4, 3)}, ["a is [4, 3], expected [3, 4], transposed"]),
        ({"b": torch.zeros(6)}, ["1 of another shape: b is [6], expected [5]"]),
        ({"b": torch.zeros(5, dtype=torch.float16)}, ["b [5] is float16, expected float32"]),
        ({"a": None, "x": torch.zeros(7), "b": torch.zeros(6)}, ["missing: a", "not expected: x", "b is [6]"]),
        ({"a": None, "b": None, "c": None, "d": None}, ["4 missing: a [3, 4], b [5], c [2, 2], ... (4 in all)"]),
    ],
)
def test_every_difference_is_named(change, words):
    found = {name: tensor for name, tensor in {**EXPECTED, **change}.items() if tensor is not None}
    with pytest.raises(InputError) as error:
        check_state(EXPECTED, found, "runs/a/model.safetensors")
    message = str(error.value)
    assert message.startswith("runs/a/model.safetensors: ")
    assert "\n" not in message
    for word in words:
        assert word in message, message
