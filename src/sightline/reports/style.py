"""The look of every figure: palette, fonts, and how a figure becomes SVG text that is the same on every run."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import as_file, files
from io import StringIO
from typing import TYPE_CHECKING, Any

from sightline.reports.words import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which stay apart for the colour-blind, without their black and yellow (unseen on a dark or
# a white page) and with a brown and a grey instead. The markers tell runs apart where colour does not.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#8A4038", "#6E6E78")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h")

# Colours that the HTML page replaces by its own (text, lines, masked cells, ground): figures follow dark mode. They
# stand in figure.mplstyle too.
INK = "#1d2129"
FAINT = "#8b909a"
GRID = "#e3e5e9"
PAGE = "#fefefe"

_LABEL_LENGTH = 34

# Inches. On the page a figure's text of 10 points is as large as the text around it, whatever the width of the figure;
# a phone shows a narrow figure at its whole width, and text of 9.5 points at 12 px.
WIDE = 9.2
NARROW = 3.9
NAMES_ACROSS = 3
"""So many names of a legend stand beside each other on a wide page."""
_PIXELS_PER_POINT = 1.467


def colour(run: str, order: Sequence[str]) -> str:
    """The colour of a run: by its place among the runs of the report, so that it is the same in every figure."""
    return PALETTE[order.index(run) % len(PALETTE)]


def marker(run: str, order: Sequence[str]) -> str:
    """The marker of a run; it shifts by one each time the palette starts again."""
    place = order.index(run)
    return MARKERS[(place + place // len(PALETTE)) % len(MARKERS)]


def look(name: str, order: Sequence[str]) -> dict[str, Any]:
    """How a line is drawn in every figure of a page; dashed where the palette has started again."""
    found = {"color": colour(name, order), "marker": marker(name, order), "markersize": 5, "linewidth": 1.6}
    return found | ({"linestyle": (0, (4, 2))} if order.index(name) >= len(PALETTE) else {})


def short(label: str, length: int = _LABEL_LENGTH) -> str:
    """`label` cut in its middle to what fits beside a plot."""
    text = printable(label)
    half = length // 2 - 1
    return text if len(text) <= length else f"{text[:half]}…{text[-half:]}"


def legend(figure: Figure, entries: Sequence[tuple[str, Mapping[str, Any]]], *, narrow: bool) -> None:
    """Names above a figure, each with the look of its line."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], **look) for _, look in entries]
    columns = min(1 if narrow else NAMES_ACROSS, len(entries))
    # Names are set afterwards: a legend drops labels that start with an underscore, and reads dollar signs as formulas.
    box = figure.legend(handles, ["."] * len(handles), loc="outside upper left", ncols=columns, frameon=False)
    for text, (name, _) in zip(box.get_texts(), entries, strict=True):
        text.set(text=name, parse_math=False)


def draw(width: float, height: float, paint: Callable[[Figure], None]) -> str:
    """The SVG text of a figure of `width` x `height` inches that `paint` fills.

    No display is needed, no global state of matplotlib is changed, and equal drawings give equal text. Text stays text.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    buffer = StringIO()
    with mpl.rc_context(), warnings.catch_warnings():
        # The user's own matplotlibrc must not change the report.
        mpl.rcdefaults()
        with as_file(files("sightline.reports").joinpath("figure.mplstyle")) as look:
            mpl.rc_file(look, use_default_template=False)
        # A name in a script that the measuring font lacks is still shown by the reader's font.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = Figure(figsize=(width, height), layout="constrained")
        figure.patch.set_alpha(0)
        FigureCanvasSVG(figure)
        paint(figure)
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", metadata=nothing)
    # Without document type and xlink it names the SVG namespace and nothing else outside itself.
    svg = re.sub(r"<\?xml[^>]*\?>\s*|<!DOCTYPE[^>]*>\s*", "", buffer.getvalue(), count=2)
    svg = svg.replace(' xmlns:xlink="http://www.w3.org/1999/xlink"', "", 1).replace("xlink:href=", "href=")
    return svg.replace("'DejaVu Sans'", "system-ui, 'DejaVu Sans', sans-serif")


def standalone(svg: str) -> str:
    """A figure for a file of its own: on the page's ground, which a dark viewer would not give it."""
    return svg.replace("<svg ", f'<svg style="background: {PAGE}" ', 1)


def inline(svg: str, prefix: str, description: str) -> str:
    """`svg` made fit to stand in an HTML page: its ids start with `prefix`, it shrinks with the page, it is described.

    `prefix` is letters and digits. Colours of text and lines become the page's variables, for dark mode.
    """
    from html import escape

    svg = svg.replace(' xmlns="http://www.w3.org/2000/svg"', "", 1)
    svg = re.sub(r'\b(id|href)="(#?)([^":]*)"', rf'\1="\g<2>{prefix}-\g<3>"', svg)
    svg = svg.replace("url(#", f"url(#{prefix}-")
    for name, value in (("ink", INK), ("faint", FAINT), ("grid", GRID), ("page", PAGE)):
        svg = svg.replace(value, f"var(--{name})")

    def opening(match: re.Match[str]) -> str:
        width = round(float(match[2]) * _PIXELS_PER_POINT)
        return f'<svg {match[1]} width="{width}" role="img" aria-label="{escape(description)}">'

    return re.sub(r'^\s*<svg [^>]*?(viewBox="0 0 ([\d.]+) [\d.]+")[^>]*>', opening, svg, count=1)


def both(draw: Callable[..., str], prefix: str, description: str) -> str:
    """A figure twice, for a wide page and for a narrow one, of which the page shows one.

    Args:
        draw: the SVG text, of the layout that `narrow` says.
        prefix, description: as `inline`.
    """
    return pair(draw(narrow=False), draw(narrow=True), prefix, description)


def pair(wide: str, narrow: str, prefix: str, description: str) -> str:
    """As `both`, of what was drawn; "" for `narrow` leaves the wide one to all pages."""
    shown = inline(wide, prefix, description)
    if not narrow:
        return shown
    small = inline(narrow, f"{prefix}narrow", description)
    return f'<div class="wide">{shown}</div>\n<div class="narrow">{small}</div>'
