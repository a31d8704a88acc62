"""Which images a step sees, and at what rate: nothing lost, nothing twice, never above the highest rate."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.data.packs import epoch_order
from sightline.errors import InputError
from sightline.models.create import model_config
from sightline.training.config import TrainConfig
from sightline.training.optim import learning_rate
from sightline.training.plan import DEFAULT_IMAGES, Plan, planned_length

plans = st.builds(
    Plan, images=st.integers(1, 400), batch_size=st.integers(1, 70), length=st.none() | st.integers(1, 130)
)


@given(plans)
def test_the_steps_add_up(plan):
    """The images of all steps, step by step, are the images of the run; and `images_seen` counts them."""
    seen = 0
    for step in range(plan.steps):
        assert plan.images_seen(step) == seen
        epoch, inside = plan.locate(step)
        rest = plan.epoch_images(epoch) - inside * plan.batch_size
        assert rest > 0
        seen += min(plan.batch_size, rest)
    assert seen == plan.images == plan.images_seen(plan.steps)


@given(plans, st.integers(0, 3))
def test_every_image_of_a_whole_pass_is_seen_once(plan, seed):
    if plan.length is None:
        return
    passes: dict[int, list[int]] = {}
    for step in range(plan.steps):
        epoch, inside = plan.locate(step)
        order = epoch_order(plan.length, seed, epoch)[: plan.epoch_images(epoch)]
        passes.setdefault(epoch, []).extend(order[inside * plan.batch_size :][: plan.batch_size])
    *whole, last = passes.values()
    for one in whole:
        assert sorted(one) == list(range(plan.length))
    assert len(set(last)) == len(last)
    assert sum(map(len, passes.values())) == plan.images


@given(st.integers(1, 500), st.floats(0, 0.99), st.floats(1e-6, 10))
def test_the_rate_stays_between_0_and_the_highest(steps, warmup, highest):
    rates = [learning_rate(step / steps, (step + 1) / steps, highest, warmup) for step in range(steps)]
    assert all(0 < rate <= highest for rate in rates)
    peak = rates.index(max(rates))
    assert rates[: peak + 1] == sorted(rates[: peak + 1])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert abs(peak - warmup * steps) <= 1.5


def test_the_rate_in_numbers():
    assert learning_rate(0.0, 0.01, 1.0, 0.1) == pytest.approx(0.1)
    assert learning_rate(0.09, 0.1, 1.0, 0.1) == 1.0
    assert learning_rate(0.1, 0.11, 1.0, 0.1) == 1.0
    assert learning_rate(0.55, 0.56, 1.0, 0.1) == pytest.approx(0.5)
    assert learning_rate(0.99, 1.0, 1.0, 0.1) == pytest.approx(0.5 * (1 - math.cos(math.pi / 90)))
    assert learning_rate(0.0, 0.01, 1.0, 0.0) == 1.0


def test_the_length_of_a_run():
    assert Plan.of(TrainConfig(epochs=1.5), 100).images == 150
    assert Plan.of(TrainConfig(epochs=0.001), 100).images == 1
    assert Plan.of(TrainConfig(images=7), 100).images == 7
    assert Plan.of(TrainConfig(), None).images == DEFAULT_IMAGES
    with pytest.raises(InputError, match=r"epochs 2\.0: data 'scenes' is endless"):
        Plan.of(TrainConfig(epochs=2.0), None)


@pytest.mark.parametrize(("fit", "patches"), [("resize", 64), ("crop", 64), ("pad", 81)])
def test_found_11_a_budget_counts_the_patches_that_the_model_sees(fit, patches):
    model = model_config("vit_micro_patch4", patch_size=8, image_size=64, fit=fit)
    config = TrainConfig(data="scenes", resolution=67, tokens=1000 * (patches + model.num_prefix_tokens))
    assert planned_length(config, model, None).images == 1000
