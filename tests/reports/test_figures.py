"""The figures of the results page: which points their panels have, and that what is drawn is whole and the same."""

from __future__ import annotations

import base64
import re
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from sightline.reports import figures as panels_of
from sightline.reports import maps, style
from sightline.reports.content import FieldsOfViewFigure, LossCurve
from sightline.reports.lines import lines_figure
from sightline.reports.series import Study
from tests.reports.synthetic import VALUES, accuracy_rows, all_rows, run_summary, texts, view

pytestmark = pytest.mark.usefixtures("figures")


def points(panel):
    """Label -> x -> y."""
    return {line.label: dict(zip(line.x, line.y, strict=True)) for line in panel.lines}


def curve(rows, order=(), **options) -> str:
    return lines_figure(panels_of.by_resolution(Study.of(rows, order, **options)))


def test_figures_are_whole_refer_to_nothing_outside_and_are_the_same_each_time():
    def drawn() -> list[str]:
        study = Study.of(all_rows(), chance=1 / 24)
        runs = [run_summary(name, loss=LossCurve([1, 2, 3], [3.0, 2.0, 1.0])) for name in VALUES]
        figures = [panels_of.by_resolution(study), panels_of.by_object_size(study), panels_of.loss(runs, list(VALUES))]
        return [*map(lines_figure, figures), maps.fields_of_view(view())]

    import matplotlib as mpl

    first = drawn()
    for svg in first:
        assert texts(svg)
        assert svg.count("http") == 1
        assert 'xmlns="http://www.w3.org/2000/svg"' in svg
    # Whatever matplotlib is set to, and it stays so.
    with mpl.rc_context({"font.size": 33.0, "svg.hashsalt": "other"}):
        assert drawn() == first
        assert (mpl.rcParams["font.size"], mpl.rcParams["svg.hashsalt"]) == (33.0, "other")


def test_points_stand_at_their_values_by_doublings():
    (panel,) = panels_of.by_resolution(Study.of(accuracy_rows({"a": [0.0, 0.5, 1.0]}, [16, 32, 64]), chance=1 / 24))
    assert points(panel) == {"a": {16: 0, 32: 50, 64: 100}}
    assert panel.level is not None
    assert panel.level[0] == pytest.approx(100 / 24)
    assert [(one.low, one.high) for one in panel.trained] == [(32, 32)]
    svg = lines_figure([panel])
    written = texts(svg)
    assert {"trained at 32 px", "guessing: 4.2 %"} <= set(written)
    assert written.count("a") == 2, "once in the legend, once at the end of its line"
    places = {match[2]: float(match[1]) for match in re.finditer(r' x="([\d.]+)" y="[\d.]+"[^>]*>(16|32|64)<', svg)}
    assert places["32"] - places["16"] == pytest.approx(places["64"] - places["32"], abs=0.01)
    # The lowest and the highest marker lie on the ends of the vertical axis.
    frame = re.findall(r'id="patch_2">\s*<path d="M [\d.]+ ([\d.]+) \nL [\d.]+ [\d.]+ \nL [\d.]+ ([\d.]+)', svg)[0]
    marks = re.findall(rf'<use href="#\w+" x="[\d.]+" y="([\d.]+)" style="fill: {style.PALETTE[0].lower()}', svg)
    heights = sorted(float(y) for y in marks)[1:]
    assert (max(heights), min(heights)) == pytest.approx((max(map(float, frame)), min(map(float, frame))), abs=0.1)


def test_a_run_keeps_its_colour_in_every_figure():
    order = list(VALUES)
    alone = curve(accuracy_rows({"adder": [0.5]}, [32]), order)
    assert style.PALETTE[2].lower() in alone
    assert style.PALETTE[0].lower() not in alone
    many = [str(number) for number in range(20)]
    assert len({(style.colour(name, many), style.marker(name, many)) for name in many}) == 20


@pytest.mark.parametrize("count", [1, 6, 30])
@pytest.mark.parametrize("sizes", [[32], [20, 32], list(range(16, 16 + 24 * 8, 8))])
def test_any_number_of_runs_and_resolutions(count, sizes):
    values = {f"run {number}": [0.5] * len(sizes) for number in range(count)}
    written = texts(curve(accuracy_rows(values, sizes)))
    assert {str(sizes[-1]), *values} <= set(written)


def test_masked_cells_differ_from_far_ones():
    """A masked cell is left out, so that the hatching shows; a far one is drawn, however small its weight."""
    weight = np.full((1, 2, 3), 1e-6, np.float32)
    weight[0, 0, 2] = 0
    svg = maps.fields_of_view(FieldsOfViewFigure("a", 0, (2, 3), weight))
    picture = re.search(r'href="data:image/png;base64,\s*([^"]+)"', svg)
    assert picture
    opaque = np.asarray(Image.open(BytesIO(base64.b64decode(picture[1]))).convert("RGBA"))[..., 3] > 0
    # Either way up, as the SVG may flip it.
    assert opaque.tolist() in ([[True, True, False], [True] * 3], [[True] * 3, [True, True, False]])
    assert "<pattern" in svg
