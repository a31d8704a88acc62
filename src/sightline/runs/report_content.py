"""What the folder of a run says of itself, as the reports want it."""

from __future__ import annotations

import contextlib
import itertools
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sightline.analysis.views import attends_in_parts, field_of_view
from sightline.data.image_file import read_image
from sightline.data.source import Source
from sightline.errors import InputError, SightlineError
from sightline.evaluation.logits import logits_name, read_logits
from sightline.evaluation.suites.model_vs_human import ModelVsHumanSuite, error_consistency
from sightline.hub.load import read_config_record
from sightline.io.run_files import BEST, INSIDE, LOG, LOGITS, PICTURES, PREDICTIONS, RESULTS
from sightline.models import Model
from sightline.reports import content
from sightline.reports.results_tables import worst
from sightline.reports.seen import loss_kind, training_sizes
from sightline.reports.words import capital, quantity, short
from sightline.results.analysis import ANALYSIS, AnalysisRow
from sightline.results.predictions import Prediction, as_written, read_predictions
from sightline.results.rows import ResultRow, read_rows
from sightline.runs.console import warn
from sightline.runs.outputs import run_of
from sightline.tasks.base import task_of
from sightline.tokens.grid import Grid
from sightline.training.log import read_curve, read_log
from sightline.training.run import OpenedRun, open_run

_SAMPLES_A_ROW = 6
# Images that are looked at for some of different classes, and the side that is enough for it, in pixels.
_LOOKED_AT = 200
_SMALL = 16
_MISTAKES = 12
# Of a picture on the page, in pixels, where images have no one size.
_HEIGHT = 128


def read_run(folder: Path) -> tuple[OpenedRun, list[ResultRow]]:
    """A run and its measured rows.

    Raises:
        InputError: the folder is no run, or was not measured.
    """
    run = open_run(folder)
    rows = folder / RESULTS
    if not rows.exists():
        raise InputError(f"{folder}: has no {RESULTS} yet; run: sightline evaluate {folder}")
    measured = read_rows(rows)
    if not measured:
        raise InputError(f"{rows}: has no rows; run: sightline evaluate {folder}")
    return run, measured


def _summary(run: OpenedRun, rows: list[ResultRow]) -> content.RunSummary:
    model, training, folder = run.model, run.training, run.path
    log = read_log(folder / LOG)
    config, knob = training["config"], model.knob
    # Rows of one pass share its seconds.
    passes = {row.measurement: row.seconds for row in rows}
    # What was seen is what the log counted until the checkpoint.
    spent = [line for line in log if line["step"] <= training.get("step", line["step"])]
    last = spent[-1] if spent else {"images": config.get("images") or 0}
    return content.RunSummary(
        name=rows[0].run,
        encoding=model.encoding.name,
        knob=knob.value if knob else None,
        knob_name=knob.name if knob else None,
        knob_default=knob.default if knob else None,
        parameters=training["parameters"],
        train_images=last["images"],
        train_tokens=last.get("tokens", 0),
        train_flops=last.get("flops", 0),
        train_seconds=training["seconds"],
        evaluate_seconds=sum(passes.values()),
        precision=config["precision"],
        config=config,
        loss=content.LossCurve(
            [line["images"] for line in log], [line["loss"] for line in log], loss_kind(config, model.num_classes)
        ),
        seen=training_sizes(config, model.config.patch_size),
        validation=read_validation(folder),
        best_step=best_step(folder),
        kind=f"{model.config.architecture}, {model.config.embedder}",
    )


def _samples(source: Source, resolutions: Sequence[int]) -> dict[int, list[content.Sample]]:
    """Images of different classes at some sizes."""
    split = _split_of(source)
    indices = _of_many_classes(source, split)

    def sample(index: int, side: int) -> content.Sample:
        found = source.example(split, index, (side, side))
        return content.Sample(found.middle_frame, found.target.describe(source.classes))

    return {side: [sample(index, side) for index in indices] for side in resolutions}


def _of_many_classes(source: Source, split: str) -> list[int]:
    """Indices of a few images of a split, of as many classes as there are among those that are looked at."""
    length = source.length(split)
    most = _LOOKED_AT if length is None else min(_LOOKED_AT, length)
    found: dict[str, list[int]] = {}
    for number in range(most):
        # Spread over the split: a folder's images are sorted by class.
        index = number if length is None else number * length // most
        try:
            label = source.example(split, index, (_SMALL, _SMALL)).target.describe(source.classes)
        except SightlineError:
            continue
        found.setdefault(label, []).append(index)
        if len(found) == _SAMPLES_A_ROW:
            break
    # One of each class, then a second one of each.
    ranked = sorted((place, index) for indices in found.values() for place, index in enumerate(indices))
    return [index for _, index in ranked[:_SAMPLES_A_ROW]]


def _split_of(source: Source) -> str:
    """The split that images are shown of."""
    return "test" if "test" in source.splits else source.splits[-1]


def _fields(model: Model, run: str) -> list[content.FieldsOfViewFigure]:
    if len(model.config.train_grid) != 2 or attends_in_parts(model):
        # A clip has no one figure of rows and columns, and what a window or a line sees is not what an image would.
        return []
    # Odd, so that the centre query stands in the middle.
    grid = Grid(*(side - 1 + side % 2 for side in model.config.train_grid))
    weights = {layer: field_of_view(model, layer, grid) for layer in (0, model.config.depth - 1)}
    return [
        content.FieldsOfViewFigure(model.encoding.name, layer, (grid.rows, grid.cols), weight, run)
        for layer, weight in weights.items()
        if weight is not None
    ]


def _named(measured: Sequence[tuple[OpenedRun, list[ResultRow]]]) -> list[list[ResultRow]]:
    """The rows of each run under one name, which is that of no other one: a folder was renamed, or two are called so.

    Raises:
        InputError: a folder is there twice.
    """
    places = [run.path.resolve() for run, _ in measured]
    # The last rows have the name that the folder has now.
    latest = [rows[-1].run for _, rows in measured]
    named = []
    for run, rows in measured:
        if places.count(run.path.resolve()) > 1:
            raise InputError(f"report: {run.path} is there twice; expected each run once")
        name = rows[-1].run if latest.count(rows[-1].run) == 1 else str(run.path)
        named.append([replace(row, run=name) for row in rows])
    return named


def compose_report(
    folders: Sequence[Path],
    command: str,
    *,
    data: str | None = None,
    title: str | None = None,
    notes: Sequence[str] = (),
    papers: Sequence[str] = (),
) -> content.Report:
    """The content of a report on some runs.

    Args:
        data: the data set that they were measured on; that of their training unless given, where it was measured.
        papers: whose curves stand beside.

    Raises:
        InputError: a folder is no measured run, the runs were trained on different data, or one was not measured on
            what is asked for.
    """
    measured = [read_run(folder) for folder in folders]
    trained = {run.data for run, _ in measured}
    if len(trained) > 1:
        raise InputError(f"report: the runs were trained on {', '.join(sorted(trained))}; expected the same data")
    known = list(dict.fromkeys(row.data for _, rows in measured for row in rows))
    data = data or next((run.data for run, _ in measured if run.data in known), known[0])
    for number, (run, rows) in enumerate(measured):
        mine = [row for row in rows if row.data == data]
        # Of a suite as it was prepared first; of data that is a suite too, as it is in training.
        measured[number] = run, [row for row in mine if row.preparation == min(one.preparation for one in mine)]
        if not measured[number][1]:
            raise InputError(f"{run.path}: was not measured on {data} (but on {', '.join({row.data for row in rows})})")
    runs, named = [run for run, _ in measured], _named(measured)
    rows = [row for one in named for row in one]
    summaries = [_summary(run, one) for run, one in zip(runs, named, strict=True)]
    first, source = replace(runs[0], data=data, opened=None), None
    # Without the images that the run left out; the data may not be there any more.
    with contextlib.suppress(SightlineError):
        source, _ = first.source.check_readable(_split_of(first.source), skip_unreadable=first.skip_unreadable)
        # Of annotated people none is shown.
        source = None if source.attributes and "captions" not in source.provides else source
    resolutions = sorted({row.resolution for row in rows if row.split == "test" and row.resolution is not None})
    shown = [(run, summary.name) for run, summary in zip(runs, summaries, strict=True)]
    # What a folder holds was said of the data of the training.
    said = [read_answers(run.path, name, run.config, source) for run, name in shown if run.data == data]
    precision = sorted({summary.precision for summary in summaries})
    again = [f"sightline evaluate {folders[0]} --tune"] if first.model.knob is not None else []
    again += [f"sightline report {folders[0]} --data {one}" for one in known if one != data]
    return content.Report(
        title=title or f"{capital(short(rows[0].metric))} by resolution",
        command=command,
        runs=summaries,
        rows=rows,
        samples={} if source is None else _samples(source, resolutions),
        fields=[field for run, name in shown for field in _fields(run.model, name)],
        answers=[one for one in said if one is not None],
        pictures=[one for run, rows in zip(runs, named, strict=True) for one in _pictures(run.path, rows)],
        seconds_total=sum(summary.train_seconds + summary.evaluate_seconds for summary in summaries),
        hardware="; ".join(dict.fromkeys(run.training["hardware"] for run in runs)),
        commit=", ".join(dict.fromkeys(row.commit for row in rows if row.commit)),
        created=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        notes=[f"Trained in {', '.join(precision)}.", *notes],
        other_commands=[*again, f"sightline predict {folders[0]} IMAGE"],
        chance=None
        if rows[0].task == "attributes"
        else 1 / rows[0].classes
        if rows[0].classes
        else task_of(first.model).chance,
        papers=papers,
        inside=_inside(shown),
        alike=_alike(dict(zip((run.path for run in runs), named, strict=True)))
        if data == ModelVsHumanSuite.name
        else {},
    )


def _alike(runs: Mapping[Path, Sequence[ResultRow]]) -> dict[tuple[str, str], dict[int, ResultRow]]:
    """The error consistency of each two runs at the sizes of which both keep logits."""
    found: dict[tuple[str, str], dict[int, ResultRow]] = {}
    for pair in itertools.combinations(runs.items(), 2):
        one, other = (
            {row.resolution: folder / LOGITS / logits_name(vars(row)) for row in rows} for folder, rows in pair
        )
        for side in sorted(side for side in one.keys() & other.keys() if side is not None):
            if one[side].is_file() and other[side].is_file():
                # Of two runs that share no image there is none.
                with contextlib.suppress(InputError):
                    made = error_consistency(read_logits(one[side]), read_logits(other[side]))[0]
                    found.setdefault((pair[0][1][0].run, pair[1][1][0].run), {})[side] = made
    return found


def _inside(runs: Sequence[tuple[OpenedRun, str]]) -> list[AnalysisRow]:
    """What `sightline analyse` left in the folders of runs, under their names here: of one data set and split alone.

    Raises:
        InputError: a file cannot be read, or is damaged.
    """
    found: list[AnalysisRow] = []
    for run, name in runs:
        # Beside a checkpoint that was named too.
        file = run_of(run.path) / INSIDE / ANALYSIS
        rows = read_rows(file, AnalysisRow) if file.is_file() else []
        measured = {row.run for row in rows}
        # The folder may have been renamed since; of several models the run's own is meant.
        own = [replace(row, run=name) for row in rows if len(measured) == 1 or row.run == run.identity.run]
        if found and own and (own[0].data, own[0].split) != (found[0].data, found[0].split):
            warn(f"{file}: is of {own[0].data}/{own[0].split}, not of {found[0].data}/{found[0].split}; left out")
            continue
        found += own
    return found


def _pictures(folder: Path, rows: Sequence[ResultRow]) -> list[content.Sample]:
    """What the rows of a run name, as far as it is there; what is there and no picture is named, and left out."""
    found = []
    for row in rows:
        place = folder / row.picture
        # A name that leads elsewhere, or a link, was written by nobody here.
        if not row.picture or Path(row.picture).parent != Path(PICTURES) or (folder / PICTURES).is_symlink():
            continue
        try:
            if not stat.S_ISREG(place.lstat().st_mode):
                continue
            picture = read_image(place)
        except FileNotFoundError:
            continue
        except (OSError, ValueError, SightlineError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error).removeprefix(f"{place}: ")
            # Of this command it is no option.
            reason = (reason or "").replace("; --max-pixels N takes more", "")
            warn(f"{str(place)[:200]}: is no picture that can be shown, and is left out ({reason})")
            continue
        said = f"{row.run}, {row.split} at {row.size_label}: {short(row.metric)} {quantity(row.value, row.unit)}"
        found.append(content.Sample(picture, said))
    return found


def read_validation(folder: Path) -> list[content.ValidationPoint]:
    """What was measured while training; nothing where the run was not validated.

    Raises:
        InputError: the file cannot be read, or is damaged.
    """
    return [
        content.ValidationPoint(line["step"], line["images"], line["split"], measured)
        for line, measured in read_curve(folder)
    ]


def best_step(folder: Path) -> int | None:
    """The step of the best checkpoint; None where none is kept."""
    try:
        return read_config_record(folder / BEST)["training"].get("step")
    except InputError:
        return None


def read_answers(folder: Path, run: str, config: Mapping[str, Any], source: Source | None) -> content.Answers | None:
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
    path = folder / PREDICTIONS
    parts: dict[tuple[str, str, int | None], list[Prediction]] = {}
    for one in read_predictions(path) if path.exists() else ():
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
