"""A task, a source and a metric of somebody else's: each one file in a folder, and no other edit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

TASK = '''
"""How bright each patch is: a head, a metric and a task."""
from dataclasses import dataclass

import torch
from torch import nn

from sightline.metrics.base import Metric
from sightline.models.head import TokenHead, patch_tokens
from sightline.results.rows import MetricValue
from sightline.tasks.base import Task


class OneNumber(TokenHead):
    name = "one_number"

    def __init__(self, config):
        super().__init__(config)
        self.fc = nn.Linear(config.dim, 1)

    def forward(self, tokens, layout):
        return self.fc(tokens)


@dataclass(frozen=True)
class Options:
    scale: float = 1.0


class Brightness(Task):
    name, needs, primary, Options = "brightness", (), "squared_error", Options

    @classmethod
    def model_options(cls, source, options):
        return {"head": "one_number"}

    def targets(self, examples):
        side, maps = self.config.patch_size, []
        for one in examples:
            grid = self.config.grid_of(one.image.shape[:2])
            cells = one.image[..., 0].reshape(grid.rows, side, grid.cols, side).mean(axis=(1, 3))
            maps.append(torch.from_numpy(cells.flatten() * self.options.scale / 255).float())
        return {"maps": maps}

    def split_outputs(self, outputs, layout):
        return [row for image in patch_tokens(outputs, layout) for row in image[..., 0]]

    def _wanted(self, targets, layout):
        """What is wanted of the patches that are here, each image by itself."""
        here = [row for segment in layout.segments for row in segment.indices.expand(layout.rows, -1)]
        return [one[kept.to(one.device)] for one, kept in zip(targets["maps"], here, strict=True)]

    def loss(self, outputs, targets, layout):
        said, wanted = torch.cat(list(self.split_outputs(outputs, layout))), torch.cat(self._wanted(targets, layout))
        return (said.float() - wanted).square().sum(), len(wanted)

    def to_json(self, output, image_size, topk):
        return {"mean": float(output.mean())}


class SquaredError(Metric):
    name, tasks = "squared_error", ("brightness",)

    def __init__(self, task):
        super().__init__(task)
        self.total, self.count = 0.0, 0

    def update(self, outputs, batch):
        total, count = self.task.loss(outputs, batch.targets, batch.layout)
        self.total, self.count = self.total + float(total), self.count + count

    def merge(self, other):
        self.total, self.count = self.total + other.total, self.count + other.count

    def rows(self):
        if not self.count:
            return []
        told = {"unit": "squared brightness", "better": "lower", "counted": "patches"}
        return [MetricValue("squared_error", self.total / self.count, count=self.count, **told)]
'''

METRIC = '''
"""Of any classifier: how sure it is."""
from sightline.metrics.base import Metric
from sightline.results.rows import MetricValue


class Sureness(Metric):
    name, tasks = "sureness", ("classification",)

    def __init__(self, task):
        super().__init__(task)
        self.all = []

    def update(self, outputs, batch):
        self.all += self.task.confidence(outputs, batch)[1].tolist()

    def merge(self, other):
        self.all += other.all

    def rows(self):
        return [MetricValue("sureness", sum(self.all) / len(self.all), "score", len(self.all))] if self.all else []
'''

SOURCE = '''
"""Rectangles that are painted in colours of their own numbers, with their masks and boxes."""
from dataclasses import dataclass, replace

import numpy as np

from sightline.data.source import Example, Source
from sightline.data.crops import RandomResizedCrop
from sightline.data.targets import Target


@dataclass(frozen=True, eq=False)
class Painted(Target):
    mask: np.ndarray
    boxes: np.ndarray

    def transform(self, crop):
        return Painted(crop.apply_to_map(self.mask), crop.apply_to_boxes(self.boxes))


class Rectangles(Source):
    name, provides = "rectangles", ("masks", "boxes")
    task, classes, groups, splits = "rectangles", (), {}, ("train", "test")
    transform = RandomResizedCrop(interpolation="nearest", scale=(0.1, 1.0))

    @classmethod
    def open(cls, argument, progress=None):
        return cls()

    def length(self, split):
        return 40

    def example(self, split, index, image_size, *, seed=0, epoch=0):
        self.check(split, index, image_size)
        draws = np.random.default_rng(index)
        mask, boxes = np.zeros((60, 90), np.uint8), []
        y, x = draws.integers(0, 30), draws.integers(0, 50)
        mask[y : y + 25, x : x + 35] = 1 + index % 5
        boxes = np.array([[y, x, y + 25, x + 35]], float)
        image = np.repeat(40 * mask[..., None], 3, axis=2)
        stored = Example(image, Painted(mask, boxes), f"rectangles/{split}/{index}")
        return self.shown(stored, split, index, image_size, seed=seed, epoch=epoch)
'''

AUGMENTATION = '''
"""Images without light, or as they are where its option says so."""
from dataclasses import dataclass
from typing import ClassVar

from sightline.data.augmentations import Augmentation


@dataclass(frozen=True)
class Inked(Augmentation):
    name: ClassVar[str] = "inked"
    by: int = 255

    def __call__(self, image, draws):
        return image * 0 if self.by and draws.random() < 1 else image
'''

TINY = ["--model_options={depth: 1, dim: 48, heads: 4}", "--precision=float32"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outside")
    for name, text in (("brightness", TASK), ("sureness", METRIC), ("rectangles", SOURCE), ("inked", AUGMENTATION)):
        (folder / f"training_test_{name}.py").write_text(text)
    return folder


def run(folder: Path, *words: str | Path) -> str:
    """The output of a command of its own process, which is told of the folder alone."""
    command = [sys.executable, "-m", "sightline", words[0], "--plugins", str(folder), *map(str, words[1:])]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_task_trains_packed_is_measured_predicts_and_is_reported(folder: Path, tmp_path: Path) -> None:
    out, recipe, size = tmp_path / "run", ["--recipe", "navit_scenes"], ["--packing.tokens=256"]
    task = ["--task=brightness", "--task_options={scale: 2.0}", "--optimizer.lr=3e-3"]
    more = ["--images", "480", "--augment={inked: {by: 0}}", "--workers=1", "--encoding", "rope_axial"]
    workers = [*more, "--validation.times=2"]
    said = run(folder, "train", *recipe, *TINY, *size, *task, *workers, "--out", out)
    assert "squared" in said
    losses = [json.loads(line)["loss"] for line in (out / "log.jsonl").read_text().splitlines()]
    assert losses[-1] < losses[0] / 2
    rows = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert {row["metric"] for row in rows} == {"squared_error"}
    assert rows[0]["counted"] == "patches"
    run(folder, "evaluate", out, "--resolutions", "16,24", "--images", "30")
    rows = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert {16, 24} <= {row["resolution"] for row in rows}
    photo = Path(__file__).parents[1] / "faults" / "inputs" / "good.jpg"
    answer = json.loads(run(folder, "predict", out, photo, "--json"))
    assert np.isfinite(answer["mean"])
    run(folder, "report", out, "--out", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "squared_error" in page or "squared error" in page
    assert "top-1" not in page
    assert "accuracy" not in page.lower()


@pytest.mark.slow
def test_a_metric_of_an_own_file_is_measured(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run(folder, "train", "--data", "digits", *TINY, "--images", "64", "--resolution", "16", "--out", out)
    rows = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    sure = next(row for row in rows if row["metric"] == "sureness")
    assert sure["unit"] == "score"
    assert 0 < sure["value"] < 1
    # The one of the task stays first.
    assert rows[0]["metric"] == "top1"
