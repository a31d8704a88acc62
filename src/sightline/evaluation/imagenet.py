"""ImageNet's classes and test sets: what timm's files know of them (`timm/data/_info`, without importing timm), and the
images as they are published, with what the files beside them say."""

from __future__ import annotations

import copy
import functools
import importlib.util
import os
import re
from collections.abc import Sequence
from pathlib import Path

from sightline.data.image_list import IMAGE_SUFFIXES, natural_key
from sightline.data.labelled import ClassificationFiles
from sightline.data.open import open_source
from sightline.errors import InputError
from sightline.evaluation.suites.base import LabelledFile, in_class_folders
from sightline.io.read import RECORD, read_json, read_jsonl, read_text

VALIDATION = (
    "val", "validation", "ILSVRC2012_img_val", "ILSVRC2012_val", "ILSVRC/Data/CLS-LOC/val", "Data/CLS-LOC/val",
    "imagenet/val", "ILSVRC2012/val",
)  # fmt: skip
"""Where the validation images are looked for, as they are unpacked or as they are usually put."""
# A text of a million lines is longer than any of timm's.
_MOST_BYTES = 32 << 20
_SYNSET = re.compile(r"n\d{8}")
_NUMBER = re.compile(r"ILSVRC2012_val_(\d{8})")
_IN_NAME = re.compile(r"_(n\d{8})\.\w+$")
_LISTS = (
    "LOC_val_solution.csv", "val.txt", "ILSVRC2012_val.txt", "val_map.txt",
    "imagenet_2012_validation_synset_labels.txt",
)  # fmt: skip


def _info(name: str) -> Path:
    found = importlib.util.find_spec("timm")
    for place in [] if found is None else found.submodule_search_locations or ():
        if (file := Path(place) / "data" / "_info" / name).is_file():
            return file
    raise InputError(f"timm: has no data/_info/{name} (expected timm 1.0 or later, which the suites of ImageNet read)")


@functools.cache
def synsets() -> tuple[str, ...]:
    """The 1,000 classes in the order of their numbers."""
    return tuple(read_text(_info("imagenet_synsets.txt"), _MOST_BYTES, "names of classes").split())


@functools.cache
def numbers_by_synset() -> dict[str, int]:
    """The number of each class."""
    return {name: number for number, name in enumerate(synsets())}


@functools.cache
def described() -> tuple[str, ...]:
    """Their names in words, in the same order."""
    lines = read_text(_info("imagenet_synset_to_lemma.txt"), _MOST_BYTES, "names of classes").splitlines()
    words = dict(line.split("\t", 1) for line in lines if "\t" in line)
    return tuple(words.get(one, one) for one in synsets())


@functools.cache
def subset(letter: str) -> tuple[int, ...]:
    """The numbers of the 200 classes of ImageNet-A ("a") or ImageNet-R ("r"), rising."""
    text = read_text(_info(f"imagenet_{letter}_indices.txt"), _MOST_BYTES, "numbers of classes")
    return tuple(sorted(map(int, text.split())))


@functools.cache
def reassessed() -> tuple[tuple[int, ...], ...]:
    """Of each validation image, by its number from 1 on at place 0 on, the labels of ReaL (Beyer et al. 2020); none of
    images without."""
    return tuple(map(tuple, read_json(_info("imagenet_real_labels.json"), "labels of images", most=_MOST_BYTES)))


def numbers_of(known: Sequence[str] | None, count: int, suite: str) -> list[int] | None:
    """A model's number of each class, where it knows them by their names in another order; None where its numbers are
    those of ImageNet.

    Args:
        known: names of the model's classes, if it has any; count: how many it has.

    Raises:
        InputError: it has another number of classes, or other ones.
    """
    names = synsets()
    if count != len(names):
        raise InputError(f"suite {suite}: has {len(names):,} classes, the model's head {count:,}")
    if known is None:
        return None
    if set(known) == set(names):
        place = {name: number for number, name in enumerate(known)}
        return None if tuple(known) == names else [place[name] for name in names]
    # Words differ here and there between those who wrote them down; other classes differ everywhere.
    alike = sum(one == other for one, other in zip(known, described(), strict=True))
    if 2 * alike < count:
        raise InputError(
            f"suite {suite}: the model has {count:,} classes of other names (its first is {known[0]!r}, ImageNet's "
            f"{names[0]}, {described()[0]!r})"
        )
    return None


def image_number(name: str) -> int | None:
    """The number of a validation image in its file's name, 1 to 50,000; None where there is none."""
    found = _NUMBER.search(name)
    number = int(found[1]) if found else 0
    return number if 1 <= number <= len(reassessed()) else None


def validation(folder: Path, root: Path) -> list[LabelledFile]:
    """The validation images in the order of their ILSVRC numbers, in class folders or all in one.

    Of one folder their classes are in a file beside it, a line an image: `LOC_val_solution.csv` (Kaggle's), `val.txt`
    or `val_map.txt` (NAME SYNSET, or NAME NUMBER), `imagenet_2012_validation_synset_labels.txt` (a synset a line, in
    the order of the numbers); or in their own names (`ILSVRC2012_val_00000001_n01751748.JPEG`).

    Raises:
        InputError: an image has no class, or there is no image.
    """
    if any(_SYNSET.fullmatch(name) and (folder / name).is_dir() for name in os.listdir(folder)):
        found = in_class_folders(folder, numbers_by_synset(), "imagenet")
    else:
        names = [name for name in os.listdir(folder) if name.lower().endswith(IMAGE_SUFFIXES) and name[0] != "."]
        if not names:
            raise InputError(f"{folder}: holds neither class folders nor images (expected n01440764/... or *.JPEG)")
        listed, found = _listed(folder, root), list[LabelledFile]()
        for name in names:
            own = _IN_NAME.search(name)
            label = numbers_by_synset().get(own[1]) if own else None
            label = listed.get(name.rpartition(".")[0]) if label is None else label
            if label is None:
                said = "its list of classes has it not" if listed else "no list of classes was found"
                raise InputError(
                    f"{folder / name}: of no known class: {said} (expected class folders n01440764/..., or beside them "
                    f"one of {', '.join(_LISTS)})"
                )
            found.append(LabelledFile(os.path.join(folder, name), name, label))
    return sorted(found, key=lambda one: (image_number(os.path.basename(one.path)) or 0, natural_key(one.name)))


def _listed(folder: Path, root: Path) -> dict[str, int]:
    """The class of each image by its name without ending, as a file near the folder says; empty where there is none."""
    near = list(dict.fromkeys((folder, folder.parent, root, *list(folder.parents)[:4])))
    file = next((place / name for name in _LISTS for place in near if (place / name).is_file()), None)
    if file is None:
        return {}
    numbers, found = numbers_by_synset(), dict[str, int]()
    for line, text in enumerate(read_text(file, RECORD, "a class for each image").splitlines(), start=1):
        words = text.replace(",", " ").split()
        if not words or words[0] == "ImageId":
            continue
        name, said = words[:2] if len(words) > 1 else (f"ILSVRC2012_val_{len(found) + 1:08d}", words[0])
        number = numbers.get(said, int(said) if said.isdecimal() else -1)
        if not 0 <= number < len(numbers):
            expected = f"expected a synset, or 0 to {len(numbers) - 1}"
            raise InputError(f"{file}:{line}: {said[:20]!r} is no class ({expected})")
        found[re.sub(r"\.\w+$", "", os.path.basename(name))] = number
    if len(found) > 1 and sorted(found.values()) == list(range(1, len(found) + 1)):
        # Of the same form, and no classes: ImageSets/CLS-LOC/val.txt numbers the images.
        raise InputError(f"{file}: numbers the images and says no class (expected a list of classes)")
    return found


def high_resolution(folder: Path) -> tuple[list[LabelledFile], list[list[int]]]:
    """ImageNet-HR: the images that `metadata.jsonl` names, and of each its right answers.

    Raises:
        InputError: it is not there, or a line of it is not `file_name` and `labels`.
    """
    file, most = folder / "metadata.jsonl", len(synsets()) - 1
    found: list[LabelledFile] = []
    right: list[list[int]] = []
    for line, record in read_jsonl(file, "the labels of images"):
        name, labels = (record.get("file_name"), record.get("labels")) if isinstance(record, dict) else ("", [])
        known = isinstance(labels, list) and all(type(one) is int and 0 <= one <= most for one in labels)
        if not isinstance(name, str) or not labels or not known:
            raise InputError(f"{file}:{line}: expected file_name, and labels from 0 to {most}, one or more")
        place = next((one for one in (folder / name, folder / "test" / name) if one.is_file()), folder / name)
        found.append(LabelledFile(os.fspath(place), name, labels[0]))
        right.append(labels)
    if not found:
        raise InputError(f"{file}: names no image")
    return found, right


def from_datasets(spec: str) -> tuple[ClassificationFiles, str]:
    """A data set of Hugging Face whose classes are those of ImageNet, or some of them by their synsets, and its split.

    Raises:
        InputError: it has other classes, or as `open_source`.
    """
    source, numbers = open_source(spec), numbers_by_synset()
    named = set(source.classes) <= numbers.keys()
    if not isinstance(source, ClassificationFiles) or not (named or len(source.classes) == len(numbers)):
        raise InputError(f"{spec}: has {len(source.classes)} classes, expected the {len(numbers)} of ImageNet")
    made = copy.copy(source)
    if named:
        # Faulty labels stay what they are.
        own = [numbers[name] for name in source.classes]
        made.labels = [own[label] if 0 <= label < len(own) else -1 for label in source.labels]
    made.classes = synsets()
    return made, "test" if "test" in source.splits else source.splits[-1]
