"""Each recipe in the numbers of its paper: what a step is, its rate, decay and drops at named steps, its first loss."""

from __future__ import annotations

import math

import pytest
import torch

from sightline.cli.run_config import training_config
from sightline.data.config import MixingConfig
from sightline.data.open import open_source
from sightline.errors import InputError
from sightline.models.create import make_model, model_config
from sightline.recipes import recipe
from sightline.tasks.base import task_class, task_of
from sightline.tasks.classification import classification_loss
from sightline.tokens.layout import TokenLayout
from sightline.training.optim import learning_rate, make_optimizer
from sightline.training.plan import EpochPlan
from sightline.training.setup import task_options
from tests.tiny import Unmeasured

IMAGES = 1_281_167
# Recipe -> (optimizer, batch, steps, {step: rate}, decay, decay of the head, clip, layers dropped, loss).
NUMBERS = {
    "lookhere_150ep": (
        "AdamW", 2048, 150 * 626, {0: 3e-3 / 9390, 9389: 3e-3, 9390: 3e-3, 51645: 1.5e-3}, 0.05, 0.05, None, 0.1, "bce",
    ),
    "lookhere_highres": (
        "AdamW", 512, 5 * 2503, {0: 1e-5 / 1251.5, 1252: 1e-5, 12514: 1e-5}, 0.1, 0.1, None, 0.2, "bce",
    ),
    "deit3_400ep": (
        # naver-ai/rope-vit, deit/README.md: 400 epochs; facebookresearch/deit has other values for its 800.
        "Lamb", 2048, 400 * 626, {0: 4e-3 / 3130, 3130: 4e-3, 126765: 2.005e-3}, 0.03, 0.03, 1.0, 0.0, "bce_mean",
    ),
    "vit_imagenet": (
        "AdamW", 4096, 300 * 313, {0: 3e-7, 9999: 3e-3, 10_000: 3e-3, 51_950: 1.5e-3}, 0.3, 0.3, 1.0, 0.0, "ce",
    ),
    # Appendix B.1.2, where decay is not said: that of all its pre-training (section 4.1). Each pass ends with a smaller
    # batch: 688 more.
    "vit_masked_patches": (
        "AdamW", 4096, 1_000_688, {0: 2e-8, 9_999: 2e-4, 10_000: 2e-4, 505_344: 1e-4}, 0.1, 0.1, None, 0.0, None,
    ),
    # Each pass ends with a smaller batch: 7 steps more.
    "vit_finetune": ("SGD", 512, 20_006, {0: 6e-5, 499: 0.03, 10_250: 0.015}, 0.0, 0.0, 1.0, 0.0, "ce"),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_a_recipe_in_numbers(name):
    config = recipe(name, "imagefolder:somewhere")
    optimizer, batch, steps, rates, decay, head_decay, clip, drop, loss = NUMBERS[name]
    plan = EpochPlan.of(config, IMAGES)
    assert (config.batch_size, config.loss, config.optimizer.clip) == (batch, loss, clip)
    assert plan.steps == steps
    for step, rate in rates.items():
        begins, ends = step / plan.steps, (step + 1) / plan.steps
        assert learning_rate(config.optimizer, step, begins, ends) == pytest.approx(rate, rel=2e-3), step
    options = {**config.model_options, "depth": 2, "dim": 48, "heads": 2, "num_classes": 10}
    size = {"encoding": config.encoding, "image_size": config.resolution}
    model = make_model(model_config(config.model or "vit_tiny_patch16", **options, **size))
    assert model.config.drop_path == drop
    made = make_optimizer(model, config.optimizer)
    assert type(made).__name__ == optimizer
    of = {parameter: group["weight_decay"] for group in made.param_groups for parameter in group["params"]}
    assert of[model.blocks[1].mlp.fc1.weight] == decay
    last = getattr(model.head, "fc2", model.head)
    assert of[last.weight] == head_decay
    assert of[model.blocks[0].norm1.weight] == of[last.bias] == 0.0


def test_navit_in_numbers():
    config = recipe("navit_pretrain", "imagefolder:somewhere")
    packing = config.packing
    assert (packing.tokens, packing.resolutions, packing.most_tokens) == (4096 * 256, (64, 256), 256)
    assert (config.optimizer.weight_decay, config.optimizer.head_decay) == (0.03, 3.0)
    steps = 93_000
    rates = {0: 8e-8, 9_999: 8e-4, 40_000: 8e-4 / 2, 92_999: 8e-4 / math.sqrt(9.3) * 1e-4}
    for step, rate in rates.items():
        begins, ends = step / steps, (step + 1) / steps
        assert learning_rate(config.optimizer, step, begins, ends) == pytest.approx(rate, rel=2e-3), step
    # Table 2: 4.9 images a sequence of 256, of which a side is drawn evenly from 64 to 256 px.
    mean = (256**3 - 64**3) / (3 * 192) / 256 * 0.5
    assert 256 / (mean + 1) == pytest.approx(4.88, rel=0.1)


def test_masked_patches_in_words_of_the_paper():
    """Half of the patches, 80, 10 and 10 % of them, one colour of 512 each; its first loss is that of chance."""
    config = recipe("vit_masked_patches")
    assert (config.task, config.model, config.resolution) == ("masked_patches", "vit_base_patch16", 224)
    assert config.task_options == {}
    options = {
        **task_class(config.task).model_options(open_source("scenes"), task_options(config)),
        "task": config.task,
    }
    model = make_model(model_config("vit_tiny_patch16", **options, depth=1, dim=48, heads=2)).eval()
    corruption = model.head.corruption
    assert (corruption.share, corruption.masked, corruption.random) == (0.5, 0.8, 0.1)
    (output,) = model(torch.randn(2, 3, 224, 224))
    assert output["values"].shape == (2, 98, 512)
    layout = TokenLayout.uniform((14, 14), 2, num_prefix_tokens=1)
    total, units = task_of(model).loss([output], {"patches": torch.randint(0, 512, (2 * 196,))}, layout)
    assert total.item() / units == pytest.approx(math.log(512), rel=0.02)


@pytest.mark.parametrize("name", ["lookhere_150ep", "deit3_400ep"])
def test_augmentation_of_the_two(name):
    config = recipe(name)
    assert list(config.augment) == ["three_augment", "colour_jitter"]
    assert config.mixing == MixingConfig(mixup=0.8, cutmix=1.0)
    assert config.parts == 0.08
    assert config.repeats == (3 if name == "deit3_400ep" else 1)


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        # Every class at 1 / 1000 (A.4.1): -log .001 for the true one, and 999 times -log .999.
        ("lookhere_150ep", math.log1p(math.exp(6.9)) + 999 * math.log1p(math.exp(-6.9))),
        ("vit_imagenet", math.log(1000)),
    ],
)
def test_the_first_loss(name, loss):
    config = recipe(name)
    model = make_model(
        model_config("vit_tiny_patch16", **config.model_options, depth=1, dim=48, heads=2, num_classes=1000)
    )
    outputs = model.eval()(torch.randn(2, 3, 224, 224))
    found = classification_loss(outputs, config.loss, 0.0, torch.tensor([3, 999]))
    assert float(found) / 2 == pytest.approx(loss, rel=1e-4)
    assert not model.head.fc2.weight.any()


def test_fine_tuning_needs_a_model(tmp_path):
    with pytest.raises(InputError, match="vit_finetune"):
        training_config(None, {"data": f"imagefolder:{tmp_path}"}, "vit_finetune", data=Unmeasured())


def test_fine_tuning_keeps_what_it_says_of_the_model(tiny_run, tmp_path):
    """The drop of layers, the head that begins with 0 and the size are the recipe's; all else is the model's."""
    flags = {"data": f"imagefolder:{tmp_path}", "init_from": str(tiny_run)}
    high = training_config(None, flags, "lookhere_highres", data=Unmeasured())
    assert (high.model_options, high.resolution) == ({"drop_path": 0.2}, 384)
    tuned = training_config(None, flags, "vit_finetune", data=Unmeasured())
    assert (tuned.model_options, tuned.resolution) == ({"head": "linear", "head_std": 0.0}, 384)
