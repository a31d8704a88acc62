"""What a model gives for a split: how images are shown at their own aspect, and that each is answered as if alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from sightline.data.open import open_source
from sightline.data.preprocessing import preprocessing
from sightline.data.sizes import View, budget_grid
from sightline.evaluation import predict as module
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
