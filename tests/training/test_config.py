"""What a run's configuration refuses by itself, whoever makes it."""

from __future__ import annotations

import pytest
import torch

from sightline.data.open import open_source
from sightline.recipes import default_recipe
from sightline.training.config import TrainConfig
from tests.tiny import train


@pytest.mark.parametrize("data", ["scenes", "scenes:pairs", "digits", "imagefolder:some/where", "unheard-of"])
def test_recipes_are_for_the_data_that_was_asked_for(data):
    assert default_recipe(data).data == data


def test_a_source_that_is_given_is_shown_as_the_run_says(tmp_path):
    """Else a run would say that it saw parts, and have seen the whole."""
    options = {"depth": 1, "dim": 48, "heads": 4}
    config = TrainConfig(parts=0.35, images=8, batch_size=8, resolution=16, model_options=options, validation=None)
    opened, given = train(config, tmp_path / "a"), train(config, tmp_path / "b", source=open_source("scenes"))
    assert all(torch.equal(a, b) for a, b in zip(opened.parameters(), given.parameters(), strict=True))
