"""The rows of a comparison that are kept: means of all images, orders, what was attacked, and pairs at the size of
training and the largest.

    sightline compare --out runs/compare
    python benchmarks/compare.py runs/compare [--out benchmarks/results/compare.jsonl]
    python benchmarks/ranges.py --write docs/how-to/compare.md

Fifths of object size and pairs at other sizes stay in comparison.jsonl of the folder.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from sightline.io.run_files import COMPARISON
from sightline.reports.comparison_page import largest, trained_at
from sightline.results.comparison import COMPARISON_ROWS, ComparisonRow, DifferenceRow
from sightline.results.rows import dump_rows, read_rows

RESULTS = Path(__file__).parent / "results" / "compare.jsonl"


def kept(rows: Sequence[ComparisonRow]) -> list[ComparisonRow]:
    """Those rows, in their order."""
    sides = {trained_at(rows), largest(rows)}
    return [
        row
        for row in rows
        if (not row.slices or row.metric.startswith("fgsm"))
        and (not isinstance(row, DifferenceRow) or row.resolution in sides)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = kept(read_rows(options.folder / COMPARISON, *COMPARISON_ROWS))
    options.out.write_text(dump_rows(rows), encoding="utf-8")
    print(f"{len(rows)} rows: {options.out}")


if __name__ == "__main__":
    main()
