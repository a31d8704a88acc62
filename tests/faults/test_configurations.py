"""Wrong configurations: one line that names the key, exit 2, and nothing made; from a file as from the command line."""

from __future__ import annotations

import json

import pytest

from tests.tiny import MODEL, tree

TINY = ["train", "--threads", 1, "--out", "out"]
BASE = {"data": "digits", "images": 64, "resolution": 16, "model_options": MODEL}

# Key, value, and what the line says.
WRONG = [
    ("optimizer.lr", "fast", ["optimizer.lr", "fast", "finite number"]),
    ("optimizer.lr", -0.1, ["optimizer.lr", "-0.1", "more than 0"]),
    ("optimizer.lr", None, ["optimizer.lr", "null"]),
    ("optimizer.lr", float("nan"), ["optimizer.lr", "NaN", "finite"]),
    ("optimizer.betas", [0.9], ["optimizer.betas", "[0.9]", "more entries"]),
    ("optimizer", 3, ["optimizer = 3", "a group of keys"]),
    ("model_options.dim", 50, ["dim 50", "divisible by heads 4"]),
    ("model_options.heads", 0, ["heads", "0", "at least 1"]),
    ("model_options.patch_size", 5, ["16", "patch_size 5", "15 or 20"]),
    ("model_options.pool", "men", ["pool", "men", "did you mean 'mean'?"]),
    ("model_options.class_token", False, ["class_token", "pool 'cls'"]),
    ("model_options.num_classes", 3, ["model_options.num_classes", "decided by 'data'"]),
    ("model_options.image_size", 32, ["model_options.image_size", "decided by 'resolution'"]),
    ("model", "vit_micro", ["'vit_micro'", "did you mean 'vit_micro_patch"]),
    ("encoding", "rope_axail", ["'rope_axail'", "did you mean 'rope_axial'?"]),
    ("encoding_options.theta", 3, ["lookhere_90: option 'theta'", "allowed: directions"]),
    ("encoding_options.global_slope", -1, ["global_slope", "-1", "at least 0"]),
    ("encoding_options.directions", "sideways", ["sideways", "allowed"]),
    ("resolution", 18, ["18", "multiple of patch_size 4", "16 or 20"]),
    ("images", 1.5, ["images = 1.5", "whole number"]),
    ("epochs", 2, ["images 64 and epochs 2", "not both"]),
    ("accumulate", 33, ["accumulate 33", "32 images of a step"]),
    ("loss", "bcee", ["loss", "bcee", "did you mean 'bce'?"]),
    ("precision", "float64", ["precision", "float64", "auto, float32, bfloat16"]),
    ("seed", 2**64, ["seed = 18446744073709551616"]),
]
# Of a file alone: on the command line there is no such option, and what is a text there is one.
WRONG_IN_A_FILE = [
    ("leraning_rate", 0.1, ["leraning_rate", "not known", "allowed:"]),
    ("bach_size", 3, ["bach_size", "did you mean 'batch_size'?"]),
    ("optimizer.leraning_rate", 0.1, ["optimizer.leraning_rate", "allowed: lr"]),
    ("encoding", ["none"], ["encoding", "text"]),
    ("data", "digit", ["'digit'", "did you mean 'digits'?"]),
]


def put(mapping, key, value):
    first, _, rest = key.partition(".")
    inner = mapping.get(first, {})
    return {**mapping, first: put(inner, rest, value) if rest else value}


def as_yaml(value):
    # JSON is YAML, but for these.
    return json.dumps(value).replace("NaN", ".nan").replace("Infinity", ".inf")


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("key", "value", "says"), WRONG, ids=[f"{key}={value}" for key, value, _ in WRONG])
def test_from_a_file_and_from_the_command_line(key, value, says, refused, tmp_path):
    (tmp_path / "train.yaml").write_text(as_yaml(put(BASE, key, value)))
    from_file = refused(*TINY, "--config", "train.yaml", says=["train.yaml", *says])
    (tmp_path / "train.yaml").write_text(as_yaml(BASE))
    from_line = refused(
        *TINY, "--config", "train.yaml", f"--{key}={value if isinstance(value, str) else as_yaml(value)}", says=says
    )
    assert from_line == from_file
    assert set(tree(tmp_path)) == {"train.yaml"}


@pytest.mark.parametrize(("key", "value", "says"), WRONG_IN_A_FILE, ids=[key for key, _, _ in WRONG_IN_A_FILE])
def test_from_a_file(key, value, says, refused, tmp_path):
    (tmp_path / "train.yaml").write_text(as_yaml(put(BASE, key, value)))
    refused(*TINY, "--config", "train.yaml", says=["train.yaml", *says])
    assert set(tree(tmp_path)) == {"train.yaml"}
