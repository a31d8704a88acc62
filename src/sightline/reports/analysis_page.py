"""What was found inside models as one HTML file that needs nothing else, and as a part of a notebook or a report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any

from sightline.analysis_rows import LAYERS, AnalysisRow, Found, dump_analysis, rows_of
from sightline.reports import analysis_maps, analysis_plots, page, style, words
from sightline.reports.analysis_findings import findings
from sightline.reports.analysis_tables import by_layer_table, groups_of, models_of
from sightline.reports.grids import TextTable


@dataclass(frozen=True)
class Picture:
    """A figure of a section: HTML that holds it twice, for a wide and a narrow page, and what it shows."""

    name: str
    title: str
    figure: str
    words: str


@dataclass(frozen=True)
class Section:
    """One measure: its curves, its maps, and the numbers of the curves."""

    name: str
    title: str
    pictures: Sequence[Picture]
    tables: Sequence[TextTable]


def render(
    rows: Sequence[AnalysisRow], found: Sequence[Found], command: str, *, figures: dict[str, str] | None = None
) -> str:
    """The HTML text; equal rows and arrays give equal text.

    Args:
        rows: as `rows_of` made them of `found`.
        found: of every model and measure, whose maps and heads are drawn.
        command: the line that makes it again.
        figures: filled with every figure of the page as a file of its own: by its name SVG text on its own ground.
    """
    models = list(dict.fromkeys([*models_of(rows), *(one.model for one in found)]))
    return page.render("analysis.html", title=_title(models), command=command, **_content(rows, found, kept=figures))


def shown(found: Sequence[Found]) -> str:
    """The same as a part of another page, a notebook's: without the page around it."""
    rows = [row for one in found for row in rows_of(one)]
    # A notebook is one page: what two cells show has ids of its own.
    mark = sha256(dump_analysis(rows).encode()).hexdigest()[:8]
    return page.render("analysis_part.html", **_content(rows, found, f"n{mark}"))


def by_layer(rows: Sequence[AnalysisRow], models: Sequence[str]) -> list[Section]:
    """What is drawn by layer, of rows alone, a section a measure; models are named in the order of another page's."""
    return [one for one in _sections(rows, (), models, "layers", {}) if one.pictures]


@dataclass(frozen=True)
class _Kept:
    """What draws a figure, and keeps that for a wide page under its name too: it is drawn once."""

    draw: Callable[..., str]
    name: str
    kept: dict[str, str]

    def __call__(self, *, narrow: bool) -> str:
        svg = self.draw(narrow=narrow)
        if not narrow:
            self.kept[self.name] = style.standalone(svg)
        return svg


def _content(
    rows: Sequence[AnalysisRow],
    found: Sequence[Found],
    prefix: str = "inside",
    kept: dict[str, str] | None = None,
) -> dict[str, Any]:
    models = list(dict.fromkeys([*models_of(rows), *(one.model for one in found)]))
    encodings = {one.model: one.encoding for one in found} | {row.run: row.encoding for row in rows}
    sizes = analysis_plots.sizes_of(rows)
    told = {name: words.listed(sorted({getattr(row, name) for row in rows if getattr(row, name)}) or [""])
            for name in ("data", "split", "hardware", "commit")}  # fmt: skip
    counts = sorted({len(names) for one in found for names in one.names.values()})
    return {
        "models": [(name, style.colour(name, models), encodings[name]) for name in models],
        "images": words.span([f"{count:,}" for count in counts]) if counts else "",
        "sizes": words.listed([analysis_plots.size_words(size) for size in sizes]) if sizes else "",
        "findings": findings(rows),
        "sections": _sections(rows, found, models, prefix, {} if kept is None else kept),
        "several": len(models) > 1,
        **told,
    }


def _title(models: Sequence[str]) -> str:
    return f"Inside {style.short(models[0])}" if len(models) == 1 else f"Inside {len(models)} models"


def _draws(rows: Sequence[AnalysisRow], found: Sequence[Found], models: Sequence[str]) -> Any:
    """What draws a quantity's curves, or its points where it has no layers; None where it is not drawn."""
    layered = [row for row in rows if row.layer is not None]
    if rows[0].figure != LAYERS:
        return None
    if not layered:
        # What is only known of all together.
        return partial(analysis_plots.points, rows, models)
    heads = analysis_plots.heads_of(found, rows[0].measure, rows[0].metric)
    return partial(analysis_plots.curves, layered, models, heads)


def _sections(
    rows: Sequence[AnalysisRow], found: Sequence[Found], models: Sequence[str], prefix: str, kept: dict[str, str]
) -> list[Section]:
    groups = groups_of(rows)
    measures = dict.fromkeys([*(one.measure for one in found), *(measure for measure, _ in groups)])
    sections = []
    for number, measure in enumerate(measures):
        pictures, tables = [], []
        for place, ((own, name), some) in enumerate(groups.items()):
            if own != measure:
                continue
            tables.append(by_layer_table(some, models))
            if draw := _draws(some, found, models):
                said = f"{words.capital(words.title(name))}, {some[0].words}"
                heads = analysis_plots.heads_of(found, measure, name)
                draw = _Kept(draw, f"{measure}.{name}.svg", kept)
                picture = style.both(draw, f"{prefix}{number}x{place}", said)
                pictures.append(Picture(name, words.heading(some[0]), picture, _said(some, bool(heads), models)))
        for place, one in enumerate(one for one in found if one.measure == measure):
            pictures += _maps(one, f"{prefix}{number}map{place}", models, kept)
        sections.append(Section(measure, words.capital(words.title(measure)), pictures, tables))
    return sections


def _maps(found: Found, prefix: str, models: Sequence[str], kept: dict[str, str]) -> Iterator[Picture]:
    for place, (name, quantity) in enumerate(found.quantities.items()):
        if not analysis_maps.is_drawn(found, name):
            continue
        of = f", {found.model}" if len(models) > 1 else ""
        title = f"{words.capital(words.title(name))}{words.printable(of)}"
        file = f"{found.measure}.{name}.{models.index(found.model)}.svg"
        draw = _Kept(partial(analysis_maps.small_multiples, found, name), file, kept)
        told = f"{_sentence(quantity.words)} {analysis_maps.explains(found, name)}".strip()
        yield Picture(name, title, style.both(draw, f"{prefix}x{place}", title), told)


def _said(rows: Sequence[AnalysisRow], heads: bool, models: Sequence[str]) -> str:
    """The caption of a quantity's curves: the measure's own words, and what the marks are."""
    bars = " Bars: where the mean lies with 95 % for other images." if any(row.interval for row in rows) else ""
    dots = heads and len({row.run for row in rows}) <= analysis_plots.MOST_WITH_HEADS
    marks = (" Small dots: heads, each the mean of the images." if bars else " Small dots: heads.") if dots else ""
    return f"{_sentence(rows[0].words)}{bars}{marks}"


def _sentence(text: str) -> str:
    text = words.capital(text.strip())
    return f"{text}." if text and text[-1] not in ".!?" else text
