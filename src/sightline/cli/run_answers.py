"""What the folder of a run holds of its validation while training, and of its answers to single images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.errors import InputError, SightlineError
from sightline.reading import read_json_lines
from sightline.run_files import BEST, PREDICTIONS, VALIDATION

if TYPE_CHECKING:
    from sightline.data.source import Source
    from sightline.predictions import Prediction
    from sightline.reports.content import Answers, Sample, ValidationPoint

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
        for number, record in read_json_lines(path, "a record of a validation"):
            point = ValidationPoint(*(record[key] for key in ("step", "images", "split", "top1", "count")))
            whole = all(isinstance(value, int) and value >= 0 for value in (point.step, point.images, point.count))
            if not (whole and point.count and isinstance(point.top1, int | float) and 0 <= point.top1 <= 1):
                raise ValueError(f"line {number} is no record of a validation")
            points.append(point)
    except (ValueError, KeyError, TypeError) as error:
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


def read_answers(folder: Path, run: str, config: Mapping[str, Any], source: Source | None) -> Answers | None:
    """What a run said of the images of its test split, as it was trained where that was measured.

    Args:
        run: its name on the page.
        config: of the run, which says how it was trained.
        source: the data set, of which the worst mistakes are drawn; None draws none.

    Returns:
        None where the run keeps no answers.

    Raises:
        InputError: the file cannot be read, or is damaged.
    """
    from sightline.predictions import read_predictions
    from sightline.reports.answers import worst
    from sightline.reports.content import Answers

    path = folder / PREDICTIONS
    if not path.exists():
        return None
    parts: dict[tuple[str, str, int | None], list[Prediction]] = {}
    for one in read_predictions(path):
        parts.setdefault((one.split, one.view, one.resolution), []).append(one)
    if not parts:
        return None
    packing = config.get("packing") or {}
    own_aspect = bool(packing) and packing.get("aspect") != "square"

    def rank(part: tuple[str, str, int | None]) -> tuple[bool, bool, int]:
        """The test split before others, what comes near to training before others, and then the most images."""
        as_trained = part[2] is None if own_aspect else part[2] == config.get("resolution")
        return part[0] == "test", as_trained, len(parts[part])

    split, view, resolution = max(parts, key=rank)
    answers = parts[split, view, resolution]
    shown = view if resolution is None else f"{resolution}\u00a0px"
    mistakes = [] if source is None else _drawn(worst(answers, _MISTAKES), source, resolution)
    return Answers(run, split, shown, answers, mistakes)


def _drawn(answers: Iterable[Prediction], source: Source, resolution: int | None) -> list[Sample]:
    """Pictures of these answers; one that is not there any more, or is another than it was, is left out."""
    from sightline.predictions import as_written
    from sightline.reports.content import Sample

    pictures = []
    for one in answers:
        try:
            if resolution is not None:
                size = resolution, resolution
            else:
                height, width = source.stored_size(one.split, one.index) or (_HEIGHT, _HEIGHT)
                size = _HEIGHT, max(round(_HEIGHT * width / height), 1)
            found = source.example(one.split, one.index, size)
        except SightlineError:
            continue
        if as_written(found.name) == one.name and source.classes[found.label] == one.label:
            pictures.append(Sample(found.image, f"{one.label}, named {one.predicted} ({one.score:.2f})"))
    return pictures
