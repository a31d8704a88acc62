"""What linear probes say of attributes: accuracy of each, two runs paired, the worst group and the gap."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sightline.errors import InputError
from sightline.reports import style, words
from sightline.reports.series import Study
from sightline.reports.tables import Cell, Head, Table, measured_cell, table_of
from sightline.results.attributes import ATTRIBUTE, BY, GAP, TOP1, VALUE, WORST, pair_attributes
from sightline.results.rows import ResultRow


@dataclass(frozen=True)
class AttributesPart:
    """At one size: tables of attributes, of each two runs and of the worst groups; one of all groups; and why two runs
    are not paired."""

    shown: str
    tables: Sequence[Table]
    groups: Sequence[Table]
    said: Sequence[str]


def attributes_parts(study: Study) -> list[AttributesPart]:
    """A part a size, that of the training first; runs of one size each stand in one part."""
    own = [row for row in study.attributes if row.split == study.main.split]
    own.sort(key=lambda row: row.resolution != row.train_resolution)
    sizes, heads = dict[str, dict[Head, list[ResultRow]]](), dict[str, Head]()
    for row in own:
        head = heads.setdefault(row.run, Head(words.printable(row.run), colour=style.colour(row.run, study.order)))
        shown = row.size_label + (f", tuned {row.tuned_label}" if row.tuned else "")
        sizes.setdefault(shown, {}).setdefault(head, []).append(row)
    if sizes and all(sum(head in runs for runs in sizes.values()) == 1 for head in heads.values()):
        sizes = {words.listed(list(sizes)): {head: some for runs in sizes.values() for head, some in runs.items()}}
    return [_part(shown, runs) for shown, runs in sizes.items()]


def _part(shown: str, runs: Mapping[Head, Sequence[ResultRow]]) -> AttributesPart:
    attributes, worst, groups = (dict[Head, dict[Head, Cell | str]]() for _ in range(3))
    for run, row in ((run, row) for run, rows in runs.items() for row in rows):
        name, cell = str(row.slices[ATTRIBUTE]), measured_cell(row)
        line = Head(f"{name} by {row.slices[BY]}" if BY in row.slices else name)
        if row.metric == WORST:
            cell = replace(cell, below=words.printable(row.slices[VALUE]))
            worst.setdefault(line, {})[replace(run, detail="worst group")] = cell
        elif row.metric == GAP:
            worst.setdefault(line, {})[replace(run, detail="gap")] = cell
        elif row.metric == TOP1:
            lines, of = (groups, f": {row.slices[VALUE]}") if BY in row.slices else (attributes, "")
            lines.setdefault(Head(line.title + of), {}).update({run: cell, Head("images"): f"{row.count:,}"})
    columns, said = [*runs, Head("images")], list[str]()
    found = [table_of(f"Accuracy by attribute in %, {shown}", attributes, "attribute", columns)]
    for one, other in itertools.combinations(runs, 2):
        try:
            pairs = pair_attributes(runs[one], runs[other])
        except InputError as error:
            said.append(str(error))
            continue
        first, second = (replace(run, detail="alone right") for run in (one, other))
        lines = {
            Head(pair.attribute): {
                first: f"{pair.alone[0]:,}", second: f"{pair.alone[1]:,}", Head("p", detail="McNemar"): f"{pair.p:.2g}",
                Head("p", detail="Holm"): Cell(f"{pair.adjusted:.2g}", best=pair.adjusted < 0.05),
            }
            for pair in pairs
        }  # fmt: skip
        for over in {f"{pair.signed_rank:.2g}" for pair in pairs}:
            said_of = f"Wilcoxon's signed-rank test over {len(lines)} attributes: p = {over}"
            found.append(table_of(f"{one.title} and {other.title}, {shown}. {said_of}", lines, "attribute"))
    if worst:
        found.append(table_of(f"Worst group, and how far it lies below the best, in %, {shown}", worst, "attribute"))
    every = [table_of(f"Accuracy by attribute and group in %, {shown}", groups, "group", columns)] if groups else []
    return AttributesPart(shown, found, every, said)
