"""One evaluation: what was asked for is checked, measured, and written where it belongs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline import __version__
from sightline.analysis.memory import side_of, warn_of_memory
from sightline.attention.cpu import chosen_precision
from sightline.data.source import Source
from sightline.distributed import machine, signals
from sightline.errors import InputError, StorageError
from sightline.evaluation import measure
from sightline.evaluation.drawn import Drawing, write_pictures
from sightline.evaluation.logits import StoredLogits, read_logits, task_record, write_logits
from sightline.evaluation.measures.base import checked_measures
from sightline.evaluation.parts import kept_beside
from sightline.evaluation.predict import views_as_trained
from sightline.evaluation.result_files import foreign_maps, planned_files, write_results
from sightline.evaluation.temperature import check_task
from sightline.hub.load import checksum
from sightline.io.run_files import PICTURES, PREDICTIONS, RESULTS
from sightline.results.predictions import read_predictions, update_predictions
from sightline.results.rows import ResultRow, measured_on_more_images, read_rows, to_frame, update_rows
from sightline.runs import outputs
from sightline.runs.console import warn
from sightline.runs.frames import for_frames, in_frames
from sightline.runs.options import EvaluateOptions
from sightline.runs.progress import Progress
from sightline.runs.sizes import parse_frames, parse_resolutions, split_words
from sightline.tasks.base import Task, task_of

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
        """The rows as a `pandas.DataFrame`, a line each."""
        return to_frame(self.rows)


@dataclass(frozen=True)
class _Places:
    """Where an evaluation writes.

    Attributes:
        rows: the file of rows; predictions: what was said of each image, None where that is of no use.
        pictures: the name of the folder of pictures beside the rows.
        before: rows that stand there.
    """

    rows: Path
    predictions: Path | None
    logits: Path | None
    pictures: str
    inputs: outputs.Inputs
    before: list[ResultRow] = field(default_factory=list)


def evaluate(run: Run, asked: EvaluateOptions, progress: Progress) -> Evaluation:
    """Measure a model on its data; see `Run.evaluate`. Each rank must call it."""
    ranks = run.ranks
    refuse_options(asked, run.patch_size)
    encoding = run.model.encoding
    if asked.tune and encoding.knob is None and encoding.resize_rule is None:
        raise InputError(f"--tune: encoding {encoding.name} has no knob, and no table that is resized")
    lengths = parse_frames(asked.frames)
    in_frames(run.model.config, run.source, lengths)
    places = _claim(run, asked)
    task_options = asked.task_options or {}
    task = task_of(run.model, task_options).bind(run.source, run.data)
    if asked.temperature:
        check_task(task)
    if asked.logits is not None:
        task_record(task)
    place = places.rows.parent / places.pictures
    if Drawing.of(run.model, task) is not None and place.exists() and not place.is_dir():
        raise InputError(f"{place}: is a file (expected a folder, for pictures of answers)")
    config = _config(run, asked, task_options)
    # All that can be refused is refused before the first image is read; the plan refuses splits.
    checked_measures(config.measures, run.model, task, run.source, config.splits)
    measure.check_sizes(run.model, config)
    _warn_of_memory(run, config, lengths)
    measure.planned_images(run.source, run.model, config, run.side)
    if asked.predictions is not None:
        _claim_beside(run, asked, task, config, places)
    source = progress.read_headers(run.source, measure.splits_read(run.source, config), run.skip_unreadable)
    sources = in_frames(run.model.config, source, lengths)
    # What was said of each clip is kept once, where it is shown as in training if that is asked for.
    told = next((one for one in sources if one.sampling == source.sampling), sources[0])
    files = asked.predictions is not None and type(task).results is not Task.results
    count = measure.planned_images(source, run.model, config, run.side) * len(sources)
    advance = progress.counter("testing", count)

    def about() -> dict[str, Any]:
        where = run.model.anchor.device
        return {
            "command": f"evaluate {__version__} {machine.git_commit()}",
            "config": repr(replace(config, workers=0)),
            "identity": vars(run.identity),
            "device": where.type,
            # By which its attention is chosen: parts of another one would differ in their last bits.
            "processor": list(machine.processor()) if where.type == "cpu" else None,
            "max_pixels": run.max_pixels,
            "logits": places.logits is not None,
            "files": files,
            "data": [source.fingerprint(name).digest for name in measure.splits_read(run.source, config)],
        }

    rows, answers, pictures = list[ResultRow](), list[Any](), dict[str, Any]()
    with kept_beside(places.rows, run.model, about, ranks) as parts, signals.resume_hint("the same command"):
        if places.logits is not None:
            _refuse_other_logits(run, config, sources, places, parts.identity, overwrite=asked.overwrite)

        def keep(name: str, stored: StoredLogits) -> None:
            assert places.logits is not None
            write_logits(places.logits, name, replace(stored, work=parts.identity))

        for one in sources:
            rows += measure.evaluate(
                run.model, one, config, run.identity, advance=advance,
                answers=answers if one is told else None, pictures=pictures if one is told else None,
                pictures_in=places.pictures,
                wanted="results" if files else "prediction_records", parts=parts,
                keep=None if places.logits is None else keep,
            )  # fmt: skip
        progress.say_left_out(source)
        if ranks.is_main:
            if asked.out is None and checksum(run.path) != run.written:
                parts.discard()
                raise StorageError(
                    f"{run.path}: its checkpoint was replaced while the one before was measured, as by a training "
                    "that goes on; no rows are written (measure it when that has ended, or with --out FILE)"
                )
            _write(run, asked, places, source, rows, answers, pictures, files=files)
            parts.discard()
    precision = chosen_precision(config.precision, run.model.anchor.device)
    return Evaluation(rows, places.rows, places.predictions, places.logits, precision)


def refuse_options(asked: EvaluateOptions, patch_size: int | None = None) -> None:
    """Refuse what goes with a suite alone, and rows of other patches among a run's own, before anything is opened.

    Args:
        patch_size: that was asked for.
    """
    for option, given in (("--preparation", asked.preparation), ("--limit", asked.limit)):
        if given is not None:
            raise InputError(f"{option}: goes with --suite SUITE alone", field=option, value=given)
    if patch_size is not None and asked.out is None:
        said = "--patch-size: its rows are not the model's own; give --out FILE for them"
        raise InputError(said, field="--patch-size", value=patch_size)


def _claim(run: Run, asked: EvaluateOptions) -> _Places:
    """Refuse files that cannot be written; nothing is made yet."""
    home, out = None if asked.out is not None else outputs.home_of(run.path), asked.out
    inputs = run.inputs
    rows, said = home / RESULTS if home is not None else Path(str(out)), asked.predictions
    if out is not None:
        outputs.claim_file(out, inputs=inputs, overwrite=asked.overwrite)
    if said is not None:
        outputs.claim_file(said, inputs=inputs, overwrite=asked.overwrite, option="--predictions")
    elif home is not None and run.data == run.config.get("data"):
        said = home / PREDICTIONS
    # Read now, so that a damaged file is not found out after the work is done.
    before = read_rows(rows) if out is None and rows.exists() else []
    if said is not None and asked.predictions is None and said.exists():
        read_predictions(said)
    if asked.logits is not None:
        outputs.guard_folder(asked.logits, inputs, "--logits", deletes=False)
    # What is measured elsewhere replaces no picture that other rows name.
    pictures = PICTURES if out is None else f"{out.stem}_{PICTURES}"
    outputs.check_writable(rows, rows.parent / pictures, *(one for one in (said, asked.logits) if one is not None))
    return _Places(rows, said, asked.logits, pictures, inputs, before)


def _config(run: Run, asked: EvaluateOptions, task_options: Mapping[str, Any]) -> measure.EvaluateConfig:
    """What is measured, with all that was left open decided."""
    source, patch = run.source, run.model.config.patch_size
    usual = tuple(name for name in ("test", "heldout_fonts") if name in source.splits)
    splits = tuple(dict.fromkeys(split_words(asked.split))) or usual or source.splits[-1:]
    shown = parse_resolutions(asked.resolutions) or (
        *sorted({max(round(run.side * factor / patch), 1) * patch for factor in _FACTORS}),
        *sorted(views_as_trained(run.config.get("packing"), run.side, patch, source, splits[0])),
    )
    return measure.EvaluateConfig(
        shown,
        splits,
        images=measure.default_image_count(source) if asked.images is None else asked.images,
        knobs="both" if asked.tune else "default",
        tune_images=asked.tune_images,
        temperature=asked.temperature,
        temperature_images=asked.temperature_images,
        shrink=not asked.no_shrink,
        task_options=dict(task_options),
        precision=chosen_precision(asked.precision, run.model.anchor.device),
        workers=asked.workers,
        measures=tuple(dict.fromkeys(split_words(asked.measures))),
    )


def _warn_of_memory(run: Run, config: measure.EvaluateConfig, lengths: tuple[int, ...]) -> None:
    model = run.model.config
    largest = max(*config.sides, *(side_of(view.patches, model.patch_size) for view in config.views), 1)
    shown_as = for_frames(model, lengths)
    warn_of_memory(shown_as, largest, warn, what=str(run.path), device=run.model.anchor.device)


def _claim_beside(
    run: Run, asked: EvaluateOptions, task: Task, config: measure.EvaluateConfig, places: _Places
) -> None:
    """Refuse what is written beside a file of predictions; a folder of maps may hold those of an earlier one alone."""
    option, file = "--predictions", asked.predictions
    assert file is not None
    measured = measure.measurements(run.source, replace(config, temperature=False), run.side)
    others, maps = planned_files(file, task, measured, run.side)
    for one in (file, *others):
        if asked.out is not None and asked.out.resolve() == one.resolve():
            raise InputError(f"{option} {file}: {one} is --out too; expected two files")
    for one in others:
        outputs.claim_file(one, inputs=places.inputs, overwrite=asked.overwrite, option=option)
    for folder in maps:
        outputs.guard_folder(folder, places.inputs, option, deletes=asked.overwrite)
        if not asked.overwrite and folder.exists():
            raise InputError(f"{option}: {folder} exists already; --overwrite replaces it")
        for foreign in foreign_maps(folder):
            raise InputError(f"--overwrite: {foreign} was written by no evaluation; {folder} is not replaced")


def _refuse_other_logits(
    run: Run,
    config: measure.EvaluateConfig,
    sources: Iterable[Source],
    places: _Places,
    work: str,
    *,
    overwrite: bool,
) -> None:
    """Refuse a folder in which a file of such a name is of other work: what a killed command wrote is its own."""
    assert places.logits is not None
    others = {os.path.realpath(file) for file in (places.rows, places.predictions) if file is not None}
    names = [name for one in sources for name in measure.planned_logits(one, run.model, config, run.identity)]
    for place in (places.logits / name for name in names):
        if os.path.realpath(place) in others:
            raise InputError(f"--logits: {place} is another file that is to be written; give another name")
        if place.exists() and not overwrite and read_logits(place, header=True).work != work:
            raise InputError(f"--logits: {place} exists already, of other weights or options; --overwrite replaces it")


def _write(
    run: Run,
    asked: EvaluateOptions,
    places: _Places,
    source: Source,
    rows: list[ResultRow],
    answers: list[Any],
    pictures: dict[str, Any],
    *,
    files: bool,
) -> None:
    """Write rows, predictions and pictures."""
    # Images that cannot be read any more are no reason: all that are there were measured.
    fewer = asked.images is None or asked.overwrite
    more = {} if fewer else measured_on_more_images(places.before, rows)
    if more:
        line = f"{places.rows} keeps what was measured on more images: {', '.join(more.values())}"
        print(f"{line}; --overwrite replaces it", file=sys.stderr)
    if places.predictions is not None and files:
        write_results(places.predictions, source, answers, run.side)
    elif places.predictions is not None:
        update_predictions(places.predictions, answers, anew=asked.predictions is not None, fewer=fewer)
    # Rows first: a picture that finds no room costs none of them.
    update_rows(places.rows, rows, anew=asked.out is not None, fewer=fewer)
    write_pictures([row for row in rows if row.measurement not in more], pictures, places.rows.parent)
