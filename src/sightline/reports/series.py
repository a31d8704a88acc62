"""Rows grouped into the lines of a plot or table: one line a run, two where its knob was also tuned.

Only rows of square images stand on the axis of resolutions; those of other views are lines by view.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from sightline.errors import InputError
from sightline.reports.content import SeenSizes
from sightline.reports.words import printable
from sightline.results.attributes import ATTRIBUTE
from sightline.results.rows import FITTED, INFERENCE, ResultRow, Slices

HELD_OUT = "heldout_fonts"
# Of splits: which is shown first. The others stand between.
_RANK = {"test": 0, HELD_OUT: 2, "minival": 2}


@dataclass(frozen=True, slots=True)
class PlotLine:
    """One run under one rule for its knob.

    Attributes:
        detail: tells lines of one run apart ("tuned parameter", "seed 1"), else it is empty.
        tuned: whether anything of the run was tuned; `searched` says what: its knob, the rule by which its tables are
            resized, or both. `paired`: the same run is there with its default and with what was tuned.
        seen: the sizes of its training.
        points: a resolution in pixels -> what was measured there, by rising size.
        views: a way of showing images that is no square of one size -> the same.
        shrunk: the side in pixels to which its images were shrunk.
    """

    run: str
    encoding: str
    detail: str
    tuned: bool
    paired: bool
    searched: str
    seen: SeenSizes
    points: Mapping[int, ResultRow]
    views: Mapping[str, ResultRow]
    shrunk: int | None = None

    @property
    def label(self) -> str:
        """The run's name with its detail, on one line."""
        return printable(self.run) + (f" ({self.detail})" if self.detail else "")

    @property
    def name(self) -> str:
        """The label, without the knob where that is the default: a sentence or a card then compares defaults."""
        return printable(self.run) if self.detail == f"default {self.searched}" else self.label


@dataclass(frozen=True)
class Study:
    """Rows of one data set and task, as a page shows them.

    Attributes:
        main: a row of the metric that the curve shows, and of its split.
        order: names of runs, whose places fix their colours.
        seen: the sizes of each run's training; a run that it lacks saw the one size that its rows name.
        attributes: rows of attributes, which are not among `rows`.
        chance: what guessing would give of the main metric, a fraction; None where that is not known.
    """

    rows: Sequence[ResultRow]
    main: ResultRow
    order: Sequence[str]
    seen: Mapping[str, SeenSizes]
    chance: float | None = None
    attributes: Sequence[ResultRow] = ()

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
        sizes, lengths = dict(seen or {}), {(row.run, row.frames) for row in rows}
        named = [_looked(row, several=sum(run == row.run for run, _ in lengths) > 1) for row in rows]
        sizes |= {one.run: sizes[row.run] for row, one in zip(rows, named, strict=True) if row.run in sizes}
        # They have a part of the page to themselves.
        attributes = [row for row in named if ATTRIBUTE in row.slices]
        named = [row for row in named if ATTRIBUTE not in row.slices]
        kinds = sorted({f"{row.data} / {row.task}" for row in named})
        if len(kinds) > 1:
            raise InputError(f"rows of several data sets cannot share one curve, report each: {', '.join(kinds)}")
        units: dict[str, str] = {}
        for row in named:
            if units.setdefault(row.metric, row.unit) != row.unit:
                raise InputError(f"run {row.run}: {row.metric} in {row.unit!r}, of other rows in {units[row.metric]!r}")
            if row.count < 1:
                where = f"{row.metric} on {row.split} at {row.size_label}"
                raise InputError(f"run {row.run}, {where}: {row.count} {row.counted}")
        whole = [row for row in named if not row.slices]
        if not whole:
            raise InputError("all rows are of parts of the images" if rows else "there are no result rows to report")
        main = min(whole, key=lambda row: _RANK.get(row.split, 1))
        return cls(named, main, list(dict.fromkeys([*names, *(row.run for row in named)])), sizes, chance, attributes)

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
        """The lines of one metric on one split, in the order of runs, default knob before tuned.

        The main ones unless given; of all images, unless `slices` names a part of them. Runs of several seeds are
        several lines, and so are several fixed knobs of one run; the labels then say which.

        Raises:
            InputError: two rows claim the same point.
        """
        what = metric or self.main.metric, split or self.main.split
        # A run has one name for all parts, of which some may be there for one of its knobs alone.
        measured = [row for row in self.rows if (row.metric, row.split) == what]
        several, groups = _of_several_knobs(measured), {}
        for row in measured:
            if row.slices == slices:
                knob = row.knob if not row.tuned and (row.run, row.seed) in several else None
                place = self.order.index(row.run), row.seed, row.shrunk or 0, row.tuned, knob or 0.0
                groups.setdefault((place, knob), []).append(row)
        return [self._line(groups[key], measured, key[1]) for key in sorted(groups, key=lambda key: key[0])]

    def _line(self, rows: Sequence[ResultRow], measured: Sequence[ResultRow], knob: float | None) -> PlotLine:
        """The line of some rows, named as it has to be among all that were `measured`; `knob` is one of several."""
        one = rows[0]
        own = [row for row in measured if (row.run, row.seed) == (one.run, one.seed)]
        paired = any(row.tuned != one.tuned and (row.shrunk or 0) == (one.shrunk or 0) for row in own)
        found = dict.fromkeys(each["what"] for row in own for each in row.tuning) or ("knob",)
        searched = " and ".join("parameter" if what == "knob" else what for what in found)
        details = [f"seed {one.seed}"] if any(row.run == one.run and row.seed != one.seed for row in measured) else []
        if knob is not None:
            details.append(f"parameter {knob:g}")
        elif one.tuned or paired:
            details.append(f"{'tuned' if one.tuned else 'default'} {searched}")
        if one.shrunk:
            details.append(f"shrunk to {one.shrunk} px")
        points = {row.size_label: row for row in rows}
        if len(points) < len(rows):
            twice = next(row for row in rows if points[row.size_label] is not row)
            raise InputError(f"run {one.run}: {one.metric} on {one.split} at {twice.size_label} is there twice")
        return PlotLine(
            one.run,
            one.encoding,
            ", ".join(details),
            one.tuned,
            paired,
            searched,
            self.seen.get(one.run) or SeenSizes.of_one(one.train_resolution),
            dict(sorted((row.resolution, row) for row in rows if row.resolution is not None)),
            {row.view: row for row in rows if row.resolution is None},
            one.shrunk or None,
        )


def _looked(row: ResultRow, *, several: bool) -> ResultRow:
    """A row whose slices are parts of the images alone: how these were looked at stands with the run, in which patches
    where these are not its own, and of clips how many frames, if there are `several` numbers of them."""
    run = row.run + (f", patches of {row.patch_size} px" if row.patch_size is not None else "")
    run += f", {row.frames or 1} frames" if several else ""
    run += f", {row.slices[INFERENCE]}" if INFERENCE in row.slices else ""
    slices = {key: value for key, value in row.slices.items() if key not in (FITTED, INFERENCE)}
    return row if (run, len(slices)) == (row.run, len(row.slices)) else replace(row, run=run, slices=slices)


def _of_several_knobs(rows: Iterable[ResultRow]) -> set[tuple[str, int]]:
    """(run, seed) of those that were measured with several fixed knobs in one place."""
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
    """What a size was to these runs: "trained" where all were trained at it alone, "seen" where all saw it, "nominal"
    where no more is known of them, else ""."""
    seen = [line.seen for line in chosen]
    if all(one.one == size for one in seen):
        return "trained"
    if all(one.nominal == size for one in seen):
        return "nominal"
    return "seen" if all(one.holds(size) for one in seen) else ""


def outer_resolutions(chosen: Sequence[PlotLine]) -> list[int]:
    """The resolutions that a breakdown is shown at: the largest that all lines saw in training, or are said to be for
    (else the smallest that was measured), and the largest."""
    measured = resolutions(chosen)
    if not measured:
        return []
    trained = [size for size in measured if all(line.seen.holds(size) or line.seen.nominal == size for line in chosen)]
    return sorted({trained[-1] if trained else measured[0], measured[-1]})
