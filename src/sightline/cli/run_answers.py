"""What the folder of a run holds of its validation while training, and of its answers to single images."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.errors import InputError, SightlineError

if TYPE_CHECKING:
    from sightline.data.source import Source
    from sightline.reports.content import Answer, Answers, Sample, ValidationPoint

VALIDATION = "validation.jsonl"
BEST = "checkpoint.best"
PREDICTIONS = "predictions.csv"
_COLUMNS = {"split", "view", "resolution", "index", "name", "label", "predicted", "score"}
_MISTAKES = 12
# Of a picture on the page, in pixels, where images have no one size.
_HEIGHT = 128


def read_validation(folder: Path) -> list[ValidationPoint]:
    """The accuracy while training; nothing where the run was not validated.

    Raises:
        InputError: the file cannot be read, or is damaged.
    """
    from sightline.reports.content import ValidationPoint

    path = folder / VALIDATION
    if not path.exists():
        return []
    points = []
    try:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            record = json.loads(line)
            point = ValidationPoint(*(record[key] for key in ("step", "images", "split", "top1", "count")))
            whole = all(isinstance(value, int) and value >= 0 for value in (point.step, point.images, point.count))
            if not (whole and point.count and isinstance(point.top1, int | float) and 0 <= point.top1 <= 1):
                raise ValueError(f"line {number} is no record of a validation")
            points.append(point)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: cannot be read as validation while training ({error})") from None
    return points


def best_step(folder: Path) -> int | None:
    """The step of the best checkpoint; None where none is kept."""
    from sightline.load import read_record

    if not (folder / BEST).is_dir():
        return None
    try:
        return read_record(folder / BEST)["training"].get("step")
    except InputError:
        return None


def read_answers(folder: Path, run: str, side: int | None, source: Source | None) -> Answers | None:
    """What a run said of the images of its test split, as it was trained where that was measured.

    Args:
        run: its name on the page.
        side: of training, in pixels.
        source: the data set, of which the worst mistakes are drawn; None draws none.

    Returns:
        None where the run keeps no answers.

    Raises:
        InputError: the file cannot be read, or is damaged.
    """
    from sightline.reports.answers import worst
    from sightline.reports.content import Answers

    path = folder / PREDICTIONS
    if not path.exists():
        return None
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            missing = _COLUMNS - set(reader.fieldnames or ())
            if missing:
                raise ValueError(f"no column {', '.join(sorted(missing))}")
            parts: dict[tuple[str, str, str], list[Answer]] = {}
            for line in reader:
                parts.setdefault((line["split"], line["view"], line["resolution"]), []).append(_answer(line))
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read as predictions ({error})") from None
    if not parts:
        return None
    split, view, resolution = _main_part(parts, side)
    answers = parts[split, view, resolution]
    shown = f"{resolution}\u00a0px" if view == "square" else view
    mistakes = [] if source is None else _drawn(worst(answers, _MISTAKES), source, split, resolution)
    return Answers(run, split, shown, answers, mistakes)


def _answer(line: Mapping[str, str]) -> Answer:
    from sightline.reports.content import Answer

    score = float(line["score"])
    if not math.isfinite(score):
        raise ValueError(f"score {line['score']}")
    return Answer(int(line["index"]), line["name"], line["label"], line["predicted"], score)


def _main_part(parts: Mapping[tuple[str, str, str], Sequence[Any]], side: int | None) -> tuple[str, str, str]:
    """The test split before others, the view of training before others, and else the one of most images."""

    def rank(part: tuple[str, str, str]) -> tuple[bool, bool, int]:
        split, view, resolution = part
        return split == "test", view == "square" and resolution == str(side), len(parts[part])

    return max(parts, key=rank)


def _drawn(answers: Iterable[Answer], source: Source, split: str, resolution: str) -> list[Sample]:
    """Pictures of these answers; one that is not there any more, or is another than it was, is left out."""
    from sightline.reports.content import Sample

    pictures = []
    for one in answers:
        try:
            if resolution:
                size = int(resolution), int(resolution)
            else:
                height, width = source.stored_size(split, one.index) or (_HEIGHT, _HEIGHT)
                size = _HEIGHT, max(round(_HEIGHT * width / height), 1)
            found = source.example(split, one.index, size)
        except (SightlineError, ValueError):
            continue
        if found.name == one.name and source.classes[found.label] == one.label:
            pictures.append(Sample(found.image, f"{one.label}, named {one.predicted} ({one.score:.2f})"))
    return pictures
