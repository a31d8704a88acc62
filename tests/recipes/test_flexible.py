"""FlexiViT's runs: every size that they draw is one that their models have, and one step of each is taken."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from sightline.models import make_model, model_config
from sightline.recipes import recipe
from sightline.training.plan import with_patch_sizes
from tests.tiny import train


def test_the_sizes_of_the_paper():
    config = recipe("flexivit", "imagefolder:somewhere")
    assert config.patch_sizes.sizes == (48, 40, 30, 24, 20, 16, 15, 12, 10, 8)
    assert len(set(config.patch_sizes.shares)) == 1
    small = {**config.model_options, "depth": 1, "dim": 48, "heads": 2, "num_classes": 10}
    encoding = {"encoding": config.encoding, "encoding_options": config.encoding_options}
    model = make_model(model_config(config.model, **small, **encoding, image_size=config.resolution))
    models = with_patch_sizes(config, model.config)
    assert [one.grid_of(240) for one in models] == [(240 // side,) * 2 for side in config.patch_sizes.sizes]
    for side in (48, 20):
        model.set_patch_size(side)
        assert model(torch.randn(1, 3, 240, 240)).shape == (1, 10)


@pytest.mark.parametrize("images", [64])
def test_scenes(images, tmp_path):
    config = recipe("flexi_scenes")
    small = {**config.model_options, "depth": 1, "dim": 48, "heads": 4}
    train(dataclasses.replace(config, model_options=small, images=images, validation=None), tmp_path / "run")
    assert (tmp_path / "run" / "checkpoint").is_dir()
