"""What a model said of each image of a split, one a line of `predictions.csv`. No torch here."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from sightline.errors import InputError
from sightline.io.read import ROWS, read_text
from sightline.results.rows import merged, update_file

_TRUTH = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Prediction:
    """One line of `predictions.csv`.

    `view` and `resolution` are as in `ResultRow` (None unless square); `index` is the image's in its split and `name`
    its file; `label` and `predicted` are names of classes; `score` is that of `predicted`, from 0 to 1.
    """

    split: str
    view: str
    resolution: int | None
    index: int
    name: str
    label: str
    predicted: str
    score: float
    correct: bool


COLUMNS = tuple(field.name for field in fields(Prediction))


class _Lines(list[str]):
    """Lines, as a file for `csv` to write to."""

    write = list.append


def dump_predictions(rows: Iterable[Prediction]) -> str:
    """The text of a `predictions.csv`, with a line of headings."""
    lines = _Lines()
    # Both characters end a line for a reader, and are quoted only where both end one for the writer.
    writer = csv.writer(lines, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for row in rows:
        words = map(as_written, (row.name, row.label, row.predicted))
        # A resolution of None is written as nothing.
        answer = f"{row.score:.6f}", str(row.correct).lower()
        writer.writerow((row.split, row.view, row.resolution, row.index, *words, *answer))
    return "".join(line.removesuffix("\r\n") + "\n" for line in lines)


def as_written(name: str) -> str:
    """A name as it stands in the file: one of a file may hold bytes that are no text."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def read_predictions(path: str | Path) -> list[Prediction]:
    """The lines of a `predictions.csv`.

    Raises:
        InputError: the file is missing, or is not as `dump_predictions` writes it.
    """
    path = Path(path)
    rows = []
    try:
        lines = csv.reader(io.StringIO(read_text(path, ROWS, "predictions"), newline=""))
        if tuple(next(lines, ())) != COLUMNS:
            raise InputError(f"{path}:1: expected the headings {','.join(COLUMNS)}")
        for words in lines:
            try:
                rows.append(_prediction(words))
            except (ValueError, KeyError):
                raise InputError(f"{path}:{lines.line_num}: not a prediction") from None
    except csv.Error as error:
        raise InputError(f"{path}: cannot be read as predictions ({error})") from None
    return rows


def _prediction(words: list[str]) -> Prediction:
    split, view, side, index, name, label, predicted, score, correct = words
    resolution = int(side) if side else None
    if not 0 <= float(score) <= 1:
        raise ValueError(score)
    return Prediction(split, view, resolution, int(index), name, label, predicted, float(score), _TRUTH[correct])


def merge_predictions(
    before: Iterable[Prediction], fresh: Iterable[Prediction], *, fewer: bool = True
) -> list[Prediction]:
    """All lines, without those of `before` whose split was shown in the same way again; `fewer` as in `merge_rows`."""
    before, fresh = list(before), list(fresh)
    there, here = (Counter(map(_shown, rows)) for rows in (before, fresh))
    return merged(before, fresh, _shown, () if fewer else {what for what, count in here.items() if count < there[what]})


def _shown(row: Prediction) -> tuple[str, str, int | None]:
    return row.split, row.view, row.resolution


def update_predictions(path: Path, fresh: Sequence[Prediction], *, anew: bool = False, fewer: bool = True) -> None:
    """As `update_rows`: a split that was shown so again is replaced. Where nothing is said in words no file is made."""
    if fresh or path.exists():
        update_file(
            path, read_predictions, lambda before: dump_predictions(merge_predictions(before, fresh, fewer=fewer)),
            anew=anew,
        )  # fmt: skip
