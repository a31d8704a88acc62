"""Which names mean a split: one rule for folders, shards and tables."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from sightline.data.folders import entries_of, folders_in
from sightline.data.skip_policy import Unreadable
from sightline.errors import InputError

SPLITS = ("train", "minival", "val", "validation", "test")
"""What splits are called inside; `validation` is `val` by its other name."""
# Those that Hugging Face's documentation publishes ("Split names"), and `minival`.
_MEANING = {
    **{one: one for one in SPLITS}, "training": "train", "valid": "val", "dev": "val", "testing": "test",
    "eval": "test", "evaluation": "test",
}  # fmt: skip


def split_called(name: str) -> str | None:
    """The one of `SPLITS` that a name means, whatever its case; None for none."""
    return _MEANING.get(name.casefold())


def is_same_split(one: str, other: str) -> bool:
    """Whether two names mean one split."""
    meant, also = ({"validation": "val"}.get(found := split_called(name) or name, found) for name in (one, other))
    return meant == also


def splits_among(names: Iterable[str], where: object) -> dict[str, str]:
    """Which of some names mean a split: split -> name, in the order of `SPLITS`; raises InputError where two mean the
    same one."""
    found: dict[str, str] = {}
    for name in filter(split_called, names):
        if twice := [other for other in found.values() if is_same_split(other, name)]:
            raise InputError(f"{where}: {twice[0]} and {name} mean the same split (expected: one of them)")
        found[str(split_called(name))] = name
    return {split: found[split] for split in SPLITS if split in found}


def synonyms_beside(names: Collection[str]) -> list[str]:
    """Those of some names that mean a split which stands among them by its own name."""
    own = [name for name in names if name in SPLITS]
    return [name for name in names if name not in own and any(is_same_split(name, one) for one in own)]


def split_folders(root: Path, otherwise: str, skipped: list[Unreadable]) -> dict[str, Path]:
    """Split -> the folder of its name; `otherwise` is the whole where there is none. What stands beside them is added
    to `skipped`. Raises InputError where two are of one split."""
    names = folders_in(root)
    # Beside a split itself a synonym, as `eval` for results, is one only where it holds folders too.
    beside = [name for name in synonyms_beside(names) if not folders_in(root / name)]
    found = splits_among((name for name in names if name not in beside), root)
    if not found:
        return {otherwise: root}
    others = (entry for entry in entries_of(root) if entry.name not in found.values())
    skipped += [Unreadable(entry.path, "not a split") for entry in others]
    return {split: root / name for split, name in found.items()}


def folder_like(name: str, root: Path) -> Path:
    """The folder in `root` of the split that a name means: that of the same name, else the one that means the same;
    raises InputError where several do."""
    alike = [] if (root / name).exists() or not root.is_dir() else folders_in(root)
    return root / next(iter(splits_among((one for one in alike if is_same_split(one, name)), root).values()), name)


def split_in(name: str) -> str | None:
    """The split that a word of a file's name means, as in `train-0001.tar` or `pets-validation-00.tar`; None where
    there is none, or words mean several."""
    found = dict.fromkeys(filter(None, map(split_called, re.split(r"[^a-z]+", name.lower()))))
    return next(iter(found)) if len(found) == 1 else None


def files_by_split(paths: Sequence[str], otherwise: str) -> dict[str, list[str]]:
    """Split -> its files, in their order: by a word of their names where each has one, else by the folders that they
    are in where each of those means a split, or the file's name does; else all are one split, `otherwise`."""
    words = [split_in(os.path.basename(path)) for path in paths]
    if not all(words):
        folders = [split_called(os.path.basename(os.path.dirname(os.path.abspath(path)))) for path in paths]
        words = [folder or word for folder, word in zip(folders, words, strict=True)]
    words = words if all(words) else [otherwise] * len(paths)
    parts = {split: [path for path, word in zip(paths, words, strict=True) if word == split] for split in SPLITS}
    return {split: found for split, found in parts.items() if found}
