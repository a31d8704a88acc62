"""`sightline evaluate --suite`: a suite's parts one after the other, into one folder."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sightline.analysis.memory import side_of, warn_of_memory
from sightline.attention.cpu import chosen_precision
from sightline.cli import guard, next_step, output, progress
from sightline.cli.config import apply_settings
from sightline.cli.resolutions import parse_resolutions_of
from sightline.cli.suite_model import SuiteRequest
from sightline.data.config import SkipUnreadable
from sightline.data.sizes import View
from sightline.distributed import machine, signals
from sightline.distributed.ranks import init_ranks
from sightline.errors import InputError
from sightline.evaluation.measure import planned_images
from sightline.evaluation.suite import Measurement, SuiteConfig, map_classes, measure, planned, refuse_others
from sightline.evaluation.suites.base import OpenedSuite, open_suite
from sightline.evaluation.update import update_rows
from sightline.io.config import Count, Precision, check_value
from sightline.io.run_files import RESULTS
from sightline.models import Model
from sightline.reports.tables import print_accuracy
from sightline.results.rows import ResultRow, dump_rows, read_rows

LOGITS = "logits"
"""The folder of logits in that of a suite."""


def run_suite(
    asked: SuiteRequest,
    suite: str,
    out: Path | None,
    *,
    resolutions: Sequence[str],
    preparation: str,
    limit: int | None,
    settings: Sequence[str],
    skip_unreadable: SkipUnreadable | None,
    max_pixels: int | None,
    precision: str,
    overwrite: bool,
    device: str,
    workers: int,
    json: bool,
) -> None:
    """Measure a model on a suite: `results.jsonl` and the logits of each measurement, in a folder.

    A measurement that is finished is not made again, one that was stopped goes on; its rows are written as soon as it
    is whole. Several ranks share the images of each.

    Raises:
        InputError: something does not fit; nothing was measured.
    """
    if out is None:
        raise InputError("--suite: needs a folder for its rows and logits: --out DIR")
    if limit is not None:
        check_value("--limit", limit, Count)
    with contextlib.ExitStack() as held:
        ranks = held.enter_context(init_ranks(device))
        with progress.Bars() as bars:
            where = machine.resolve_device(device if ranks.size == 1 else str(ranks.device))
            opened = open_suite(suite)
            _claim(out, asked, opened)
            model, identity, skip, pixels = asked.opened(suite, where)
            skip = skip if skip_unreadable is None else skip_unreadable
            config = SuiteConfig(
                suite,
                parse_resolutions_of(resolutions, model.config.patch_size) or (identity.train_resolution,),
                preparation,
                limit,
                apply_settings({}, settings),
                check_value("precision", precision, Precision),
                workers,
            )
            parts = map_classes(model, opened.parts, suite)
            parts = [replace(part, source=part.source.with_view(max_pixels=max_pixels or pixels)) for part in parts]
            todo = planned(model, parts, config)
            _warn_of_memory(model, todo, str(asked.model), where)
            for line in opened.missing:
                print(f"not measured: {line}", file=sys.stderr)
            todo = _with_headers(todo, bars, skip)
            if ranks.is_main and not overwrite:
                refuse_others(model, todo, config, identity, out / LOGITS)
            total = sum(planned_images(one.part.source, model, one.config, identity.train_resolution) for one in todo)
            advance = bars.counter("testing", total)
            rows: list[ResultRow] = []
            with signals.resume_hint("the same command"):
                for one in todo:
                    named = replace(identity, data=one.part.data)
                    fresh = measure(
                        model, one, config, named, out / LOGITS, ranks, overwrite=overwrite, advance=advance
                    )  # fmt: skip
                    if ranks.is_main:
                        update_rows(out / RESULTS, fresh)
                    rows += fresh
            for source in {id(one.part.source): one.part.source for one in todo}.values():
                bars.say_left_out(source)
    if not ranks.is_main:
        return
    if json:
        print(dump_rows(rows), end="")
        return
    for data in dict.fromkeys(row.data for row in rows):
        print(f"\n{data}:")
        print_accuracy([row for row in rows if row.data == data])
    print(f"rows: {out / RESULTS}")
    if (out / LOGITS).is_dir():
        print(f"logits: {out / LOGITS} (sightline rescore {shlex.quote(str(out / LOGITS))})")
    print(f"computed in {chosen_precision(precision, where)}, images prepared as {preparation} says")


def refuse_options(suite: str | None, others: Mapping[str, object], own: Mapping[str, object]) -> None:
    """Refuse options that go without a suite alone, or with one alone.

    Args:
        others: of `evaluate`, by name what was given (false for nothing); own: those of a suite.

    Raises:
        InputError: names the first.
    """
    for option, given in (others if suite is not None else own).items():
        if given:
            if suite is None:
                raise InputError(f"{option}: goes with --suite SUITE alone")
            # What is chosen or learned on other splits, or asks for gradients, is of one data set and its splits.
            way = ""
            if option in ("--tune", "--temperature", "--measures"):
                way = f"; on one data set: sightline evaluate MODEL --data DATA {option}"
            raise InputError(f"{option}: goes without --suite alone{way}")


def _claim(out: Path, asked: SuiteRequest, opened: OpenedSuite) -> None:
    """Refuse a folder that is an input, or in which something else stands."""
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out}: is a file, expected a folder (with --suite)")
    data = [f"imagefolder:{folder}" for folder in opened.folders]
    inputs = guard.Inputs(models=[asked.model], data=data, files=[asked.weights])
    guard.guard_folder(out, inputs, "--out", deletes=False)
    if guard.is_run(out):
        raise InputError(f"--out {out}: is the folder of a run, whose rows are its own; give another folder")
    if (out / RESULTS).is_dir() or (out / LOGITS).is_file():
        raise InputError(f"--out {out}: holds something else called {RESULTS} or {LOGITS}; give another folder")
    if (out / RESULTS).exists():
        # Read now, so that a damaged file is not found out after the work is done.
        read_rows(out / RESULTS)
    output.check_writable(out, out / LOGITS)


def _warn_of_memory(model: Model, todo: Sequence[Measurement], what: str, where: Any) -> None:
    views, patch = {one.config.resolutions[0] for one in todo}, model.config.patch_size
    sides = [side_of(view.patches, patch) if isinstance(view, View) else view for view in views]
    if sides:
        warn_of_memory(model.config, max(sides), next_step.warn, what=what, device=where)


def _with_headers(todo: Sequence[Measurement], bars: progress.Bars, skip: SkipUnreadable) -> list[Measurement]:
    """The same, of which every header was read once; without what may be left out."""
    read: dict[int, Any] = {}
    found = []
    for one in todo:
        part = one.part
        if id(part) not in read:
            read[id(part)] = part.left_in(bars.read_headers(part.source, (part.split,), skip))
        found.append(replace(one, part=read[id(part)]))
    return found
