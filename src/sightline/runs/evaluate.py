"""One evaluation: what was asked for is checked, measured, and written where it belongs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline import __version__
from sightline.analysis.memory import side_of, warn_of_memory
from sightline.attention.cpu import chosen_precision
from sightline.data.sizes import View
from sightline.data.source import Source
from sightline.distributed import machine, signals
from sightline.errors import InputError, StorageError
from sightline.evaluation import measure
from sightline.evaluation.config import EvaluateConfig
from sightline.evaluation.dense_predictions import clear_dense_predictions, write_dense_predictions
from sightline.evaluation.drawn import write_pictures
from sightline.evaluation.features import FrozenTrunk
from sightline.evaluation.logits import ENDING, StoredLogits, logits_name, read_logits, task_record, write_logits
from sightline.evaluation.parts import WorkFolder, work_folder
from sightline.evaluation.predict import training_views
from sightline.evaluation.suite import map_classes, prepare_sets
from sightline.evaluation.suites.base import EvalSet, OpenedSuite, open_suite
from sightline.hub.load import checksum
from sightline.io.atomic import storage_errors
from sightline.io.run_files import DENSE_PREDICTIONS, LOGITS, PICTURES, PREDICTIONS, RESULTS
from sightline.results.predictions import read_predictions, update_predictions
from sightline.results.rows import ResultRow, measured_on_more_images, read_rows, to_frame, update_rows
from sightline.runs import outputs
from sightline.runs.console import warn
from sightline.runs.frames import for_frames, in_frames
from sightline.runs.options import EvaluateOptions
from sightline.runs.progress import Progress
from sightline.runs.sizes import parse_frames, parse_resolutions, split_words
from sightline.tasks.base import Task, task_class
from sightline.training.status import describe_unfinished

if TYPE_CHECKING:
    from sightline.runs.run import Run

# Test sizes over the training size: the demo's, from 20 px to 148 px of 32.
_FACTORS = (0.625, 0.75, 1.0, 1.375, 1.75, 2.0)


@dataclass(frozen=True)
class Evaluation:
    """What was measured, and where it stands.

    Attributes:
        rows: of this evaluation; none on other ranks than the first.
        path: the file of rows; predictions, logits: what else was written.
        precision: that was computed in.
    """

    rows: list[ResultRow]
    path: Path
    predictions: Path | None = None
    logits: Path | None = None
    precision: str = ""

    def frame(self) -> Any:
        """The rows as a `pandas.DataFrame`, a line each. `view` says how images were shown, as "64", "64 shrunk to 32",
        "native" or "max:16"; beside it stands what else tells rows of a metric apart."""
        frame = to_frame(self.rows).assign(view=[row.size_label.replace(" px", "") for row in self.rows])
        first = dict.fromkeys(["view", "metric", *(name for row in self.rows for name in row.slices), "value"])
        return frame[[*(name for name in first if name in frame), *(name for name in frame if name not in first)]]


@dataclass(frozen=True)
class _Places:
    """The folder that an evaluation writes into.

    Attributes:
        before: rows that stand there; beside: those of them that are neither of another model nor of another data
            set, which are replaced.
        predictions: what was said of each image: a file of lines, a folder of files for other tools, or neither.
        logits: the folder of logits, where they are kept.
    """

    folder: Path
    before: list[ResultRow]
    beside: list[ResultRow]
    predictions: Path | None
    logits: Path | None

    @property
    def rows(self) -> Path:
        return self.folder / RESULTS


def evaluate(run: Run, asked: EvaluateOptions, progress: Progress) -> Evaluation:
    """Measure a model on its data and on suites; see `Run.evaluate`. Each rank must call it."""
    ranks, model, data = run.ranks, run.model, _measured_data(run, asked)
    refuse_options(run.path, asked, data=run.asked_data, patch_size=run.patch_size)
    encoding = model.encoding
    if asked.tune and encoding.knob is None and encoding.resize_rule is None:
        raise InputError(f"--tune: encoding {encoding.name} has no parameter to tune, and no table that is resized")
    # All that can be refused is refused before the first image is read.
    config, suites = _config(run, asked, data), [(spec, open_suite(spec)) for spec in asked.suite]
    # Of an answer that is more than a class other tools read files, where they do not stand among a run's own.
    files = asked.out is not None and task_class(model.config.task).results is not Task.results
    places = _claim(run, asked, [one for _, one in suites], files=files)
    sets = [*_data_sets(run, asked, config, data), *_suite_sets(run, asked, suites)]
    tasks = measure.check_sets(model, sets, config)
    if asked.logits:
        task_record(tasks[0])
    for task in tasks:
        if isinstance(task, FrozenTrunk) and ranks.is_main:
            print(f"not measured: answers of the model itself: {task.reason}", file=sys.stderr)
    if config.splits == ("train",) and not asked.split:
        warn(f"{run.data} has no split to test on: train is measured, which a model may know by heart")
    if (unfinished := describe_unfinished(run.path)) and ranks.is_main:
        warn(unfinished)
    _warn_of_classes(run, sets)
    _warn_of_memory(run, asked, sets)
    measured = [len(one.indices) for one in measure.plan_evaluation(sets, model, config, run.side)]
    for line in (line for _, one in suites for line in one.missing if ranks.is_main):
        print(f"not measured: {line}", file=sys.stderr)
    sets = _with_headers(run, asked, config, sets, progress)
    identity = run.identity if asked.out is None else replace(run.identity, weights=run.weights)
    total, views = measure.count_images(sets, model, config, run.side), ""
    if len(measured) > 1 and total == len(measured) * measured[0]:
        views = f" {len(measured)} times {measured[0]} images"
    advance = progress.counter(f"testing{views}", total)

    def about() -> dict[str, Any]:
        where, own = model.anchor.device, next((one.source for one in sets if not one.preparation), None)
        read = measure.splits_read(own, config) if own is not None else ()
        return {
            "command": f"evaluate {__version__} {machine.git_commit()}",
            "config": repr(replace(config, workers=0)),
            "identity": vars(identity),
            "device": where.type,
            # By which its attention is chosen: parts of another one would differ in their last bits.
            "processor": list(machine.processor()) if where.type == "cpu" else None,
            "max_pixels": run.max_pixels,
            "logits": places.logits is not None,
            "files": files,
            "data": [own.fingerprint(name).digest for name in read] if own is not None else [],
            "suites": [[one.data, one.preparation, repr(one.views)] for one in sets if one.preparation],
        }

    answers, pictures = list[Any](), dict[str, Any]()
    with work_folder(places.rows, model, about, ranks) as parts, signals.resume_hint("the same command"):
        keep = None
        if places.logits is not None:
            names = measure.logits_names(sets, model, config, identity)
            keep = _keep_logits(places.logits, names, parts, overwrite=asked.overwrite)
        rows = measure.evaluate(
            model, sets, config, identity, advance=advance, answers=answers, pictures=pictures,
            wanted="results" if files else "prediction_records", parts=parts, keep=keep,
        )  # fmt: skip
        for one in sets:
            progress.say_left_out(one.source)
        if ranks.is_main:
            if asked.out is None and checksum(run.path) != run.written:
                parts.discard()
                raise StorageError(
                    f"{run.path}: its checkpoint was replaced while the one before was measured, as by a training "
                    "that goes on; no rows are written (measure it when that has ended, or with --out DIR)"
                )
            own = next((one.source for one in sets if not one.preparation), None)
            _write(asked, places, own, rows, answers, pictures)
            parts.discard()
    precision = chosen_precision(config.precision, model.anchor.device)
    return Evaluation(rows, places.rows, places.predictions, places.logits, precision)


def refuse_options(
    model: str | Path, asked: EvaluateOptions, *, data: str | None = None, patch_size: int | None = None
) -> None:
    """Refuse options that have no effect together, and rows that have no place, before anything is opened.

    Args:
        model: as it was named.
        data: the data set that was asked for by name.
        patch_size: that was asked for.
    """
    # What is chosen or learned on other splits is of a data set, whose splits these are.
    of_data = ("split", "frames", "no_shrink", "tune", "temperature", "measures")
    for name in of_data if asked.suite and not data else ("preparation",) if not asked.suite else ():
        if given := getattr(asked, name):
            option = f"--{name.replace('_', '-')}"
            needs = "--suite SUITE" if name == "preparation" else "a data set: --data DATA beside --suite"
            raise InputError(f"{option}: goes with {needs}", field=option, value=given)
    if asked.out is None:
        if patch_size is not None:
            said = "--patch-size: its rows are not the model's own; give --out DIR for them"
            raise InputError(said, field="--patch-size", value=patch_size)
        outputs.home_of(Path(model))


def _measured_data(run: Run, asked: EvaluateOptions) -> Source | None:
    """The data set that is measured: of suites alone none."""
    return run.source if run.asked_data or not asked.suite else None


def _config(run: Run, asked: EvaluateOptions, source: Source | None) -> EvaluateConfig:
    """What is measured, with all that was left open decided."""
    patch, splits, images = run.model.config.patch_size, tuple(dict.fromkeys(split_words(asked.split))), asked.images
    shown = parse_resolutions(asked.resolutions, patch) or (run.side,)
    if source is not None:
        usual = tuple(name for name in ("test", "heldout_fonts") if name in source.splits)
        splits = splits or usual or source.splits[-1:]
        images = measure.default_image_count(source) if images is None else images
        if not split_words(asked.resolutions):
            sides = {max(round(run.side * factor / patch), 1) * patch for factor in _FACTORS}
            shown = (
                *sorted(sides),
                *sorted(training_views(run.config.get("packing"), run.side, patch, source, splits[0])),
            )
    return EvaluateConfig(
        shown,
        splits,
        images=images,
        knobs="both" if asked.tune else "default",
        tune_images=asked.tune_images,
        temperature=asked.temperature,
        temperature_images=asked.temperature_images,
        shrink=not asked.no_shrink,
        task_options=dict(asked.task_options or {}),
        precision=chosen_precision(asked.precision, run.model.anchor.device),
        workers=asked.workers,
        measures=tuple(dict.fromkeys(split_words(asked.measures))),
    )


def _data_sets(run: Run, asked: EvaluateOptions, config: EvaluateConfig, source: Source | None) -> list[EvalSet]:
    """The splits of the data set, once for each number of frames. What was said of each clip is kept once, where it is
    shown as in training if that is asked for."""
    if source is None:
        return []
    sources = in_frames(run.model.config, source, parse_frames(asked.frames))
    told = next((one for one in sources if one.sampling == source.sampling), sources[0])
    sets = [part for one in sources for part in measure.data_sets(one, run.data, config, run.side)]
    return [part if part.source is told else replace(part, keep_predictions=False) for part in sets]


def _suite_sets(run: Run, asked: EvaluateOptions, suites: Sequence[tuple[str, OpenedSuite]]) -> list[EvalSet]:
    model = run.model.config
    views = parse_resolutions(asked.resolutions, model.patch_size) or (run.side,)
    found, named = list[EvalSet](), dict[tuple[str, str], str]()
    for spec, opened in suites:
        for part in opened.parts:
            if named.setdefault((part.data, part.split), spec) != spec:
                first = named[part.data, part.split]
                said = (
                    f"--suite {spec}: its {part.data} has the name of one of {first}; measure them one after the other"
                )
                raise InputError(f"{said}, with an --out each", field="--suite", value=spec)
        found += prepare_sets(
            model, map_classes(model, opened.parts, spec), asked.preparation or "model", views,
            images=asked.images, max_pixels=run.max_pixels,
        )  # fmt: skip
    return found


def _with_headers(
    run: Run, asked: EvaluateOptions, config: EvaluateConfig, sets: Sequence[EvalSet], progress: Progress
) -> list[EvalSet]:
    """The same, of which every header was read once; without what may be left out."""
    skip, found = run.skip_unreadable, list[EvalSet]()
    source = _measured_data(run, asked)
    if source is not None:
        source = progress.read_headers(source, measure.splits_read(source, config), skip)
        found = _data_sets(run, asked, config, source)
    suites = (one for one in sets if one.preparation)
    found += (one.left_in(progress.read_headers(one.source, (one.split,), skip)) for one in suites)
    return [replace(one, content=one.digest()) if one.preparation else one for one in found]


def _claim(run: Run, asked: EvaluateOptions, suites: Sequence[OpenedSuite], *, files: bool) -> _Places:
    """Refuse a folder that cannot be written, or whose rows are not this model's; nothing is made yet."""
    out, on_data = asked.out, _measured_data(run, asked) is not None
    if out is not None:
        data = [f"imagefolder:{folder}" for opened in suites for folder in opened.folders]
        outputs.guard_folder(out, replace(run.inputs, data=[*run.inputs.data, *data]), "--out", deletes=False)
        if outputs.is_run(out):
            raise InputError(f"--out {out}: is the folder of a run, whose rows are its own; give another folder")
    home = outputs.home_of(run.path) if out is None else out
    said = None
    if on_data and (out is not None or run.data == run.config.get("data")):
        said = home / (DENSE_PREDICTIONS if files else PREDICTIONS)
    logits = home / LOGITS if asked.logits else None
    for place, folder in ((home / RESULTS, False), (home / PICTURES, True), (said, files), (logits, True)):
        if place is not None and place.exists() and place.is_dir() != folder:
            raise InputError(f"{place}: is no {'folder' if folder else 'file'} (expected: --out of another name)")
    if files and said is not None and said.exists() and not ((home / RESULTS).exists() or asked.overwrite):
        raise InputError(f"{said}: exists already, beside no rows; --overwrite writes into it")
    # Read now, so that a damaged file is not found out after the work is done.
    before = read_rows(home / RESULTS) if (home / RESULTS).exists() else []
    if said is not None and said.name == PREDICTIONS and said.exists():
        read_predictions(said)
    outputs.check_writable(home / RESULTS, home / PICTURES, *(one for one in (said, logits) if one is not None))
    beside = before if out is None else [row for row in before if _is_beside(run, row, on_data=on_data)]
    if len(beside) < len(before) and not asked.overwrite:
        row = next(row for row in before if row not in beside)
        mine = (row.run, row.weights) == (run.identity.run, run.weights)
        what = f"{row.data} in patches of its own" if mine and row.data == run.data else row.data if mine else row.run
        what += "" if mine or row.run != run.identity.run else " with other weights"
        raise InputError(f"--out {out}: holds rows of {what}; give another folder, or --overwrite to replace them")
    return _Places(home, before, beside, said, logits)


def _is_beside(run: Run, row: ResultRow, *, on_data: bool) -> bool:
    """Whether a row is of this model, and of a suite or of the data set that is measured."""
    own = not on_data or bool(row.preparation) or (row.data, row.patch_size) == (run.data, run.patch_size)
    return own and (row.run, row.weights) == (run.identity.run, run.weights)


def _keep_logits(
    folder: Path, names: Sequence[str], parts: WorkFolder, *, overwrite: bool
) -> Callable[[str, StoredLogits], None]:
    """What writes logits, after it was made sure that no file of such a name is of other work: what a killed command
    wrote is its own."""
    for place in (folder / name for name in names):
        if place.exists() and not overwrite and read_logits(place, header=True).work != parts.identity:
            raise InputError(f"{place}: exists already, of other weights or options; --overwrite replaces it")

    def keep(name: str, stored: StoredLogits) -> None:
        write_logits(folder, name, replace(stored, work=parts.identity))

    return keep


def _warn_of_classes(run: Run, sets: Sequence[EvalSet]) -> None:
    """Of a head of timm's that has other classes than a data set, whose numbers mean others then."""
    model, own = run.model.config, next((one for one in sets if not one.preparation), None)
    if not (run.is_timm and run.ranks.is_main and own and model.has_classifier and model.class_names is None):
        return
    classes = len(own.source.classes)
    if classes and classes != model.num_classes:
        said = f"{run.path}: its head has {model.num_classes} classes, {own.data} {classes}"
        warn(f"{said}; --num-classes {classes} makes a new head")


def _warn_of_memory(run: Run, asked: EvaluateOptions, sets: Sequence[EvalSet]) -> None:
    model = run.model.config
    views = [view for one in sets for view in one.views]
    sides = [side_of(one.patches, model.patch_size) if isinstance(one, View) else one for one in views]
    shown_as = for_frames(model, parse_frames(asked.frames))
    warn_of_memory(shown_as, max(sides), warn, what=str(run.path), device=run.model.anchor.device)


def _write(
    asked: EvaluateOptions,
    places: _Places,
    source: Source | None,
    rows: list[ResultRow],
    answers: list[Any],
    pictures: dict[str, Any],
) -> None:
    """Write rows, predictions and pictures; of rows that are replaced the other files go too."""
    # Images that cannot be read any more are no reason: all that are there were measured.
    fewer = asked.images is None or asked.overwrite
    more = {} if fewer else measured_on_more_images(places.before, rows)
    if more:
        line = f"{places.rows} keeps what was measured on more images: {', '.join(more.values())}"
        print(f"{line}; --overwrite replaces it", file=sys.stderr)
    other = len(places.beside) < len(places.before)
    if other:
        _clear(places, [*places.beside, *(rows if places.logits is not None else ())])
    if places.predictions is not None and places.predictions.name == DENSE_PREDICTIONS:
        assert source is not None
        stay = {(row.split, row.view, row.resolution) for row in rows if row.measurement in more}
        write_dense_predictions(
            places.predictions, source, [one for one in answers if (one.split, one.view, one.resolution) not in stay]
        )
    elif places.predictions is not None:
        update_predictions(places.predictions, answers, anew=other, fewer=fewer)
    # Rows first: a picture that finds no room costs none of them.
    update_rows(places.rows, [*places.beside, *rows] if other else rows, anew=other, fewer=fewer)
    write_pictures([row for row in rows if row.measurement not in more], pictures, places.folder)


def _clear(places: _Places, rows: Sequence[ResultRow]) -> None:
    """Delete what was written beside rows that are replaced: all but the logits and pictures of these rows."""
    logits, pictures = {logits_name(vars(row)) for row in rows}, {row.picture for row in places.beside}
    with storage_errors(f"{places.folder}: cannot be cleared"):
        for file in (places.folder / LOGITS).glob(f"*{ENDING}"):
            if file.name not in logits:
                file.unlink()
        for file in (places.folder / PICTURES).glob("*.png"):
            if file.relative_to(places.folder).as_posix() not in pictures:
                file.unlink()
        if all(row.preparation for row in places.beside):
            (places.folder / PREDICTIONS).unlink(missing_ok=True)
            clear_dense_predictions(places.folder / DENSE_PREDICTIONS)
