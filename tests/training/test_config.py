"""What a run's configuration refuses by itself, whoever makes it."""

from __future__ import annotations

import pytest
import torch

from sightline import save_model
from sightline.data.open import open_source
from sightline.errors import InputError
from sightline.models import create_model
from sightline.recipes import default_recipe
from sightline.recipes.demo import ENCODINGS, RESOLUTIONS, demo_jobs
from sightline.training import setup
from sightline.training.config import DEFAULT_MODEL, TrainConfig
from tests.tiny import train


@pytest.mark.parametrize("data", ["scenes", "scenes:pairs", "digits", "imagefolder:some/where", "unheard-of"])
def test_recipes_are_for_the_data_that_was_asked_for(data):
    assert default_recipe(data).data == data


def test_the_jobs_of_the_demonstration(tmp_path):
    jobs = demo_jobs(tmp_path, seed=3, quick=False, cores=2)
    assert ENCODINGS == ("lookhere_90", "rope_axial", "learned_1d")
    assert RESOLUTIONS == (20, 24, 32, 44, 56, 64, 108, 148)
    assert [job.train.encoding for job in jobs] == list(ENCODINGS)
    assert [job.out for job in jobs] == [tmp_path / name for name in ENCODINGS]
    for job in jobs:
        assert (job.train.model or DEFAULT_MODEL, job.train.seed, job.train.data) == ("vit_micro_patch4", 3, "scenes")
        assert (job.train.images or 48_000, job.threads) == (48_000, 1)
        assert job.evaluate.resolutions == RESOLUTIONS
        assert job.evaluate.knobs == "tuned"
        assert [job.evaluate.count(10_000, side) for side in (20, 64, 108, 148)] == [1000, 1000, 300, 300]
        assert set(job.evaluate.splits) == {"test", "heldout_fonts"}
    assert demo_jobs(tmp_path, seed=0, quick=False, cores=12)[0].threads == 4
    quick = demo_jobs(tmp_path, seed=3, quick=True, cores=2)
    # What 90 s on two cores allow, whole as they are tested.
    assert {(job.train.model_options["depth"], job.train.batch_size) for job in quick} == {(2, 16)}
    assert all("depth" not in job.train.model_options for job in jobs)
    assert [(job.train.images, job.train.parts, job.evaluate.knobs) for job in quick] == [(8_960, None, "default")] * 3
    assert [job.evaluate.resolutions for job in quick] == [RESOLUTIONS] * 3


def test_the_jobs_of_the_demonstration_of_segmentation(tmp_path):
    jobs = demo_jobs(tmp_path, seed=3, quick=False, cores=2, task="segmentation")
    assert [job.train.encoding for job in jobs] == list(ENCODINGS)
    for job in jobs:
        assert (job.train.task, job.train.data, job.train.images) == ("segmentation", "scenes:pairs", 12_800)
        assert {data: config.sides for data, config in job.measured.items()} == {
            "scenes:pairs": (32, 64, 108), "scenes:search": (32, 64, 96, 128),
        }  # fmt: skip
        assert all(config.shrink for config in job.measured.values())
    quick = demo_jobs(tmp_path, seed=3, quick=True, cores=2, task="segmentation")
    assert [config.count(10_000, 96) for config in quick[0].measured.values()] == [6, 6]
    with pytest.raises(InputError, match="'segmentation'"):
        demo_jobs(tmp_path, seed=3, quick=True, cores=2, task="segmentaton")


def test_a_foundation_that_was_replaced_is_read_again(tmp_path):
    """In one process, as in a notebook."""
    small = {"depth": 1, "dim": 48, "heads": 4, "num_classes": 3, "image_size": 16}
    config = TrainConfig(data="digits", init_from=str(tmp_path / "m"), encoding="none")
    for number in range(2):
        model = create_model("vit_micro_patch4", encoding="none", **small)
        save_model(model, tmp_path / "m")
        found = setup._foundation(config)
        assert torch.equal(found.blocks[0].mlp.fc1.weight, model.blocks[0].mlp.fc1.weight), number


def test_a_source_that_is_given_is_shown_as_the_run_says(tmp_path):
    """Else a run would say that it saw parts, and have seen the whole."""
    options = {"depth": 1, "dim": 48, "heads": 4}
    config = TrainConfig(parts=0.35, images=8, batch_size=8, resolution=16, model_options=options, validation=None)
    opened, given = train(config, tmp_path / "a"), train(config, tmp_path / "b", source=open_source("scenes"))
    assert all(torch.equal(a, b) for a, b in zip(opened.parameters(), given.parameters(), strict=True))
