"""What is in a folder and below it: one walk for every reader of files, which follows links."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from sightline.data.skip_policy import Unreadable
from sightline.errors import UnreadableDataError

Entry = os.DirEntry[str]


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
    """A folder and those below it, each before those in it, with the folders and the other entries in it by name.

    Links to folders are followed; no folder is entered below itself, so that a ring of links ends. What the caller
    removes from the list of folders is not entered.

    Args:
        skipped: what is passed over is added: what is hidden, and links to a folder that they stand below.
        closed: folders that may not be read are added, and the walk goes on; None raises.

    Raises:
        UnreadableDataError: a folder may not be read, and `closed` is None.
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
