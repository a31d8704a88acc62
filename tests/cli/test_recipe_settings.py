"""What is asked for beside a recipe has its effect, and nothing of the recipe stays that goes with another choice."""

from __future__ import annotations

import pytest

from sightline.cli.run_config import training_config
from sightline.errors import InputError
from sightline.hub.load import save_model
from sightline.models import create_model
from tests.tiny import Unmeasured, nested


def asked(*settings, recipe, **flags):
    return training_config(None, flags | nested(*settings), recipe, data=Unmeasured())


@pytest.mark.parametrize(
    ("recipe", "side", "sides", "share"),
    [("navit_imagefolder", 64, (32, 64), (64 / 224) ** 2), ("navit_pretrain", 112, (32, 128), 1 / 4)],
)
def test_the_sizes_of_packs_follow_the_resolution(recipe, side, sides, share):
    usual, changed = asked(recipe=recipe), asked(recipe=recipe, resolution=side)
    assert changed.resolution == side
    assert changed.packing.resolutions == sides
    assert changed.packing.tokens == pytest.approx(usual.packing.tokens * share, abs=1)
    if usual.packing.most_tokens:
        assert changed.packing.most_tokens == round(usual.packing.most_tokens * share)


def test_the_sizes_of_packs_follow_the_model():
    """64 px in patches of 8 have as many tokens as 128 px in patches of 16."""
    usual = asked(recipe="navit_imagefolder")
    changed = asked(recipe="navit_imagefolder", model="vit_tiny_patch8")
    assert changed.packing.resolutions == (112, 224)
    assert changed.packing.tokens == 4 * usual.packing.tokens
    small = asked(recipe="navit_imagefolder", model="vit_micro_patch4")
    assert small.packing.resolutions == (16, 32)
    assert small.packing.tokens == pytest.approx(usual.packing.tokens * (8 / 14) ** 2, abs=1)


def test_moments_go_with_their_optimizer():
    other = asked("optimizer.name=sgd", recipe="vit_imagenet").optimizer
    assert (other.betas, other.eps, other.momentum) == (None, None, 0.9)
    with pytest.raises(InputError, match=r"optimizer\.momentum"):
        asked("optimizer.momentum=0.5", recipe="vit_imagenet")
    linear = asked("optimizer.schedule=linear", recipe="navit_pretrain").optimizer
    assert linear.timescale is None
    assert asked("optimizer.timescale=500", recipe="navit_pretrain").optimizer.timescale == 500
    assert asked("optimizer.schedule=constant", recipe="deit3_400ep").optimizer.final_lr == 0


def test_what_hangs_on_the_recipe_is_checked_with_it(tmp_path):
    assert asked("accumulate=64", recipe="deit3_400ep").accumulate == 64
    save_model(create_model("vit_micro_patch4", num_classes=2, image_size=16, depth=1, dim=48, heads=4), tmp_path / "m")
    tuned = asked("optimizer.momentum=0.8", recipe="vit_finetune", init_from=str(tmp_path / "m"))
    assert (tuned.optimizer.name, tuned.optimizer.momentum) == ("sgd", 0.8)
    # The recipe says how a mean that is asked for is made.
    mean = asked("optimizer.ema=0.9", recipe="vit_finetune", init_from=str(tmp_path / "m"))
    assert mean.optimizer.ema_warmup is False
