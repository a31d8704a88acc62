"""Rows in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sightline.reports.content import SeenSizes
from sightline.reports.results_tables import print_accuracy
from sightline.results.rows import ResultRow


def print_by_data(rows: Sequence[ResultRow], seen: Mapping[str, SeenSizes] | None = None) -> None:
    """Print the tables of each data set: a suite has several, and a pass may be scored in several ways.

    Args:
        seen: as `print_accuracy` has it.
    """
    kinds = dict.fromkeys((row.data, row.preparation) for row in rows)
    for data, preparation in kinds:
        if len(kinds) > 1 or preparation:
            print(f"\n{data}{f', prepared as {preparation} says' if preparation else ''}:")
        print_accuracy([row for row in rows if (row.data, row.preparation) == (data, preparation)], seen=seen)
