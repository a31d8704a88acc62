"""Images at token budgets: how they are shown, and that each is answered as it would be alone."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
import torch
from PIL import Image

from sightline.data.discovery import open_source
from sightline.data.sampling import budget_grid
from sightline.errors import NonFiniteError
from sightline.evaluation.budgets import plan_budget, predict_budget
from sightline.models import create_model
from sightline.tasks.classification import to_model_input
from tests.contract.randomise import randomise_parameters

ENCODINGS = ("lookhere_90", "rope_mixed+learned_2d")


def model(encoding="lookhere_90", **options):
    options = {"depth": 2, "dim": 48, "heads": 4, "num_classes": 24, **options}
    built = create_model("vit_micro_patch4", encoding=encoding, **options)
    return randomise_parameters(built).eval()


@pytest.mark.parametrize("budget", [1, 2, 16, 37, 256])
def test_at_most_the_budget_and_the_aspect_kept(budget):
    for height, width in ((480, 640), (640, 480), (100, 100), (3, 9), (2000, 1000)):
        grid = budget_grid((height, width), 16, budget)
        assert 1 <= grid.cells <= budget
        if budget >= 16:
            assert abs(math.log(grid.rows / grid.cols) - math.log(height / width)) < 0.3
            # An aspect that fits exactly goes before a fuller grid: 4 x 2 of 16 patches.
            assert grid.cells >= budget / 2


def test_small_images_are_made_larger():
    assert budget_grid((16, 16), 16, 64) == (8, 8)
    assert budget_grid((1600, 1600), 16, 64) == (8, 8)


def test_square():
    planned = plan_budget(open_source("scenes"), "test", range(40), 64, 4, "square")
    assert {one.shown.grid for batch in planned for one in batch} == {(8, 8)}


def test_every_image_once_and_a_grid_a_batch():
    source = open_source("scenes")
    batches = plan_budget(source, "test", range(5, 305), 36, 4, tokens_a_batch=200)
    assert sorted(one.index for batch in batches for one in batch) == list(range(5, 305))
    for batch in batches:
        assert len({one.shown.grid for one in batch}) == 1
        assert len(batch) * batch[0].shown.grid.cells <= 200
    grids = {batch[0].shown.grid for batch in batches}
    assert len(grids) > 5
    # Both ways up, and full as far as whole images go.
    assert {grid.rows > grid.cols for grid in grids} == {True, False}
    assert len(batches) <= len(grids) + sum(one.shown.grid.cells for batch in batches for one in batch) / (200 - 36)


def test_an_image_beyond_a_batch_goes_alone():
    batches = plan_budget(open_source("scenes"), "test", range(4), 64, 4, tokens_a_batch=10)
    assert [len(batch) for batch in batches] == [1] * 4


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("pool", ["cls", "mean", "attention"])
def test_logits_are_those_of_each_image_alone(encoding, pool):
    source, built = open_source("scenes"), model(encoding, pool=pool)
    indices = range(7, 31)
    said = predict_budget(built, source, "test", indices, 30)
    planned = {one.index: one.shown.grid for batch in plan_budget(source, "test", indices, 30, 4) for one in batch}
    spread = 0.0
    for place, index in enumerate(indices):
        rows, cols = planned[index]
        example = source.example("test", index, (4 * rows, 4 * cols))
        pixels = torch.from_numpy(example.image.transpose(2, 0, 1).copy()).unsqueeze(0)
        with torch.inference_mode():
            alone = built(to_model_input(pixels, built.config.mean, built.config.std, torch.device("cpu")))[0].numpy()
        assert said.labels[place] == example.label
        assert said.tokens[place] == rows * cols
        np.testing.assert_allclose(said.logits[place], alone, atol=2e-5, rtol=0)
        spread = max(spread, float(np.abs(said.logits[place] - said.logits[0]).max()))
    assert spread > 0.1


def test_times_and_workers():
    source, built = open_source("scenes"), model()
    done = []
    started = time.perf_counter()
    said = predict_budget(built, source, "test", range(40), 16, advance=done.append)
    # The parts are no more than the whole.
    assert said.seconds.sum() + 40 * said.reading < time.perf_counter() - started
    assert sum(done) == 40
    assert (said.seconds > 0).all()
    assert said.reading > 0
    again = predict_budget(built, source, "test", range(40), 16, workers=1)
    assert np.array_equal(said.logits, again.logits)
    # Images that shared a batch share its time.
    assert len(set(said.seconds.tolist())) == len(plan_budget(source, "test", range(40), 16, 4))


def test_stored_images_keep_their_own_aspect(tmp_path):
    for number, size in enumerate([(60, 20), (20, 60), (8, 8)]):
        folder = tmp_path / "test" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, (9 * number, 0, 0)).save(folder / f"{number}.png")
    source = open_source(f"imagefolder:{tmp_path}")
    planned = {one.index: one.shown.grid for batch in plan_budget(source, "test", range(3), 12, 4) for one in batch}
    # In the order of the paths: a/0, a/2, b/1; a size is (width, height) to Pillow.
    assert planned == {0: (2, 6), 1: (3, 3), 2: (6, 2)}
    said = predict_budget(model(), source, "test", range(3), 12)
    assert said.tokens.tolist() == [12, 9, 12]


def test_a_logit_that_is_not_finite_is_named():
    built = model()
    with torch.no_grad():
        built.get_parameter("head.weight").fill_(float("inf"))
    with pytest.raises(NonFiniteError, match=r"scenes/glyphs/test/\d+ with \d+ tokens: the logits are not finite"):
        predict_budget(built, open_source("scenes"), "test", range(4), 16)
