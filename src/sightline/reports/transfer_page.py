"""What models reach on other data sets: tables for the terminal, and a page with VTAB-1k by group (ViT, figure 2)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sightline.errors import InputError
from sightline.published import Printed, paper
from sightline.reports import page, style, words
from sightline.reports.lines import WHOLE as PERCENT
from sightline.reports.lines import Line, Panel, drawn
from sightline.reports.tables import Cell, Head, Table, print_cells, table_of
from sightline.results.transfer import TASKS_OF, VTAB, TransferRow

PAPERS = ("vit",)
"""Those whose numbers stand beside."""
_LOOK = {"marker": "o", "markersize": 6, "linewidth": 0}


def render(rows: Sequence[TransferRow], command: str, *, title: str | None = None, papers: Sequence[str] = ()) -> str:
    """The HTML text: equal rows give equal text.

    Args:
        rows: of one model or several.
        command: the line that makes it again; title: its heading.
        papers: whose numbers stand beside, of `PAPERS`.
    """
    rows = by_size(rows)
    some, printed = rows[0], [one for name in papers for one in paper(name).numbers]
    return page.render(
        "transfer.html",
        title=title or f"Transfer to {words.listed(_titles(rows))}",
        command=command,
        words=words,
        models=_models(rows),
        some=some,
        said=[paper(name) for name in papers],
        different=(some.batch_size, some.resolution) != (512, 384)
        or any(row.group and row.steps != 2500 for row in rows),
        sizes=words.listed([str(side) for side in sorted({row.resolution for row in rows})]),
        batches=words.listed([str(size) for size in sorted({row.batch_size for row in rows})]),
        steps=words.span([f"{steps:,}" for steps in sorted({row.steps for row in rows if not row.tasks})]),
        by_group=drawn(_by_group(rows, printed), "groups", "Top-1 accuracy on VTAB-1k by group of tasks", height=3.6),
        tables=tables(rows, printed),
        rates=_rates(rows),
    )


def by_size(rows: Sequence[TransferRow]) -> list[TransferRow]:
    """The rows, with the size in the name of a model that is there at several.

    Raises:
        InputError: a data set of a model is there twice.
    """
    sizes: dict[str, set[int]] = {}
    for row in rows:
        sizes.setdefault(row.model, set()).add(row.resolution)
    named = [
        replace(row, model=f"{row.model} at {row.resolution} px") if len(sizes[row.model]) > 1 else row for row in rows
    ]
    counts = Counter((row.model, row.title) for row in named)
    for (model, title), count in counts.items():
        if count > 1:
            raise InputError(f"report: {title} by {model} is there twice (expected each once)")
    return named


def print_transfer(rows: Sequence[TransferRow]) -> None:
    """Print what was reached on each data set, and the means of VTAB-1k."""
    rows = by_size(rows)
    for table in tables(rows).values():
        print_cells(table)
    if any(row.interval for row in rows):
        print("In brackets: the 95 % interval over seeds.")


def tables(rows: Sequence[TransferRow], printed: Sequence[Printed] = ()) -> dict[str, Table]:
    """`sets`, `tasks` and `groups`, as far as they are there: a line each, a column for each model."""
    parts = {
        "sets": [row for row in rows if not row.group and not row.tasks],
        "groups": [row for row in rows if row.tasks],
        "tasks": [row for row in rows if row.group and not row.tasks],
    }
    captions = {
        "sets": f"{words.capital(words.title(rows[0].metric))} in %",
        "groups": "VTAB-1k, mean over tasks in %",
        "tasks": "VTAB-1k by task in %",
    }
    return {name: _table(captions[name] + _over(some), some, printed, name) for name, some in parts.items() if some}


def _over(rows: Sequence[TransferRow]) -> str:
    seeds = {len(row.seeds) for row in rows}
    return "" if seeds == {1} else f", mean of {words.span(sorted(seeds))} trainings"


def _models(rows: Iterable[TransferRow]) -> list[str]:
    return list(dict.fromkeys(row.model for row in rows))


def _titles(rows: Sequence[TransferRow]) -> list[str]:
    own = list(dict.fromkeys(row.title for row in rows if not row.group and not row.tasks))
    return own + (["VTAB-1k"] if any(row.group for row in rows) else [])


def _names(models: Sequence[str]) -> dict[str, str]:
    """Model -> its name in a table: the last part of a path, where that tells it."""
    last = [one.rstrip("/").rpartition("/")[2] for one in models]
    return {one: name if last.count(name) == 1 else one for one, name in zip(models, last, strict=True)}


def _cell(row: TransferRow) -> Cell:
    """A value with its interval; below it the rate that was chosen, or of how many tasks it is."""
    limits = [words.number(limit, "fraction") for limit in row.interval or ()]
    below = _count(row) if row.tasks else f"rate {row.lr:g}" if row.held_out else ""
    return Cell(words.number(row.value, "fraction"), limits, below=below)


def _count(row: TransferRow) -> str:
    every = TASKS_OF[row.title]
    return f"{len(row.tasks)} of {every} tasks" if len(row.tasks) < every else f"{every} tasks"


def _table(caption: str, rows: Sequence[TransferRow], printed: Sequence[Printed], part: str) -> Table:
    models = _models(rows)
    names, beside = _names(models), _printed(printed)
    lines: dict[Head, dict[Head, Cell | str]] = {}
    for row in rows:
        line = lines.setdefault(Head(row.title, row.group if part == "tasks" else ""), {})
        line[Head(names[row.model], colour=style.colour(row.model, models) if len(models) > 1 else "")] = _cell(row)
    for head, line in lines.items():
        for column, numbers in beside.items():
            if (value := _value_of(numbers, head.title, part, rows)) is not None:
                line[Head(*column)] = words.number(value / 100, "fraction")
    return table_of(caption, lines, "task" if part == "tasks" else "data set" if part == "sets" else "group")


def _printed(printed: Sequence[Printed]) -> dict[tuple[str, str], dict[str, float]]:
    """A paper's model and what it was pre-trained on -> data set -> its number in tables 2 and 9."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for one in printed:
        if one.table in ("2", "9"):
            what = one.method.removeprefix("pre-trained on ")
            found.setdefault((one.model, f"{what}, published"), {})[_plain(one.data)] = one.number
    return found


def _value_of(numbers: Mapping[str, float], title: str, part: str, rows: Sequence[TransferRow]) -> float | None:
    """What is printed of a line; of a mean, over the same tasks."""
    if part != "groups":
        return numbers.get(_plain(f"{VTAB}/{title}" if part == "tasks" else title))
    tasks, *others = dict.fromkeys(row.tasks for row in rows if row.title == title)
    values = [numbers.get(_plain(f"{VTAB}/{task}")) for task in tasks] if not others else [None]
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if len(there) == len(values) else None


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "", name.lower())


def _by_group(rows: Sequence[TransferRow], printed: Sequence[Printed]) -> list[Panel]:
    """Means of the groups of VTAB-1k, a mark a model, as the paper's figure 2."""
    means = [row for row in rows if row.tasks]
    if not means:
        return []
    models, places = _models(means), {title: place for place, title in enumerate(dict.fromkeys(r.title for r in means))}
    lines, names = list[Line](), _names(models)
    shown = [*models, *_printed(printed)]
    step = 0.5 / max(len(shown), 1)

    def moved(title: str, number: int) -> float:
        return places[title] + (number - (len(shown) - 1) / 2) * step

    for number, model in enumerate(models):
        some = [row for row in means if row.model == model]
        limits = [[100 * end for end in row.interval or (row.value, row.value)] for row in some]
        look = _LOOK | {"color": style.colour(model, models)}
        x = [moved(row.title, number) for row in some]
        lines.append(Line(names[model], look, x, [100 * row.value for row in some], limits))
    for number, ((model, what), numbers) in enumerate(_printed(printed).items(), start=len(models)):
        found = {title: _value_of(numbers, title, "groups", means) for title in places}
        there = {title: value for title, value in found.items() if value is not None}
        look = _LOOK | {"marker": "Ds^"[number % 3], "color": style.FAINT}
        lines.append(Line(f"{model}, {what}", look, [moved(title, number) for title in there], list(there.values())))
    ticks = {place: words.capital(title) for title, place in places.items()}
    label = "top-1 accuracy (%)"
    return [Panel(lines, x_ticks=ticks, x_range=(-0.5, len(places) - 0.5), y_label=label, y_range=PERCENT)]


def _rates(rows: Sequence[TransferRow]) -> list[Table]:
    """What each rate of a grid reached on held-out images, a table a model."""
    made = []
    for model in _models(rows):
        lines: dict[Head, dict[Head, Cell | str]] = {}
        for row in (one for one in rows if one.model == model and one.held_out):
            for rate, value in row.held_out.items():
                cell = Cell(words.number(value, "fraction"), best=float(rate) == row.lr)
                lines.setdefault(Head(row.title, f"{row.steps:,} steps"), {})[Head(rate)] = cell
        if lines:
            name = _names(_models(rows))[model]
            heads = sorted({head for line in lines.values() for head in line}, key=lambda head: float(head.title))
            made.append(table_of(f"{name}: held-out images of train, in %, by learning rate", lines, "data set", heads))
    return made
