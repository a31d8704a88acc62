"""ImageNet-1k's validation set and the test sets that share its classes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from sightline.errors import InputError
from sightline.evaluation import imagenet
from sightline.evaluation.imagenet import subset, synsets
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

# Where each is looked for below ROOT, as it is unpacked or as it is usually put.
_PLACES: dict[str, tuple[str, ...]] = {
    "val": imagenet.VALIDATION,
    "v2": (".", "imagenetv2", "imagenet-v2", "ImageNetV2"),
    "a": ("imagenet-a", "ImageNet-A"),
    "r": ("imagenet-r", "ImageNet-R"),
    "hr": ("imagenet-hr", "ImageNet-HR"),
    "sketch": ("imagenet-sketch", "ImageNet-Sketch", "sketch"),
}
_VARIANTS = {
    "matched-frequency": ("imagenetv2-matched-frequency-format-val", "imagenetv2-matched-frequency"),
    "threshold-0.7": ("imagenetv2-threshold0.7-format-val", "imagenetv2-threshold0.7"),
    "top-images": ("imagenetv2-top-images-format-val", "imagenetv2-top-images"),
}


class ImageNetSuite(Suite):
    """`imagenet:ROOT` takes what is there below ROOT; `,parts=val+a` takes these alone, and one that is missing is then
    an error; `,val=PLACE` and the like says where one of them is, a folder or `hf:` with a data set of Hugging Face.

    val gives `imagenet`, by its own labels, and `imagenet-real`, by the reassessed ones (several may be right; images
    without any are left out); v2 its three variants and, where all are there, `imagenet-v2`, all of them together; a
    and r are scored among their 200 classes and among all 1,000 (`imagenet-a-1000`); hr has several right answers.
    """

    name: ClassVar[str] = "imagenet"

    @classmethod
    def open(cls, argument: str) -> OpenedSuite:
        place, options = cls.parse(argument, "parts", *_PLACES)
        asked = cls.chosen(options.pop("parts", None), _PLACES, "part")
        root = cls.root(place) if place or not options else None
        parts: list[EvalSet] = []
        missing: list[str] = []
        folders = [] if root is None else [root]
        for name in asked:
            try:
                if name in options:
                    parts.append(_own(name, options[name]))
                    folders += [] if options[name].startswith("hf:") else [Path(options[name])]
                elif root is not None:
                    parts.append(_part(name, root, _PLACES[name]))
            except _MissingError as error:
                missing.append(str(error))
                if name in options or "parts=" in argument:
                    raise InputError(str(error)) from None
            if name == "val" and parts and len(parts[-1].scorings) < 2:
                place = options.get("val", parts[-1].source.example_name(parts[-1].split, 0).rpartition("/")[0])
                missing.append(
                    f"imagenet-real: images of {place} are not called by their numbers (ILSVRC2012_val_00000001.JPEG)"
                )
        if not parts:
            raise InputError(f"suite {cls.name}: nothing of it is there: {'; '.join(missing)}")
        return OpenedSuite(tuple(parts), tuple(missing), tuple(folders))


class _MissingError(Exception):
    """A data set is not there: in one line, what was looked for, and where."""


def _data(name: str) -> str:
    return "imagenet" if name == "val" else f"imagenet-{name}"


def _own(name: str, place: str) -> EvalSet:
    """A data set whose place was said."""
    if not place.startswith("hf:"):
        return _part(name, ImageNetSuite.root(place), (".",))
    if name == "hr":
        raise InputError(f"imagenet-hr: {place} says one label an image (expected a folder with metadata.jsonl)")
    source, split = imagenet.from_datasets(place)
    return EvalSet(_data(name), source, split, _scorings(name, source.labels_of(split)), True, careful=name == "a")


def _part(name: str, root: Path, places: Sequence[str]) -> EvalSet:
    """A data set in the first of some folders below a root."""
    data = _data(name)
    folder = place_of(root, places, (lambda place: bool(_variants(place))) if name == "v2" else Path.is_dir)
    if folder is None:
        looked = [names[0] for names in _VARIANTS.values()] if name == "v2" else places
        raise _MissingError(f"{data} is not in {root} (looked for the folders {', '.join(looked)})")
    if name == "v2":
        images, scorings = _second(folder)
    elif name == "hr":
        images, right = imagenet.high_resolution(folder)
        scorings = (Scoring(data, right),)
    elif name == "val":
        images = imagenet.validation(folder, root)
        scorings = _of_validation(images)
    else:
        numbers = subset(name) if name in ("a", "r") else range(len(synsets()))
        images = in_class_folders(folder, {synsets()[number]: number for number in numbers}, data)
        scorings = _scorings(name, [one.label for one in images])
    source = SuiteImages(folder, synsets(), images)
    return EvalSet(data, source, TEST, scorings, imagenet=True, careful=name == "a")


def _scorings(name: str, labels: Sequence[int]) -> tuple[Scoring, ...]:
    if name not in ("a", "r"):
        return (Scoring(_data(name)),)
    some = Scoring(_data(name), [[label] for label in labels], subset(name))
    return some, Scoring(f"{_data(name)}-{len(synsets())}")


def _of_validation(images: Sequence[LabelledFile]) -> tuple[Scoring, ...]:
    numbers = [imagenet.image_number(Path(one.path).name) for one in images]
    if any(number is None for number in numbers):
        # Renamed files: whose labels are whose is not known any more.
        return (Scoring("imagenet"),)
    real = imagenet.reassessed()
    right = [real[number - 1] for number in numbers if number is not None]
    return Scoring("imagenet"), Scoring("imagenet-real", right)


def _second(folder: Path) -> tuple[list[LabelledFile], tuple[Scoring, ...]]:
    """ImageNet-V2: class folders are called by numbers, of which "10" is no second class though it sorts so."""
    labels = {str(number): number for number in range(len(synsets()))}
    images: list[LabelledFile] = []
    of: list[str] = []
    for variant, place in _variants(folder).items():
        some = in_class_folders(place, labels, f"imagenet-v2-{variant}")
        images += [LabelledFile(one.path, f"{variant}/{one.name}", one.label) for one in some]
        of += [variant] * len(some)
    scorings = [
        Scoring(
            f"imagenet-v2-{variant}",
            [[one.label] if its == variant else [] for one, its in zip(images, of, strict=True)],
        )
        for variant in dict.fromkeys(of)
    ]
    whole = [Scoring("imagenet-v2")] if len(scorings) == len(_VARIANTS) else []
    return images, (*scorings, *whole)


def _variants(folder: Path) -> dict[str, Path]:
    """The variants that are there."""
    found = {variant: place_of(folder, names) for variant, names in _VARIANTS.items()}
    return {variant: place for variant, place in found.items() if place is not None}
