"""Runs on augmented images: they go on to the bit, and what cannot be is refused before they begin."""

from __future__ import annotations

import dataclasses
import itertools
import json

import pytest
import torch

from sightline.data.pack_plan import epoch_order
from sightline.data.sources.scenes import Scenes
from sightline.errors import InputError
from sightline.io.config import build_config
from sightline.models import model_config
from sightline.runs.settings import apply_settings
from sightline.training import TrainConfig
from sightline.training.plan import training_plan
from sightline.training.resume_checks import check_same_config
from sightline.training.setup import resolve_config
from tests.tiny import Stopped, log_lines, pictures, stop_at, tiny_config, train, weights

AUGMENT = {
    "three_augment": {},
    "colour_jitter": {"hue": 0.1},
    "rand_augment": {"operations": 1},
    "random_erasing": {"chance": 0.5},
}


def test_stopped_and_resumed_it_ends_as_one_that_was_not(tmp_path):
    """With workers, and without."""
    config = tiny_config(
        data=pictures(tmp_path / "images", count=5), images=25, batch_size=4, checkpoint_every=4,
        augment=AUGMENT, parts="simple", repeats=2,
    )  # fmt: skip
    train(config, tmp_path / "whole")
    with pytest.raises(Stopped):
        train(dataclasses.replace(config, workers=1), tmp_path / "a", observe=stop_at(4))
    train(config, tmp_path / "a", resume=True)
    assert weights(tmp_path / "a") == weights(tmp_path / "whole")
    assert log_lines(tmp_path / "a") == log_lines(tmp_path / "whole")


def test_a_run_goes_on_with_the_same_augmentations_in_the_same_order(tmp_path):
    config = tiny_config(augment={"three_augment": {}, "colour_jitter": {"hue": 0.1}})
    saved = json.loads(json.dumps(dataclasses.asdict(config)))
    check_same_config(saved, config, tmp_path)
    for augment, words in (
        ({"colour_jitter": {"hue": 0.1}, "three_augment": {}}, r"augment \['three_augment', 'colour_jitter'\], not"),
        ({"three_augment": {}, "colour_jitter": {"hue": 0.2}}, r"augment.colour_jitter.hue 0.1, not 0.2"),
        ({"three_augment": {}}, "augment.colour_jitter"),
        ({}, "augment.three_augment"),
    ):
        with pytest.raises(InputError, match=words):
            check_same_config(saved, dataclasses.replace(config, augment=augment), tmp_path)


def test_a_file_and_single_settings_say_what_is_done():
    def config(*settings):
        return build_config(
            TrainConfig, apply_settings({"augment": AUGMENT, "parts": "simple", "repeats": 3}, settings), "train"
        )

    assert (config().augment, config().parts, config().repeats) == (AUGMENT, "simple", 3)
    assert list(config().augment) == list(AUGMENT)
    assert config("augment.colour_jitter.hue=0.2").augment["colour_jitter"] == {"hue": 0.2}
    assert config("parts=0.5").parts == 0.5
    for setting, words in (
        ("augment={three_augmnt: {}}", "did you mean 'three_augment'"),
        ("augment.colour_jitter.hues=0.2", "did you mean 'hue'"),
        ("augment=[three_augment]", "augment"),
        ("parts=true", "parts = true"),
        ("parts=simpel", "parts"),
    ):
        with pytest.raises(InputError, match=words):
            config(setting)


@pytest.mark.parametrize(("task", "head"), [("segmentation", "pix"), ("detection", "fcos")])
def test_what_moves_the_picture_is_refused_where_places_are_learnt(task, head):
    options = {"task": task, "task_options": {"head": head}, "data": "scenes:pairs"}
    cpu = torch.device("cpu")
    with pytest.raises(InputError, match=rf"augment.rand_augment: moves what is seen, and .* of task {task}"):
        resolve_config(tiny_config(augment=AUGMENT, **options), Scenes("pairs"), cpu)
    still = {name: own for name, own in AUGMENT.items() if name != "rand_augment"}
    assert resolve_config(tiny_config(augment=still, **options), Scenes("pairs"), cpu).augment == still


def places(config, length):
    """(index, draws) of the images of each step."""

    class Folder(Scenes):
        def length(self, split):
            return length

    model = model_config("vit_micro_patch4", **config.model_options, image_size=16)
    return [[(one.index, one.epoch) for one in images] for _, images in training_plan(config, model, Folder()).steps(0)]


def test_repeats_show_an_image_in_a_row_with_other_draws():
    config = tiny_config(images=20, batch_size=6, repeats=3, seed=4)
    steps = places(config, 8)
    assert [len(step) for step in steps] == [6, 2, 6, 2, 4]
    for epoch, passed in enumerate((steps[:2], steps[2:4])):
        order = epoch_order(8, 4, epoch)
        expected = [(int(order[place // 3]), 3 * epoch + place % 3) for place in range(8)]
        assert list(itertools.chain(*passed)) == expected
    # No image is ever seen with draws that it was seen with.
    assert len(set(itertools.chain(*steps))) == 20
    assert places(dataclasses.replace(config, repeats=1), 8)[0] == [(int(i), 0) for i in epoch_order(8, 4, 0)[:6]]
    endless = places(config, None)
    assert list(itertools.chain(*endless)) == [(place // 3, place % 3) for place in range(20)]
