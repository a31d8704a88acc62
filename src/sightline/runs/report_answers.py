"""What a folder says of the answers to each image, as the reports want it: at one size, with the worst mistakes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sightline.data.source import Source
from sightline.errors import SightlineError
from sightline.io.run_files import PREDICTIONS
from sightline.reports import content
from sightline.reports.results_tables import worst
from sightline.results.predictions import Prediction, as_written, read_predictions

_MISTAKES = 12
# Of a picture on the page, in pixels, where images have no one size.
_HEIGHT = 128


def read_answers(folder: Path, run: str, sizes: content.SeenSizes, source: Source | None) -> content.Answers | None:
    """What a model said of the images of its test split, at the size that speaks for it where that was measured.

    Args:
        run: its name on the page.
        sizes: of its training.
        source: the data set, of which the worst mistakes are drawn; None draws none.

    Returns:
        None where the folder keeps no answers.

    Raises:
        InputError: the file cannot be read, or is damaged.
    """
    path = folder / PREDICTIONS
    parts: dict[tuple[str, str, int | None], list[Prediction]] = {}
    for one in read_predictions(path) if path.exists() else ():
        parts.setdefault((one.split, one.view, one.resolution), []).append(one)
    if not parts:
        return None
    main = sizes.main_of([side for split, _, side in parts if split == "test" and side is not None])

    def rank(part: tuple[str, str, int | None]) -> tuple[bool, bool, int]:
        """The test split before others, the size of the run's card before others, and then the most images."""
        return part[0] == "test", part[2] == main, len(parts[part])

    split, view, resolution = max(parts, key=rank)
    answers = parts[split, view, resolution]
    shown = view if resolution is None else f"{resolution}\u00a0px"
    mistakes = [] if source is None else _drawn(worst(answers, _MISTAKES), source, resolution)
    return content.Answers(run, split, shown, answers, mistakes)


def _drawn(answers: Iterable[Prediction], source: Source, resolution: int | None) -> list[content.Sample]:
    """Pictures of these answers; one that is not there any more, or is another than it was, is left out."""
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
        if as_written(found.name) == one.name and found.target.describe(source.classes) == one.label:
            pictures.append(content.Sample(found.middle_frame, f"{one.label}, named {one.predicted} ({one.score:.2f})"))
    return pictures
