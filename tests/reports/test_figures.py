"""The figures of the results page: which points their panels have, and that what is drawn is whole and the same."""

from __future__ import annotations

import base64
import itertools
import re
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from sightline.published import paper
from sightline.reports import figures as panels_of
from sightline.reports import lines, maps, style
from sightline.reports.content import FieldsOfViewFigure, LossCurve
from sightline.reports.lines import lines_figure
from sightline.reports.series import Study
from sightline.reports.words import TIMES
from tests.reports.synthetic import VALUES, accuracy_rows, all_rows, row, run_summary, texts, view
from tests.reports.test_other_metrics import attacked, calibrated, published

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


def test_default_is_dashed_only_beside_a_tuned_line():
    default, tuned = row("a", 0.5, 64, knob=1.0), row("a", 0.7, 64, knob=0.25, tuned=True)
    looks = [[line.look["linestyle"] for line in panels_of.by_resolution(Study.of(rows))[0].lines]
             for rows in ([default, tuned], [default])]  # fmt: skip
    assert looks == [[(0, (4, 2)), "-"], ["-"]]


def test_a_run_keeps_its_colour_in_every_figure():
    order = list(VALUES)
    alone = curve(accuracy_rows({"adder": [0.5]}, [32]), order)
    assert style.PALETTE[2].lower() in alone
    assert style.PALETTE[0].lower() not in alone
    many = [str(number) for number in range(20)]
    assert len({(style.colour(name, many), style.marker(name, many)) for name in many}) == 20


@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>", "a & b", "_hidden", r"$x^{", "$x^2$", "名前", "a\x00b\x1b[0m", "x" * 200]
)
def test_any_run_name_can_be_drawn(name):
    assert texts(curve(accuracy_rows({name: [0.5, 0.4]}, [32, 64]))).count(style.short(name)) == 2


@pytest.mark.parametrize("count", [1, 6, 30])
@pytest.mark.parametrize("sizes", [[32], [20, 32], list(range(16, 16 + 24 * 8, 8))])
def test_any_number_of_runs_and_resolutions(count, sizes):
    values = {f"run {number}": [0.5] * len(sizes) for number in range(count)}
    written = texts(curve(accuracy_rows(values, sizes)))
    assert {str(sizes[-1]), *values} <= set(written)


def test_names_at_the_ends_of_lines_keep_apart():
    spread = lines.spread([50.0, 50.0, 50.0, 99.0, 99.5, 0.0])
    assert all(b - a >= lines._NAME_GAP - 1e-9 for a, b in itertools.pairwise(sorted(spread)))
    assert max(spread) <= 100
    assert spread[3] < spread[4]


def test_long_loss_curves_are_averaged():
    x, y = panels_of.averaged(LossCurve(list(range(3000)), [float(number % 10) for number in range(3000)]))
    assert len(x) == 300
    assert y == pytest.approx(np.full(300, 4.5))
    assert panels_of.loss([run_summary("a", loss=LossCurve([1], [float("nan")]))], ["a"]) == []


def test_fields_of_view_have_a_panel_a_head_and_one_where_all_are_alike():
    written = texts(maps.fields_of_view(view(heads=3)))
    assert [text for text in written if "head" in text] == ["head 0", "head 1", "head 2"]
    same = FieldsOfViewFigure("a", 0, (2, 3), np.ones((12, 2, 3), np.float32))
    assert len([text for text in texts(maps.fields_of_view(same)) if "head" in text]) == 1


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


def test_what_was_not_measured_has_no_panel():
    for draw in (panels_of.by_object_size, panels_of.reliability, panels_of.under_attack):
        assert draw(Study.of(accuracy_rows())) == []
    alone = Study.of([row(view="native", resolution=None, grid=None, patches=9.0)])
    assert panels_of.by_resolution(alone) == []


def test_object_sizes_stand_in_their_fifths_and_one_that_was_not_measured_has_no_point():
    rows = [one for one in all_rows() if one.run != "adder" or one.slices.get("size_quintile") != 3]
    near, far = panels_of.by_object_size(Study.of(rows))
    assert {name: list(line) for name, line in points(far).items()} == {
        "looker": [0, 1, 2, 3, 4], "turner": [0, 1, 2, 3, 4], "adder": [0, 1, 3, 4],
    }  # fmt: skip
    assert points(near)["looker"][0] == pytest.approx(100 * 0.938 * 0.85)
    # A knob's default may be measured at the size of training alone: its panels are as wide as each other.
    rows = [
        row("a", 0.1 * part, size, knob=knob, tuned=tuned, slices={"size_quintile": part} if part else {}, count=40)
        for tuned, knob, sizes in ((False, 1.0, (32,)), (True, 0.5, (32, 64)))
        for size in sizes
        for part in range(6)
    ]
    svg = lines_figure(panels_of.by_object_size(Study.of(rows)))
    ends = re.findall(r'<g id="axes_\d">\s*<g id="patch_\d+">\s*<path d="M ([\d.]+) [\d.]+ \nL ([\d.]+) ', svg)
    wide = [float(right) - float(left) for left, right in ends]
    assert wide == pytest.approx([wide[0]] * 2, rel=0.05)


def test_a_panel_for_each_loss_and_epsilon_with_a_mark_for_each_size():
    shown = {panel.title: points(panel) for panel in panels_of.under_attack(Study.of(attacked()))}
    assert set(shown) == {f"FGSM {epsilon}/255, loss {loss}" for loss in ("ce", "bce") for epsilon in (1, 3)}
    assert shown["FGSM 3/255, loss ce"]["a"] == pytest.approx({32: 60, 64: 35})


def test_a_mark_for_each_bin_that_holds_images():
    study = Study.of(calibrated())
    near, far = panels_of.reliability(study)
    a, b = (list(line) for line in points(near).values())
    assert (a, b) == (pytest.approx([30, 96.7], abs=0.1), pytest.approx([96.7], abs=0.1))
    assert list(points(far)["a"].values()) == pytest.approx([40, 60])
    assert near.diagonal
    without = [one for one in calibrated() if one.metric != "confidence"]
    assert [panels_of.is_calibrated(one) for one in (study, Study.of(without))] == [True, False]


@pytest.mark.parametrize("narrow", [False, True])
def test_a_paper_has_the_colour_of_the_run_of_its_encoding(narrow):
    panel = panels_of.beside_paper(Study.of(published()), paper("lookhere"))
    said = texts(lines_figure(panel, narrow=narrow))
    for words in ("looker, measured", "own, measured", "LH-90, published", "1D-learn, published", "others, published"):
        assert words in said
    assert {f"{times}{TIMES}" for times in (1, 2, 4)} <= set(said)
    colours = {line.label: line.look["color"] for line in panel[0].lines}
    assert colours["LH-90, published"] == colours["looker, measured"] != colours["others, published"]
    assert [line.label for line in panel[0].lines].count("others, published") == 8
    # A run that was trained at another size stands at its own times.
    rows = [*published(), row("large", 0.5, 64, encoding="fourier", train_resolution=64)]
    assert points(panels_of.beside_paper(Study.of(rows), paper("rope_vit"))[0])["large, measured"] == {1: 50}
