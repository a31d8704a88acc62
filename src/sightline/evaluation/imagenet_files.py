"""The images of ImageNet's test sets as they are published, and what the files beside them say."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Mapping
from pathlib import Path

from sightline.data.image_list import IMAGE_SUFFIXES, natural_key
from sightline.data.labelled import ClassificationFiles
from sightline.data.open import open_source
from sightline.data.source import Source
from sightline.errors import InputError
from sightline.evaluation.imagenet import SYNSET, image_number, synsets
from sightline.evaluation.suite_images import LabelledFile, in_class_folders
from sightline.io.read import RECORD, read_jsonl, read_text

VALIDATION = (
    "val", "validation", "ILSVRC2012_img_val", "ILSVRC2012_val", "ILSVRC/Data/CLS-LOC/val", "Data/CLS-LOC/val",
    "imagenet/val", "ILSVRC2012/val",
)  # fmt: skip
"""Where the validation images are looked for, as they are unpacked or as they are usually put."""
_LISTS = (
    "LOC_val_solution.csv",
    "val.txt",
    "ILSVRC2012_val.txt",
    "val_map.txt",
    "imagenet_2012_validation_synset_labels.txt",
)
_METADATA = "metadata.jsonl"
_IN_NAME = re.compile(r"_(n\d{8})\.\w+$")


def validation(folder: Path, root: Path) -> list[LabelledFile]:
    """The validation images in the order of their ILSVRC numbers, in class folders or all in one.

    Of one folder their classes are in a file beside it, a line an image: `LOC_val_solution.csv` (Kaggle's), `val.txt`
    or `val_map.txt` (NAME SYNSET, or NAME NUMBER), `imagenet_2012_validation_synset_labels.txt` (a synset a line, in
    the order of the numbers); or in their own names (`ILSVRC2012_val_00000001_n01751748.JPEG`).

    Raises:
        InputError: an image has no class, or there is no image.
    """
    if any(SYNSET.fullmatch(name) and (folder / name).is_dir() for name in os.listdir(folder)):
        labels = {name: number for number, name in enumerate(synsets())}
        found = in_class_folders(folder, labels, "imagenet")
    else:
        names = [name for name in os.listdir(folder) if name.lower().endswith(IMAGE_SUFFIXES) and name[0] != "."]
        if not names:
            raise InputError(f"{folder}: holds neither class folders nor images (expected n01440764/... or *.JPEG)")
        of = _listed(folder, root)
        found = [LabelledFile(os.path.join(folder, name), name, _label(name, of, folder)) for name in names]

    def order(one: LabelledFile) -> tuple[int, object]:
        return image_number(os.path.basename(one.path)) or 0, natural_key(one.name)

    return sorted(found, key=order)


def _label(name: str, of: Mapping[str, int], folder: Path) -> int:
    own = _IN_NAME.search(name)
    if own is not None and own[1] in synsets():
        return synsets().index(own[1])
    stem = name.rpartition(".")[0]
    if stem not in of:
        said = "no list of classes was found" if not of else "its list of classes has it not"
        raise InputError(
            f"{folder / name}: of no known class: {said} (expected class folders n01440764/..., or beside them one of "
            f"{', '.join(_LISTS)})"
        )
    return of[stem]


def _listed(folder: Path, root: Path) -> dict[str, int]:
    """The class of each image by its name without ending, as a file near the folder says; empty where there is none."""
    near = list(dict.fromkeys((folder, folder.parent, root, *list(folder.parents)[:4])))
    file = next((place / name for name in _LISTS for place in near if (place / name).is_file()), None)
    if file is None:
        return {}
    numbers = {name: number for number, name in enumerate(synsets())}
    found: dict[str, int] = {}
    for line, text in enumerate(read_text(file, RECORD, "a class for each image").splitlines(), start=1):
        words = text.replace(",", " ").split()
        if not words or words[0] == "ImageId":
            continue
        if len(words) == 1:
            words = [f"ILSVRC2012_val_{len(found) + 1:08d}", words[0]]
        said = words[1]
        number = numbers.get(said, int(said) if said.isdecimal() and len(said) < 9 else -1)
        if not 0 <= number < len(numbers):
            raise InputError(
                f"{file}:{line}: {said[:20]!r} is no class (expected a synset, or 0 to {len(numbers) - 1})"
            )
        name = os.path.basename(words[0])
        if found.setdefault(re.sub(r"\.\w+$", "", name), number) != number:
            before = found[re.sub(r"\.\w+$", "", name)]
            raise InputError(f"{file}:{line}: {name!r} is of class {number}, above of class {before}")
    if len(found) > 1 and sorted(found.values()) == list(range(1, len(found) + 1)):
        # Of the same form, and no classes: ImageSets/CLS-LOC/val.txt numbers the images.
        raise InputError(f"{file}: numbers the images and says no class (expected a list of classes)")
    return found


def high_resolution(folder: Path) -> tuple[list[LabelledFile], list[list[int]]]:
    """ImageNet-HR: the images that `metadata.jsonl` names, and of each its right answers.

    Raises:
        InputError: it is not there, a line of it is not `file_name` (of a file in this folder, each once) and `labels`.
    """
    file = folder / _METADATA
    found: list[LabelledFile] = []
    right: list[list[int]] = []
    lines: dict[str, int] = {}
    for line, record in read_jsonl(file, "the labels of images"):
        name, labels = (record.get("file_name"), record.get("labels")) if isinstance(record, dict) else (None, None)
        known = isinstance(labels, list) and all(
            isinstance(one, int) and not isinstance(one, bool) and 0 <= one < len(synsets()) for one in labels
        )
        if not isinstance(name, str) or not known or not labels:
            raise InputError(
                f"{file}:{line}: expected file_name, and labels from 0 to {len(synsets()) - 1}, one or more"
            )
        if not _is_below(name):
            raise InputError(f"{file}:{line}: {name[:40]!r}: expected file_name, of a file in this folder")
        if lines.setdefault(os.path.normpath(name), line) != line:
            first = lines[os.path.normpath(name)]
            raise InputError(f"{file}:{line}: {name!r} names the image of line {first} again (expected each once)")
        place = next((one for one in (folder / name, folder / "test" / name) if one.is_file()), folder / name)
        found.append(LabelledFile(os.fspath(place), name, labels[0]))
        right.append(labels)
    if not found:
        raise InputError(f"{file}: names no image")
    return found, right


def _is_below(name: str) -> bool:
    """Whether a name is of a file below a folder, whatever that is."""
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    parts = os.path.normpath(name).split(os.sep)
    return "\0" not in name and not os.path.isabs(name) and parts[0] not in (".", "..")


def from_datasets(spec: str) -> tuple[ClassificationFiles, str]:
    """A data set of Hugging Face whose classes are those of ImageNet, or some of them by their synsets, and its split.

    Raises:
        InputError: it has other classes, or as `open_source`.
    """
    source: Source = open_source(spec)
    names = synsets()
    place = {name: number for number, name in enumerate(names)}
    if not isinstance(source, ClassificationFiles) or not (
        len(source.classes) == len(names) or set(source.classes) <= place.keys()
    ):
        raise InputError(f"{spec}: has {len(source.classes)} classes, expected the {len(names)} of ImageNet")
    made = copy.copy(source)
    if set(source.classes) <= place.keys():
        # Faulty labels stay what they are.
        own = [place[name] for name in source.classes]
        made.labels = [own[label] if 0 <= label < len(own) else -1 for label in source.labels]
    made.classes = names
    return made, "test" if "test" in source.splits else source.splits[-1]
