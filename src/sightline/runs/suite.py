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
from sightline.evaluation.measure import planned_images
from sightline.evaluation.suite import Measurement, SuiteConfig, map_classes, measure, planned, refuse_others
from sightline.evaluation.suites.base import OpenedSuite, open_suite
from sightline.io.config import Count, Precision, check_value
from sightline.io.run_files import LOGITS, RESULTS
from sightline.results.rows import ResultRow, read_rows, update_rows
from sightline.runs import outputs
from sightline.runs.console import warn
from sightline.runs.evaluate import Evaluation
from sightline.runs.options import EvaluateOptions
from sightline.runs.progress import Progress
from sightline.runs.settings import apply_settings
from sightline.runs.sizes import parse_resolutions_of

if TYPE_CHECKING:
    from sightline.runs.run import Run


def evaluate_suite(run: Run, asked: EvaluateOptions, progress: Progress) -> Evaluation:
    """Measure a model on a suite: `results.jsonl` and the logits of each measurement, in a folder.

    A measurement that is finished is not made again, one that was stopped goes on; its rows are written as soon as it
    is whole. Several ranks share the images of each.

    Raises:
        InputError: something does not fit; nothing was measured.
    """
    suite, out, ranks = str(asked.suite), asked.out, run.ranks
    refuse_options(asked)
    assert out is not None
    opened = open_suite(suite)
    _claim(out, run, opened)
    identity = run.identity
    config = SuiteConfig(
        suite,
        parse_resolutions_of(asked.resolutions, run.model.config.patch_size) or (identity.train_resolution,),
        asked.preparation or "model",
        asked.limit,
        apply_settings({}, asked.settings),
        check_value("precision", asked.precision, Precision),
        asked.workers,
    )
    parts = map_classes(run.model, opened.parts, suite)
    parts = [replace(part, source=part.source.with_view(max_pixels=run.max_pixels)) for part in parts]
    todo = planned(run.model, parts, config)
    _warn_of_memory(run, todo)
    for line in opened.missing:
        print(f"not measured: {line}", file=sys.stderr)
    todo = _with_headers(todo, progress, run.skip_unreadable)
    if ranks.is_main and not asked.overwrite:
        refuse_others(run.model, todo, config, identity, out / LOGITS)
    total = sum(planned_images(one.part.source, run.model, one.config, identity.train_resolution) for one in todo)
    advance = progress.counter("testing", total)
    rows: list[ResultRow] = []
    with signals.resume_hint("the same command"):
        for one in todo:
            named = replace(identity, data=one.part.data)
            fresh = measure(
                run.model, one, config, named, out / LOGITS, ranks, overwrite=asked.overwrite, advance=advance
            )
            if ranks.is_main:
                update_rows(out / RESULTS, fresh)
            rows += fresh
    for source in {id(one.part.source): one.part.source for one in todo}.values():
        progress.say_left_out(source)
    logits = out / LOGITS if (out / LOGITS).is_dir() else None
    precision = chosen_precision(config.precision, run.model.anchor.device)
    return Evaluation(rows, out / RESULTS, None, logits, precision)


def refuse_options(asked: EvaluateOptions, data: str | None = None) -> None:
    """Refuse options that go without a suite alone; what is chosen or learned on other splits, or asks for gradients,
    is of one data set and its splits."""
    others = {
        "--data": data, "--split": asked.split, "--images": asked.images, "--no-shrink": asked.no_shrink,
        "--tune": asked.tune, "--frames": asked.frames, "--predictions": asked.predictions, "--logits": asked.logits,
        "--measures": asked.measures, "--temperature": asked.temperature,
    }  # fmt: skip
    for option, given in others.items():
        if given:
            apart = option in ("--tune", "--temperature", "--measures")
            way = f"; on one data set: sightline evaluate MODEL --data DATA {option}" if apart else ""
            raise InputError(f"{option}: goes without --suite alone{way}")
    if asked.out is None:
        raise InputError("--suite: needs a folder for its rows and logits: --out DIR")
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


def _warn_of_memory(run: Run, todo: Sequence[Measurement]) -> None:
    views, patch = {one.view for one in todo}, run.model.config.patch_size
    sides = [side_of(view.patches, patch) if isinstance(view, View) else view for view in views]
    if sides:
        warn_of_memory(run.model.config, max(sides), warn, what=str(run.path), device=run.model.anchor.device)


def _with_headers(todo: Sequence[Measurement], progress: Progress, skip: SkipUnreadable) -> list[Measurement]:
    """The same, of which every header was read once; without what may be left out."""
    read: dict[int, Any] = {}
    found = []
    for one in todo:
        part = one.part
        if id(part) not in read:
            read[id(part)] = part.left_in(progress.read_headers(part.source, (part.split,), skip))
        found.append(replace(one, part=read[id(part)]))
    return found
