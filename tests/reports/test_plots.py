"""The figures on synthetic rows and arrays: well-formed, the same each time, and drawing what they were given."""

from __future__ import annotations

import base64
import itertools
import re
import xml.etree.ElementTree as ElementTree
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from sightline.errors import InputError
from sightline.reports import figures, panels, style, training_plots
from sightline.reports.content import FieldsOfViewFigure, LossCurve
from sightline.reports.series import Study
from tests.reports.synthetic import VALUES, accuracy_rows, all_rows, row, view

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    """All text of the figure; fails where it is not well-formed XML."""
    return ["".join(element.itertext()) for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def drawn() -> dict[str, str]:
    return {
        "accuracy": figures.by_resolution(Study.of(all_rows(), chance=1 / 24)),
        "quintiles": figures.by_object_size(Study.of(all_rows())),
        "loss": training_plots.loss_plot({name: LossCurve([1, 2, 3], [3.0, 2.0, 1.0]) for name in VALUES}),
        "view": panels.fields_of_view(view()),
    }


def test_figures_are_well_formed_and_refer_to_nothing_outside():
    for name, svg in drawn().items():
        assert texts(svg), name
        assert svg.count("http") == 1, name
        assert 'xmlns="http://www.w3.org/2000/svg"' in svg, name


def test_same_input_gives_the_same_text():
    assert drawn() == drawn()


def test_resolutions_runs_and_training_size_are_written():
    written = texts(figures.by_resolution(Study.of(accuracy_rows(), chance=1 / 24)))
    assert {"20", "32", "64", "148", "trained at 32 px", "guessing: 4.2 %"} <= set(written)
    for name in VALUES:
        assert written.count(name) == 2, "once in the legend, once at the end of its line"


def test_resolutions_are_spaced_by_doublings():
    svg = figures.by_resolution(Study.of(accuracy_rows({"a": [0.5, 0.5, 0.5]}, [16, 32, 64])))
    places = {match[2]: float(match[1]) for match in re.finditer(r' x="([\d.]+)" y="[\d.]+"[^>]*>(16|32|64)<', svg)}
    assert places["32"] - places["16"] == pytest.approx(places["64"] - places["32"], abs=0.01)


def test_points_stand_at_their_values():
    """The two values are 0 and 1: their markers lie on the lower and upper end of the vertical axis."""
    svg = figures.by_resolution(Study.of(accuracy_rows({"a": [0.0, 1.0]}, [32, 64]))).partition('id="legend_1"')[0]
    frame = [
        float(y)
        for y in re.findall(r'id="patch_2">\s*<path d="M [\d.]+ ([\d.]+) \nL [\d.]+ [\d.]+ \nL [\d.]+ ([\d.]+)', svg)[0]
    ]
    markers = re.findall(rf'<use href="#\w+" x="([\d.]+)" y="([\d.]+)" style="fill: {style.PALETTE[0].lower()}', svg)
    # The caps of the intervals are markers too: one lies on its point, the other inside the axes.
    heights = sorted(float(y) for _, y in markers)
    assert (heights[-1], heights[0]) == pytest.approx((max(frame), min(frame)), abs=0.1)


def test_default_is_dashed_only_beside_a_tuned_line():
    default, tuned = row("a", 0.5, 64, knob=1.0), row("a", 0.7, 64, knob=0.25, tuned=True)
    pattern = rf"stroke-dasharray: [\d., ]+; stroke-dashoffset: 0; stroke: {style.PALETTE[0].lower()}"
    assert re.search(pattern, figures.by_resolution(Study.of([default, tuned])))
    assert not re.search(pattern, figures.by_resolution(Study.of([default])))


def test_a_run_keeps_its_colour_in_every_figure():
    order = list(VALUES)
    alone = figures.by_resolution(Study.of(accuracy_rows({"adder": [0.5]}, [32]), order))
    assert style.PALETTE[2].lower() in alone
    assert style.PALETTE[0].lower() not in alone
    assert style.colour("adder", order) == style.PALETTE[2]
    many = [str(number) for number in range(20)]
    assert len({(style.colour(name, many), style.marker(name, many)) for name in many}) == 20


@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>", "a & b", "_hidden", r"$x^{", "$x^2$", "名前", "a\x00b\x1b[0m", "x" * 200]
)
def test_any_run_name_can_be_drawn(name):
    written = texts(figures.by_resolution(Study.of(accuracy_rows({name: [0.5, 0.4]}, [32, 64]))))
    assert written.count(style.short(name)) == 2


@pytest.mark.parametrize("count", [1, 6, 30])
@pytest.mark.parametrize("sizes", [[32], [20, 32], list(range(16, 16 + 24 * 8, 8))])
def test_any_number_of_runs_and_resolutions(count, sizes):
    values = {f"run {number}": [0.5] * len(sizes) for number in range(count)}
    written = texts(figures.by_resolution(Study.of(accuracy_rows(values, sizes))))
    assert {str(sizes[0]), str(sizes[-1])} <= set(written)
    assert all(name in written for name in values)


def test_label_heights_keep_apart():
    spread = figures._spread([50.0, 50.0, 50.0, 99.0, 99.5, 0.0])
    ordered = sorted(spread)
    assert all(b - a >= figures._LABEL_GAP - 1e-9 for a, b in itertools.pairwise(ordered))
    assert max(spread) <= 100
    assert spread[3] < spread[4]


def test_long_loss_curves_are_averaged_and_broken_ones_refused():
    x, y = training_plots._averaged("a", LossCurve(list(range(3000)), [float(number % 10) for number in range(3000)]))
    assert len(x) == 300
    assert y == pytest.approx(np.full(300, 4.5))
    with pytest.raises(InputError, match="run a: 1 losses for 2"):
        training_plots.loss_plot({"a": LossCurve([1, 2], [1.0])})
    with pytest.raises(InputError, match="no training loss"):
        training_plots.loss_plot({"a": LossCurve([1], [float("nan")])})


def test_fields_of_view_have_a_panel_a_head_and_one_where_all_are_alike():
    written = texts(panels.fields_of_view(view(heads=3)))
    assert [text for text in written if "head" in text] == ["head 0", "head 1", "head 2"]
    same = FieldsOfViewFigure("a", 0, (2, 3), np.ones((12, 2, 3), np.float32))
    assert "all 12 heads alike" in texts(panels.fields_of_view(same))


def test_masked_cells_differ_from_far_ones():
    """A masked cell is left out, so that the hatching shows; a far one is drawn, however small its weight."""
    weight = np.full((1, 2, 3), 1e-6, np.float32)
    weight[0, 0, 2] = 0
    svg = panels.fields_of_view(FieldsOfViewFigure("a", 0, (2, 3), weight))
    picture = re.search(r'href="data:image/png;base64,\s*([^"]+)"', svg)
    assert picture
    opaque = np.asarray(Image.open(BytesIO(base64.b64decode(picture[1]))).convert("RGBA"))[..., 3] > 0
    assert opaque.shape == (2, 3)
    # Either way up, as the SVG may flip it.
    assert opaque.tolist() in ([[True, True, False], [True] * 3], [[True] * 3, [True, True, False]])
    assert "<pattern" in svg


@pytest.mark.parametrize(
    "weight",
    [np.ones((2, 3, 3)), np.ones((2, 4)), np.full((1, 2, 4), 1.5), np.full((1, 2, 4), np.nan), np.full((1, 2, 4), -1)],
)
def test_wrong_weights_are_refused(weight):
    with pytest.raises(InputError):
        panels.fields_of_view(FieldsOfViewFigure("a", 0, (2, 4), weight.astype(np.float32)))


def test_missing_rows_are_refused():
    with pytest.raises(InputError, match="no result rows"):
        figures.by_resolution(Study.of([]))
    with pytest.raises(InputError, match="object size"):
        figures.by_object_size(Study.of(accuracy_rows()))
    with pytest.raises(InputError, match="top1 on squares"):
        figures.by_resolution(Study.of([row(view="native", resolution=None, grid=None, patches=9.0)]))


def test_drawing_leaves_matplotlib_as_it_was():
    import matplotlib as mpl

    with mpl.rc_context({"font.size": 33.0, "svg.hashsalt": "other"}):
        first = figures.by_resolution(Study.of(accuracy_rows()))
        assert mpl.rcParams["font.size"] == 33.0
        assert mpl.rcParams["svg.hashsalt"] == "other"
    assert first == figures.by_resolution(Study.of(accuracy_rows()))


def test_a_line_without_points_at_a_size_leaves_its_panel_as_wide_as_the_others():
    """A knob's default may be measured at the size of training alone, beside the tuned one at all."""
    rows = [
        row("a", 0.1 * part, size, knob=knob, tuned=tuned, slices=slices, count=40)
        for tuned, knob, sizes in ((False, 1.0, (32,)), (True, 0.5, (32, 64)))
        for size in sizes
        for part in range(6)
        for slices in [{"size_quintile": part} if part else {}]
    ]
    svg = figures.by_object_size(Study.of(rows))
    ends = re.findall(r'<g id="axes_\d">\s*<g id="patch_\d+">\s*<path d="M ([\d.]+) [\d.]+ \nL ([\d.]+) ', svg)
    wide = [float(right) - float(left) for left, right in ends]
    assert len(wide) == 2
    assert wide[0] == pytest.approx(wide[1], rel=0.05)
    assert wide[0] > 200


def test_a_fifth_that_was_not_measured_has_no_point():
    rows = [one for one in all_rows() if one.run != "adder" or one.slices.get("size_quintile") != 3]
    whole, less = (figures.by_object_size(Study.of(some)) for some in (all_rows(), rows))
    colour = style.colour("adder", list(VALUES))
    marks = [len(re.findall(f'<use [^>]*style="fill: {colour}', svg, re.I)) for svg in (whole, less)]
    # Of each of two panels the mark, and both ends of its bar.
    assert marks[0] - marks[1] == 2 * 3
