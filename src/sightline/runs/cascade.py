"""Accuracy against tokens and time: checked, measured, and written as rows, figures and a page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sightline.errors import InputError
from sightline.evaluation import cascade as cascades
from sightline.evaluation.measure import default_image_count
from sightline.io.atomic import write_out
from sightline.reports import cascade_page
from sightline.reports.seen import training_sizes
from sightline.results.cascade import CASCADE, CascadeRow
from sightline.results.rows import dump_rows, to_frame
from sightline.runs import outputs
from sightline.runs.console import command_line, option_words
from sightline.runs.options import CascadeOptions
from sightline.runs.progress import Progress
from sightline.runs.sizes import parse_numbers
from sightline.tasks.base import task_of

if TYPE_CHECKING:
    from sightline.runs.run import Run

# Patches over those of the training size; the sides are 1/2, 3/4, 1, 5/4, 3/2 and 2 times as long.
_FACTORS = (0.25, 0.5625, 1.0, 1.5625, 2.25, 4.0)
# Beside the rows.
_DRAWN = ("cascade.svg", "calibration.svg", "cascade.html")


@dataclass(frozen=True)
class Cascade:
    """What was measured of budgets and cascades: `rows`, the folder, and the precision that was computed in."""

    rows: list[CascadeRow]
    path: Path
    precision: str

    def frame(self) -> Any:
        """The rows as a `pandas.DataFrame`."""
        return to_frame(self.rows)


def cascade(run: Run, asked: CascadeOptions, progress: Progress) -> Cascade:
    """Measure, and write rows, figures and page; see `Run.cascade`."""
    if asked.out.exists() and not asked.out.is_dir():
        raise InputError(f"--out {asked.out}: is a file, expected a folder")
    for name in (CASCADE, *_DRAWN):
        outputs.claim_file(asked.out / name, inputs=run.inputs, overwrite=asked.overwrite)
    task_of(run.model).bind(run.source, run.data)
    config = _config(run, asked)
    # All that can be refused is refused before the first image is read; the plan refuses splits.
    looks = cascades.plan_stages(run.source, config)
    source = progress.read_headers(run.source, (look.split for look in looks), run.skip_unreadable)
    advance = progress.counter("tokens", cascades.count_tokens(cascades.plan_stages(source, config)))
    rows = cascades.measure(run.model, source, config, run.identity, advance=advance)
    progress.say_left_out(source)
    seen = training_sizes(run.config, run.model.config.patch_size, run.side)
    words = (*option_words(run.opening), *option_words(asked))
    command = command_line("cascade", run.path, run.data, *words, "--out", asked.out)
    page = cascade_page.render(rows, command, seen=seen)
    written = (dump_rows(rows), *cascade_page.figure_files(rows), page)
    for name, content in zip((CASCADE, *_DRAWN), written, strict=True):
        write_out(asked.out / name, content)
    return Cascade(rows, asked.out, rows[0].precision)


def _config(run: Run, asked: CascadeOptions) -> cascades.CascadeConfig:
    whole = "whole numbers of patches, as 16,64"
    pair, splits = parse_numbers("--pair", asked.pair, int, whole), run.source.splits
    if pair and len(pair) != 2:
        raise InputError(f"--pair {','.join(map(str, pair))}: expected two numbers of patches, as 16,64")
    usual = run.model.config.grid_of(run.side).cells
    return cascades.CascadeConfig(
        parse_numbers("--tokens", asked.tokens, int, whole)
        or tuple(max(round(usual * factor), 1) for factor in _FACTORS),
        pair=(pair[0], pair[1]) if pair else None,
        alphas=parse_numbers("--alphas", asked.alphas, float, "fractions from 0 to 1, as 0.1,0.3") or cascades.ALPHAS,
        budget=asked.budget,
        split=asked.split or ("test" if "test" in splits else splits[-1]),
        images=default_image_count(run.source) if asked.images is None else asked.images,
        aspect=asked.aspect,
        precision=cast("Any", asked.precision),
        workers=asked.workers,
        seed=asked.seed,
    )
