"""What is in a folder and below it, by one walk that follows links; and which names of folders, shards and tables mean
a split."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from sightline.data.skip_policy import Unreadable
from sightline.errors import InputError, UnreadableDataError

Entry = os.DirEntry[str]
SPLITS = ("train", "minival", "val", "validation", "test")
"""What splits are called inside; `validation` is `val` by its other name."""
# Those that Hugging Face's documentation publishes ("Split names"), and `minival`.
_MEANING = {
    **{one: one for one in SPLITS}, "training": "train", "valid": "val", "dev": "val", "testing": "test",
    "eval": "test", "evaluation": "test",
}  # fmt: skip


def entries_of(folder: str | Path) -> list[Entry]:
    """What is in a folder, sorted by name; raises UnreadableDataError where it may not be read."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise UnreadableDataError(f"{folder}: {error.strerror}") from None


def folders_in(folder: str | Path) -> list[str]:
    """The names of the folders in a folder, those of links to folders too, but for hidden ones; raises as
    `entries_of`."""
    return [entry.name for entry in entries_of(folder) if not entry.name.startswith(".") and is_folder(entry)]


def is_folder(entry: Entry) -> bool:
    """Whether it is a folder or a link to one; a link to itself is none."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def walk(
    folder: str | Path, skipped: list[Unreadable], closed: list[Unreadable] | None = None
) -> Iterator[tuple[str, list[Entry], list[Entry]]]:
    """A folder and those below it, each before those in it, with the folders and the other entries in it by name. What
    the caller removes from the list of folders is not entered.

    Links to folders are followed; no folder is entered below itself, so that a ring of links ends. What is hidden, and
    such links, are added to `skipped`; folders that may not be read to `closed`, or raise UnreadableDataError.
    """
    waiting = [(os.fspath(folder), frozenset(map(os.path.realpath, Path(os.path.abspath(folder)).parents)))]
    while waiting:
        place, above = waiting.pop()
        above |= {os.path.realpath(place)}
        try:
            entries = entries_of(place)
        except UnreadableDataError as error:
            if closed is None:
                raise
            closed.append(Unreadable(place, str(error).removeprefix(f"{place}: ")))
            continue
        folders, others = list[Entry](), list[Entry]()
        for entry in entries:
            if entry.name.startswith("."):
                skipped.append(Unreadable(entry.path, "hidden"))
            elif not is_folder(entry):
                others.append(entry)
            elif entry.is_symlink() and os.path.realpath(entry.path) in above:
                skipped.append(Unreadable(entry.path, "a link to a folder that it stands below"))
            else:
                folders.append(entry)
        yield place, folders, others
        waiting += [(entry.path, above) for entry in reversed(folders)]


def split_by_name(name: str) -> str | None:
    """The one of `SPLITS` that a name means, whatever its case; None for none."""
    return _MEANING.get(name.casefold())


def is_same_split(one: str, other: str) -> bool:
    """Whether two names mean one split."""
    meant, also = ({"validation": "val"}.get(found := split_by_name(name) or name, found) for name in (one, other))
    return meant == also


def splits_among(names: Iterable[str], where: object) -> dict[str, str]:
    """Which of some names mean a split: split -> name, in the order of `SPLITS`; raises InputError where two mean the
    same one."""
    found: dict[str, str] = {}
    for name in filter(split_by_name, names):
        if twice := [other for other in found.values() if is_same_split(other, name)]:
            raise InputError(f"{where}: {twice[0]} and {name} mean the same split (expected: one of them)")
        found[str(split_by_name(name))] = name
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
    """The folder in `root` of that name, else the one that means the same split; raises InputError where several do."""
    alike = [] if (root / name).exists() or not root.is_dir() else folders_in(root)
    return root / next(iter(splits_among((one for one in alike if is_same_split(one, name)), root).values()), name)


def split_in(name: str) -> str | None:
    """The split that a word of a file's name means, as in `train-0001.tar` or `pets-validation-00.tar`; None where
    there is none, or words mean several."""
    found = dict.fromkeys(filter(None, map(split_by_name, re.split(r"[^a-z]+", name.lower()))))
    return next(iter(found)) if len(found) == 1 else None


def files_by_split(paths: Sequence[str], otherwise: str) -> dict[str, list[str]]:
    """Split -> its files, in their order: by a word of their names where each has one, else by the folders that they
    are in where each of those means a split, or the file's name does; else all are one split, `otherwise`."""
    words = [split_in(os.path.basename(path)) for path in paths]
    if not all(words):
        folders = [split_by_name(os.path.basename(os.path.dirname(os.path.abspath(path)))) for path in paths]
        words = [folder or word for folder, word in zip(folders, words, strict=True)]
    words = words if all(words) else [otherwise] * len(paths)
    parts = {split: [path for path, word in zip(paths, words, strict=True) if word == split] for split in SPLITS}
    return {split: found for split, found in parts.items() if found}
