"""Everything that can be known of a folder of images, from reading all of it once."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from sightline.data.image_index import thread_map
from sightline.data.skip_policy import Unreadable
from sightline.data.stored import FileSource
from sightline.data.summary import Summary
from sightline.data.targets import IGNORE
from sightline.errors import InaccessibleDataError, UnreadableDataError

# Images of more pixels are decoded one at a time.
_LARGE = 1 << 22


@dataclass(frozen=True, eq=False)
class FolderCheck:
    """What was found.

    Attributes:
        counts: folder of a split -> class -> images that can be read; "images" where they have none.
        said: folder of a split -> class -> pixels, or objects, that are said to be of it, in those images; empty where
            neither is said. ignored: folder of a split -> pixels that are said to be of none.
        sizes: int64 [images, 2], (height, width) of those.
        unreadable: folder of a split -> what cannot be read, and why.
        duplicates: groups of paths whose files hold the same bytes; across: those of them that reach over two splits;
            disputed: those that stand under several classes.
        summary: of what is trained on.
    """

    counts: dict[str, dict[str, int]]
    said: dict[str, dict[str, int]]
    ignored: dict[str, int]
    sizes: np.ndarray
    unreadable: dict[str, tuple[Unreadable, ...]]
    duplicates: tuple[tuple[str, ...], ...]
    across: tuple[tuple[str, ...], ...]
    disputed: tuple[tuple[str, ...], ...]
    summary: Summary

    @property
    def to_skip(self) -> int:
        """The most unreadable images of a split: what `skip_unreadable` must allow."""
        return max(map(len, self.unreadable.values()), default=0)


def check_folder(source: FileSource, *, progress: Callable[[str, int, int], None] | None = None) -> FolderCheck:
    """Decode every image once, and what is said of it, side by side, and remember what was found.

    Args:
        progress: called with (what is done, files done, files in all).

    Raises:
        UnreadableDataError: nothing of what is trained on can be read.
    """
    files, paths, splits = source.listing, source.listing.paths, source.listing.splits
    say = progress or (lambda *_: None)
    files.read_headers(range(len(paths)), lambda done, total: say("reading headers", done, total))
    alone, targets = threading.Lock(), dict[int, Mapping[int, int]]()

    def fault(row: int) -> UnreadableDataError | None:
        try:
            with alone if files.sizes[row].prod(dtype=np.int64) > _LARGE else contextlib.nullcontext():
                targets[row] = source.target(row, source.decoded_size(row)).counted()
            # What a run compares where only times differ; just read, it is in memory.
            files.digest(row)
        except UnreadableDataError as error:
            return error
        return None

    said = {row: reason for row in source.images if (reason := source.header_error(row)) is not None}
    whole = [row for row in source.images if row not in said]
    for number, (row, error) in enumerate(thread_map(fault, whole), start=1):
        files.damaged.pop(row, None)
        if error is not None:
            said[row] = str(error).removeprefix(f"{paths[row]}: ")
            # What files beside it say may be mended while the image stays.
            if said[row] != str(error) and not isinstance(error, InaccessibleDataError):
                files.damaged[row] = said[row]
        say("reading images", number, len(whole))
    twins = files.duplicates(across=False, rows=source.images)
    files.changed = True
    summary = source.summary()
    source.remember()
    labelled = {split: split not in source.unlabelled for split in dict.fromkeys(splits)}
    counts = {split: dict.fromkeys(source.classes or ("images",), 0) if has else {} for split, has in labelled.items()}
    totals = {split: Counter[int]() for split in counts}
    good = [row for row in source.images if row not in said]
    for row in good:
        count, name = counts[splits[row]], source.class_name(row)
        count[name] = count.get(name, 0) + 1
        totals[splits[row]].update(targets[row])
    names = source.pixel_classes or source.object_classes

    def told_apart(groups: Iterable[list[int]], by: Callable[[int], object]) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(paths[row] for row in group) for group in groups if len({by(row) for row in group}) > 1)

    # One whose label is none of the classes has no class.
    classed = ([row for row in group if row not in said and labelled[splits[row]]] for group in twins)
    bad = {split: [row for row in sorted(said) if splits[row] == split] for split in counts}
    return FolderCheck(
        counts=counts,
        said={split: {name: found[at] for at, name in enumerate(names)} for split, found in totals.items() if names},
        ignored={split: found[IGNORE] if source.pixel_classes else 0 for split, found in totals.items()},
        sizes=files.sizes[good].astype(np.int64),
        unreadable={split: tuple(Unreadable(paths[row], said[row]) for row in rows) for split, rows in bad.items()},
        duplicates=told_apart(twins, paths.__getitem__),
        across=told_apart(twins, splits.__getitem__),
        disputed=told_apart(classed, source.class_name),
        summary=summary,
    )
