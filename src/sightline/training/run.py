"""A run, or a model alone, opened once to be measured or shown: what its folder says, its model and its data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from sightline.data.config import SkipUnreadable
from sightline.data.image_file import MAX_PIXELS
from sightline.data.open import open_source
from sightline.data.source import Source
from sightline.errors import InputError
from sightline.evaluation.measure import RunInfo
from sightline.hub.load import checksum, load_model, read_config_record
from sightline.io.config import Count, check_value
from sightline.io.run_files import BEST, last_checkpoint, run_of_checkpoint
from sightline.models import Model
from sightline.tasks.base import check_provided, task_class
from sightline.training.clips import check_clips, clip_frames, showing_frames
from sightline.training.config import TrainConfig
from sightline.training.plan import as_trained_on


@dataclass
class Run:
    """What was trained, and the data that it is measured on.

    Attributes:
        path: as it was named.
        training: the record of its training, {} of a model alone; config: the configuration in it, with the names of
            today.
        written: tells its weights from those that replace them.
        data: the data set that is measured.
        skip_unreadable: images of a split of it that may be left out; max_pixels: of the largest that is read.
        opened: the data set, once it was opened.
        named: what its rows call it; its folder's name unless given.
        patch_size: of its model as it is measured, where that is not its own.
    """

    path: Path
    training: dict[str, Any]
    config: dict[str, Any]
    written: str
    model: Model
    data: str
    skip_unreadable: SkipUnreadable
    max_pixels: int
    opened: Source | None = None
    named: str | None = None
    patch_size: int | None = None

    @property
    def source(self) -> Source:
        """The data set, of which nothing but the names of its files is read when it is opened; of clips as many frames
        are shown as in training.

        Raises:
            InputError: it cannot be opened, or is of clips, and the model takes images.
        """
        if self.opened is None:
            source = open_source(self.data).with_view(max_pixels=self.max_pixels)
            check_clips(self.model.config, source, self.data)
            frames = clip_frames(self.model.config, source, self.config.get("frames"))
            packed = self.config.get("packing") is not None
            self.opened = showing_frames(source, frames, self.config.get("frame_stride"), packed=packed)
        return self.opened

    @property
    def side(self) -> int:
        """Of the training images in pixels."""
        side = self.config.get("resolution") or self.model.config.image_size
        return side if isinstance(side, int) else min(side)

    @property
    def identity(self) -> RunInfo:
        """What its rows say of it: its name is that of its folder."""
        run, place = run_of_checkpoint(self.path), self.path.resolve()
        if self.path.name == BEST:
            name = BEST
        elif run is not None and place == last_checkpoint(run).resolve():
            name = run.resolve().name
        else:
            name = place.name
        return RunInfo(self.named or name, self.data, self.side, self.config.get("seed", 0), self.patch_size)


def open_run(
    path: str | Path,
    data: str | None = None,
    *,
    device: str | torch.device = "cpu",
    skip_unreadable: SkipUnreadable | None = None,
    max_pixels: int | None = None,
    source: Source | None = None,
) -> Run:
    """Open what `load_model` takes; what is None is as it was in its training.

    Args:
        data: the data set to measure.
        source: it, where it is open already.

    Raises:
        InputError: there is no such model, or it does not say what it was trained on and no data is given.
    """
    path, written = Path(path), checksum(path)
    training = read_config_record(path)["training"]
    config = training.get("config", {})
    data = data or config.get("data")
    if not isinstance(data, str):
        raise InputError(f"{path}: does not say what it was trained on; give the data (evaluate: --data)")
    skip = config.get("skip_unreadable", 0) if skip_unreadable is None else skip_unreadable
    pixels = config.get("max_pixels", MAX_PIXELS) if max_pixels is None else max_pixels
    check_value("--max-pixels", pixels, Count)
    return Run(path, training, config, written, load_model(path).to(device), data, skip, pixels, source)


def open_training_data(config: TrainConfig) -> Source:
    """The data set of a run, as it is shown in training; no image is read yet.

    Raises:
        InputError: it has no training split, or one class alone, or cannot be shown so.
    """
    source = as_trained_on(open_source(config.data), config)
    check_training_data(config, source)
    return source


def check_training_data(config: TrainConfig, source: Source) -> None:
    """Refuse data that a run cannot be trained on, as `open_training_data` does."""
    if "train" not in source.splits:
        source.check("train")
    task = task_class(config.task)
    check_provided(task, source)
    if "label" in task.needs and len(source.classes) < 2:
        raise InputError(f"data {config.data!r}: has {len(source.classes)} class, expected at least 2 to train on")
