"""Which images a step sees, and at what rate: nothing lost, nothing twice, never above the highest rate."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.data.pack_plan import epoch_order
from sightline.models.create import model_config
from sightline.training.config import OptimizerConfig, TrainConfig
from sightline.training.optim import learning_rate
from sightline.training.plan import EpochPlan, resolve_length

plans = st.builds(
    EpochPlan, images=st.integers(1, 400), batch_size=st.integers(1, 70), length=st.none() | st.integers(1, 130)
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


def rates_of(steps, **options):
    config = OptimizerConfig(**options)
    return [learning_rate(config, step, step / steps, (step + 1) / steps) for step in range(steps)]


@given(st.integers(1, 500), st.floats(0, 0.99), st.floats(1e-6, 10))
def test_the_rate_stays_between_0_and_the_highest(steps, warmup, highest):
    rates = rates_of(steps, lr=highest, warmup=warmup)
    assert all(0 < rate <= highest for rate in rates)
    peak = rates.index(max(rates))
    assert rates[: peak + 1] == sorted(rates[: peak + 1])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert abs(peak - warmup * steps) <= 1.5


@pytest.mark.parametrize("schedule", ["cosine", "linear", "rsqrt", "constant"])
def test_a_warm_up_in_steps_is_that_of_its_part_of_the_run(schedule):
    own = {"timescale": 30} if schedule == "rsqrt" else {}
    by_steps = rates_of(200, lr=2.0, warmup=50, cooldown=20, schedule=schedule, **own)
    by_part = rates_of(200, lr=2.0, warmup=0.25, cooldown=0.1, schedule=schedule, **own)
    assert by_steps == pytest.approx(by_part, rel=1e-12)
    assert by_steps[49] == by_steps[50] == 2.0


def test_schedules_in_numbers():
    linear = rates_of(100, lr=1.0, warmup=0.2, schedule="linear", final_lr=0.1)
    assert linear[60] == pytest.approx(0.55)
    cosine = rates_of(100, lr=1.0, warmup=20, final_lr=0.1)
    assert cosine[60] == pytest.approx(0.55)
    assert rates_of(100, lr=1.0, warmup=0.2, schedule="constant")[20:] == [1.0] * 80
    # Zhai et al. 2022, as big_vision's `rsqrt`: peak / sqrt(1 + steps since the warm-up / timescale).
    root = rates_of(1000, lr=1.0, warmup=100, cooldown=100, schedule="rsqrt", timescale=300)
    assert root[400] == pytest.approx(1 / math.sqrt(2))
    assert root[899] == pytest.approx(1 / math.sqrt(1 + 799 / 300))
    assert root[950] == pytest.approx(0.5 / math.sqrt(1 + 850 / 300))
    assert root[999] == pytest.approx(0.01 / math.sqrt(1 + 899 / 300))


@pytest.mark.parametrize(("fit", "patches"), [("resize", 64), ("crop", 64), ("pad", 81)])
def test_a_budget_counts_the_patches_that_the_model_sees(fit, patches):
    model = model_config("vit_micro_patch4", patch_size=8, image_size=64, fit=fit)
    config = TrainConfig(data="scenes", resolution=67, tokens=1000 * (patches + model.num_prefix_tokens))
    assert resolve_length(config, model, None).images == 1000
