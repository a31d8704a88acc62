"""What is known of ImageNet's classes: their order, those of its smaller test sets, and the reassessed labels.

All of it is read from the files that come with timm (`timm/data/_info`), without importing timm; nothing is typed here.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path

from sightline.errors import InputError
from sightline.io.read import read_json, read_text

# A text of a million lines is longer than any of these.
_MOST_BYTES = 32 << 20
SYNSET = re.compile(r"n\d{8}")
_NUMBER = re.compile(r"ILSVRC2012_val_(\d{8})")
IMAGES = 50_000
"""Of the validation set, numbered from 1 on."""


def _info(name: str) -> Path:
    found = importlib.util.find_spec("timm")
    places = [] if found is None else [Path(place) for place in found.submodule_search_locations or ()]
    for place in places:
        if (file := place / "data" / "_info" / name).is_file():
            return file
    raise InputError(f"timm: has no data/_info/{name} (expected timm 1.0 or later, which the suites of ImageNet read)")


@functools.cache
def synsets() -> tuple[str, ...]:
    """The 1,000 classes in the order of their numbers."""
    return tuple(read_text(_info("imagenet_synsets.txt"), _MOST_BYTES, "names of classes").split())


@functools.cache
def described() -> tuple[str, ...]:
    """Their names in words, in the same order."""
    lines = read_text(_info("imagenet_synset_to_lemma.txt"), _MOST_BYTES, "names of classes").splitlines()
    words = dict(line.split("\t", 1) for line in lines if "\t" in line)
    return tuple(words.get(one, one) for one in synsets())


@functools.cache
def subset(letter: str) -> tuple[int, ...]:
    """The numbers of the 200 classes of ImageNet-A ("a") or ImageNet-R ("r"), rising.

    Raises:
        InputError: timm's two lists of them, by number and by name, disagree.
    """
    texts = (
        read_text(_info(f"imagenet_{letter}_{kind}.txt"), _MOST_BYTES, "classes").split()
        for kind in ("indices", "synsets")
    )
    numbers, names = texts
    known = synsets()
    if [known[int(number)] for number in numbers] != list(names):
        raise InputError(f"timm: imagenet_{letter}_indices.txt and imagenet_{letter}_synsets.txt disagree")
    return tuple(sorted(map(int, numbers)))


@functools.cache
def reassessed() -> tuple[tuple[int, ...], ...]:
    """Of each validation image, by its number from 1 on at place 0 on, the labels of ReaL (Beyer et al. 2020); none of
    images without."""
    record = read_json(_info("imagenet_real_labels.json"), "labels of images", most=_MOST_BYTES)
    if not isinstance(record, list) or len(record) != IMAGES:
        raise InputError(f"timm: imagenet_real_labels.json holds no {IMAGES} lists of labels")
    return tuple(map(tuple, record))


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
    return number if 1 <= number <= IMAGES else None
