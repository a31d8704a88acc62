"""What was found inside models as one HTML file that needs nothing else, and as a part of a notebook or a report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any

from sightline.analysis.rows import AnalysisLike, other_of, rows_of
from sightline.reports import analysis_maps, analysis_plots, page, style, words
from sightline.reports.analysis_tables import by_layer_table, groups_of, models_of
from sightline.reports.grids import TextTable
from sightline.results.analysis import LAYERS, AnalysisRow
from sightline.results.rows import dump_rows

# Characters of figures: up to which each is there for a wide and a narrow page, and up to which maps are drawn, so that
# a page with its tables stays below 10 MB.
_BOTH_WIDTHS, _MAPS = 3_000_000, 7_000_000


Advance = Callable[[int], None]


def _nobody(count: int) -> None:
    """Nobody watches."""


@dataclass(frozen=True)
class PageFigure:
    """A figure of a section: HTML that holds it twice, for a wide and a narrow page, and what it shows."""

    name: str
    title: str
    figure: str
    words: str


@dataclass(frozen=True)
class Section:
    """One measure: its curves, its maps, the numbers of the curves, and whose maps found no room."""

    name: str
    title: str
    pictures: list[PageFigure]
    tables: list[TextTable]
    left_out: list[str] = field(default_factory=list)


def render(
    rows: Sequence[AnalysisRow],
    found: Sequence[AnalysisLike],
    command: str,
    *,
    figures: dict[str, str] | None = None,
    advance: Advance | None = None,
) -> str:
    """The HTML text; equal rows and arrays give equal text.

    Args:
        rows: as `rows_of` made them of `found`.
        found: of every model and measure, whose maps and heads are drawn.
        command: the line that makes it again.
        figures: filled with every figure of the page as a file of its own: by its name SVG text on its own ground.
        advance: called with 1 as each figure is drawn; of `count_figures` of them.
    """
    models = list(dict.fromkeys([*models_of(rows), *(one.model for one in found)]))
    content = _content(rows, found, kept=figures, advance=advance)
    return page.render("analysis.html", title=_title(models), command=command, **content)


def count_figures(rows: Sequence[AnalysisRow], found: Sequence[AnalysisLike]) -> int:
    """How many figures a page has, those too for which it has no room."""
    models = list(dict.fromkeys([*models_of(rows), *(one.model for one in found)]))
    curves = sum(_draws(some, found, models) is not None for some in groups_of(rows).values())
    return curves + sum(analysis_maps.is_drawn(one, name) for one in found for name in one.quantities)


def shown(found: Sequence[AnalysisLike]) -> str:
    """The same as a part of another page, a notebook's: without the page around it."""
    rows = [row for one in found for row in rows_of(one)]
    # A notebook is one page: what two cells show has ids of its own.
    mark = sha256(dump_rows(rows).encode()).hexdigest()[:8]
    return page.render("analysis_part.html", **_content(rows, found, f"n{mark}"))


def by_layer(rows: Sequence[AnalysisRow], models: Sequence[str]) -> list[Section]:
    """What is drawn by layer, of rows alone, a section a measure; models are named in the order of another page's."""
    return [one for one in _sections(rows, (), models, "layers", {}, _nobody) if one.pictures]


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
    found: Sequence[AnalysisLike],
    prefix: str = "inside",
    kept: dict[str, str] | None = None,
    advance: Advance | None = None,
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
        "sections": _sections(rows, found, models, prefix, {} if kept is None else kept, advance or _nobody),
        "several": len(models) > 1,
        **told,
    }


def _title(models: Sequence[str]) -> str:
    return f"Inside {style.short(models[0])}" if len(models) == 1 else f"Inside {len(models)} models"


def _draws(rows: Sequence[AnalysisRow], found: Sequence[AnalysisLike], models: Sequence[str]) -> Any:
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
    rows: Sequence[AnalysisRow],
    found: Sequence[AnalysisLike],
    models: Sequence[str],
    prefix: str,
    kept: dict[str, str],
    advance: Advance,
) -> list[Section]:
    """A section a measure. All curves are drawn, and then as many maps as the page has room for; what has none is
    counted."""
    groups, used = groups_of(rows), 0
    measures = dict.fromkeys([*(one.measure for one in found), *(measure for measure, _ in groups)])
    sections = {measure: Section(measure, words.capital(words.title(measure)), [], []) for measure in measures}
    for place, ((measure, name), some) in enumerate(groups.items()):
        sections[measure].tables.append(by_layer_table(some, models))
        if draw := _draws(some, found, models):
            said = f"{words.capital(words.title(name))}, {some[0].words}"
            heads = analysis_plots.heads_of(found, measure, name)
            draw = _Kept(draw, f"{measure}.{name}.svg", kept)
            # Of many models there is room for one width, which a narrow page shrinks.
            if used < _BOTH_WIDTHS:
                figure = style.both(draw, f"{prefix}{place}", said)
            else:
                figure = style.inline(draw(narrow=False), f"{prefix}{place}", said)
            used += len(figure)
            told = _said(some, bool(heads))
            sections[measure].pictures.append(PageFigure(name, words.heading(some[0]), figure, told))
            advance(1)
    for place, one in enumerate(found):
        other = other_of(one)
        for number, (name, quantity) in enumerate(one.quantities.items()):
            if not analysis_maps.is_drawn(one, name):
                continue
            advance(1)
            if used >= _MAPS:
                sections[one.measure].left_out.append(f"{one.model} with {other}" if other else one.model)
                continue
            of = f" of {one.model} (down) with {other} (across)" if other else f", {one.model}"
            of = of if other or len(models) > 1 else ""
            title = f"{words.capital(words.title(name))}{words.printable(of)}"
            whose = "+".join(str(models.index(model)) for model in (one.model, other) if model in models)
            file = f"{one.measure}.{name}.{whose}.svg"
            draw = _Kept(partial(analysis_maps.small_multiples, one, name), file, kept)
            figure = style.both(draw, f"{prefix}map{place}x{number}", title)
            used += len(figure)
            told = f"{_sentence(quantity.words)} {analysis_maps.explains(one, name)}".strip()
            sections[one.measure].pictures.append(PageFigure(name, title, figure, told))
    return list(sections.values())


def _said(rows: Sequence[AnalysisRow], heads: bool) -> str:
    """The caption of a quantity's curves: the measure's own words, and what the marks are."""
    bars = " Bars: where the mean lies with 95 % for other images." if any(row.interval for row in rows) else ""
    dots = heads and len({row.run for row in rows}) <= analysis_plots.MOST_WITH_HEADS
    marks = (" Small dots: heads, each the mean of the images." if bars else " Small dots: heads.") if dots else ""
    return f"{_sentence(rows[0].words)}{bars}{marks}"


def _sentence(text: str) -> str:
    text = words.capital(text.strip())
    return f"{text}." if text and text[-1] not in ".!?" else text
