"""The page of a comparison: LookHere's tables and figures of the runs that were trained here, as one HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from sightline.errors import InputError
from sightline.published import paper
from sightline.reports import page, style, words
from sightline.reports.comparison_plots import by_object_size, by_size
from sightline.reports.comparison_tables import (
    CHANGE,
    TOP1,
    beyond,
    coefficient,
    largest,
    order,
    picked,
    tables,
    trained_at,
)
from sightline.reports.explain import encoding_words
from sightline.reports.grids import GridLine, Heading, TableCell, TextTable
from sightline.results.comparison import ComparisonRow, MeanRow, RankRow, of_kind

# What of the paper's columns has nothing here that could stand for it.
_MISSING = {
    "ReaL": "labels of drawn scenes are exact, so that there is nothing to reassess",
    "v2": "a second set of test scenes would be drawn as the first one was",
    "-HR": "every scene is drawn at the size of the test, and none is enlarged",
}


def render(rows: Sequence[ComparisonRow], *, command: str, demonstration: int, notes: Sequence[str] = ()) -> str:
    """The HTML text; equal rows give equal text.

    Args:
        command: the line that makes it again.
        demonstration: on how many images a run of the demonstration is trained.
        notes: to keep in mind.

    Raises:
        InputError: there is no row of top-1 on the test split.
    """
    if not picked(rows, TOP1):
        raise InputError("comparison: no row has top-1 of split test")
    names, side, large = order(rows), trained_at(rows), largest(rows)
    some = picked(rows, TOP1)[0]
    made = tables(rows)
    smaller = any(row.resolution < side for row in picked(rows, TOP1))
    changed = any(picked(rows, CHANGE, resolution=one, slices={"size_quintile": 1}) for one in beyond(rows))
    described = "Top-1 accuracy by test resolution, one line an encoding"
    return page.render(
        "comparison.html",
        title=f"{len(names)} position encodings, trained alike at {side} pixels",
        command=command,
        paper=paper("lookhere"),
        names=[(name, style.colour(name, names), encoding_words(name)) for name in names],
        seeds=len(some.seeds),
        seed_words=words.listed([str(seed) for seed in some.seeds]),
        images=f"{some.train_images:,}",
        demonstration=f"{demonstration:,}",
        fewer=some.train_images < demonstration,
        data=some.data,
        side=side,
        large=large,
        sizes=words.listed([str(one) for one in sorted({row.resolution for row in picked(rows, TOP1)})]),
        fine_tuned=[row for row in of_kind(rows, MeanRow) if row.fine_tuned][:1],
        tables=made,
        missing=_MISSING,
        order=_beside(rows, large),
        larger=style.both(partial(by_size, rows, larger=True), "larger", described) if beyond(rows) else "",
        smaller=style.both(partial(by_size, rows, larger=False), "smaller", described) if smaller else "",
        by_object=style.both(partial(by_object_size, rows), "objects", "What larger images gain by object size")
        if changed else "",
        notes=notes,
        hardware=some.hardware,
        commit=some.commit,
    )  # fmt: skip


def _beside(rows: Sequence[ComparisonRow], side: int) -> dict[str, Any] | None:
    """The order at a size, and the paper's, as a table; None where the paper printed too few of these encodings."""
    found = [row for row in of_kind(rows, RankRow) if row.resolution == side]
    if not found:
        return None
    row, names = found[0], order(rows)
    places = sorted(range(len(row.encodings)), key=lambda place: -row.measured[place])
    lines = []
    for place in places:
        name = row.encodings[place]
        texts = [
            words.number(row.measured[place], row.unit), _rank(row.measured, place), f"{row.printed[place]:.2f}",
            _rank(row.printed, place),
        ]  # fmt: skip
        lines.append(GridLine(words.printable(name), style.colour(name, names), [TableCell(text) for text in texts]))
    headings = [
        Heading("here", f"{side}\u00a0px, mean"), Heading("place"), Heading("printed", f"{row.shown}\u00a0px"),
        Heading("place"),
    ]  # fmt: skip
    caption = f"Top-1 accuracy in % here at {side} px and in table {row.table} at {row.shown} px (Val)"
    told = words.listed([f"{one.coefficient} {coefficient(one.value)}" for one in found])
    return {"table": TextTable(caption, headings, lines, "encoding"), "row": row, "told": told}


def _rank(values: Sequence[float], place: int) -> str:
    """1 of the highest; of equals the same."""
    return str(1 + sum(value > values[place] for value in values))
