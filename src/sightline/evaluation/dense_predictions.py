"""What a dense task says of each image of a split, as files that other tools read: `evaluate --out`."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sightline.data.annotated import DetectionFiles
from sightline.data.source import Source
from sightline.io.atomic import storage_errors, write_out
from sightline.results.predictions import Prediction
from sightline.tasks.base import PredictionRecord
from sightline.tasks.detection import Detections
from sightline.tasks.drawing import as_png

_COLUMNS = ("split", "view", "resolution", "index", "name", "labels")
_LONGEST = 100
# An index PNG, and what a writer that was killed left of one.
_MAP = re.compile(r"\d{6,} .*\.png|\..*\.png\.writing-.*", re.DOTALL)
# A `DensePrediction.way`.
_WAY = re.compile(r".+_(\d+px|\d+x\d+|native|(max|tokens)_\d+)", re.DOTALL)


@dataclass(frozen=True)
class DensePrediction:
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
    def way(self) -> str:
        """The split, and how it was shown, as files are called."""
        shown = self.view.replace(":", "_") if self.resolution is None else f"{self.resolution}px"
        return f"{self.split}_{shown}"


def answer_of(shown: tuple[str, str, int | None], index: int, name: str, said: Any) -> Prediction | DensePrediction:
    """A line of `predictions.csv`, or of a file of results; `shown` are split, view and resolution."""
    if isinstance(said, PredictionRecord):
        return Prediction(*shown, index, name, **vars(said))
    return DensePrediction(*shown, index, name, said)


def write_dense_predictions(folder: Path, source: Source, results: Sequence[DensePrediction]) -> None:
    """Write what was said of each split, shown in one way: of boxes COCO's results, `test_16px.json`; of maps index
    PNGs in `test_16px/` beside a CSV with a line an image. PNGs of an earlier time are deleted.

    Raises:
        StorageError: they cannot be written.
    """
    for way in dict.fromkeys(one.way for one in results):
        some = [one for one in results if one.way == way]
        if isinstance(some[0].said, dict):
            write_out(folder / f"{way}.json", json.dumps(_as_coco(source, some)))
            continue
        text, written = io.StringIO(newline=""), set()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(_COLUMNS)
        for one in some:
            stem = os.fsdecode(os.fsencode(Path(one.name).stem)[:_LONGEST])
            place = folder / way / f"{one.index:06d} {stem}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            write_out(place, as_png(one.said))
            written.add(place)
            name = place.relative_to(folder).as_posix()
            lines.writerow((one.split, one.view, one.resolution, one.index, one.name, name))
        write_out(folder / f"{way}.csv", text.getvalue().encode("utf-8", "backslashreplace"))
        with storage_errors(f"{folder / way}: cannot be cleared"):
            for old in [one for one in (folder / way).iterdir() if one not in written and _MAP.fullmatch(one.name)]:
                old.unlink()


def clear_dense_predictions(folder: Path) -> None:
    """Delete what `write_dense_predictions` wrote into a folder, and folders that are empty then; the rest stays."""
    for file in [*folder.glob("*.json"), *folder.glob("*.csv"), *folder.glob("*/*.png")]:
        picture = file.suffix == ".png"
        if _WAY.fullmatch(file.parent.name if picture else file.stem) and (not picture or _MAP.fullmatch(file.name)):
            file.unlink()
    for one in [*folder.glob("*/"), folder]:
        if one.is_dir() and not any(one.iterdir()):
            one.rmdir()


def _as_coco(source: Source, results: Sequence[DensePrediction]) -> list[dict[str, Any]]:
    """Images and categories by the ids of the data's own file, where it has one; else by index, and from 1."""
    own = source if isinstance(source, DetectionFiles) else None
    found = []
    for one in results:
        image = one.index if own is None else own.image_id(one.split, one.index)
        found += Detections(**one.said).as_coco(image, None if own is None else own.category_ids)
    return found
