"""Rows of results: what is measured, under which name, and with which labels."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from PIL import Image

from sightline.data.config import PackingConfig
from sightline.data.open import open_source
from sightline.data.preprocessing import preprocessing
from sightline.data.sizes import View
from sightline.errors import InputError, NonFiniteError
from sightline.evaluation import EvaluateConfig
from sightline.evaluation.measure import check_sizes, default_image_count, shrunk, spread_indices
from sightline.evaluation.predict import training_views
from sightline.results.rows import dump_rows, merge_rows, read_rows
from sightline.tasks.base import task_of
from tests.batches import said
from tests.evaluation.models import measured, tiny

OF_SCORES = {"confidence_bin", "coverage"}
FIELDS = [
    "run", "encoding", "task", "data", "split", "metric", "value", "stderr", "resolution", "grid", "train_resolution",
    "knob", "tuned", "seed", "images", "seconds", "commit", "hardware",
    "view", "patches", "unit", "slices", "interval", "better",
]  # fmt: skip


def model(data="scenes", encoding="lookhere_90", **options):
    return tiny(data, encoding, **options)


def measure(one, data="scenes", **config):
    return measured(one, data, *config.pop("resolutions", (16,)), **{"images": 10, **config})


def test_rows_are_as_they_were_promised():
    # What is measured of the scores themselves has tests of its own.
    rows = [
        row for row in measure(model(), images=40) if row.metric.startswith("top") and not {*row.slices} & OF_SCORES
    ]
    groups = open_source("scenes").groups
    whole = {("top1",), ("top5",), ("top1_within_group",)}
    fifths = [("top1", ("size_quintile", number)) for number in range(1, 6)]
    images = {(row.metric, *row.slices.items()): row.count for row in rows}
    assert len(images) == len(rows)
    assert whole | set(fifths) <= set(images) <= whole | set(fifths) | {("top1", ("group", name)) for name in groups}
    for line in dump_rows(rows).splitlines():
        row = json.loads(line)
        assert sorted(row) == sorted(FIELDS)
        assert row["grid"] == [4, 4]
        assert 0 <= row["value"] <= 1
        assert row["stderr"] == pytest.approx(math.sqrt(row["value"] * (1 - row["value"]) / row["images"]))
        same = ("run", "encoding", "task", "data", "split", "resolution", "train_resolution", "knob", "tuned", "seed")
        assert [row[key] for key in same] == [
            "name", "lookhere_90", "glyphs", "scenes", "test", 16, 16, 1.0, False, 3,
        ]  # fmt: skip
    assert {images[name] for name in whole} == {40}
    assert [images[name] for name in fifths] == [8] * 5
    assert sum(count for (_, *part), count in images.items() if part and part[0][0] == "group") == 40


def test_every_resolution_and_split():
    seen = []
    rows = measure(model(), resolutions=(8, 24), splits=("test", "heldout_fonts", "minival"), advance=seen.append)
    measured = {(row.split, row.resolution): row.grid for row in rows if row.shrunk is None}
    # Held-out fonts at the training resolution alone.
    assert measured == {
        ("test", 8): (2, 2), ("test", 24): (6, 6), ("heldout_fonts", 16): (4, 4),
        ("minival", 8): (2, 2), ("minival", 24): (6, 6),
    }  # fmt: skip
    # Larger than in training, the same images shrunk to that too.
    assert {(row.split, row.resolution, row.shrunk, row.grid) for row in rows if row.shrunk is not None} == {
        ("test", 24, 16, (4, 4)), ("minival", 24, 16, (4, 4)),
    }  # fmt: skip
    assert sum(seen) == 70


def test_shrunk_images_are_those_of_their_size_made_smaller():
    one, source = model(), open_source("scenes")
    small, rows = shrunk(source, 16), measure(one, resolutions=(48,))
    example, large = small.example("test", 3, (48, 48)), source.example("test", 3, (48, 48))
    assert example.image.shape == (16, 16, 3)
    assert (example.target.pixels == large.target.pixels).all()
    assert np.abs(example.image - large.image.reshape(16, 3, 16, 3, 3).mean(axis=(1, 3))).mean() < 4
    (row,) = (row for row in rows if row.shrunk and row.metric == "top1")
    logits = said(one, small, "test", range(10), 48)
    right = (logits.logits.argmax(axis=1) == logits.labels).mean()
    assert (row.value, row.count, row.resolution) == (right, 10, 48)
    assert not any(row.shrunk for row in measure(one, resolutions=(48,), shrink=False))
    assert not any(row.slices for row in rows if row.shrunk)


def test_the_same_however_it_is_cut_into_batches(monkeypatch):
    from sightline.evaluation import predict

    one = model()
    whole = said(one, open_source("scenes"), "test", range(10), 16)
    rows = measure(one)
    monkeypatch.setattr(predict, "_TOKENS_A_BATCH", 16 * 3)
    parts = list(predict.predict_split(one, task_of(one), open_source("scenes"), "test", range(10), 16))
    assert [one.batch.indices.tolist() for one in parts] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    cut = said(one, open_source("scenes"), "test", range(10), 16)
    np.testing.assert_allclose(cut.logits, whole.logits, atol=2e-5)
    assert (cut.labels == whole.labels).all()
    assert cut.slices == whole.slices
    assert {"group", "size"} <= {name for slices in whole.slices for name in slices}
    # Sums of scores end in other last digits.
    for row, before in zip(measure(one), rows, strict=True):
        assert row.value == pytest.approx(before.value, abs=1e-5)
        assert dataclasses.replace(row, seconds=0, value=0, stderr=0) == dataclasses.replace(
            before, seconds=0, value=0, stderr=0
        )


def test_classes_are_matched_by_name():
    """A model that was trained on other classes in another order answers with its own labels."""
    source = open_source("digits")
    names = (*"9876543210", "ten")
    one = model("digits", num_classes=11, class_names=names)
    rows = measure(one, "digits", images=50)
    given = said(one, source, "test", spread_indices(source, "test", 50), 16)
    each = list(zip(given.logits, given.labels, strict=True))
    right = [names[row.argmax()] == source.classes[label] for row, label in each]
    assert next(row.value for row in rows if row.metric == "top1") == pytest.approx(np.mean(right))
    plain = model("digits", num_classes=11, class_names=None)
    right = [row.argmax() == label for row, label in each]
    assert next(row.value for row in measure(plain, "digits", images=50)) is not None
    assert measure(plain, "digits", images=50)[0].value == pytest.approx(np.mean(right))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_classes": 9, "class_names": None}, "data 'digits': has 10 classes, the model's head 9"),
        ({"num_classes": 0, "class_names": None}, "has 10 classes, the model's head 0"),
        ({"num_classes": 10, "class_names": tuple("012345678x")}, "class of the model '9' is not known"),
    ],
)
def test_classes_that_the_model_lacks(options, words):
    with pytest.raises(InputError) as error:
        measure(model("digits", **options), "digits")
    assert words in str(error.value)


def test_a_size_that_the_patch_does_not_divide():
    seen = []
    with pytest.raises(InputError, match=r"18.*\b20\b"):
        measure(model(), resolutions=(16, 18), advance=seen.append)
    assert seen == []
    with pytest.raises(InputError, match=r"resolution 3"):
        check_sizes(model(), [3])
    for fit, grid in (("pad", (5, 5)), ("resize", (4, 4))):
        (row, *_) = measure(model(fit=fit), resolutions=(18,))
        assert (row.resolution, row.grid) == (18, grid)


@pytest.mark.parametrize("fit", ["pad", "resize", "crop"])
def test_rows_name_the_grid_that_the_model_saw(fit):
    made, seen = model(fit=fit), []
    made.register_forward_pre_hook(lambda _, __, named: seen.append(named["layout"].segments[0].grid), with_kwargs=True)
    # 22 pixels hold five patches of 4 and two pixels more; 23 hold three more.
    for side in (22, 23):
        seen.clear()
        (row, *_) = measure(made, resolutions=(side,))
        assert row.grid == seen[0] == made.config.grid_of(side)
    assert made.config.grid_of(23) == {"pad": (6, 6), "resize": (6, 6), "crop": (5, 5)}[fit]


def test_a_side_without_a_whole_patch_is_refused_before_anything_is_measured():
    seen = []
    with pytest.raises(InputError, match="3x3 pixels"):
        measure(model(fit="crop"), resolutions=(16, 3), advance=seen.append)
    assert seen == []


def test_logits_that_are_not_finite():
    one = model()
    with torch.no_grad():
        one.head.bias[3] = float("inf")
    with pytest.raises(NonFiniteError, match=r"scenes/glyphs/test/0"):
        measure(one)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"splits": ("tset",)}, "split of scenes 'tset' is not known; did you mean 'test'?"),
        ({"splits": ("train",), "images": None}, "expected a number for an endless split"),
    ],
)
def test_what_is_refused(config, words):
    with pytest.raises(InputError) as error:
        measure(model(), **config)
    assert words in str(error.value)


def test_how_many_are_measured():
    config = EvaluateConfig((16,), images=2000, images_beyond=(64, 300))
    assert [config.count(10_000, side) for side in (16, 64, 65)] == [2000, 2000, 300]
    assert config.count(100, 148) == 100
    assert EvaluateConfig((16,)).count(123, 16) == 123
    assert (default_image_count(open_source("scenes")), default_image_count(open_source("digits"))) == (2000, None)


def test_some_images_of_a_folder_are_of_all_its_classes(tmp_path):
    """Sorted by class, the first ones would be of the first class alone; drawn scenes are mixed as they are."""
    for number in range(12):
        folder = tmp_path / "test" / "abc"[number // 4]
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(folder / f"{number}.png")
    source = open_source(f"imagefolder:{tmp_path}")
    assert [source.example("test", one, (8, 8)).target.label for one in spread_indices(source, "test", 3)] == [0, 1, 2]
    for count in range(1, 13):
        assert len(set(spread_indices(source, "test", count))) == count
    assert list(spread_indices(source, "test", 12)) == list(spread_indices(source, "test", 99))[:12] == list(range(12))
    assert spread_indices(open_source("scenes"), "test", 5) == range(5)


@pytest.fixture
def folder(tmp_path):
    """A test split of two classes, all images of other sizes and aspects."""
    for number, size in enumerate([(8, 16), (16, 8), (12, 40), (24, 24), (16, 16), (9, 30)]):
        there = tmp_path / "data" / "test" / "ab"[number % 2]
        there.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (*size, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(there / f"{number}.png")
    return f"imagefolder:{tmp_path / 'data'}"


def test_images_are_measured_at_their_own_aspect(folder):
    """Beside squares; with the answers that each image gets alone, and the patches that it then has."""
    one = model(folder)
    views = (View("native"), View("native", 10), View("tokens", 30))
    seen = []
    rows = measure(one, folder, resolutions=(16, *views), advance=seen.append)
    assert {(row.view, row.resolution, row.grid) for row in rows} == {
        ("square", 16, (4, 4)), ("native", None, None), ("max:10", None, None), ("tokens:30", None, None),
    }  # fmt: skip
    assert {row.view: row.patches for row in rows}["native"] == np.mean([8, 8, 30, 36, 16, 16])
    assert {row.view: row.patches for row in rows}["square"] == 16
    assert sum(seen) == 24
    source = open_source(folder)
    whole = source.prepared(one.config.interpolation, None)
    for view in views:
        given = said(one, source, "test", range(6), view)
        for index, name in enumerate(given.names):
            grid = view.grid(source.stored_size("test", index), 4)
            pixels = whole.example("test", index, (4 * grid.rows, 4 * grid.cols)).image
            with torch.inference_mode():
                alone = one(preprocessing(one).normalise(pixels)[None])[0]
            np.testing.assert_allclose(given.logits[index], alone.numpy(), atol=2e-5)
            assert name == source.example_name("test", index)


def test_the_knob_is_searched_at_the_view(folder, tmp_path):
    for name in ("a", "b"):
        there = tmp_path / "data" / "minival" / name
        there.mkdir(parents=True)
        Image.new("RGB", (9, 20), (name == "a" and "red") or "blue").save(there / "1.png")
    rows = measure(model(folder), folder, resolutions=(View("native"),), knobs="both")
    assert {(row.view, row.tuned) for row in rows} == {("native", False), ("native", True)}


def test_what_is_drawn_at_any_size_has_none_of_its_own():
    with pytest.raises(InputError, match=r"max:9: scenes.*tokens"):
        measure(model(), resolutions=(View("native", 9),))
    rows = measure(model(), resolutions=(View("tokens", 9),))
    assert {row.view for row in rows} == {"tokens:9"}
    # Their confusable groups are known all the same.
    assert any("group" in row.slices for row in rows)


def test_rows_of_a_view_replace_their_own_kind_alone(folder, tmp_path):
    rows = measure(model(folder), folder, resolutions=(16, View("native")))
    square, native = (row for row in rows if row.metric == "top1" and not row.slices)
    fresh = dataclasses.replace(native, value=0.25)
    assert merge_rows([square, native], [fresh]) == [square, fresh]
    (tmp_path / "rows").write_text(dump_rows([square, native]))
    assert read_rows(tmp_path / "rows") == [square, native]


def test_rows_written_before_are_squares(tmp_path):
    old = json.loads(dump_rows(measure(model())[:1]))
    del old["view"], old["patches"]
    (tmp_path / "rows").write_text(json.dumps(old) + "\n")
    (row,) = read_rows(tmp_path / "rows")
    assert (row.view, row.patches, row.grid) == ("square", 16, (4, 4))


def test_a_packed_run_is_tested_as_it_was_trained(folder):
    source = open_source(folder)
    scenes = open_source("scenes")

    def views(given=source, side=16, **packing):
        found = training_views(PackingConfig(**packing), side, 4, given, "test")
        # A saved record says the same.
        assert training_views(dataclasses.asdict(PackingConfig(**packing)), side, 4, given, "test") == found
        return [view.name for view in found]

    assert training_views(None, 16, 4, source, "test") == ()
    assert views(aspect="square") == []
    assert views(tokens=1024) == ["native"]
    assert views(tokens=1024, most_tokens=100) == ["max:100"]
    assert views(scenes, most_tokens=100) == ["tokens:100"]
    assert views(resolutions=(8, 24)) == ["tokens:16", "tokens:4", "tokens:36"]
    assert views(resolutions=(8, 24), side=224) == ["tokens:16", "tokens:4", "tokens:36"]
    assert views(resolutions=(8, 24), most_tokens=20) == ["tokens:16", "tokens:4", "tokens:20"]
