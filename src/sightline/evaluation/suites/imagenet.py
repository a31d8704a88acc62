"""ImageNet-1k's validation set and the test sets that share its classes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from sightline.errors import InputError
from sightline.evaluation.imagenet import image_number, reassessed, subset, synsets
from sightline.evaluation.imagenet_files import VALIDATION, from_datasets, high_resolution, validation
from sightline.evaluation.scoring import Scoring
from sightline.evaluation.suite_images import LabelledFile, SuiteImages, in_class_folders
from sightline.evaluation.suites.base import (
    EvalSet,
    OpenedSuite,
    Suite,
    chosen_of,
    options_in,
    place_of,
    required_root,
)

# Where each is looked for below ROOT, as it is unpacked or as it is usually put.
_PLACES: dict[str, tuple[str, ...]] = {
    "val": VALIDATION,
    "v2": (".", "imagenetv2", "imagenet-v2", "ImageNetV2"),
    "a": ("imagenet-a", "ImageNet-A"),
    "r": ("imagenet-r", "ImageNet-R"),
    "hr": ("imagenet-hr", "ImageNet-HR"),
    "sketch": ("imagenet-sketch", "ImageNet-Sketch", "sketch"),
}  # fmt: skip
_VARIANTS = {
    "matched-frequency": ("imagenetv2-matched-frequency-format-val", "imagenetv2-matched-frequency"),
    "threshold-0.7": ("imagenetv2-threshold0.7-format-val", "imagenetv2-threshold0.7"),
    "top-images": ("imagenetv2-top-images-format-val", "imagenetv2-top-images"),
}  # fmt: skip


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
        place, options = options_in(argument, ("parts", *_PLACES), cls.name)
        asked = chosen_of(options.pop("parts", None), tuple(_PLACES), f"suite {cls.name}: part")
        root = required_root(place, cls.name) if place or not options else None
        parts: list[EvalSet] = []
        missing: list[str] = []
        folders: list[Path] = [] if root is None else [root]
        for name in asked:
            try:
                if name in options:
                    parts += _own(name, options[name])
                    folders += [] if options[name].startswith("hf:") else [Path(options[name])]
                elif root is not None:
                    parts += _parts(name, root)
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


def _own(name: str, place: str) -> list[EvalSet]:
    """The parts of a data set whose place was said."""
    if place.startswith("hf:"):
        if name == "hr":
            raise InputError(f"imagenet-hr: {place} says one label an image (expected a folder with metadata.jsonl)")
        source, split = from_datasets(place)
        made = EvalSet(_data(name), source, split, _scorings(name, source.labels_of(split)), True, careful=name == "a")
        return [made]
    return _parts(name, required_root(place, "imagenet"), here=True)


def _parts(name: str, root: Path, *, here: bool = False) -> list[EvalSet]:
    """The parts of a data set below a root, or of the root itself."""
    places = (".",) if here else _PLACES[name]
    if name == "v2":
        return _second(root, places)
    folder = place_of(root, places)
    if folder is None:
        raise _MissingError(f"{_data(name)} is not in {root} (looked for the folders {', '.join(places)})")
    if name == "hr":
        images, right = high_resolution(folder)
        return [_part(name, folder, images, (Scoring(_data(name), right),))]
    if name == "val":
        images = validation(folder, root)
        return [_part(name, folder, images, _of_validation(images))]
    labels = {name: number for number, name in enumerate(synsets())}
    if name in ("a", "r"):
        labels = {synsets()[number]: number for number in subset(name)}
    images = in_class_folders(folder, labels, _data(name))
    return [_part(name, folder, images, _scorings(name, [one.label for one in images]))]


def _part(name: str, folder: Path, images: Sequence[LabelledFile], scorings: tuple[Scoring, ...]) -> EvalSet:
    data = _data(name)
    source = SuiteImages(data, folder, synsets(), images)
    return EvalSet(data, source, "test", scorings, imagenet=True, careful=name == "a")


def _data(name: str) -> str:
    return "imagenet" if name == "val" else f"imagenet-{name}"


def _scorings(name: str, labels: Sequence[int]) -> tuple[Scoring, ...]:
    if name not in ("a", "r"):
        return (Scoring(_data(name)),)
    right = [[label] for label in labels]
    return Scoring(_data(name), right, subset(name)), Scoring(f"{_data(name)}-{len(synsets())}")


def _of_validation(images: Sequence[LabelledFile]) -> tuple[Scoring, ...]:
    numbers = [image_number(Path(one.path).name) for one in images]
    if any(number is None for number in numbers):
        # Renamed files: whose labels are whose is not known any more.
        return (Scoring("imagenet"),)
    real = reassessed()
    right = [real[number - 1] for number in numbers if number is not None]
    return Scoring("imagenet"), Scoring("imagenet-real", right)


def _second(root: Path, places: Sequence[str]) -> list[EvalSet]:
    """ImageNet-V2: class folders are called by numbers, of which "10" is no second class though it sorts so."""
    folder = place_of(root, places, lambda place: bool(_variants(place)))
    if folder is None:
        names = ", ".join(name for some in _VARIANTS.values() for name in some[:1])
        raise _MissingError(f"imagenet-v2 is not in {root} (looked for the folders {names})")
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
    if len(scorings) == len(_VARIANTS):
        scorings.append(Scoring("imagenet-v2"))
    return [_part("v2", folder, images, tuple(scorings))]


def _variants(folder: Path) -> dict[str, Path]:
    """The variants that are there."""
    found = {variant: place_of(folder, names) for variant, names in _VARIANTS.items()}
    return {variant: place for variant, place in found.items() if place is not None}
