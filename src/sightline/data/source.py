"""What a data set is: examples that are a pure function of split, index, seed and epoch."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from sightline.data.config import SkipUnreadable
from sightline.data.crops import CropMode, Parts, check_image_size, size_of
from sightline.data.fingerprint import Fingerprint
from sightline.data.image_file import MAX_PIXELS
from sightline.data.sizes import FrameSampling
from sightline.data.skip_policy import Progress, SkipPolicy, Unreadable
from sightline.data.summary import Summary
from sightline.data.targets import Target, with_one_caption
from sightline.errors import InputError, require_known


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """One image, and what is said of it.

    Attributes:
        image: uint8 [height, width, 3], RGB, or a clip [frames, height, width, 3] (`Source.sampling`).
        name: the file it came from, or a name such as "scenes/glyphs/test/17".
        slices: what a measurement may be cut by: `group` of confusable labels, `size`, the longest side of the object's
            box as a fraction of the image's shorter side.
    """

    image: np.ndarray
    target: Target
    name: str = ""
    slices: Mapping[str, str | float] = field(default_factory=dict)

    @property
    def middle_frame(self) -> np.ndarray:
        """uint8 [height, width, 3], what a page shows of it: the image, or the frame in the middle of a clip."""
        return self.image if self.image.ndim == 3 else self.image[len(self.image) // 2]


class Source(ABC):
    """A data set with named splits.

    `seed` and `epoch` change the examples of the `train` split alone; all others are the same for every run.

    Attributes:
        name: it is opened by.
        task: what there is to learn, such as "glyphs", "pairs" or "classification".
        provides: what is said of each image, as attributes of its target: `label`, `pixels`, `objects`,
            `captions`; `attributes` where that is all.
        classes, pixel_classes, object_classes: names of what `label`, `pixels` and `objects` say, by their numbers.
        groups: name of a group of classes that are easily confused -> the labels in it.
        splits: their names, `train` first where there is one.
        skipped: the files that were passed over or left out, and why.
        left_out: file -> what it says that is passed over, as objects without area -> how often.
        is_synthetic: its examples are drawn.
        is_video: they are clips.
        says_sides: captions tell left from right.
        attributes: name of a label column of a table -> its values, by their numbers; `attribute_labels`: of each row
            of a listing, -1 of none; `grouped_by`: those by which accuracy is cut; `class_attribute`: what `label` is.
        class_words, templates: for zero-shot classification, what classes are called in a sentence, and sentences with
            `{}` where that stands; () where the data says nothing of it.
        transform: how stored images are shown, a `RandomResizedCrop`; None where that is a way of their own.
        still, sampling, max_pixels: as in `with_view`; without a sampling a clip is shown as an image.
        allowance: what batches may leave out because it cannot be read; None refuses an image that cannot be read.
    """

    name: ClassVar[str]
    provides: tuple[str, ...] = ("label",)
    is_synthetic: ClassVar[bool] = False
    is_video: ClassVar[bool] = False
    says_sides: bool = False
    attributes: Mapping[str, tuple[str, ...]] = {}
    attribute_labels: Mapping[str, np.ndarray] = {}
    grouped_by: tuple[str, ...] = ()
    class_attribute: str | None = None
    class_words: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()
    task: str
    classes: tuple[str, ...]
    pixel_classes: tuple[str, ...] = ()
    object_classes: tuple[str, ...] = ()
    groups: Mapping[str, tuple[int, ...]]
    splits: tuple[str, ...]
    skipped: tuple[Unreadable, ...] = ()
    left_out: Mapping[str, Mapping[str, int]] = {}
    transform: Any = None
    still: bool = False
    sampling: FrameSampling | None = None
    max_pixels: int = MAX_PIXELS
    allowance: SkipPolicy | None = None

    @classmethod
    def open(cls, argument: str, progress: Progress | None = None) -> Self:
        """The source for what follows the colon in `name:argument` ("" for none); raises InputError where that names
        nothing that this source has. `progress` is called with (files listed, files in all) where that takes long."""
        if argument:
            raise InputError(f"data {cls.name}:{argument}: takes no argument (expected {cls.name} alone)")
        return cls()

    @classmethod
    def folders(cls, argument: str) -> tuple[Path, ...]:
        """The folders on this machine whose files are the examples, for what follows the colon; none by default."""
        return ()

    @abstractmethod
    def length(self, split: str) -> int | None:
        """The number of examples in a split; None for an endless one; raises InputError for no such split."""

    @abstractmethod
    def example(self, split: str, index: int, image_size: tuple[int, int], *, seed: int = 0, epoch: int = 0) -> Example:
        """One example, the same in any order and in any process.

        Args:
            index: 0 up to `length(split)`, or any whole number below 2**64 of an endless split.
            image_size: (height, width) in pixels of the image returned.
            seed: of the run; it changes `train` alone.
            epoch: of the run's pass over the data; it changes `train` alone.

        Raises:
            InputError: no such split, or the index or image size is out of range.
            UnreadableDataError: the image could not be read.
        """

    def all_captions(self, split: str) -> Iterator[str]:
        """The captions of a split, without an image being read; raises InputError where there are none."""
        raise InputError(f"data {self.name}: has no captions")

    def example_name(self, split: str, index: int) -> str:
        """The `name` of an example, without reading it; raises InputError as `example`."""
        self.check(split, index)
        return f"{self.name}/{self.task}/{split}/{index}"

    def shown(
        self, example: Example, split: str, index: int, image_size: tuple[int, int], *, seed: int, epoch: int
    ) -> Example:
        """A stored example as `transform` shows it, its target moved with the picture; arguments as `example`."""
        size = size_of(example.image)
        if split != "train" or self.still:
            crop = self.transform.measured(size, image_size)
            target = example.target.for_evaluation(crop)
        else:
            crop = self.transform.train_crop(size, image_size, seed=seed, epoch=epoch, index=index)
            target = example.target.transform(crop)
        if split == "train":
            target = with_one_caption(target, seed=seed, epoch=epoch, index=index)
        return replace(example, image=self.transform.cut(example.image, crop), target=target)

    def with_view(
        self,
        *,
        parts: Parts | None = None,
        flip: float | None = None,
        interpolation: str | None = None,
        aspect: tuple[float, float] | None = None,
        still: bool | None = None,
        frames: FrameSampling | None = None,
        max_pixels: int | None = None,
    ) -> Self:
        """The same data set, shown in another way; what is None stays as it is.

        Args:
            parts: the smallest part of a training image's area that is shown, a random one each time, or "simple",
                "bit" or "whole" (`RandomResizedCrop`); flip, interpolation, aspect: as there.
            still: training images are shown as those that are measured: neither cut at random nor mirrored nor moved.
            frames: which frames of a clip are shown; an image is a clip of one.
            max_pixels: of the largest image that is read.

        Raises:
            InputError: this data set shows its training images in a way of its own; or it has images alone, and more
                frames than one are asked for.
        """
        if frames is not None and frames.count > 1 and not self.is_video:
            said = f"expected frames 1, not {frames.count}"
            raise InputError(f"data {self.name}: is of images, of one frame each ({said})")
        made = copy.copy(self)
        made.still = self.still if still is None else still
        made.sampling, made.max_pixels = frames or self.sampling, max_pixels or self.max_pixels
        asked = {"parts": parts, "flip": flip, "interpolation": interpolation}
        given = [f"{name} {value}" for name, value in asked.items() if value is not None]
        if self.transform is not None:
            made.transform = self.transform.changed(**asked, aspect=aspect)
        elif given:
            raise InputError(f"{given[0]}: not for data {self.name!r}, which shows its training images in its own way")
        return made

    def prepared(
        self, interpolation: str, crop: float | None, crop_mode: CropMode = "center", fill: tuple[int, ...] = (0, 0, 0)
    ) -> Self:
        """The same data set, whose measured images are prepared as for a model (`Preprocessing.prepared`); arguments as
        `RandomResizedCrop`. What is drawn at any size needs nothing."""
        made = copy.copy(self)
        if self.transform is not None and not self.is_synthetic:
            shown = {"interpolation": interpolation, "crop": crop, "crop_mode": crop_mode, "fill": fill}
            made.transform = replace(self.transform, **shown)
        return made

    def stored_size(self, split: str, index: int) -> tuple[int, int] | None:
        """(height, width) in pixels of the stored image, upright, from its header; None where an example is drawn at
        any size. Raises InputError for no such split or index, UnreadableDataError for an unreadable header."""
        self.check(split, index)
        return None

    def stored_frames(self, split: str, index: int) -> int | None:
        """How many frames a clip has, without decoding one; None where it is drawn with any; raises as
        `stored_size`."""
        self.check(split, index)
        return None if self.is_video else 1

    def frames_shown(self, split: str, index: int) -> int:
        """How many frames of an example are shown; raises as `stored_size`."""
        if self.sampling is None or not self.is_video:
            return 1
        stored = self.stored_frames(split, index)
        return self.sampling.count if stored is None else self.sampling.frame_count(stored)

    @property
    def validation_split(self) -> str | None:
        """Of which images a run is validated while it trains: `minival`, else a test that its owner calls `val`; None
        of none."""
        return "minival" if "minival" in self.splits else None

    def fingerprint(self, split: str = "train") -> Fingerprint:
        """What tells a split, that which a run trains on, from others: classes, names, sizes and contents of its files.
        The same for a copy elsewhere, and whatever is left out; of what comes with the package its name and version."""
        return Fingerprint.of(f"{self.name}:{self.task}/1", self.classes)

    def changed_contents(self, before: Fingerprint, progress: Progress | None = None) -> tuple[list[str], list[str]]:
        """What an equal fingerprint does not tell: names of files whose times and content differ, and of those with
        other times whose whole content was not known `before`. `progress`: (files read whole, files in all)."""
        return [], []

    def summary(self) -> Summary | None:
        """What a recipe wants to know of what is trained on, None where its recipe knows it already; raises
        UnreadableDataError where no image can be read."""
        return None

    def check_readable(
        self, split: str, *, skip_unreadable: SkipUnreadable = 0, progress: Progress | None = None
    ) -> tuple[Self, tuple[Unreadable, ...]]:
        """Read every header of a split, before hours of work depend on it; no pixel is decoded. An image that turns out
        damaged later leaves its batch, within the same number. `progress` is called with (headers read, images in all).

        Returns:
            The source to use from here on, without the unreadable images and with every other label as it was, and
            the images left out, in order.

        Raises:
            UnreadableDataError: more images than that cannot be read; the line names the first ones and the way on.
        """
        self.check(split)
        return self, ()

    def check(self, split: str, index: int = 0, image_size: tuple[int, int] = (1, 1)) -> None:
        """Raise InputError unless there is such a split, such an index in it, and such an image."""
        require_known(f"split of {self.name}", split, self.splits)
        length = self.length(split)
        if index < 0 or (length is not None and index >= max(length, 1)):
            last = "2**64 - 1" if length is None else length - 1
            raise InputError(f"index {index} is outside {self.name}/{split} (allowed: 0 to {last})")
        check_image_size(image_size)
