"""Runs on augmented images: they go on to the bit, and what cannot be is refused before they begin."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from sightline.data.pack_plan import epoch_order
from sightline.data.sources.scenes import Scenes
from sightline.errors import InputError
from sightline.io.config import build_config, merge
from sightline.models import model_config
from sightline.training import TrainConfig
from sightline.training.plan import training_plan
from tests.tiny import nested, tiny_config
from tests.training.test_goes_on import AUGMENT


def test_a_file_and_single_settings_say_what_is_done():
    def config(*settings):
        return build_config(
            TrainConfig, merge({"augment": AUGMENT, "parts": "simple", "repeats": 3}, nested(*settings)), "train"
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
