"""What a dense task says of each image of a split, as files that other tools read: `evaluate --predictions`."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sightline.data.annotated import DetectionFiles
from sightline.data.source import Source
from sightline.io.atomic import storage_errors, write_out
from sightline.results.predictions import Prediction
from sightline.tasks.base import PredictionRecord, Task
from sightline.tasks.detection import Detection, Detections
from sightline.tasks.drawing import as_png
from sightline.tasks.segmentation import Segmentation

_COLUMNS = ("split", "view", "resolution", "index", "name", "labels")
_LONGEST = 100
# An index PNG, and what a writer that was killed left of one.
_MAP = re.compile(r"\d{6,} .*\.png|\..*\.png\.writing-.*", re.DOTALL)


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
        return self.split, _called(self.view if self.resolution is None else self.resolution)


def answer_of(shown: tuple[str, str, int | None], index: int, name: str, said: Any) -> Prediction | Result:
    """A line of `predictions.csv`, or of a file of results; `shown` are split, view and resolution."""
    if isinstance(said, PredictionRecord):
        return Prediction(*shown, index, name, **vars(said))
    return Result(*shown, index, name, said)


def planned_files(file: Path, task: Task, asked: Sequence[tuple[str, Any]], side: int) -> tuple[list[Path], list[Path]]:
    """What `write_results` writes beside a file: others of its kind, and folders of index PNGs.

    Args:
        asked: split, and side in pixels or view, of each measurement; side: the resolution of training, in pixels.
    """
    if type(task).results is Task.results:
        return [], []
    others = _places(file, [(split, _called(one)) for split, one in asked], side)
    files = [] if isinstance(task, Segmentation) else list(others.values())[1:]
    return files, [] if isinstance(task, Detection) else [_folder_of(file)]


def foreign_maps(folder: Path) -> Iterator[Path]:
    """What is at the place of a folder of index PNGs, and `write_results` did not write."""
    for place in (folder, *(folder.iterdir() if folder.is_dir() else ())):
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            yield place
        elif place != folder:
            yield from (one for one in place.iterdir() if not _MAP.fullmatch(one.name) or not one.is_file())


def _called(shown: Any) -> str:
    """A side in pixels or a view, as files are called."""
    return f"{shown} px" if isinstance(shown, int) else str(getattr(shown, "name", shown)).replace(":", " ")


def _folder_of(file: Path) -> Path:
    return file.with_name(f"{file.stem}_labels")


def _places(file: Path, ways: Sequence[tuple[str, str]], side: int) -> dict[tuple[str, str], Path]:
    """The file of each split and size, the given one first."""
    trained = ways[0][0], f"{side} px"
    ordered = sorted(dict.fromkeys(ways), key=lambda way: way != trained)
    names = (file.name, *(f"{file.stem} {' '.join(way)}{file.suffix}" for way in ordered[1:]))
    return {way: file.with_name(name) for way, name in zip(ordered, names, strict=True)}


def write_results(file: Path, source: Source, results: Sequence[Result], side: int) -> None:
    """Write boxes as COCO's results, or maps as index PNGs beside a CSV with a line an image.

    COCO's results are of one split at one size: where there are more, the file has those of the first split at the
    resolution of training, or else the first ones, and the others stand beside it, named after split and size. Index
    PNGs of an earlier run are deleted.

    Args:
        side: the resolution of training, in pixels.

    Raises:
        StorageError: they cannot be written.
    """
    if all(isinstance(one.said, dict) for one in results):
        # Of no image that could be read there is a file too.
        for way, place in _places(file, [one.way for one in results] or [("", "")], side).items():
            write_out(place, json.dumps(_as_coco(source, [one for one in results if one.way == way])))
        return
    text, folder, written = io.StringIO(newline=""), _folder_of(file), set()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(_COLUMNS)
    for one in results:
        stem = os.fsdecode(os.fsencode(Path(one.name).stem)[:_LONGEST])
        place = folder / " ".join(one.way) / f"{one.index:06d} {stem}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        write_out(place, as_png(one.said))
        written.add(place)
        name = place.relative_to(file.parent).as_posix()
        lines.writerow((one.split, one.view, one.resolution, one.index, one.name, name))
    write_out(file, text.getvalue().encode("utf-8", "backslashreplace"))
    with storage_errors(f"{folder}: cannot be cleared"):
        for old in [one for one in folder.glob("*/*") if one not in written and _MAP.fullmatch(one.name)]:
            old.unlink()
            if not any(old.parent.iterdir()):
                old.parent.rmdir()


def _as_coco(source: Source, results: Sequence[Result]) -> list[dict[str, Any]]:
    """Images and categories by the ids of the data's own file, where it has one; else by index, and from 1."""
    own = source if isinstance(source, DetectionFiles) else None
    found = []
    for one in results:
        image = one.index if own is None else own.image_id(one.split, one.index)
        found += Detections(**one.said).as_coco(image, None if own is None else own.category_ids)
    return found
