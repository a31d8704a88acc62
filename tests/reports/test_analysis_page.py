"""What is shown of the inside of models: each number and sentence of the rows, each map of the arrays, nothing else."""

from __future__ import annotations

import dataclasses
import re
from types import SimpleNamespace

import numpy as np
import pytest

from sightline.analysis.measures.base import MeasuredQuantity
from sightline.analysis.rows import mean_over_images, rows_of
from sightline.reports import analysis_page, maps, words
from sightline.reports.analysis_page import by_layer_table
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
