"""The tables of a comparison, each after one of LookHere's, as plain cells: for a page, a terminal, CSV and LaTeX."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from sightline.published import paper
from sightline.reports import style, words
from sightline.reports.grids import GridLine, Heading, TableCell, TextTable, titled
from sightline.reports.words import DASH, TIMES, number
from sightline.results.comparison import ComparisonRow, DifferenceRow, MeanRow, RankRow, of_kind

TOP1, TOP5, ECE, CHANGE = "top1", "top5", "ece", "top1_change"
TEST, FONTS = "test", "heldout_fonts"
_SMALLEST = {"size_quintile": 1}
# The split or part that stands for a column of the paper's tables, and what it is here.
COLUMNS = (
    ("Val", TEST, {}, "test scenes"),
    ("-A", TEST, _SMALLEST, "smallest objects"),
    ("-R", FONTS, {}, "unseen fonts"),
)
_BEST, _MEAN = "best", "mean"


def order(rows: Sequence[ComparisonRow]) -> list[str]:
    """The encodings, in the order of the rows."""
    return list(dict.fromkeys(row.encoding for row in of_kind(rows, MeanRow)))


def trained_at(rows: Sequence[ComparisonRow]) -> int:
    """Side of the images of the first training, in pixels."""
    return next(row.train_resolution for row in of_kind(rows, MeanRow) if not row.fine_tuned)


def largest(rows: Sequence[ComparisonRow]) -> int:
    """The largest side at which top-1 was measured on the test split, without a second training."""
    return max(row.resolution for row in picked(rows, TOP1))


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


def times(row: ComparisonRow) -> str:
    """ "4.6×": the size of the test over that of the training."""
    return f"{row.resolution / row.train_resolution:.3g}{TIMES}"


def tables(rows: Sequence[ComparisonRow]) -> dict[str, TextTable]:
    """By the number of the table in the paper, or by a name: those of which something was measured."""
    made = {
        "1": _as_trained(rows, "1"),
        "2": _attacked(rows),
        "3": _calibration(rows),
        "5": _fine_tuned(rows),
        "6": _extrapolated(rows),
        "7": _by_object_size(rows),
        "9": _knobs(rows),
        "pairs": pairs(rows, trained_at(rows)),
        "pairs_largest": pairs(rows, largest(rows)) if largest(rows) != trained_at(rows) else None,
        "orders": orders(rows),
    }
    return {name: table for name, table in made.items() if table is not None}


Column = tuple[Heading, Sequence[MeanRow], str]


def _table(rows: Sequence[ComparisonRow], caption: str, columns: Sequence[Column]) -> TextTable | None:
    """A line an encoding; a column shows the best of the seeds, or their mean with its interval."""
    columns = [column for column in columns if column[1]]
    if not columns:
        return None
    names, found = order(rows), [{row.encoding: row for row in some} for _, some, _ in columns]
    lines = []
    for name in names:
        cells = [_cell(some.get(name), kind) for some, (_, _, kind) in zip(found, columns, strict=True)]
        if any(cell.value != DASH for cell in cells):
            lines.append(GridLine(words.printable(name), style.colour(name, names), cells))
    counts = [TableCell(words.span(sorted({row.count for row in some}))) for _, some, _ in columns]
    return TextTable(
        caption, [heading for heading, _, _ in columns], [*lines, GridLine("images", "", counts)], "encoding"
    )


def _cell(row: MeanRow | None, kind: str) -> TableCell:
    if row is None:
        return TableCell(DASH)
    if kind == _BEST:
        return TableCell(number(row.best, row.unit))
    return TableCell(number(row.value, row.unit), limits(row))


def limits(row: MeanRow) -> tuple[str, ...]:
    """Where the mean lies with 95 % over seeds, as two numbers; none of one seed."""
    return tuple(number(limit, row.unit) for limit in row.interval or ())


def quantity(row: MeanRow) -> str:
    """ "71.2 % [65.0, 77.4]"."""
    return f"{words.quantity(row.value, row.unit)} {words.interval(limits(row))}".rstrip()


def _both(title: str, below: str, some: Sequence[MeanRow]) -> list[Column]:
    return [(Heading(title, f"{below}, {kind}" if below else kind), some, kind) for kind in (_BEST, _MEAN)]


def _over(rows: Sequence[ComparisonRow]) -> str:
    seeds = max((len(row.seeds) for row in of_kind(rows, MeanRow)), default=1)
    return f"over {seeds} seed{'' if seeds == 1 else 's'}"


def _as_trained(rows: Sequence[ComparisonRow], number: str) -> TextTable | None:
    side = trained_at(rows)
    columns: list[Column] = []
    for title, split, slices, below in COLUMNS:
        columns += _both(title, below, picked(rows, TOP1, split=split, resolution=side, slices=slices))
    return _table(rows, f"Table {number}. Top-1 accuracy in %, trained and tested at {side} px, {_over(rows)}", columns)


def _attacked(rows: Sequence[ComparisonRow]) -> TextTable | None:
    attacked = [row for row in of_kind(rows, MeanRow) if row.metric == "fgsm_top5" and not row.fine_tuned]
    columns: list[Column] = []
    for place in dict.fromkeys(row.place for row in attacked):
        some = [row for row in attacked if row.place == place]
        told = {key: str(value) for key, value in some[0].slices.items()}
        title = told.pop("epsilon", f"{some[0].resolution} px")
        columns += _both(title, ", ".join(f"{key} {value}" for key, value in told.items()), some)
    return _table(rows, f"Table 2. Top-5 accuracy in % after the fast gradient sign method, {_over(rows)}", columns)


def _calibration(rows: Sequence[ComparisonRow]) -> TextTable | None:
    side = trained_at(rows)
    columns = _both("Val", "test scenes", picked(rows, ECE, resolution=side))
    return _table(rows, f"Table 3. Expected calibration error (15 bins) at {side} px, {_over(rows)}", columns)


def _fine_tuned(rows: Sequence[ComparisonRow]) -> TextTable | None:
    sides = {row.resolution for row in of_kind(rows, MeanRow) if row.fine_tuned}
    columns: list[Column] = []
    for title, split, slices, below in COLUMNS:
        some = picked(rows, TOP1, split=split, slices=slices, fine_tuned=True)
        columns.append((Heading(title, f"{below}, mean"), some, _MEAN))
        before = picked(rows, TOP1, split=split, slices=slices, resolution=max(sides, default=0))
        columns.append((Heading(title, f"{below}, mean without it"), before if some else [], _MEAN))
    said = f"Table 5. Top-1 accuracy in %, trained on and tested at {words.span(sorted(sides))} px" if sides else ""
    return _table(rows, f"{said}, {_over(rows)}", columns)


def _extrapolated(rows: Sequence[ComparisonRow]) -> TextTable | None:
    columns: list[Column] = []
    for side in _sides(rows):
        for metric in (TOP1, TOP5):
            some = picked(rows, metric, resolution=side)
            if some:
                heading = Heading(f"{side}\u00a0px {metric.replace('top', 'top-')}", times(some[0]))
                columns.append((heading, some, _MEAN))
    side = trained_at(rows)
    return _table(
        rows, f"Table 6. Trained at {side} px, tested at other sizes (Val), mean {_over(rows)}, in %", columns
    )


def _sides(rows: Sequence[ComparisonRow]) -> list[int]:
    return sorted({row.resolution for row in picked(rows, TOP1)})


def _by_object_size(rows: Sequence[ComparisonRow]) -> TextTable | None:
    columns: list[Column] = []
    for side in beyond(rows):
        for part in range(1, 6):
            some = picked(rows, CHANGE, resolution=side, slices={"size_quintile": part})
            columns.append((Heading(f"{side}\u00a0px", titled("size_quintile", {"size_quintile": part})), some, _MEAN))
    said = f"Figure 7. Top-1 accuracy less that at {trained_at(rows)} px, same images, by object size, in points of %"
    return _table(rows, said, columns)


def beyond(rows: Sequence[ComparisonRow]) -> list[int]:
    """The sizes of the test that are larger than that of the training."""
    return [side for side in _sides(rows) if side > trained_at(rows)]


def _knobs(rows: Sequence[ComparisonRow]) -> TextTable | None:
    """Table 9: the value of each encoding's own parameter that was found at each size, of each seed."""
    tuned = [row for row in picked(rows, TOP1) if row.tuned and None not in row.knobs]
    if not tuned:
        return None
    sides, names = sorted({row.resolution for row in tuned}), order(rows)
    found = {(row.encoding, row.resolution): row.knobs for row in tuned}
    lines = []
    for name in (name for name in names if any(row.encoding == name for row in tuned)):
        cells = [TableCell(_knob(found.get((name, side), ())), words=True) for side in sides]
        lines.append(GridLine(words.printable(name), style.colour(name, names), cells))
    headings = [Heading(f"{side}\u00a0px") for side in sides]
    return TextTable("Table 9. The tuned parameter of each encoding, of each seed", headings, lines, "encoding")


def _knob(values: Sequence[float | None]) -> str:
    return ", ".join(f"{value:g}" for value in values if value is not None) or DASH


def p_words(p: float) -> str:
    """ ".032" or "<.001": a p with as many digits as say anything."""
    return "<\u00a0.001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


def signed(value: float) -> str:
    """ "+3.2": a difference of fractions, in points of percent."""
    return number(value, "fraction", "+")


def pairs(rows: Sequence[ComparisonRow], side: int) -> TextTable | None:
    """The tests of each two encodings at a size, the largest difference first."""
    some = [
        row
        for row in of_kind(rows, DifferenceRow)
        if (row.split, row.resolution, row.fine_tuned) == (TEST, side, False)
    ]
    if not some:
        return None
    lines = [_pair(row) for row in sorted(some, key=lambda row: -abs(row.value))]
    headings = [
        Heading("difference", "points of %"),
        Heading("other trainings", "Student's t over seeds"),
        Heading("other images", "paired bootstrap"),
        Heading("alone right", "first / second, by seed"),
        Heading("McNemar's p", "exact, by seed"),
        Heading("Holm's", f"for all {sum(len(row.ps) for row in some)} tests"),
        Heading("odds ratio", "alone right"),
        Heading("Cohen's h"),
        Heading("intervals", "of the two means"),
    ]
    caption = f"Top-1 accuracy of each two encodings on the same {some[0].count} test images, {side} px"
    return TextTable(caption, headings, lines, "first less second")


def _pair(row: DifferenceRow) -> GridLine:
    apart = {None: "one seed", True: "apart", False: "overlap"}[row.apart]
    texts = [
        signed(row.value),
        DASH if row.interval is None else words.interval([signed(limit) for limit in row.interval]),
        words.interval([signed(limit) for limit in row.over_images]),
        ", ".join(f"{first}/{second}" for first, second in row.alone),
        ", ".join(map(p_words, row.ps)),
        ", ".join(map(p_words, row.adjusted)),
        DASH if row.odds_ratio is None else f"{row.odds_ratio:.2f}",
        f"{row.cohens_h:+.2f}",
        apart,
    ]
    cells = [TableCell(text) for text in texts]
    return GridLine(words.printable(f"{row.first} less {row.second}"), "", cells)


def orders(rows: Sequence[ComparisonRow]) -> TextTable | None:
    """How alike the order at each size is to the paper's."""
    some = of_kind(rows, RankRow)
    if not some:
        return None
    lines = []
    for row in some:
        texts = [
            row.coefficient.capitalize(), coefficient(row.value), _limits(row.interval), _limits(row.over_seeds),
            DASH if row.p is None else p_words(row.p), str(len(row.encodings)),
        ]  # fmt: skip
        below = f"{times(row)}; table {row.table}, {row.shown}\u00a0px: {_shown_times(row)}"
        lines.append(GridLine(f"{row.resolution}\u00a0px", "", [TableCell(text) for text in texts], below=below))
    headings = [
        Heading("coefficient"), Heading("value"), Heading("95 %", "encodings drawn again"),
        Heading("95 %", "seeds drawn again"), Heading("p", "permutations"), Heading("encodings"),
    ]  # fmt: skip
    return TextTable("The order of the encodings here and in the paper", headings, lines, "tested at")


def _shown_times(row: RankRow) -> str:
    curve = paper(row.paper).curve
    return f"{row.shown / curve.trained:.3g}{TIMES}" if curve is not None else ""


def coefficient(value: float | None) -> str:
    """ "+.83"."""
    if value is None or math.isnan(value):
        return DASH
    return f"{value:+.2f}".replace("0.", ".", 1)


def _limits(interval: tuple[float, float] | None) -> str:
    return DASH if interval is None else words.interval([coefficient(limit) for limit in interval])


def print_comparison(rows: Sequence[ComparisonRow]) -> None:
    """Print the mean of each encoding at the size of training and at the largest, and the pairs at the largest."""
    from sightline.reports.tables import print_table

    sides = list(dict.fromkeys((trained_at(rows), largest(rows))))
    by_side = [{row.encoding: row for row in picked(rows, TOP1, resolution=side)} for side in sides]
    lines = [(name, *(_told(found.get(name)) for found in by_side)) for name in order(rows)]
    print_table(
        ("encoding", *(f"{side} px" for side in sides)), lines, title=f"Top-1 accuracy in %, mean {_over(rows)}"
    )
    if table := pairs(rows, largest(rows)):
        some = [(line.label, *(cell.value.replace("\u00a0", " ") for cell in line.cells[:3])) for line in table.lines]
        columns = (table.corner, *(heading.title for heading in table.headings[:3]))
        print_table(columns, some, title=f"Each two encodings at {largest(rows)} px, points of %, with 95 % intervals")


def _told(row: MeanRow | None) -> str | None:
    return None if row is None else quantity(row).replace("\u00a0%", "").replace("\u00a0", " ")
