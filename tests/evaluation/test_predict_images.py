"""Answers of image files in packs: those of each alone, in order, with no more in memory than a pack."""

from __future__ import annotations

import os
import weakref
from itertools import chain

import numpy as np
import pytest
import torch
from PIL import Image

import sightline
from sightline.data.image_file import read_picture
from sightline.data.open import open_source
from sightline.data.sizes import View
from sightline.data.skip_policy import Unreadable
from sightline.evaluation import EvaluateConfig, evaluate
from sightline.evaluation import predict_images as module
from sightline.evaluation.measure import RunInfo
from sightline.evaluation.predict_images import Predicted, Unpredicted, predict_images
from sightline.models import create_model
from sightline.results.predictions import Prediction
from sightline.tasks.base import task_of
from sightline.tasks.classification import scores_of
from tests.contract.randomise import randomise_parameters
from tests.tiny import INPUTS

SIZES = [(33, 20), (1, 90), (8, 8), (64, 64), (3, 3), (20, 33), (47, 61), (90, 1), (8, 8), (128, 120)]


@pytest.fixture(params=["lookhere_90", "rope_axial", "learned_1d"])
def model(request, randomise):
    made = sightline.create_model(
        "vit_micro_patch4", encoding=request.param, num_classes=7, image_size=16, depth=2, dim=48, heads=4
    )
    return randomise(made).eval()


@pytest.fixture
def files(tmp_path):
    """Images of all shapes; the last is larger than some budgets."""
    rng = np.random.default_rng(0)
    paths = []
    for number, (height, width) in enumerate(SIZES):
        paths.append(str(tmp_path / f"{number}.png"))
        Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(paths[-1])
    return paths


def passes(model):
    """A list that each forward pass adds the images of its pack to, as their numbers of patches."""
    seen = []

    def watched(_, given, named):
        layout = named["layout"]
        assert given[0].shape[:2] == (1, layout.slots - layout.images * layout.num_prefix_tokens)
        seen.append([segment.patches for segment in layout.segments])

    model.register_forward_pre_hook(watched, with_kwargs=True)
    return seen


def answered(model, files, *arguments, **options):
    return predict_images(model, task_of(model), files, *arguments, **options)


@pytest.mark.parametrize("budget", [1, 60, 300, 4096])
@pytest.mark.parametrize("resolution", ["native", (12, 20)])
def test_as_if_alone(budget, resolution, model, files):
    prepare = sightline.preprocessing(model)
    outcomes = [one for part in answered(model, files, resolution, tokens_a_pack=budget) for one in part]
    assert [one.image for one in outcomes] == files
    for one, path, size in zip(outcomes, files, SIZES, strict=True):
        tensor = prepare(path, resolution)
        with torch.inference_mode():
            alone = model(tensor[None])[0]
        assert alone.std() > 0.01
        torch.testing.assert_close(one.output, alone, atol=2e-5, rtol=0)
        assert one.size == size
        assert one.seen_size == tensor.shape[1:]
        assert one.grid == (tensor.shape[1] // 4, tensor.shape[2] // 4)


def test_packs_are_filled_and_never_overfilled(model, files):
    seen = passes(model)
    parts = list(answered(model, files, tokens_a_pack=300))
    prefix = model.num_prefix_tokens
    assert [[one.grid.cells for one in part] for part in parts] == seen
    assert len(seen) > 2
    loads = [sum(count + prefix for count in pack) for pack in seen]
    assert all(load <= 300 or len(pack) == 1 for load, pack in zip(loads, seen, strict=True))
    # What came next would not have fitted.
    for load, following in zip(loads, seen[1:], strict=False):
        assert load + following[0] + prefix > 300
    # The last is larger than a pack, and goes alone.
    assert seen[-1] == [32 * 30]


def test_an_image_that_fills_a_pack_does_not_wait(model, files):
    """It is answered before the next is read."""
    exactly = 16 * 16 + model.num_prefix_tokens
    some = answered(model, iter([files[3], os.devnull]), tokens_a_pack=exactly)
    assert [one.image for one in next(some)] == [files[3]]


def test_bad_ones_stand_in_their_places(model, files):
    """Also those that the list knew to be bad, and one with nothing before it comes at once."""
    bad = str(INPUTS / "truncated.jpg")
    given = [bad, files[0], "nowhere.png", files[1], Unreadable("folder", "Permission denied"), files[2], bad]
    parts = list(answered(model, given, tokens_a_pack=4096))
    assert [len(part) for part in parts] == [1, 6]
    first, a, missing, b, folder, c, last = (one for part in parts for one in part)
    assert [one.image for one in (a, b, c)] == files[:3]
    assert all(isinstance(one, Predicted) for one in (a, b, c))
    assert (missing.image, missing.exit_code) == ("nowhere.png", 3)
    assert folder == Unpredicted("folder", "Permission denied", 3)
    assert first == last
    assert (first.image, first.exit_code) == (bad, 3)
    assert "truncated" in first.reason
    assert bad not in first.reason


def test_a_broken_answer_breaks_no_other(model, files, monkeypatch):
    """An image whose logits are not finite is named; its neighbours in the pack are answered as ever."""
    before = [one.output for one in next(answered(model, files[:3]))]
    real = module.collate_packed

    def poisoned(rows, *rest):
        return real([rows[0], torch.full(rows[1].shape, torch.nan), *rows[2:]], *rest)

    monkeypatch.setattr(module, "collate_packed", poisoned)
    a, b, c = next(answered(model, files[:3]))
    assert (type(b), b.image, b.exit_code) == (Unpredicted, files[1], 4)
    for one, alone in ((a, before[0]), (c, before[2])):
        torch.testing.assert_close(one.output, alone, atol=2e-5, rtol=0)


def test_pixels_do_not_pile_up(model, files, monkeypatch):
    """Of all images' own pixels at most one is there at a time, and no more is read ahead than a pack and one."""
    alive, most, read = set(), 0, 0

    def reading(path, **options):
        nonlocal most, read
        picture = read_picture(path, **options)
        alive.add(read)
        # No cycle may keep one until the collector comes.
        weakref.finalize(picture, alive.discard, read)
        most, read = max(most, len(alive)), read + 1
        return picture

    monkeypatch.setattr(module, "read_picture", reading)
    done = 0
    for part in answered(model, files * 3, tokens_a_pack=300):
        done += len(part)
        assert read <= done + 1
    assert (done, read) == (30, 30)
    assert most == 1


def test_no_images(model):
    assert list(answered(model, [])) == []


@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
@pytest.mark.parametrize("shown", [16, View("native"), View("native", 9), View("tokens", 20)], ids=str)
def test_evaluate_and_predict_say_the_same_of_a_file(shown, link, tmp_path):
    """One preparation, filter and crop as the model has them, and one way to read the logits as scores."""
    rng = np.random.default_rng(0)
    for name in ("ant", "bee"):
        (tmp_path / "test" / name).mkdir(parents=True)
        for number, size in enumerate([(21, 50), (90, 37), (9, 30)]):
            Image.fromarray(rng.integers(0, 256, (*size, 3), np.uint8)).save(tmp_path / f"test/{name}/{number}.png")
    made = create_model(
        "vit_micro_patch4", depth=1, dim=48, heads=4, num_classes=2, class_names=("ant", "bee"), image_size=16,
        interpolation="bilinear", crop=0.5, score_link=link,
    )  # fmt: skip
    made = randomise_parameters(made).eval()
    data = f"imagefolder:{tmp_path}"
    answers: list[Prediction] = []
    config = EvaluateConfig((shown,), precision="float32")
    evaluate(made, open_source(data), config, RunInfo("one", data, 16, 0), answers=answers)
    resolution, most = (shown.kind, shown.patches) if isinstance(shown, View) else (shown, None)
    files = [one.name for one in answers]
    assert len(files) == 6
    for found, said in zip(answers, chain(*answered(made, files, resolution, most)), strict=True):
        assert isinstance(said, Predicted)
        assert found.name == said.image
        assert found.score == pytest.approx(scores_of(said.output, link).max().item(), abs=1e-5)
        assert found.predicted == ("ant", "bee")[int(said.output.argmax())]
