"""The same command gives the same log and the same weights, bit for bit: again, with other workers, another seed of
hashes, another order of the file system, a cold and a warm cache; and another seed gives others."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import yaml

from tests.tiny import MODEL, log_lines, pictures, weights

CONFIG = {
    "model": "vit_micro_patch4", "model_options": {**MODEL, "depth": 2, "drop_path": 0.2, "dropout": 0.1},
    "encoding": "rope_mixed+learned_1d", "resolution": 16, "images": 40, "batch_size": 4, "precision": "float32",
    "loss": "ce", "optimizer": {"ema": 0.9}, "mixing": {"mixup": 0.2, "cutmix": 1.0},
    "augment": {"three_augment": {}, "random_erasing": {}},
}  # fmt: skip
PACKING = {"tokens": 64, "resolutions": [8, 24], "drop": "beta", "drop_options": {"mean": 0.4}}
# Of a file system, listed from the end; the other one is sorted, so that both are known.
ORDER = """
import os
listdir, scandir = os.listdir, os.scandir


class Listed:
    def __init__(self, inner):
        with inner:
            entries = sorted(inner, key=lambda entry: entry.name, reverse=bool(os.environ.get("REVERSED")))
        self.entries = iter(entries)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.entries)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def close(self):
        pass


os.scandir = lambda path=".": Listed(scandir(path))
os.listdir = lambda path=".": sorted(listdir(path), reverse=bool(os.environ.get("REVERSED")))
"""
SAME = {
    "two workers and other hashes": (["--workers=2"], {"PYTHONHASHSEED": "4242"}),
    "four workers and another order": (["--workers=4"], {"REVERSED": "1"}),
    "a cold cache": ([], {"SIGHTLINE_CACHE": "cache"}),
    "a warm cache, other hashes, another order": (
        ["--workers=2"], {"SIGHTLINE_CACHE": "cache", "PYTHONHASHSEED": "7", "REVERSED": "1"}
    ),
}  # fmt: skip


@pytest.mark.slow
def test_the_same_command_gives_the_same_run(tmp_path):
    data = pictures(tmp_path / "data", classes=("a", "b", "c"), count=6)
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({**CONFIG, "data": data, "packing": PACKING}))
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(ORDER)

    def left_by(name, words=(), environment=None):
        out = tmp_path / name
        words = ["--config", str(tmp_path / "run.yaml"), "--out", str(out), "--threads", "1", *words]
        done = subprocess.run(
            [sys.executable, "-m", "sightline", "train", *words], capture_output=True, text=True, cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "hook"), *sys.path]),
                 "PYTHONHASHSEED": "0", **(environment or {})},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return weights(out), log_lines(out)

    once = left_by("once")
    for name, (words, environment) in SAME.items():
        assert left_by(name, words, environment) == once, name
    assert any((tmp_path / "cache").rglob("*"))
    other = left_by("another seed", ["--seed", "1"])
    assert other[0] != once[0]
    assert other[1] != once[1]
