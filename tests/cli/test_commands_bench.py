"""`sightline bench`: what is needed, said before it is tried; and the benchmarks of a checkout."""

from __future__ import annotations

import json

import pytest

from sightline.analysis.memory import estimate_memory
from sightline.distributed import machine
from sightline.models import model_config
from sightline.runs.memory import memory_rows
from tests.tiny import tree

ASKED = ["bench", "memory", "--model", "vit_base_patch16", "--device", "cpu"]
PARTS = ("parameters", "gradients", "optimizer", "activations", "attention", "other")


@pytest.fixture
def room(monkeypatch):
    """`room(bytes)`: as much memory is available."""

    def make(available):
        monkeypatch.setattr(machine, "available_memory", lambda device: available)

    make(64 << 30)
    return make


def test_what_a_forward_and_a_training_step_take(cli, room):
    words = ["--resolution", "1024", "--encoding", "lookhere_90"]
    code, said, err = cli(*ASKED, *words)
    assert (code, err) == (0, "")
    for word in ("1024x1024 px", "4,097 tokens", "forward", "training step", *PARTS, "total", "64 GiB"):
        assert word in said, said
    assert all(len(line) <= 82 for line in said.splitlines()), said
    rows = [json.loads(line) for line in cli(*ASKED, *words, "--json")[1].splitlines()]
    assert rows == memory_rows("vit_base_patch16", 1024, encoding="lookhere_90")
    assert [row["pass"] for row in rows] == ["forward", "training step"]
    for row in rows:
        one = estimate_memory(
            model_config("vit_base_patch16", encoding="lookhere_90"), 1024, training=row["pass"] != "forward"
        )
        assert row["benchmark"] == "memory"
        assert (row["model"], row["encoding"], row["dtype"]) == ("vit_base_patch16", "lookhere_90", "float32")
        assert (row["resolution"], row["tokens"], row["batch"]) == ([1024, 1024], 4097, 1)
        assert row["total_bytes"] == one.total == sum(row[f"{part}_bytes"] for part in PARTS)
        assert (row["device"], row["hardware"]) == ("cpu", machine.hardware_name())
        assert row["commit"]
        assert row["torch"]
    words = ["--resolution", "224x448", "--batch", 3, "--dtype", "bfloat16", "--json"]
    rows = [json.loads(line) for line in cli(*ASKED, *words)[1].splitlines()]
    assert [(row["resolution"], row["batch"], row["dtype"]) for row in rows] == [([224, 448], 3, "bfloat16")] * 2


@pytest.mark.parametrize("resolution", ["100000", "16" + "0" * 88])
def test_what_does_not_fit_is_said_and_not_refused(resolution, cli, room):
    room(21 << 30)
    code, said, err = cli(*ASKED, "--resolution", resolution)
    assert (code, err) == (0, "")
    assert said.count("does not fit here.") == 2
    room(2 << 30)
    assert cli(*ASKED, "--resolution", "512x1024")[1].count("does not fit here.") == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--resolution", "100"], ["100x100", "96x96", "112x112"]),
        (["--resolution", "224", "--encoding", "lookher_90"], ["did you mean 'lookhere_90'?"]),
        (["--resolution", "224", "--batch", "0"], ["batch 0"]),
        (["--resolution", "224", "--batch", "1.5"], ["--batch", "1.5"]),
        (["--resolution", "224", "--dtype", "float16"], ["float16", "bfloat16"]),
        (["--resolution", "0"], ["--resolution 0"]),
        (["--resolution", "224x"], ["--resolution 224x"]),
        (["--resolution", "9" * 5000], ["--resolution 9"]),
        (["--resolution", "224", "--device", "cuda:99"], ["cuda:99"]),
        (["--resolutoin", "224"], ["--resolutoin", "--resolution", "See: sightline bench memory --help"]),
    ],
)
def test_what_is_refused(words, says, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused("bench", "memory", "--model", "vit_base_patch16", *words, says=says)
    assert tree(tmp_path) == {}
