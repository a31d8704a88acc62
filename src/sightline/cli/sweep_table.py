"""Best and average by encoding, as LookHere's table 1, in the terminal; and where runs are."""

from __future__ import annotations

import time

from sightline.cli import next_step
from sightline.io.read import format_bytes
from sightline.io.run_files import CELLS, PAGE
from sightline.reports.tables import print_table
from sightline.reports.words import capital, clip, interval, limits, number, quantity, title, unit
from sightline.results.statistics import student_interval
from sightline.runs.table import SummaryTable
from sightline.sweeps.run import SweepResult
from sightline.sweeps.scores import best_and_average, best_of, varied_settings
from sightline.sweeps.space import format_settings
from sightline.training.status import RunStatus

_SEED = "seed"
# Of more, their best and average are shown alone.
_MOST_CELLS = 20


def print_best_and_average(found: SummaryTable) -> None:
    """Print a line for each run, if they are few, and one for each encoding."""
    wanted, one = found.wanted, found.rows[0].best.measured
    shown = "" if wanted.split is None else f" at {', '.join(wanted.shown)}" if wanted.shown else ""
    heading = f"{capital(title(one.metric))} on {wanted.split or 'validation images'}{shown}"
    heading += f" in {unit(one.unit)}" if one.unit else ""
    if len(found.rows) < len(found.scores) <= _MOST_CELLS:
        varied = varied_settings(found.scores)
        cells = [
            (
                run.run,
                number(run.measured.value, one.unit),
                interval(limits(run.measured)),
                run.measured.count,
                format_settings({name: run.settings[name] for name in varied if name in run.settings}),
            )
            for run in found.scores
        ]
        heads = ("run", unit(one.unit) or one.metric, "95 %", one.counted, "settings")
        print_table(heads, cells, title=f"{heading}: each run")
    # Only of runs that differ in their seeds alone is the average that of something that could be trained again.
    seeds = set(varied_settings(found.scores)) <= {found.by, _SEED}
    rows = []
    for line in found.rows:
        values = [run.measured.value for run in found.scores if run.settings[found.by] == line.by]
        within = student_interval(values)[1] if seeds else None
        spread = interval([number(limit, one.unit) for limit in clip(within or (), one.unit)])
        settings = {name: value for name, value in line.settings.items() if name != _SEED}
        rows.append((
            str(line.by), line.runs, number(line.best.measured.value, one.unit),
            f"{number(line.average, one.unit)} {spread}".rstrip(), format_settings(settings) or line.best.run,
        ))  # fmt: skip
    heads = (found.by, "runs", "best", "average [95 %]" if seeds else "average", "the best")
    print_table(heads, rows, title=f"{heading}: best and average by {found.by}")


def print_sweep(found: SweepResult, *, as_json: bool) -> None:
    """Print best and average of the cells of a sweep for each encoding, and where no cell failed what to type next."""
    asked, scores = found.sweep, found.scores
    table = SummaryTable("encoding", asked.wanted, best_and_average(scores) if scores else [], scores)
    if as_json:
        print(table.dump(), end="", flush=True)
        return
    if table.rows:
        print_best_and_average(table)
        print(f"runs: {asked.out / CELLS}", flush=True)
    if found.state.failed:
        return
    # The table by encoding stands above.
    varied = asked.config.varied
    several = [name for name, values in varied.items() if isinstance(values, list) and len(values) > 1]
    others = [
        name for name in several if name not in ("encoding", _SEED) and all(name in one.settings for one in scores)
    ]
    if others:
        next_step.say_next("table", asked.out, "--by", others[0])
    elif asked.config.evaluate is not None and len(scores) <= _MOST_CELLS:
        folders = [asked.out / CELLS / one.run for one in scores]
        next_step.say_next("report", *folders, *next_step.writing("--out", asked.out / PAGE))
    else:
        next_step.say_next("evaluate", asked.out / CELLS / best_of(scores).run)


def status_rows(at: RunStatus) -> list[tuple[str, str]]:
    """What is shown of a run: a name and words."""
    rows = [("state", at.state)]
    if at.owner is not None:
        rows.append(("owner", at.owner))
    rows.append(("step", f"{at.step:,}" + ("" if at.steps is None else f" of {at.steps:,}")))
    rows.append(("images", f"{at.images:,}" + ("" if at.total is None else f" of {at.total:,}")))
    if at.loss is not None:
        rows.append(("loss", f"{at.loss:.4g}"))
    if at.lr is not None:
        rows.append(("learning rate", f"{at.lr:.3g}"))
    if at.images_per_second is not None:
        tokens = "" if at.tokens_per_second is None else f", {at.tokens_per_second:,.0f} tokens"
        rows.append(("a second", f"{at.images_per_second:,.0f} images{tokens}"))
    if at.peak_share is not None:
        rows.append(("of its peak", f"{100 * at.peak_share:.0f} % of the operations a second of a matrix product"))
    if at.memory is not None:
        rows.append(("memory", f"{format_bytes(at.memory)} at most so far"))
    if at.left is not None:
        ends = time.strftime("%Y-%m-%d %H:%M", time.localtime(time.time() + at.left))
        rows.append(("expected end", f"{ends} (in {_span(at.left)})"))
    if at.validated is not None:
        said = f"{title(at.validated.metric)} {quantity(at.validated.value, at.validated.unit)}"
        rows.append(("validation", f"{said} after {at.validated_at:,} images"))
    if at.checkpoint_age is not None:
        step = "" if at.checkpoint_step is None else f", of step {at.checkpoint_step:,}"
        rows.append(("checkpoint", f"{_ago(at.checkpoint_age)}{step}"))
    return rows


def status_line(at: RunStatus) -> str:
    """The same in a line, for one of many."""
    parts = [at.state]
    if at.total:
        parts.append(f"{100 * at.images / at.total:.0f} %")
    if at.loss is not None:
        parts.append(f"loss {at.loss:.3g}")
    if at.left is not None:
        parts.append(f"{_span(at.left)} left")
    if at.validated is not None:
        parts.append(f"validation {quantity(at.validated.value, at.validated.unit)}")
    return ", ".join(parts)


def _ago(seconds: float) -> str:
    return f"{_span(seconds)} ago"


def _span(seconds: float) -> str:
    """ "42 s", "5 min", "3.2 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
