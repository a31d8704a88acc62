"""ImageNet-S: validation images with masks, for accuracy by the size of what is on them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from sightline.data.image_file import read_image
from sightline.data.source import Example
from sightline.data.targets import Crop, Label
from sightline.errors import InputError, UnreadableDataError
from sightline.evaluation.imagenet import numbers_by_synset, synsets
from sightline.evaluation.scoring import Scoring
from sightline.evaluation.suites.base import (
    TEST,
    EvalSet,
    LabelledFile,
    OpenedSuite,
    Suite,
    SuiteImages,
    in_class_folders,
    place_of,
)
from sightline.io.read import CONFIGURATION, read_text

_SIZES = (919, 300, 50)
_IGNORED = 1000


class ImageNetSSuite(Suite):
    """`imagenet-s:ROOT`, ROOT holding `ImageNetS919` (or 300, or 50), or being it: `validation/SYNSET/` with images and
    `validation-segmentation/SYNSET/` with masks, and near them `ImageNetS_categories_im919.txt`, the synset of each
    class a line.

    Rows are of all 1,000 classes of ImageNet, and by fifths of equal count of the object's size: its share of the
    image's pixels, of those that are said.
    """

    name: ClassVar[str] = "imagenet-s"

    @classmethod
    def open(cls, argument: str) -> OpenedSuite:
        root = cls.root(cls.parse(argument)[0])
        names = tuple(f"ImageNetS{size}" for size in _SIZES)
        found = place_of(root, (*names, "."), lambda one: (one / "validation-segmentation").is_dir())
        if found is None:
            raise InputError(
                f"suite imagenet-s: no validation-segmentation in {root} (looked for it there and in "
                f"{', '.join(names)}; expected masks there and images in validation)"
            )
        numbers = _numbers(found, root)
        labels = {name: numbers_by_synset()[name] for name in numbers}
        images = in_class_folders(found / "validation", labels, cls.name)
        source = _Sized(found / "validation", images, numbers)
        part = EvalSet(cls.name, source, TEST, (Scoring(cls.name),), imagenet=True)
        return OpenedSuite((part,), (), (root,))


@dataclass(frozen=True, slots=True, eq=False)
class _Masked(Label):
    """The class of an image, and of its pixels.

    Attributes:
        pixels: int32 [height, width] of the stored image's part that is shown, at its own size: the number of one of
            the source's `pixel_classes`, 1000 where nothing is said, as in all of an image whose mask has another size.
        size: the share of the whole image's pixels, of those that are said, that are of its class.
    """

    pixels: np.ndarray = field(kw_only=True)
    size: float = field(kw_only=True)

    def transform(self, crop: Crop) -> Self:
        return replace(self, pixels=crop.apply_to_map(self.pixels))

    def for_evaluation(self, crop: Crop) -> Self:
        return replace(self, pixels=self.pixels[crop.region])


class _Sized(SuiteImages):
    """Images that say how large the object of their class is, and of what class each pixel is."""

    provides: tuple[str, ...] = ("label", "pixels")

    def __init__(self, root: Path, images: Sequence[LabelledFile], numbers: dict[str, int]) -> None:
        super().__init__(root, synsets(), images)
        self._numbers = numbers
        self.pixel_classes = ("background", *numbers)

    def example(self, split: str, index: int, image_size: tuple[int, int], **drawn: Any) -> Example:
        made = super().example(split, index, image_size, **drawn)
        said: Any = made.target
        return replace(made, slices={**made.slices, "size": said.size})

    def target(self, row: int, size: tuple[int, int]) -> _Masked:
        """As `FileSource.target`.

        Raises:
            UnreadableDataError: it has no mask, or one without any pixel of its class.
        """
        target, image = super().target(row, size), Path(self.listing.paths[row])
        assert isinstance(target, Label)
        below = image.relative_to(self.root)
        mask = self.root.parent / "validation-segmentation" / below.with_suffix(".png")
        colours = read_image(mask, max_pixels=self.max_pixels).astype(np.int32)
        pixels = colours[..., 0] + 256 * colours[..., 1]
        own, said = int((pixels == self._numbers[below.parts[0]]).sum()), int((pixels != _IGNORED).sum())
        if not own:
            raise UnreadableDataError(f"{image}: its mask {mask.name} shows nothing of its class")
        share = own / said
        if pixels.shape != size:
            # A photograph that its camera turned: how large the object is, is known, but not where it lies.
            pixels = np.full(size, _IGNORED, np.int32)
        return _Masked(target.label, pixels=pixels, size=share)


def _numbers(folder: Path, root: Path) -> dict[str, int]:
    """The number in masks of each class by its synset: from 1 on, in the order of the synsets."""
    size = next((size for size in _SIZES if folder.name.endswith(str(size))), _SIZES[0])
    name = f"ImageNetS_categories_im{size}.txt"
    near = (folder, folder / "data" / "categories", root, root / "data" / "categories", folder.parent)
    file = next((place / name for place in near if (place / name).is_file()), None)
    if file is None:
        places = ", ".join(map(os.fspath, dict.fromkeys(near)))
        raise InputError(f"suite imagenet-s: no {name} (looked for it in {places})")
    found = sorted(set(read_text(file, CONFIGURATION, "a synset a line").split()))
    unknown = [one for one in found if one not in numbers_by_synset()]
    if unknown or not found:
        raise InputError(f"{file}: {(unknown or [''])[0]!r} is no class of ImageNet (expected a synset a line)")
    return {one: number for number, one in enumerate(found, start=1)}
