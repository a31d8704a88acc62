"""Files of rows and of predictions that grow: what was measured again is replaced; two commands at once lose none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from sightline.io.atomic import make_parent, storage_errors, write_file
from sightline.io.run_lock import locked
from sightline.results.predictions import Prediction, dump_predictions, merge_predictions, read_predictions
from sightline.results.rows import ResultRow, dump_rows, merge_rows, read_rows

T = TypeVar("T")


def update_rows(path: Path, fresh: Sequence[ResultRow], *, anew: bool = False, fewer: bool = True) -> None:
    """Put rows into a file of rows; one that was measured again is replaced. Two at once lose none.

    Args:
        anew: leave out all that was there.
        fewer: replace also what was measured on more images.

    Raises:
        InputError: what is there are no rows.
        StorageError: it cannot be written.
    """
    _update(path, read_rows, lambda before: dump_rows(merge_rows(before, fresh, fewer=fewer)), anew)


def update_predictions(path: Path, fresh: Sequence[Prediction], *, anew: bool = False, fewer: bool = True) -> None:
    """As `update_rows`, of what was said of each image: a split that was shown so again is replaced. Where nothing is
    said in words no file is made."""
    if not fresh and not path.exists():
        return
    _update(
        path, read_predictions, lambda before: dump_predictions(merge_predictions(before, fresh, fewer=fewer)), anew
    )


def _update(path: Path, read: Callable[[Path], list[T]], text: Callable[[list[T]], str], anew: bool) -> None:
    """Write a file from what is in it; nobody else does so meanwhile."""
    make_parent(path)
    with storage_errors(f"{path}: cannot be written"), locked(path.with_name(f".{path.name}.writing-lock")):
        write_file(path, text(read(path) if path.exists() and not anew else []))
