"""What the folder of a run says of itself, as the reports want it."""

from __future__ import annotations

import contextlib
import itertools
import math
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from sightline.analysis.views import attends_in_parts, field_of_view
from sightline.convert.foreign_folder import is_foreign_folder
from sightline.data.image_file import read_image
from sightline.data.open import open_source
from sightline.data.source import Source
from sightline.encodings.discovery import first_line
from sightline.errors import InputError, SightlineError, UnreadableDataError
from sightline.evaluation.logits import logits_name, read_logits
from sightline.evaluation.suites.model_vs_human import ModelVsHumanSuite, error_consistency
from sightline.hub.load import read_config_record
from sightline.hub.model_card import describe_encoding
from sightline.io.run_files import BEST, CHECKSUMS, INSIDE, LOG, LOGITS, PICTURES, RESULTS
from sightline.models import Model
from sightline.reports import content
from sightline.reports.seen import by_run, loss_kind, training_sizes
from sightline.reports.words import capital, listed, quantity, short
from sightline.results.analysis import ANALYSIS, AnalysisRow
from sightline.results.rows import ResultRow, read_rows
from sightline.runs.console import command_line, warn
from sightline.runs.outputs import is_run, run_of
from sightline.runs.report_answers import read_answers
from sightline.tasks.base import task_of
from sightline.tokens.grid import Grid
from sightline.training.log import read_curve, read_log
from sightline.training.run import OpenedRun, open_run
from sightline.training.status import describe_unfinished

_SAMPLES_A_ROW = 6
# Images that are looked at for some of different classes, and the side that is enough for it, in pixels.
_LOOKED_AT = 200
_SMALL = 16


def read_run(folder: Path) -> tuple[OpenedRun | None, list[ResultRow]]:
    """A run, or a saved model, and its measured rows; None where a folder holds rows of a model that is elsewhere, or
    that another library wrote.

    Raises:
        InputError: the folder is no run, or was not measured.
    """
    rows, run = folder / RESULTS, None
    if is_run(folder) or (folder / CHECKSUMS).is_file() or not (rows.is_file() or is_foreign_folder(folder)):
        run = open_run(folder)
    if not rows.exists():
        raise InputError(f"{folder}: has no {RESULTS} yet; run: sightline evaluate {folder}")
    measured = read_rows(rows)
    if not measured:
        raise InputError(f"{rows}: has no rows; run: sightline evaluate {folder}")
    return run, measured


def _summary(run: OpenedRun, rows: list[ResultRow]) -> content.RunSummary:
    model, training, folder = run.model, run.training, run.path
    # A model that was saved elsewhere has no log.
    log = read_log(folder / LOG) if is_run(run_of(folder)) else []
    config, knob = training["config"], model.knob
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
        evaluate_seconds=_seconds(rows),
        precision=config["precision"],
        config=config,
        loss=content.LossCurve(
            [line["images"] for line in log], [line["loss"] for line in log], loss_kind(config, model.num_classes)
        ),
        seen=training_sizes(config, model.config.patch_size),
        validation=read_validation(folder),
        best_step=best_step(folder),
        # A plug-in says itself what it does.
        about="" if describe_encoding(model.encoding.name) else first_line(model.encoding.name),
        kind=f"{model.config.architecture}, {model.config.embedder}",
    )


def _seconds(rows: Iterable[ResultRow]) -> float:
    # Rows of one pass share its seconds.
    return sum({row.measurement: row.seconds for row in rows}.values())


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


def _named(measured: Mapping[Path, list[ResultRow]]) -> list[list[ResultRow]]:
    """The rows of each run under one name, of no other one: a folder was renamed, or two are called so."""
    # The last rows have the name that the folder has now.
    latest = [rows[-1].run for rows in measured.values()]
    named = []
    for folder, rows in measured.items():
        name = rows[-1].run if latest.count(rows[-1].run) == 1 else str(folder)
        named.append([replace(row, run=name) for row in rows])
    return named


def _rows_on(data: str, folder: Path, rows: Sequence[ResultRow]) -> list[ResultRow]:
    """The rows of a run on a data set: of a suite as it was prepared first; of data that is a suite too, as it is in
    training."""
    mine = [row for row in rows if row.data == data]
    if not mine:
        raise InputError(f"{folder}: was not measured on {data} (but on {', '.join({row.data for row in rows})})")
    return [row for row in mine if row.preparation == min(one.preparation for one in mine)]


def _shown_source(data: str, run: OpenedRun | None) -> Source | None:
    """The data set that images are shown of, without those that a run left out; None where it is not there any more, or
    is of annotated people."""
    try:
        found = open_source(data) if run is None else replace(run, data=data, opened=None).source
        found, _ = found.check_readable(_split_of(found), skip_unreadable=0 if run is None else run.skip_unreadable)
    except SightlineError:
        return None
    return None if found.attributes and "captions" not in found.provides else found


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
        data: the data set that they were measured on; unless given that of their training, where it was measured, else
            the first that all were measured on.
        papers: whose curves stand beside.

    Raises:
        InputError: a folder holds no measured model, the runs were trained on different data, or one was not measured
            on what is asked for.
    """
    places, opened, measured = [folder.resolve() for folder in folders], list[OpenedRun | None](), {}
    for folder in folders:
        if places.count(folder.resolve()) > 1:
            raise InputError(f"report: {folder} is there twice; expected each run once")
        run, measured[folder] = read_run(folder)
        opened.append(run)
    trained = sorted({run.data for run in opened if run is not None and run.training})
    if len(trained) > 1:
        raise InputError(
            f"report: the runs were trained on {', '.join(trained)}; expected the same data, else a page each"
        )
    known = list(dict.fromkeys(row.data for rows in measured.values() for row in rows))
    common = [one for one in known if all(any(row.data == one for row in rows) for rows in measured.values())]
    data = data or next((one for one in (*trained, *common) if one in common), trained[0] if trained else known[0])
    named = _named({folder: _rows_on(data, folder, rows) for folder, rows in measured.items()})
    rows = [row for one in named for row in one]
    shown = [(run, one[0].run) for run, one in zip(opened, named, strict=True) if run is not None]
    summaries = [_summary(run, one) for run, one in zip(opened, named, strict=True) if run is not None and run.training]
    first = next((run for run, _ in shown), None)
    source = _shown_source(data, first)
    resolutions = sorted({row.resolution for row in rows if row.split == "test" and row.resolution is not None})
    seen, sizes = by_run(summaries, rows), [] if source is None else _stored_sizes(source)
    # What the folder of a run holds was said of the data of the training.
    said = [
        read_answers(folder, one[0].run, seen[one[0].run], source)
        for folder, run, one in zip(folders, opened, named, strict=True)
        if (run.data == data if run is not None and run.training else not one[0].preparation)
    ]
    hardware = [
        run.training["hardware"] if run is not None and run.training else own[0].hardware
        for run, own in zip(opened, named, strict=True)
    ]
    precision = sorted({summary.precision for summary in summaries})
    return content.Report(
        title=title or f"{capital(short(rows[0].metric))} by resolution",
        command=command,
        runs=summaries,
        rows=rows,
        samples={} if source is None else _samples(source, resolutions),
        fields=[field for run, name in shown for field in _fields(run.model, name)],
        answers=[one for one in said if one is not None],
        pictures=[one for folder, own in zip(folders, named, strict=True) for one in _pictures(folder, own)],
        seconds_total=sum(summary.train_seconds for summary in summaries) + sum(map(_seconds, named)),
        hardware="; ".join(dict.fromkeys(hardware)),
        commit=", ".join(dict.fromkeys(row.commit for row in rows if row.commit)),
        created=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        notes=[
            *(f"{said}." for said in map(describe_unfinished, folders) if said),
            *([f"Trained in {', '.join(precision)}."] if precision else []),
            *_enlarged_note(sizes, resolutions),
            *notes,
        ],
        other_commands=_related_commands(folders[0], [one for one in known if one != data], first, source),
        cut=any(_is_cut(run.model, sizes) for run, _ in shown),
        chance=_chance(rows[0], None if first is None else first.model, source),
        papers=papers,
        inside=_inside(shown),
        alike=_alike(dict(zip(folders, named, strict=True))) if data == ModelVsHumanSuite.name else {},
    )


def _related_commands(folder: Path, others: Sequence[str], run: OpenedRun | None, source: Source | None) -> list[str]:
    """Reports on other data, tuning, and answers."""
    found = [command_line("report", folder, "--data", one) for one in others]
    if run is not None:
        if run.training and run.model.knob is not None and source is not None and "minival" in source.splits:
            found.insert(0, command_line("evaluate", run.path, "--tune"))
        found.append(command_line("predict", run.path, "IMAGE"))
    return found


def _stored_sizes(source: Source) -> list[tuple[int, int]]:
    """(height, width) of some images, spread over the split; none of drawn ones."""
    split, found = _split_of(source), []
    length = source.length(split) or 0
    for index in range(0, length, length // _LOOKED_AT + 1):
        with contextlib.suppress(UnreadableDataError):
            found.append(source.stored_size(split, index))
    return [one for one in found if one]


def _is_cut(model: Model, sizes: Sequence[tuple[int, int]]) -> bool:
    """Whether a square leaves the edges of images out."""
    config = model.config
    return config.crop_mode == "center" and any(config.crop < 1 or height != width for height, width in sizes)


def _enlarged_note(sizes: Sequence[tuple[int, int]], resolutions: Sequence[int]) -> list[str]:
    """A line where squares are larger than most images."""
    side = median(map(min, sizes)) if sizes else math.inf
    larger = [f"{one} px" for one in resolutions if one > side]
    if not larger:
        return []
    return [f"Most images are enlarged at {listed(larger)}: the median of their shorter sides is {side:.0f} px."]


def _chance(row: ResultRow, model: Model | None, source: Source | None) -> float | None:
    """What guessing gives of the first metric, where that is known."""
    if row.task == "attributes":
        return None
    if row.classes:
        return 1 / row.classes
    if model is not None:
        return task_of(model).chance
    return 1 / len(source.classes) if source is not None and source.classes and row.metric == "top1" else None


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
