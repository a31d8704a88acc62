"""What a dense task says of each image of a split, as files that other tools read: `evaluate --predictions`."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sightline.data.annotated import AnnotatedImages
from sightline.data.source import Source
from sightline.predictions import Prediction
from sightline.replacing import write_out
from sightline.tasks.base import Judged
from sightline.tasks.detection import Detected
from sightline.tasks.drawn import as_png

_COLUMNS = ("split", "view", "resolution", "index", "name", "labels")
_LONGEST = 100


@dataclass(frozen=True)
class Result:
    """What was said of one image; `split`, `view`, `resolution`, `index` and `name` are as in `Prediction`.

    Attributes:
        said: as `Task.results` has it.
    """

    split: str
    view: str
    resolution: int | None
    index: int
    name: str
    said: Any

    @property
    def way(self) -> tuple[str, str]:
        """The split, and how it was shown, as files are called."""
        shown = self.view if self.resolution is None else f"{self.resolution} px"
        return self.split, shown.replace(":", " ")


def answer_of(shown: tuple[str, str, int | None], index: int, name: str, said: Any) -> Prediction | Result:
    """A line of `predictions.csv`, or of a file of results; `shown` are split, view and resolution."""
    if isinstance(said, Judged):
        return Prediction(*shown, index, name, **vars(said))
    return Result(*shown, index, name, said)


def folder_of_labels(file: Path) -> Path:
    """Where the index PNGs of a file of results are."""
    return file.with_name(f"{file.stem}_labels")


def write_results(file: Path, source: Source, results: Sequence[Result], side: int) -> None:
    """Write boxes as COCO's results, or maps as index PNGs beside a CSV with a line an image.

    COCO's results are of one split at one size: where there are more, the file has those of the first split at the
    resolution of training, or else the first ones, and the others stand beside it, named after split and size.

    Args:
        side: the resolution of training, in pixels.

    Raises:
        StorageError: they cannot be written.
    """
    if all(isinstance(one.said, dict) for one in results):
        # Of no image that could be read there is a file too.
        ways = list(dict.fromkeys(one.way for one in results)) or [("", "")]
        trained = ways[0][0], f"{side} px"
        ways.sort(key=lambda way: way != trained)
        for number, way in enumerate(ways):
            place = file.with_name(f"{file.stem} {' '.join(way)}{file.suffix}") if number else file
            write_out(place, json.dumps(_as_coco(source, [one for one in results if one.way == way])))
        return
    text, folder = io.StringIO(newline=""), folder_of_labels(file)
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(_COLUMNS)
    for one in results:
        stem = os.fsdecode(os.fsencode(Path(one.name).stem)[:_LONGEST])
        place = folder / " ".join(one.way) / f"{one.index:06d} {stem}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        write_out(place, as_png(one.said))
        name = place.relative_to(file.parent).as_posix()
        lines.writerow((one.split, one.view, one.resolution, one.index, one.name, name))
    write_out(file, text.getvalue().encode("utf-8", "backslashreplace"))


def _as_coco(source: Source, results: Sequence[Result]) -> list[dict[str, Any]]:
    """Images and categories by the ids of the data's own file, where it has one; else by index, and from 1."""
    own = source if isinstance(source, AnnotatedImages) else None
    found = []
    for one in results:
        image = one.index if own is None else own.image_id(one.split, one.index)
        found += Detected(**one.said).as_coco(image, None if own is None else own.category_ids)
    return found
