"""One evaluation on a suite: its parts one after the other, into one folder."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.analysis.memory import side_of, warn_of_memory
from sightline.attention.cpu import chosen_precision
from sightline.data.config import SkipUnreadable
from sightline.data.sizes import View
from sightline.distributed import signals
from sightline.errors import InputError
from sightline.evaluation.config import EvaluateConfig
from sightline.evaluation.measure import planned_images
from sightline.evaluation.suite import SuiteMeasurement, map_classes, measure_suite, planned
from sightline.evaluation.suites.base import OpenedSuite, open_suite
from sightline.io.config import Count, Precision, check_value
from sightline.io.run_files import LOGITS, RESULTS
from sightline.results.rows import ResultRow, read_rows, update_rows
from sightline.runs import outputs
from sightline.runs.console import warn
from sightline.runs.evaluate import Evaluation
from sightline.runs.options import EvaluateOptions
from sightline.runs.progress import Progress
from sightline.runs.sizes import parse_resolutions_of

if TYPE_CHECKING:
    from sightline.runs.run import Run


def evaluate_suite(run: Run, asked: EvaluateOptions, progress: Progress) -> Evaluation:
    """Measure a model on a suite: `results.jsonl` and the logits of each measurement, in a folder.

    A measurement that is finished is not made again; its rows are written as soon as it is whole. Several ranks share
    the images of each.

    Raises:
        InputError: something does not fit; nothing was measured.
    """
    refuse_options(asked)
    suite, out, ranks, identity, model = str(asked.suite), asked.out, run.ranks, run.identity, run.model
    assert out is not None
    opened = open_suite(suite)
    _claim(out, run, opened)
    config = EvaluateConfig(
        parse_resolutions_of(asked.resolutions, model.config.patch_size) or (identity.train_resolution,),
        images=asked.limit,
        task_options=asked.task_options or {},
        precision=check_value("precision", asked.precision, Precision),
        workers=asked.workers,
    )
    parts = map_classes(model, opened.parts, suite)
    parts = [replace(part, source=part.source.with_view(max_pixels=run.max_pixels)) for part in parts]
    todo = planned(model, parts, config, asked.preparation or "model", identity.train_resolution)
    patch = model.config.patch_size
    sides = [side_of(one.view.patches, patch) if isinstance(one.view, View) else one.view for one in todo]
    if sides:
        warn_of_memory(model.config, max(sides), warn, what=str(run.path), device=model.anchor.device)
    for line in opened.missing:
        print(f"not measured: {line}", file=sys.stderr)
    todo = _with_headers(todo, progress, run.skip_unreadable)
    total = sum(planned_images(one.part.source, model, one.config, identity.train_resolution) for one in todo)
    advance, rows = progress.counter("testing", total), list[ResultRow]()
    with signals.resume_hint("the same command"):
        for fresh in measure_suite(
            model, todo, identity, out / LOGITS, ranks, overwrite=asked.overwrite, advance=advance
        ):
            if ranks.is_main:
                update_rows(out / RESULTS, fresh)
            rows += fresh
    for source in {id(one.part.source): one.part.source for one in todo}.values():
        progress.say_left_out(source)
    logits = out / LOGITS if (out / LOGITS).is_dir() else None
    return Evaluation(rows, out / RESULTS, None, logits, chosen_precision(config.precision, model.anchor.device))


def refuse_options(asked: EvaluateOptions, data: str | None = None) -> None:
    """Refuse options that go without a suite alone; what is chosen or learned on other splits, or asks for gradients,
    is of one data set and its splits."""
    others = {
        "--data": data, "--split": asked.split, "--images": asked.images, "--no-shrink": asked.no_shrink,
        "--tune": asked.tune, "--frames": asked.frames, "--predictions": asked.predictions, "--logits": asked.logits,
        "--measures": asked.measures, "--temperature": asked.temperature,
    }  # fmt: skip
    for option, given in others.items():
        # A number may be 0.
        if given is not None and given is not False and given != ():
            apart = option in ("--tune", "--temperature", "--measures")
            way = f"; on one data set: sightline evaluate MODEL --data DATA {option}" if apart else ""
            raise InputError(f"{option}: goes without --suite alone{way}", field=option, value=given)
    if asked.out is None:
        raise InputError("--suite: needs a folder for its rows and logits: --out DIR", field="--out")
    if asked.limit is not None:
        check_value("--limit", asked.limit, Count)


def _claim(out: Path, run: Run, opened: OpenedSuite) -> None:
    """Refuse a folder that is an input, or in which something else stands."""
    data = [f"imagefolder:{folder}" for folder in opened.folders]
    outputs.guard_folder(
        out, outputs.Inputs(models=[run.path], data=data, files=[run.opening.weights]), "--out", deletes=False
    )
    if outputs.is_run(out):
        raise InputError(f"--out {out}: is the folder of a run, whose rows are its own; give another folder")
    if (out / RESULTS).is_dir() or (out / LOGITS).is_file():
        raise InputError(f"--out {out}: holds something else called {RESULTS} or {LOGITS}; give another folder")
    if (out / RESULTS).exists():
        # Read now, so that a damaged file is not found out after the work is done.
        read_rows(out / RESULTS)
    outputs.check_writable(out, out / LOGITS)


def _with_headers(todo: Sequence[SuiteMeasurement], progress: Progress, skip: SkipUnreadable) -> list[SuiteMeasurement]:
    """The same, of which every header was read once; without what may be left out."""
    read: dict[int, Any] = {}
    for one in todo:
        if id(one.part) not in read:
            source = progress.read_headers(one.part.source, (one.part.split,), skip)
            read[id(one.part)] = one.part.left_in(source)
    return [replace(one, part=read[id(one.part)]) for one in todo]
