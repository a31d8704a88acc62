"""Rows grouped into the lines of a plot or table: one line a run, two where its knob was also tuned.

Only rows of square images stand on the axis of resolutions; those of other views are lines by view.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from sightline.errors import InputError
from sightline.reports.content import SeenSizes
from sightline.reports.words import printable
from sightline.results.rows import FITTED, INFERENCE, ResultRow, Slices

HELD_OUT = "heldout_fonts"
_DEFAULTS = ("default knob", "default rule", "default knob and rule")
# Of splits: which is shown first. The others stand between.
_RANK = {"test": 0, HELD_OUT: 2, "minival": 2}


@dataclass(frozen=True, slots=True)
class PlotLine:
    """One run under one rule for its knob; `points` maps a resolution in pixels to what was measured there, and
    `views` a way of showing images that is no square of one size to the same. `seen` are the sizes of its training.

    `detail` tells lines of one run apart ("tuned knob", "seed 1"), else it is empty; `paired` says that the same run
    is there with its default and with its tuned knob; `shrunk` is the side in pixels to which its images were shrunk;
    `searched` says what was tuned of the run, where anything was: its knob, the rule by which its tables are resized,
    or both.
    """

    run: str
    encoding: str
    detail: str
    tuned: bool
    paired: bool
    seen: SeenSizes
    points: Mapping[int, ResultRow] = field(default_factory=dict)
    views: Mapping[str, ResultRow] = field(default_factory=dict)
    shrunk: int | None = None
    searched: str = "knob"

    @property
    def label(self) -> str:
        """The run's name with its detail, on one line."""
        return printable(self.run) + (f" ({self.detail})" if self.detail else "")

    @property
    def name(self) -> str:
        """The label, without the knob where that is the default: a sentence or a card then compares defaults."""
        return printable(self.run) if self.detail in _DEFAULTS else self.label


@dataclass(frozen=True)
class Study:
    """Rows of one data set and task, as a page shows them.

    `main` is a row of the metric that the curve shows, and of its split; `order` are names of runs, whose places fix
    their colours; `seen` the sizes of each run's training (a run that it lacks saw the one size that its rows name);
    `chance` is what guessing would give of that metric, a fraction, None where that is not known.
    """

    rows: Sequence[ResultRow]
    main: ResultRow
    order: Sequence[str]
    seen: Mapping[str, SeenSizes]
    chance: float | None = None

    @classmethod
    def of(
        cls,
        rows: Sequence[ResultRow],
        names: Iterable[str] = (),
        *,
        seen: Mapping[str, SeenSizes] | None = None,
        chance: float | None = None,
    ) -> Study:
        """Show the first metric, on `test` if that was measured, else on the first split that is no side measurement.

        A run whose images were looked at otherwise than whole, or in other patches than its own, is one more run, named
        so; so is one of clips for each number of frames, where there are several.

        Args:
            names: of runs, before those that only rows name.

        Raises:
            InputError: there are no rows, they are of several data sets or a metric in several units, or of no images.
        """
        if not rows:
            raise InputError("there are no result rows to report")
        sizes, lengths = dict(seen or {}), {(row.run, row.frames) for row in rows}
        named = [_looked(row, several=sum(run == row.run for run, _ in lengths) > 1) for row in rows]
        for row, one in zip(rows, named, strict=True):
            if row.run in sizes:
                sizes.setdefault(one.run, sizes[row.run])
        rows = named
        kinds = sorted({f"{row.data} / {row.task}" for row in rows})
        if len(kinds) > 1:
            raise InputError(f"rows of several data sets cannot share one curve, report each: {', '.join(kinds)}")
        units: dict[str, str] = {}
        for row in rows:
            if units.setdefault(row.metric, row.unit) != row.unit:
                raise InputError(f"run {row.run}: {row.metric} in {row.unit!r}, of other rows in {units[row.metric]!r}")
            if row.count < 1:
                where = f"{row.metric} on {row.split} at {row.size_label}"
                raise InputError(f"run {row.run}, {where}: {row.count} {row.counted}")
        whole = [row for row in rows if not row.slices]
        main = min(whole, key=lambda row: _RANK.get(row.split, 1), default=None)
        if main is None:
            raise InputError("all rows are of parts of the images")
        return cls(rows, main, list(dict.fromkeys([*names, *(row.run for row in rows)])), sizes, chance)

    def metrics(self) -> list[ResultRow]:
        """A row of each metric that was measured on the main split, the main one first, those of parts alone last."""
        first: dict[str, ResultRow] = {}
        for row in sorted(self.rows, key=lambda row: bool(row.slices)):
            if row.split == self.main.split:
                first.setdefault(row.metric, row)
        return list(first.values())

    def parts(self, metric: str) -> dict[str, list[Slices]]:
        """What a metric was broken down by on the main split -> the parts, in the order of the rows."""
        found: dict[str, list[Slices]] = {}
        for row in self.rows:
            if row.slices and (row.metric, row.split) == (metric, self.main.split):
                parts = found.setdefault(", ".join(row.slices), [])
                if row.slices not in parts:
                    parts.append(row.slices)
        return found

    def lines(
        self, metric: str | None = None, *, split: str | None = None, slices: Slices = MappingProxyType({})
    ) -> list[PlotLine]:
        """The lines of one metric on one split, in the order of runs, default knob before tuned; points by rising size.

        The main ones unless given; of all images, unless `slices` names a part of them. Runs of several seeds are
        several lines, and so are several fixed knobs of one run; the labels then say which.

        Raises:
            InputError: two rows claim the same point.
        """
        what = metric or self.main.metric, split or self.main.split
        # A run has one name for all parts, of which some may be there for one of its knobs alone.
        measured = [row for row in self.rows if (row.metric, row.split) == what]
        by_knob = _runs_with_several_knobs(measured)
        kinds = {(row.run, row.seed, row.tuned, row.shrunk or 0) for row in measured}
        groups: dict[tuple[str, int, bool, float | None, int], list[ResultRow]] = {}
        for row in measured:
            if row.slices == slices:
                fixed = row.knob if not row.tuned and (row.run, row.seed) in by_knob else None
                groups.setdefault((row.run, row.seed, row.tuned, fixed, row.shrunk or 0), []).append(row)
        made = []
        for key in sorted(groups, key=lambda key: (self.order.index(key[0]), key[1], key[4], key[2], key[3] or 0.0)):
            run, seed, tuned, fixed, shrunk = key
            paired = (run, seed, not tuned, shrunk) in kinds
            details, searched = [], _searched(measured, run, seed)
            if any(other[0] == run and other[1] != seed for other in kinds):
                details.append(f"seed {seed}")
            if fixed is not None:
                details.append(f"knob {fixed:g}")
            elif tuned or paired:
                details.append(f"{'tuned' if tuned else 'default'} {searched}")
            if shrunk:
                details.append(f"shrunk to {shrunk} px")
            first = groups[key][0]
            sizes = self.seen.get(run) or SeenSizes.of_one(first.train_resolution)
            points: dict[str, ResultRow] = {}
            for row in groups[key]:
                if row.size_label in points:
                    raise InputError(f"run {run}: {row.metric} on {row.split} at {row.size_label} is there twice")
                points[row.size_label] = row
            squares = {row.resolution: row for row in points.values() if row.resolution is not None}
            views = {row.view: row for row in points.values() if row.resolution is None}
            squares = dict(sorted(squares.items()))
            made.append(
                PlotLine(
                    run,
                    first.encoding,
                    ", ".join(details),
                    tuned,
                    paired,
                    sizes,
                    squares,
                    views,
                    shrunk or None,
                    searched,
                )
            )
        return made


def _searched(rows: Iterable[ResultRow], run: str, seed: int) -> str:
    """What was tuned of a run, in a word or two."""
    mine = (row for row in rows if (row.run, row.seed) == (run, seed))
    return " and ".join(dict.fromkeys(one["what"] for row in mine for one in row.tuning)) or "knob"


def _looked(row: ResultRow, *, several: bool) -> ResultRow:
    """A row whose slices are parts of the images alone: how these were looked at stands with the run, in which patches
    where these are not its own, and of clips how many frames, if there are `several` numbers of them."""
    if row.patch_size is not None:
        row = replace(row, run=f"{row.run}, patches of {row.patch_size} px")
    if several:
        row = replace(row, run=f"{row.run}, {row.frames or 1} frames")
    if FITTED in row.slices:
        row = replace(row, slices={key: value for key, value in row.slices.items() if key != FITTED})
    if INFERENCE not in row.slices:
        return row
    slices = {key: value for key, value in row.slices.items() if key != INFERENCE}
    return replace(row, run=f"{row.run}, {row.slices[INFERENCE]}", slices=slices)


def _runs_with_several_knobs(rows: Iterable[ResultRow]) -> set[tuple[str, int]]:
    found: dict[tuple[str, int, str], set[float | None]] = {}
    for row in rows:
        if not row.tuned and row.shrunk is None:
            found.setdefault((row.run, row.seed, row.size_label), set()).add(row.knob)
    return {key[:2] for key, knobs in found.items() if len(knobs) > 1}


def resolutions(chosen: Iterable[PlotLine]) -> list[int]:
    """All resolutions at which any of the lines was measured, rising, in pixels."""
    return sorted({resolution for line in chosen for resolution in line.points})


def grids(rows: Iterable[ResultRow]) -> dict[int, tuple[int, ...]]:
    """Resolution -> (rows, cols) of its patches, of clips (frames, rows, cols); () where rows differ in it."""
    found: dict[int, set[tuple[int, ...]]] = {}
    for row in rows:
        if row.shrunk is None and row.resolution is not None and row.grid is not None:
            found.setdefault(row.resolution, set()).add(row.grid)
    return {size: next(iter(here)) if len(here) == 1 else () for size, here in found.items()}


def seen_at(size: int, chosen: Iterable[PlotLine]) -> str:
    """ "trained", where all runs were trained at that size alone; "seen" where all saw it; or ""."""
    seen = [line.seen for line in chosen]
    if all(one.one == size for one in seen):
        return "trained"
    return "seen" if all(one.holds(size) for one in seen) else ""


def sizes_of_training(chosen: Iterable[PlotLine]) -> list[tuple[SeenSizes, list[PlotLine]]]:
    """The sizes of training that the lines differ in, each with its lines, in their order."""
    found: dict[tuple[float | None, float | None], tuple[SeenSizes, list[PlotLine]]] = {}
    for line in chosen:
        found.setdefault((line.seen.low, line.seen.high), (line.seen, []))[1].append(line)
    return list(found.values())


def outer_resolutions(chosen: Sequence[PlotLine]) -> list[int]:
    """The resolutions that a breakdown is shown at: the largest that all lines saw in training (else the smallest
    that was measured), and the largest."""
    measured = resolutions(chosen)
    if not measured:
        return []
    trained = [size for size in measured if all(line.seen.holds(size) for line in chosen)]
    return sorted({trained[-1] if trained else measured[0], measured[-1]})
