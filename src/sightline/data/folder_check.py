"""Everything that can be known of a folder of images, from reading all of it once."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
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
    """What was found; splits are called by their folders.

    Attributes:
        counts: split -> class -> images that can be read; "images" where they have none.
        said: split -> class -> pixels, or objects, in those images.
        ignored: split -> pixels of no class.
        sizes: int64 [images, 2], (height, width) of those.
        unreadable: split -> what cannot be read, and why.
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
    """Decode every image once, and what is said of it, side by side, and remember what was found; raises
    UnreadableDataError where nothing of what is trained on can be read.

    Args:
        progress: called with (what is done, files done, files in all).
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

    lost = {row: reason for row in source.images if (reason := source.header_error(row)) is not None}
    whole = [row for row in source.images if row not in lost]
    for number, (row, error) in enumerate(thread_map(fault, whole), start=1):
        files.damaged.pop(row, None)
        if error is not None:
            lost[row] = str(error).removeprefix(f"{paths[row]}: ")
            # What files beside it say may be mended while the image stays.
            if lost[row] != str(error) and not isinstance(error, InaccessibleDataError):
                files.damaged[row] = lost[row]
        say("reading images", number, len(whole))
    twins = files.duplicates(across=False, rows=source.images)
    files.changed = True
    summary = source.summary()
    source.remember()
    good = [row for row in source.images if row not in lost]
    names = source.pixel_classes or source.object_classes
    counts, totals = dict[str, dict[str, int]](), dict[str, Counter[int]]()
    for split in dict.fromkeys(splits):
        known = () if split in source.unlabelled else source.classes or ("images",)
        inside = [row for row in good if splits[row] == split]
        counts[split] = dict.fromkeys(known, 0) | Counter(map(source.class_name, inside))
        totals[split] = Counter()
        for row in inside:
            totals[split].update(targets[row])
    # One whose label is none of the classes has no class.
    classed = {row: source.class_name(row) for row in good if splits[row] not in source.unlabelled}

    def paths_of(groups: list[list[int]], of: Mapping[int, str] | Sequence[str]) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(paths[row] for row in group) for group in groups if len({of[row] for row in group}) > 1)

    return FolderCheck(
        counts=counts,
        said={split: {name: found[at] for at, name in enumerate(names)} for split, found in totals.items() if names},
        ignored={split: found[IGNORE] if source.pixel_classes else 0 for split, found in totals.items()},
        sizes=files.sizes[good].astype(np.int64),
        unreadable={
            split: tuple(Unreadable(paths[row], lost[row]) for row in sorted(lost) if splits[row] == split)
            for split in counts
        },
        duplicates=paths_of(twins, paths),
        across=paths_of(twins, splits),
        disputed=paths_of([[row for row in group if row in classed] for group in twins], classed),
        summary=summary,
    )
