"""What is shown of the inside of models: each number and sentence of the rows, each map of the arrays, nothing else."""

from __future__ import annotations

import dataclasses
import re
from types import SimpleNamespace

import numpy as np
import pytest

from sightline.analysis.measures.base import MeasuredQuantity
from sightline.analysis.rows import mean_over_images, rows_of
from sightline.errors import InputError
from sightline.reports import analysis_page, maps, style, words
from sightline.reports.analysis_page import by_layer_table, curves, heads_of, print_layers
from sightline.reports.lines import lines_figure
from sightline.results.analysis import AnalysisRow
from sightline.results.rows import dump_rows, read_rows
from tests.pages import Page
from tests.reports.synthetic import cells, texts

QUANTITIES = {
    "reach": MeasuredQuantity(("image", "layer", "head"), "cells", "rows: patches <b>", "layers"),
    "joint": MeasuredQuantity(("layer",), "fraction", "of all together", "layers"),
    "joint_low": MeasuredQuantity(("layer",), "fraction", "where it begins"),
    "joint_high": MeasuredQuantity(("layer",), "fraction", "where it ends"),
    "look": MeasuredQuantity(("image", "layer", "head", "row", "col"), "fraction", "where it looks", "maps"),
    "paint": MeasuredQuantity(("image", "row", "col", "channel"), "", "in colour", "maps"),
    "alike": MeasuredQuantity(("layer", "other_layer"), "", "of layers", "maps"),
    "hidden": MeasuredQuantity(("image", "layer"), "", "not drawn"),
    "counts": MeasuredQuantity(("image", "kind"), "", "of a kind"),
}
SIZES = ((16, 16), (16, 32))


def found(model="a", encoding="lookhere_90", sizes=SIZES, images=3, depth=2, heads=2, seed=0):
    """What a measure might have found, an `Analysis` in all but its class."""
    draws = np.random.default_rng(seed)
    arrays = {}
    for height, width in sizes:
        grid = height // 4, width // 4
        low = draws.random(depth) / 2
        arrays[height, width] = {
            "reach": draws.random((images, depth, heads)) + 1,
            "joint": low + 0.1,
            "joint_low": low,
            "joint_high": low + 0.3,
            "look": draws.random((images, depth, heads, *grid)),
            "paint": draws.random((images, *grid, 3)),
            "alike": draws.random((depth + 1, depth + 1)),
            "hidden": draws.random((images, depth + 1)),
            "counts": draws.random((images, 5)),
        }
    return SimpleNamespace(
        measure="attention_gaze", model=model, encoding=encoding, sizes=sizes, quantities=QUANTITIES, arrays=arrays,
        names={size: tuple(f"image {number}" for number in range(images)) for size in sizes},
        about={"depth": depth, "heads": heads, "patch_size": 4},
    )  # fmt: skip


ORIGIN = {"data": "scenes", "split": "test", "hardware": "a machine", "commit": "abc", "train_resolution": 16}


def rows(*all_found):
    return [row for one in all_found for row in rows_of(one, **ORIGIN)]


def pick(some, **fields):
    (one,) = [row for row in some if all(getattr(row, name) == value for name, value in fields.items())]
    return one


def test_rows_are_means_over_images_with_students_t():
    one = found()
    made = rows(one)
    values = one.arrays[16, 32]["reach"][:, 1].mean(-1)
    row = pick(made, metric="reach", size=(16, 32), layer=1)
    assert row.value == pytest.approx(values.mean())
    # t of two degrees of freedom.
    assert row.interval[1] - row.value == pytest.approx(4.3026527 * values.std(ddof=1) / 3**0.5)
    assert (row.count, row.unit, row.run, row.encoding, row.figure) == (3, "cells", "a", "lookhere_90", "layers")
    # Of one more than layers the first is what enters the first.
    assert [row.layer for row in made if row.metric == "hidden" and row.size == (16, 16)] == [-1, 0, 1, None]
    whole = pick(made, metric="hidden", size=(16, 16), of_all_layers=True)
    assert whole.value == pytest.approx(one.arrays[16, 16]["hidden"][:, 1:].mean())
    # What is of all images together has the measure's own interval, whose ends are no rows.
    joint = pick(made, metric="joint", size=(16, 16), layer=0)
    low = one.arrays[16, 16]["joint_low"][0]
    assert joint.interval == (low, low + 0.3)
    assert {row.metric for row in made} == {"reach", "joint", "hidden"}


def test_what_is_not_there_counts_nowhere():
    value, interval, count = mean_over_images(np.array([1.0, np.nan, 3.0]))
    assert (value, count) == (2.0, 2)
    assert interval == pytest.approx((2 - 12.7062047, 2 + 12.7062047))
    assert mean_over_images(np.array([5.0])) == (5.0, None, 1)
    assert mean_over_images(np.array([np.nan]))[2] == 0
    assert mean_over_images(np.array([0.0, 1.0]), fractions=True)[1] == (0, 1)
    one = found()
    one.arrays[16, 16]["reach"][:] = np.nan
    assert not [row for row in rows(one) if row.metric == "reach" and row.size == (16, 16)]


def test_a_share_without_an_interval_of_its_own_gets_none_of_a_count():
    """What is of the weights alone is no share of images: Wilson's interval would say what other images give."""
    one = found(images=0)
    del one.arrays[16, 16]["joint_low"]
    share = pick(rows(one), metric="joint", size=(16, 16), layer=0)
    assert (share.unit, share.count, share.interval) == ("fraction", 0, None)
    assert share.limits() is None
    assert dataclasses.replace(share, count=5).limits() is None
    assert "Joint" in analysis_page.shown([one])


def test_rows_come_back_from_their_file(tmp_path):
    made = rows(found())
    file = tmp_path / "analysis.jsonl"
    file.write_text(dump_rows(made))
    assert read_rows(file, AnalysisRow) == made
    file.write_text(dump_rows(made)[:-20])
    with pytest.raises(InputError, match=r"analysis.jsonl"):
        read_rows(file, AnalysisRow)


def test_the_page_shows_what_is_in_the_rows_and_needs_nothing_else(figures):
    both = found(), found("b<i>", "rope_axial", seed=1)
    drawn, files = [], {}
    text = analysis_page.render(rows(*both), both, "sightline analyse a b", advance=drawn.append, figures=files)
    assert analysis_page.render(rows(*both), both, "sightline analyse a b") == text
    page = Page(text)
    assert page.sections[0] == "attention_gaze"
    assert sum(drawn) == analysis_page.count_figures(rows(*both), both) == page.figures == len(files) == 8
    for said in (
        "a machine",
        "3 images",
        "16 px and 16 \N{MULTIPLICATION SIGN} 32 px",
        "sightline analyse a b",
        "b<i>",
    ):
        assert said in page.text
    assert "script" not in page.tags
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert "default-src 'none'" in text
    assert len(text) < 10e6
    # Each name that is referred to is there once; a picture's own is a hash of it, and colour bars are alike.
    ids = [one for one in page.ids if "-image" not in one]
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"url\(#([^)]+)\)", text)) <= set(ids)
    # Every number of the rows stands in a table with its interval.
    for row in rows(*both):
        number, interval = words.number(row.value, row.unit), words.interval(words.limits(row)).replace("\xa0", " ")
        assert any(f"{number} {interval}".strip() in line for table in page.tables.values() for line in table)


def test_maps_without_room_are_counted_and_the_curves_stay(monkeypatch):
    both = found(), found("b", "rope_axial", seed=1)
    monkeypatch.setattr(analysis_page, "_MAPS", 0)
    monkeypatch.setattr(analysis_page, "_BOTH_WIDTHS", 0)
    text = analysis_page.render(rows(*both), both, "x")
    assert "Maps of a, b " in text
    assert Page(text).figures == 2
    assert 'class="narrow"' not in text


def test_a_notebook_shows_a_part_whose_ids_are_its_own(figures):
    one, two = analysis_page.shown([found()]), analysis_page.shown([found(seed=1)])
    assert "<html" not in one
    ids = [set(re.findall(r'\bid="([^"]+)"', text)) - {"attention_gaze"} for text in (one, two)]
    assert ids[0]
    assert not ids[0] & ids[1]


def test_every_model_has_one_look_and_every_size_a_panel(figures):
    three = [found("a"), found("b", "rope_axial"), found("c", "learned_1d", sizes=SIZES[:1])]
    made = [row for row in rows(*three) if row.metric == "reach" and row.layer is not None]
    heads = heads_of(three, "attention_gaze", "reach")
    first, second = panels = curves(made, ["a", "b", "c"], heads)
    assert [panel.title for panel in panels] == [
        "16 px (4 \N{MULTIPLICATION SIGN} 4 patches)",
        "16 \N{MULTIPLICATION SIGN} 32 px (4 \N{MULTIPLICATION SIGN} 8 patches)",
    ]
    assert [[line.label for line in panel.lines] for panel in panels] == [["a", "b", "c"], ["a", "b"]]
    assert [line.look["color"] for line in first.lines] == list(style.PALETTE[:3])
    reach = three[0].arrays[16, 16]["reach"].mean(0)
    assert list(first.lines[0].y) == pytest.approx(reach.mean(-1))
    assert [first.lines[0].dots[layer] for layer in (0, 1)] == [pytest.approx(layer) for layer in reach]
    for narrow in (False, True):
        assert {"a", "b", "c", "layer", "reach (cells)"} <= set(texts(lines_figure(panels, narrow=narrow)))
    # A figure of one model alone has the colour that it has elsewhere.
    (alone,) = curves([row for row in made if row.run == "c"], ["a", "b", "c"])
    assert [line.look["color"] for line in alone.lines] == [style.PALETTE[2]]
    assert second.lines[0].look == first.lines[0].look


def test_tables_by_hand():
    made = rows(found(), found("b", "rope_axial", sizes=SIZES[:1], seed=1))
    table = by_layer_table([row for row in made if row.metric == "reach"], ["a", "b"])
    assert [head.title for head in table.columns] == ["layer 0", "layer 1", "all layers"]
    assert [(head.title, head.below) for head, _ in table.lines] == [
        ("a", "16 px"), ("b", "16 px"), ("a", "16 \N{MULTIPLICATION SIGN} 32 px"),
    ]  # fmt: skip
    row = pick(made, metric="reach", run="b", layer=1)
    assert cells(table)["b", "layer 1"] == f"{row.value:.4g}"
    assert table.lines[1][1][1].limits == tuple(f"{end:.4g}" for end in row.interval)


def test_the_terminal_says_first_middle_and_last(capsys):
    print_layers(rows(found(depth=5)))
    said = capsys.readouterr().out
    made = [row for row in rows(found(depth=5)) if row.metric == "reach" and row.size == (16, 16)]
    assert "first" in said.split()
    for layer in (0, 2, 4):
        assert f"{pick(made, layer=layer).value:.4g}" in said
    assert "drawn" not in said
    # What begins with the tokens that enter the first layer says so.
    print_layers([dataclasses.replace(row, slices={"layer": row.layer - 1}) for row in made if row.layer is not None])
    assert "first" not in capsys.readouterr().out


def test_maps_are_means_of_images_by_layer_and_head():
    one = found()
    tiles = maps.tiles_of(one, "look", (16, 32))
    assert tiles is not None
    assert tiles.maps.shape == (2, 2, 4, 8)
    np.testing.assert_allclose(tiles.maps, one.arrays[16, 32]["look"].mean(0))
    assert (tiles.down, tiles.across) == (("layer", ["0", "1"]), ("head", ["0", "1"]))
    sheet, step = maps.mosaic(tiles)
    # Cells of a small map are three wide; each is divided by its greatest, with nothing between.
    assert step == (3 * 4 + 2, 3 * 8 + 2)
    assert sheet.shape == (2 * step[0] - 2, 2 * step[1] - 2)
    np.testing.assert_allclose(sheet[:12:3, :24:3], tiles.maps[0, 0] / tiles.maps[0, 0].max())
    assert np.ma.getmaskarray(sheet)[12:14].all()
    mean, laid, _ = maps.explains(one, "look").split("; ")
    assert (mean, laid) == ("The mean of 3 images", "layers down, heads across")


def test_colours_and_matrices_are_drawn_as_they_are(figures):
    one = found(images=8)
    tiles = maps.tiles_of(one, "paint", (16, 16))
    assert tiles is not None
    assert tiles.maps.shape == (1, 6, 4, 4, 3)
    np.testing.assert_array_equal(tiles.maps[0, 2], one.arrays[16, 16]["paint"][2])
    assert maps.explains(one, "paint").split(";")[0] == "The first 6 images"
    alike = maps.tiles_of(one, "alike", (16, 16))
    assert alike is not None
    assert alike.down == ("layer", ["in", "0", "1"])
    assert alike.across == ("other layer", ["in", "0", "1"])
    np.testing.assert_array_equal(alike.maps[:, :, 0, 0], one.arrays[16, 16]["alike"])
    assert not maps.is_drawn(one, "counts")
    assert not maps.is_drawn(one, "reach")
    svg = maps.small_multiples(one, "alike")
    assert {"in", "layer", "other layer", "16 px"} <= set(texts(svg))


def test_a_matrix_of_two_models_says_whose_layers_are_where(figures):
    one, name = found(), "$b$ " + "long" * 10
    one.about |= {"other": name, "other_depth": 3}
    for size in SIZES:
        one.arrays[size] = {"alike": np.random.default_rng(size).random((3, 4))}
    tiles = maps.tiles_of(one, "alike", (16, 16))
    assert tiles is not None
    assert tiles.down == ("layer of a", ["in", "0", "1"])
    # Cut, and no formula.
    assert tiles.across == (f"layer of {style.short(name, 24)}", ["in", "0", "1", "2"])
    assert {*tiles.down[:1], *tiles.across[:1]} <= set(texts(maps.small_multiples(one, "alike")))
    text = analysis_page.shown([one])
    for said in (f"a (down) with {name} (across)", f"Layers of a down, layers of {style.short(name, 24)} across;"):
        assert said in text


def test_what_is_the_same_at_all_sizes_is_drawn_once(figures):
    one = found()
    for size in SIZES:
        one.arrays[size]["alike"] = np.eye(3)
    assert "16 px" not in texts(maps.small_multiples(one, "alike"))


def test_nothing_is_drawn_of_nothing():
    one = found()
    for size in SIZES:
        one.arrays[size]["look"] = np.zeros((3, 2, 2, 0, 0))
        one.arrays[size]["paint"] = np.full((3, 4, 4, 3), np.nan)
        one.arrays[size]["alike"] = np.full((3, 3), np.nan)
    assert not maps.is_drawn(one, "look")
    assert not maps.is_drawn(one, "alike")
    text = analysis_page.render(rows(one), [one], "x")
    assert "Reach" in text
    assert "Look" not in text


def test_a_measure_of_which_nothing_can_be_drawn_says_so():
    one = found(sizes=SIZES[:1])
    one.arrays[16, 16] = {"paint": np.zeros((3, 0, 0, 3))}
    for text in (analysis_page.render([], [one], "x"), analysis_page.shown([one])):
        assert "There is nothing" in text
    assert "There is nothing" not in analysis_page.shown([found()])
