"""A comparison of runs that were trained here, after LookHere's tables and figures: a page, a terminal, files."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from sightline.published import paper
from sightline.reports import page, style, words
from sightline.reports.lines import WHOLE, Line, Panel, drawn
from sightline.reports.results_page import encoding_words
from sightline.reports.results_tables import titled
from sightline.reports.tables import Cell, Head, Table, print_cells, table_of, text_table
from sightline.reports.words import DASH, TIMES, number
from sightline.results.comparison import ComparisonRow, DifferenceRow, Interval, MeanRow, RankRow, of_kind
from sightline.results.rows import FRACTION

TOP1, TOP5, ECE, CHANGE = "top1", "top5", "ece", "top1_change"
TEST, FONTS = "test", "heldout_fonts"
_FIFTHS = {fifth: titled("size_quintile", {"size_quintile": fifth}) for fifth in range(1, 6)}
# The split or part that stands for a column of the paper's tables, and what it is here.
_COLUMNS = (
    ("Val", TEST, {}, "test scenes"),
    ("-A", TEST, {"size_quintile": 1}, "smallest objects"),
    ("-R", FONTS, {}, "unseen fonts"),
)
# What of the paper's columns has nothing here that could stand for it.
_MISSING = {
    "ReaL": "labels of drawn scenes are exact, so that there is nothing to reassess",
    "v2": "a second set of test scenes would be drawn as the first one was",
    "-HR": "every scene is drawn at the size of the test, and none is enlarged",
}
_Column = tuple[Head, Sequence[MeanRow], bool]
"""A column, what stands in it, and whether that is the best of the seeds, else their mean with its interval."""


def order(rows: Sequence[ComparisonRow]) -> list[str]:
    """The encodings, in the order of the rows."""
    return list(dict.fromkeys(row.encoding for row in of_kind(rows, MeanRow)))


def trained_at(rows: Sequence[ComparisonRow]) -> int:
    """Side of the images of the first training, in pixels."""
    return next(row.train_resolution for row in of_kind(rows, MeanRow) if not row.fine_tuned)


def largest(rows: Sequence[ComparisonRow]) -> int:
    """The largest side at which top-1 was measured on the test split, without a second training."""
    return _sides(rows)[-1]


def _sides(rows: Sequence[ComparisonRow]) -> list[int]:
    return sorted({row.resolution for row in picked(rows, TOP1)})


def _beyond(rows: Sequence[ComparisonRow]) -> list[int]:
    """The sizes of the test that are larger than that of the training."""
    return [side for side in _sides(rows) if side > trained_at(rows)]


def picked(
    rows: Iterable[ComparisonRow],
    metric: str,
    *,
    split: str = TEST,
    resolution: int | None = None,
    slices: dict[str, int] | None = None,
    fine_tuned: bool = False,
) -> list[MeanRow]:
    """The means of a metric, of all sizes unless one is given."""
    wanted = metric, split, slices or {}, fine_tuned
    return [
        row
        for row in of_kind(rows, MeanRow)
        if (row.metric, row.split, dict(row.slices), row.fine_tuned) == wanted and resolution in (None, row.resolution)
    ]


def render(
    rows: Sequence[ComparisonRow],
    *,
    command: str,
    demonstration: int,
    notes: Sequence[str] = (),
    said: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """The HTML text; equal rows give equal text.

    Args:
        command: the line that makes it again.
        demonstration: on how many images a run of the demonstration is trained.
        notes: to keep in mind.
        said: what an encoding of which nothing is known here says of itself.
    """
    names, side = order(rows), trained_at(rows)
    described = "Top-1 accuracy by test resolution, one line an encoding"
    gains = "What larger images gain by object size"
    return page.render(
        "comparison.html",
        title=f"{len(names)} position encodings, trained alike at {side} pixels",
        command=command,
        words=words,
        paper=paper("lookhere"),
        names=[(name, style.colour(name, names), encoding_words(name) or said.get(name, "")) for name in names],
        some=picked(rows, TOP1)[0],
        demonstration=demonstration,
        side=side,
        large=largest(rows),
        sizes=_sides(rows),
        fine_tuned=[row for row in of_kind(rows, MeanRow) if row.fine_tuned][:1],
        tables=tables(rows),
        missing=_MISSING,
        order=_beside(rows, largest(rows)),
        larger=drawn(_by_size(rows, larger=True), "larger", described, height=3.8),
        smaller=drawn(_by_size(rows, larger=False), "smaller", described, height=3.8),
        by_object=drawn(_gains(rows), "objects", gains, columns=2, share_y=False),
        notes=notes,
    )


def print_comparison(rows: Sequence[ComparisonRow]) -> None:
    """Print the mean of each encoding at every size, and the pairs at the largest."""
    columns = [(Head(f"{one} px"), picked(rows, TOP1, resolution=one), False) for one in _sides(rows)]
    caption = f"Top-1 accuracy in %, mean {_over(rows)}"
    # So many sizes a table as fit into 80 columns.
    made = [_table(rows, caption, columns[at : at + 6]) for at in range(0, len(columns), 6)]
    for table in filter(None, (*made, pairs := _pairs(rows, largest(rows), of_all=False))):
        print_cells(table)
    if pairs is not None:
        print("95 % intervals, for other trainings (Student's t over seeds), and for other images (paired bootstrap).")


def tables(rows: Sequence[ComparisonRow]) -> dict[str, Table]:
    """By the number of the table in the paper, or by a name: those of which something was measured."""
    side, large, over = trained_at(rows), largest(rows), _over(rows)
    fine_tuned = sorted({row.resolution for row in of_kind(rows, MeanRow) if row.fine_tuned})
    at = words.span(fine_tuned) if fine_tuned else ""
    caption = {
        "1": f"Table 1. Top-1 accuracy in %, trained and tested at {side} px, {over}",
        "2": f"Table 2. Top-5 accuracy in % under fast gradient sign attacks of a size (of values 0 to 1), {over}",
        "3": f"Table 3. Expected calibration error (15 bins) at {side} px, {over}",
        "5": f"Table 5. Top-1 accuracy in %, trained on and tested at {at} px, {over}",
        "6": f"Table 6. Trained at {side} px, tested at other sizes (Val), mean {over}, in %",
        "7": f"Figure 7. Top-1 accuracy minus that at {side} px, same images, by object size, in points of %",
    }
    columns = {
        "1": [
            column
            for title, split, slices, below in _COLUMNS
            for column in _both(title, below, picked(rows, TOP1, split=split, resolution=side, slices=slices))
        ],
        "2": _attacked(rows),
        "3": _both("Val", "test scenes", picked(rows, ECE, resolution=side)),
        "5": _fine_tuned(rows, max(fine_tuned, default=0)),
        "6": [
            (Head(f"{one}\u00a0px {metric.replace('top', 'top-')}", _times(one, rows)), found, False)
            for one in _sides(rows)
            for metric in (TOP1, TOP5)
            if (found := picked(rows, metric, resolution=one))
        ],
        "7": [
            (Head(f"{one}\u00a0px", fifth), picked(rows, CHANGE, resolution=one, slices={"size_quintile": part}), False)
            for one in _beyond(rows)
            for part, fifth in _FIFTHS.items()
        ],
    }
    made = {name: _table(rows, caption[name], some) for name, some in columns.items()}
    made |= {"9": _knobs(rows), "pairs": _pairs(rows, side), "orders": _orders(rows)}
    made["pairs_largest"] = _pairs(rows, large) if large != side else None
    return {name: table for name, table in made.items() if table is not None}


def _table(rows: Sequence[ComparisonRow], caption: str, columns: Iterable[_Column]) -> Table | None:
    """A line an encoding, and one that counts images; None where there is no number."""
    lines: dict[Head, dict[Head, Cell | str]] = {_head(rows, name): {} for name in order(rows)}
    counts = lines[Head("images")] = {}
    for head, some, best in columns:
        for row in some:
            limits = [] if best else [number(limit, row.unit) for limit in shown_interval(row) or ()]
            lines[_head(rows, row.encoding)][head] = Cell(number(row.best if best else row.value, row.unit), limits)
            counts[head] = words.span(sorted({one.count for one in some}))
    lines = {head: line for head, line in lines.items() if line}
    return table_of(caption, lines, "encoding", counts) if lines else None


def shown_interval(row: MeanRow) -> Interval | None:
    """The interval as a page shows it: none where all seeds gave the same, and of a share of images within 0 and 1."""
    if row.interval is None or row.interval[0] == row.interval[1]:
        return None
    if row.unit != FRACTION or row.metric == CHANGE:
        return row.interval
    return max(row.interval[0], 0.0), min(row.interval[1], 1.0)


def _head(rows: Sequence[ComparisonRow], name: str) -> Head:
    return Head(words.printable(name), colour=style.colour(name, order(rows)))


def _both(title: str, below: str, some: Sequence[MeanRow]) -> list[_Column]:
    return [(Head(title, f"{below}, {kind}" if below else kind), some, kind == "best") for kind in ("best", "mean")]


def _over(rows: Sequence[ComparisonRow]) -> str:
    seeds = max((len(row.seeds) for row in of_kind(rows, MeanRow)), default=1)
    return f"over {seeds} seed{'' if seeds == 1 else 's'}"


def _times(side: int, rows: Sequence[ComparisonRow]) -> str:
    """ "4.6×": the size of the test over that of the training."""
    return f"{side / trained_at(rows):.3g}{TIMES}"


def _attacked(rows: Sequence[ComparisonRow]) -> list[_Column]:
    attacked = [row for row in of_kind(rows, MeanRow) if row.metric == "fgsm_top5" and not row.fine_tuned]
    columns: list[_Column] = []
    for place in dict.fromkeys(row.place for row in attacked):
        some = [row for row in attacked if row.place == place]
        told = {key: str(value) for key, value in some[0].slices.items()}
        title = f"attack of {told.pop('epsilon')}" if "epsilon" in told else f"{some[0].resolution} px"
        columns += _both(title, ", ".join(f"{key} {value}" for key, value in told.items()), some)
    return columns


def _fine_tuned(rows: Sequence[ComparisonRow], side: int) -> list[_Column]:
    """After a second training, and without it at the same size."""
    columns: list[_Column] = []
    for title, split, slices, below in _COLUMNS:
        if some := picked(rows, TOP1, split=split, slices=slices, fine_tuned=True):
            before = picked(rows, TOP1, split=split, slices=slices, resolution=side)
            columns += [(Head(title, f"{below}, mean"), some, False)]
            columns += [(Head(title, f"{below}, mean without it"), before, False)]
    return columns


def _knobs(rows: Sequence[ComparisonRow]) -> Table | None:
    """Table 9: the value of each encoding's own parameter that was found at each size, of each seed."""
    lines: dict[Head, dict[Head, Cell | str]] = {}
    tuned = [row for row in picked(rows, TOP1) if row.tuned and None not in row.knobs]
    for row in sorted(tuned, key=lambda row: (order(rows).index(row.encoding), row.resolution)):
        knobs = Cell(", ".join(f"{knob:g}" for knob in row.knobs), words=True)
        lines.setdefault(_head(rows, row.encoding), {})[Head(f"{row.resolution}\u00a0px")] = knobs
    # Of one without a parameter a line of dashes.
    lines = {head: lines.get(head, {}) for head in (_head(rows, name) for name in order(rows))} if lines else {}
    caption = f"Table 9. The tuned parameter of each encoding, of each seed ({DASH}: it has none)"
    return table_of(caption, lines, "encoding") if lines else None


def _pairs(rows: Sequence[ComparisonRow], side: int, *, of_all: bool = True) -> Table | None:
    """The tests of each two encodings at a size, the largest difference first; of all tests, or intervals alone."""
    wanted = TEST, side, False
    some = [row for row in of_kind(rows, DifferenceRow) if (row.split, row.resolution, row.fine_tuned) == wanted]
    if not some:
        return None
    count = sum(len(row.ps) for row in some)
    tests = f"for all {count} tests" if count > 1 else "one test"
    lines: dict[Head, dict[Head, Cell | str]] = {
        Head(words.printable(f"{row.first} minus {row.second}")): {
            Head("difference", "points of %"): _signed(row.value),
            Head("other trainings", "Student's t over seeds"): _between(row.interval, _signed),
            Head("other images", "paired bootstrap"): _between(row.over_images, _signed),
            Head("alone right", "first / second, by seed"): ", ".join(f"{one}/{other}" for one, other in row.alone),
            Head("McNemar's p", "exact, by seed"): ", ".join(map(p_words, row.ps)),
            Head("Holm's", tests): ", ".join(map(p_words, row.adjusted)),
            Head("odds ratio", "alone right"): DASH if row.odds_ratio is None else f"{row.odds_ratio:.2f}",
            Head("Cohen's h"): f"{row.cohens_h:+.2f}",
            Head("intervals", "of the two means"): {None: "one seed", True: "apart", False: "overlap"}[row.apart],
        }
        for row in sorted(some, key=lambda row: -abs(row.value))
    }
    caption = f"Top-1 accuracy of each two encodings on the same {some[0].count} test images, {side} px"
    if not of_all:
        caption = f"Each two encodings at {side} px, points of %"
        lines = {head: dict(list(line.items())[:3]) for head, line in lines.items()}
    return table_of(caption, lines, "first minus second")


def p_words(p: float) -> str:
    """ ".032" or "<.001": a p with as many digits as say anything."""
    return "<\u00a0.001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


def _signed(value: float) -> str:
    """ "+3.2": a difference of fractions, in points of percent."""
    return number(value, "fraction", "+")


def _between(interval: tuple[float, float] | None, said: Callable[[float], str]) -> str:
    # No width: all seeds, or all images, gave the same, which says nothing of others.
    same = said is _signed and interval is not None and interval[0] == interval[1]
    return DASH if interval is None or same else words.interval([said(limit) for limit in interval])


def _orders(rows: Sequence[ComparisonRow]) -> Table | None:
    """How alike the order at each size is to the paper's."""
    columns = (
        "tested at", "coefficient", "value", Head("95 %", "encodings drawn again"), Head("95 %", "seeds drawn again"),
        Head("p", "permutations"), "encodings",
    )  # fmt: skip
    lines = []
    for row in of_kind(rows, RankRow):
        curve = paper(row.paper).curve
        shown = f"{row.shown / curve.trained:.3g}{TIMES}" if curve is not None else ""
        below = f"{_times(row.resolution, rows)}; table {row.table}, {row.shown}\u00a0px: {shown}"
        lines.append((
            Head(f"{row.resolution}\u00a0px", below), row.coefficient.capitalize(), coefficient(row.value),
            _between(row.interval, coefficient), _between(row.over_seeds, coefficient),
            DASH if row.p is None else p_words(row.p), str(len(row.encodings)),
        ))  # fmt: skip
    return text_table("The order of the encodings here and in the paper", columns, lines) if lines else None


def coefficient(value: float | None) -> str:
    """ "+.83"."""
    return DASH if value is None or math.isnan(value) else f"{value:+.2f}".replace("0.", ".", 1)


def _beside(rows: Sequence[ComparisonRow], side: int) -> Table | None:
    """The order at a size, and the paper's; None where the paper printed too few of these encodings."""
    row = next((row for row in of_kind(rows, RankRow) if row.resolution == side), None)
    if row is None:
        return None
    columns = (
        "encoding",
        Head("here", f"{side}\u00a0px, mean"),
        "place",
        Head("printed", f"{row.shown}\u00a0px"),
        "place",
    )
    caption = f"Top-1 accuracy in % here at {side} px and in table {row.table} at {row.shown} px (Val)"
    lines = [
        (
            _head(rows, name),
            number(here, row.unit),
            _rank(row.measured, here),
            f"{there:.2f}",
            _rank(row.printed, there),
        )
        for name, here, there in zip(row.encodings, row.measured, row.printed, strict=True)
    ]
    return text_table(caption, columns, sorted(lines, key=lambda line: int(line[2])))


def _rank(values: Sequence[float], one: float) -> str:
    """1 of the highest; of equals the same."""
    return str(1 + sum(value > one for value in values))


def _by_size(rows: Sequence[ComparisonRow], *, larger: bool) -> list[Panel]:
    """Top-1 on the test split by the side of the images, from the size of the training up (figure 1) or down (6)."""
    side = trained_at(rows)
    some = [row for row in picked(rows, TOP1) if (row.resolution >= side if larger else row.resolution <= side)]
    ticks = {side: str(side) for side in sorted({row.resolution for row in some})}
    lines, label = _lines(rows, [(row.resolution, row) for row in some]), "test resolution (side of the image, px)"
    panel = Panel(lines, "", label, "top-1 accuracy (%)", "log2", x_ticks=ticks, y_range=WHOLE)
    return [panel] if any(row.resolution != side for row in some) else []


def _gains(rows: Sequence[ComparisonRow]) -> list[Panel]:
    """What top-1 gains from the size of the training to larger ones, by fifths of object size (figure 7)."""
    panels = []
    for side in _beyond(rows):
        points = [(part, row) for part in _FIFTHS
                  for row in picked(rows, CHANGE, resolution=side, slices={"size_quintile": part})]  # fmt: skip
        if points:
            title = f"{trained_at(rows)} to {side} px"
            lines = _lines(rows, points)
            panels.append(Panel(lines, title, y_label="points of %", x_ticks=_FIFTHS, level=(0, "")))
    return panels


def _lines(rows: Sequence[ComparisonRow], points: Sequence[tuple[int, MeanRow]]) -> list[Line]:
    """A line an encoding, of places and means."""
    names, lines = order(rows), []
    for name in names:
        own = {place: row for place, row in points if row.encoding == name}
        y = [words.scaled(row.value, row.unit) for row in own.values()]
        ends = [shown_interval(row) or (row.value,) * 2 for row in own.values()]
        limits = [[words.scaled(end, row.unit) for end in pair] for pair, row in zip(ends, own.values(), strict=True)]
        lines += [Line(name, style.look(name, names), list(own), y, limits)] if own else []
    return lines
