"""What a model gives for a split: how images are shown at their own aspect, and that each is answered as if alone."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
import torch
from PIL import Image

from sightline.data.open import open_source
from sightline.data.preprocessing import preprocessing
from sightline.data.sizes import View, budget_grid
from sightline.errors import NonFiniteError
from sightline.evaluation import predict as module
from sightline.evaluation.cascade import StageScores
from sightline.evaluation.predict import plan_split, predict_split
from sightline.models import create_model
from sightline.tasks.base import task_of
from sightline.tokens.grid import Grid
from tests.batches import said
from tests.contract.randomise import randomise_parameters

ENCODINGS = ("lookhere_90", "rope_mixed+learned_2d")


def model(encoding="lookhere_90", **options):
    options = {"depth": 2, "dim": 48, "heads": 4, "num_classes": 24, **options}
    built = create_model("vit_micro_patch4", encoding=encoding, **options)
    return randomise_parameters(built).eval()


def planned(source, indices, budget, aspect="native"):
    """The batches of a plan, their images as (index, grid)."""
    batches = plan_split(model(), source, "test", indices, View("tokens", budget), aspect)
    for one in (one for batch in batches for one in batch):
        assert one.image_size[0] % 4 == one.image_size[1] % 4 == 0
        assert one.patch_indices is None
        assert one.tokens == one.image_size[0] * one.image_size[1] // 16
    return [[(one.index, Grid(one.image_size[0] // 4, one.image_size[1] // 4)) for one in batch] for batch in batches]


@pytest.mark.parametrize("budget", [1, 2, 16, 37, 256])
def test_at_most_the_budget_and_the_aspect_kept(budget):
    for height, width in ((480, 640), (640, 480), (100, 100), (3, 9), (2000, 1000)):
        grid = budget_grid((height, width), 16, budget)
        assert 1 <= grid.cells <= budget
        if budget >= 16:
            assert abs(math.log(grid.rows / grid.cols) - math.log(height / width)) < 0.3
            # An aspect that fits exactly goes before a fuller grid: 4 x 2 of 16 patches.
            assert grid.cells >= budget / 2


def test_every_image_once_and_a_grid_a_batch(monkeypatch):
    monkeypatch.setattr(module, "TOKENS_A_PACK", 200)
    batches = planned(open_source("scenes"), range(5, 305), 36)
    assert sorted(index for batch in batches for index, _ in batch) == list(range(5, 305))
    for batch in batches:
        assert len({grid for _, grid in batch}) == 1
        assert len(batch) * batch[0][1].cells <= 200
    grids = {batch[0][1] for batch in batches}
    assert len(grids) > 5
    # Both ways up, and full as far as whole images go.
    assert {grid.rows > grid.cols for grid in grids} == {True, False}
    assert len(batches) <= len(grids) + sum(grid.cells for batch in batches for _, grid in batch) / (200 - 36)


def test_an_image_beyond_a_batch_goes_alone(monkeypatch):
    monkeypatch.setattr(module, "TOKENS_A_PACK", 10)
    monkeypatch.setattr(module, "_TOKENS_A_BATCH", 10)
    assert [len(batch) for batch in planned(open_source("scenes"), range(4), 64)] == [1] * 4
    assert [len(batch) for batch in plan_split(model(), open_source("scenes"), "test", range(4), 32)] == [1] * 4


def test_images_with_many_outputs_go_a_few_at_a_time(monkeypatch):
    built, source = model(head="pix", task="segmentation", num_classes=3), open_source("scenes:pairs")
    # Of 64 patches of 16 pixels of 3 classes.
    monkeypatch.setattr(module, "_VALUES_A_BATCH", 2 * 3 * 32 * 32 + 1)
    assert [len(batch) for batch in plan_split(built, source, "test", range(5), 32)] == [2, 2, 1]
    assert max(len(batch) for batch in plan_split(built, source, "test", range(9), View("tokens", 64))) == 2
    assert [len(batch) for batch in plan_split(built, source, "test", range(5), 64)] == [1] * 5
    assert [len(batch) for batch in plan_split(model(), source, "test", range(5), 32)] == [5]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("pool", ["cls", "mean", "attention"])
def test_logits_are_those_of_each_image_alone(encoding, pool):
    source, built = open_source("scenes"), model(encoding, pool=pool)
    indices = range(7, 31)
    given = said(built, source, "test", indices, View("tokens", 30))
    grids = {index: grid for batch in planned(source, indices, 30) for index, grid in batch}
    spread = 0.0
    for place, index in enumerate(indices):
        rows, cols = grids[index]
        example = source.example("test", index, (4 * rows, 4 * cols))
        with torch.inference_mode():
            alone = built(preprocessing(built).normalise(example.image).unsqueeze(0))[0].numpy()
        assert given.labels[place] == example.target.label
        assert given.names[place] == example.name
        assert given.tokens[place] == rows * cols
        np.testing.assert_allclose(given.logits[place], alone, atol=2e-5, rtol=0)
        spread = max(spread, float(np.abs(given.logits[place] - given.logits[0]).max()))
    assert spread > 0.1


def test_times_and_workers():
    source, built = open_source("scenes"), model()
    task, view, done = task_of(built), View("tokens", 16), []
    started = time.perf_counter()
    parts = list(predict_split(built, task, source, "test", range(40), view, advance=done.append, warm=True))
    # The parts are no more than the whole.
    assert sum(one.seconds + one.reading for one in parts) < time.perf_counter() - started
    assert done == [len(one.batch) for one in parts]
    assert sum(done) == 40
    assert all(one.seconds > 0 and one.reading > 0 for one in parts)
    again = predict_split(built, task, source, "test", range(40), view, workers=1)
    for one, other in zip(parts, again, strict=True):
        assert torch.equal(one.outputs, other.outputs)
        assert torch.equal(one.batch.indices, other.batch.indices)
    # Images that shared a batch share its time.
    scored = StageScores.of(16, task, parts, range(40))
    assert scored.seconds.sum() == pytest.approx(sum(one.seconds for one in parts))
    assert scored.reading == pytest.approx(sum(one.reading for one in parts) / 40)
    assert len(set(scored.seconds.tolist())) == len(planned(source, range(40), 16))


def test_the_first_pass_is_seen_once_before_where_times_count():
    """And only then: what is not timed costs no pass more."""
    source, built = open_source("scenes"), model()
    for warm in (False, True):
        seen, images = [], 0
        hook = built.register_forward_hook(lambda _, __, given, seen=seen: seen.append(len(given)))
        for one in predict_split(built, task_of(built), source, "test", range(40), View("tokens", 16), warm=warm):
            images += len(one.batch)
        hook.remove()
        assert images == 40
        assert seen[1 if warm else 0 :] == [len(batch) for batch in planned(source, range(40), 16)]
        assert len(seen) < 2 or not warm or seen[0] == seen[1]


def test_stored_images_keep_their_own_aspect(tmp_path):
    for number, size in enumerate([(60, 20), (20, 60), (8, 8)]):
        folder = tmp_path / "test" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, (9 * number, 0, 0)).save(folder / f"{number}.png")
    source = open_source(f"imagefolder:{tmp_path}")
    grids = {index: grid for batch in planned(source, range(3), 12) for index, grid in batch}
    # In the order of the paths: a/0, a/2, b/1; a size is (width, height) to Pillow.
    assert grids == {0: (2, 6), 1: (3, 3), 2: (6, 2)}
    assert said(model(), source, "test", range(3), View("tokens", 12)).tokens.tolist() == [12, 9, 12]


def test_a_logit_that_is_not_finite_is_named():
    built = model()
    with torch.no_grad():
        built.get_parameter("head.weight").fill_(float("inf"))
    with pytest.raises(NonFiniteError, match=r"scenes/glyphs/test"):
        said(built, open_source("scenes"), "test", range(4), View("tokens", 16))
