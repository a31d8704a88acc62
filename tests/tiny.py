"""The smallest runs that still go through everything: for tests that need a trained model or its folder."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from sightline import training
from sightline.hub.load import to_nested
from sightline.io.config import merge
from sightline.io.yaml import parse_yaml
from sightline.models import Model
from sightline.recipes.config import TrainingData
from sightline.training.checkpointer import Checkpointer
from sightline.training.config import OptimizerConfig, TrainConfig

INPUTS = Path(__file__).parent / "faults" / "inputs"
# Of all images of a split, by a classifier that the softmax cross entropy trained; `ece_sigmoid` too, where BCE did.
SOFTMAX_MEASURES = {"top1", "top5", "nll", "brier", "ece", "ece_30", "ece_adaptive", "aurc"}
MEASURES = SOFTMAX_MEASURES | {"ece_sigmoid"}
TRAINING = "training/shard-00001-model-00001-of-00001.safetensors"
"""What the next step needs, in a checkpoint of a process alone."""
MODEL = {"depth": 1, "dim": 48, "heads": 4}


def train(config: TrainConfig, out: str | Path, **options: Any) -> Model:
    """`sightline.training.train` without a test: the trained model."""
    return training.train(config, out, **{"test": False, **options}).model


def tiny_config(**changes: Any) -> TrainConfig:
    """Two steps on digits; `changes` are fields of `TrainConfig`."""
    config = TrainConfig(
        data="digits", model_options=dict(MODEL), resolution=16, images=64, precision="float32", validation=None
    )
    return dataclasses.replace(config, **changes)


# All that a step's state may hang on: drop path, a running mean, and two passes over the data.
EVENTFUL = tiny_config(
    model_options={**MODEL, "depth": 2, "drop_path": 0.3},
    encoding="rope_mixed+learned_1d",
    images=1297 + 600,
    batch_size=256,
    checkpoint_every=256,
    optimizer=OptimizerConfig(lr=1e-2, ema=0.7),
)


ENDLESS = dataclasses.replace(EVENTFUL, data="scenes", images=96, batch_size=16, checkpoint_every=32)


def pictures(folder: Path, classes: Sequence[str] = ("a", "b"), count: int = 4) -> str:
    """A data set `imagefolder:FOLDER` with train and test: `count` noisy PNGs a class, all of other sizes."""
    draws = np.random.default_rng(0)
    for split in ("train", "test"):
        for name in classes:
            there = folder / split / name
            there.mkdir(parents=True)
            for number in range(count):
                size = (*draws.integers(8, 40, 2).tolist(), 3)
                Image.fromarray(draws.integers(0, 256, size, dtype=np.uint8)).save(there / f"{number}.png")
    return f"imagefolder:{folder}"


def put(record: dict[str, Any], **fields: Any) -> None:
    """Change fields of the configuration in a model's `config.json`, each in its part."""
    for part, values in to_nested(fields).items():
        if part not in ("architecture", "head", "preparation", "labels"):
            record[part] = values
            continue
        if part == "architecture" and "architecture" not in fields:
            del values["name"]
        record[part].update(values)


def digest(file: Path) -> str:
    """SHA-256 of a file; of one that torch.distributed.checkpoint wrote, whatever the order in its header."""
    content = file.read_bytes()
    if file.parent.name == "training":
        end = 8 + int.from_bytes(content[:8], "little")
        with contextlib.suppress(ValueError):
            content = json.dumps(json.loads(content[8:end]), sort_keys=True).encode() + content[end:]
    return hashlib.sha256(content).hexdigest()


def weights(run: Path) -> str:
    """SHA-256 of a run's weights."""
    return digest(run / "checkpoint" / "model.safetensors")


def log_lines(run: Path) -> list[str]:
    return (run / "log.jsonl").read_text().splitlines()


def tree(folder: Path) -> dict[str, str]:
    """Every file below a folder with its content's digest, and every folder."""
    return {
        str(path.relative_to(folder)): digest(path) if path.is_file() else "folder"
        for path in sorted(folder.rglob("*"))
    }


def reseal(folder: Path) -> None:
    """Write the checksums of a checkpoint folder anew, as somebody would who wrote its files on purpose."""
    table = {
        str(file.relative_to(folder)): {
            "bytes": file.stat().st_size,
            "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        }
        for file in folder.rglob("*")
        if file.is_file() and file.name != "checksums.json"
    }
    (folder / "checksums.json").write_text(json.dumps({"files": table}))


def fork_server() -> Any:
    """Processes that begin quickly: the server has loaded what a training loads."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["sightline.training", "sightline.data.sources.scenes", "sklearn.datasets", "torch._dynamo"]
    )
    return context


def killed(work: Callable[..., object], *arguments: Any, **options: Any) -> None:
    """Call `work` in a process of its own, which must die by SIGKILL before it ends.

    From a fork server: a copy of this process, in which torch has computed already, may wait for threads that it
    does not have. What is passed is pickled.
    """
    code = _exit_code(work, arguments, options)
    assert code == -signal.SIGKILL, f"it was not killed (exit code {code})"


def finished(work: Callable[..., object], *arguments: Any, **options: Any) -> None:
    """As `killed`, of a call that must end by itself: in a process that has computed nothing else before."""
    code = _exit_code(work, arguments, options)
    assert code == 0, f"it did not end well (exit code {code})"


def _exit_code(work: Callable[..., object], arguments: tuple[Any, ...], options: dict[str, Any]) -> int | None:
    child = fork_server().Process(target=_alone, args=(work, arguments, options))
    child.start()
    child.join(600)
    return child.exitcode


def _alone(work: Callable[..., object], arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    work(*arguments, **options)


@dataclasses.dataclass(frozen=True)
class KillAt:
    """Observes a training and kills its process after a step."""

    step: int

    def __call__(self, at: Any) -> None:
        if at.step == self.step:
            kill_me()


def kill_me(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def after(count: int, work: Callable[..., Any]) -> Callable[..., Any]:
    """`work` with its first `count` calls done, and death in the next."""
    left = [count]

    def call(*arguments: Any, **options: Any) -> Any:
        if left[0] == 0:
            kill_me()
        left[0] -= 1
        return work(*arguments, **options)

    return call


class Stopped(Exception):
    """What a test stops a training with."""


def stop_at(step: int) -> Callable[[Any], None]:
    """Observes a training and stops it after a step."""

    def observe(at: Any) -> None:
        if at.step == step:
            raise Stopped

    return observe


def wait_for_saves(monkeypatch: Any) -> None:
    """From here on a step that saves ends when that is done: for a test that looks at the folder of a run at work."""
    real = Checkpointer.save
    monkeypatch.setattr(Checkpointer, "save", lambda self, *, wait: real(self, wait=True))


def flip_a_byte(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-5] ^= 16
    file.write_bytes(content)


class Unmeasured(TrainingData):
    """Data of which no recipe knows more than its name."""

    def measure(self, config: TrainConfig) -> None:
        return None


def nested(*settings: str) -> dict[str, Any]:
    """What `--KEY=VALUE` says of a configuration, from "optimizer.lr=1e-3"."""
    found: dict[str, Any] = {}
    for setting in settings:
        key, _, text = setting.partition("=")
        value = parse_yaml(text, key)
        for name in reversed(key.split(".")):
            value = {name: value}
        found = merge(found, value)
    return found
