"""Files of one content, told by size, then by a sample, and only then by the whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from sightline.data.file_listing import FileListing


def same_files(
    listing: FileListing,
    paths: Sequence[str],
    splits: Sequence[str],
    *,
    across: bool,
    progress: Callable[[int, int], None] | None = None,
) -> list[list[int]]:
    """Groups of rows whose files hold the same bytes, in order. Empty files, and what cannot be read, are left out.

    Args:
        paths, splits: of each row.
        across: only groups that reach over two splits; few files need to be read for those.
        progress: as `FileListing.read_headers`.
    """
    sizes = listing.stamps[:, 0]
    by_size = _groups(range(len(paths)), lambda row: int(sizes[row]) if sizes[row] > 0 else None, splits, across)
    rows = sorted(row for group in by_size for row in group)
    listing.read_headers([paths[row] for row in rows], rows, progress)
    alike = [
        group for part in by_size for group in _groups(part, lambda row: listing.samples[row].tobytes(), splits, across)
    ]
    return [
        group for part in alike for group in _groups(part, lambda row: listing.digest(row, paths[row]), splits, across)
    ]


def _groups(rows: Sequence[int], key: Callable[[int], object], splits: Sequence[str], across: bool) -> list[list[int]]:
    found: dict[object, list[int]] = defaultdict(list)
    for row in rows:
        found[key(row)].append(row)
    return [
        group
        for value, group in found.items()
        if value is not None and len(group) > 1 and (not across or len({splits[row] for row in group}) > 1)
    ]
