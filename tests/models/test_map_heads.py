"""Heads that give maps and masks: in a pack as alone, with gradients of everything, and what queries may see."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sightline import create_model
from sightline.attention.dispatch import AttentionRecord, record_attention
from sightline.attention.pattern import ImageMask
from sightline.models import Model
from sightline.models.batch_norm import JointBatchNorm
from sightline.models.heads.eomt import EomtHead
from sightline.tokens.grid import Grid

SIZES = [(12, 20), (20, 12), (4, 16), (12, 20), (24, 16)]
OPTIONS: dict[str, dict[str, Any]] = {
    "segmenter": {"layers": 2, "dim": 12, "heads": 2, "hidden": 20},
    "upernet": {"channels": 6},
    "eomt": {"queries": 5, "blocks": 2, "masked_in_evaluation": True},
    "eomt unmasked": {"queries": 5, "blocks": 2},
    "eomt of all blocks": {"queries": 5, "blocks": 3, "masked_in_evaluation": True},
}
ENCODINGS = ["lookhere_90", "rope_mixed+learned_1d", "rpe_learned"]


def model_of(kind: str, encoding: str = "rope_axial", **options: Any) -> Model:
    """A model whose every weight of the head is random, so that nothing is ignored unseen."""
    torch.manual_seed(0)
    whole = {
        "depth": 3, "dim": 24, "heads": 3, "encoding": encoding, "image_size": (12, 20), "class_token": True,
        "num_registers": 2, "pool": "mean", "num_classes": 4, "task": "segmentation", **options,
    }  # fmt: skip
    model = create_model("vit_micro_patch4", head=kind.split()[0], head_options=OPTIONS[kind], **whole)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
        for name, buffer in model.head.named_buffers():
            if name.endswith(("mean", "var")):
                buffer.uniform_(0.5, 1.5)
    return model.eval()


def said(output: Any) -> dict[str, Tensor]:
    return output if isinstance(output, dict) else {"map": output}


def assert_same(one: Any, other: Any) -> None:
    one, other = said(one), said(other)
    assert one.keys() == other.keys()
    for name in one:
        assert one[name].shape == other[name].shape
        assert torch.allclose(one[name], other[name], rtol=1e-4, atol=5e-5), name
        assert one[name].std() > 0.01


@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("encoding", ENCODINGS)
@torch.no_grad()
def test_an_image_is_the_same_in_a_pack_and_in_a_batch(kind: str, encoding: str) -> None:
    model, draws = model_of(kind, encoding), torch.Generator().manual_seed(1)
    images = [torch.randn(3, *size, generator=draws) for size in SIZES]
    together = model(images)
    rows, layout = model.prepare(images)
    padded = model(torch.nn.functional.pad(rows, (0, 0, 0, 5)), layout=layout.pad_to(layout.slots + 5))
    assert len(together) == len(SIZES)
    for image, one, other in zip(images, together, padded, strict=True):
        (alone,) = model(image[None])
        assert_same(alone, one)
        assert_same(alone, other)
    (batch,) = model(torch.stack([images[0], images[3]]))
    for row, number in enumerate((0, 3)):
        assert_same(together[number], {name: one[row : row + 1] for name, one in said(batch).items()})


@torch.no_grad()
def test_segmenter_of_some_patches_is_that_of_an_image_without_the_others() -> None:
    model = model_of("segmenter", "rope_axial")
    rows, layout = model.prepare(torch.randn(1, 3, 8, 12))
    (some,) = model(rows[:, [5, 0, 2]], layout=layout.keep([[5, 0, 2]]))
    (others,) = model(rows[:, [0, 2, 5]], layout=layout.keep([[0, 2, 5]]))
    assert torch.allclose(some, others, atol=1e-5)
    there = torch.zeros(6, dtype=torch.bool)
    there[[0, 2, 5]] = True
    assert (some.flatten(2)[..., ~there] == 0).all()
    assert some.flatten(2)[..., there].std() > 0.1


def test_statistics_of_a_pack_are_those_of_all_its_images() -> None:
    torch.manual_seed(0)
    norm, plain = JointBatchNorm(3), nn.BatchNorm1d(3)
    maps = [torch.randn(1, 3, 2, 5) + 1, torch.randn(1, 3, 4, 1) * 3, torch.randn(2, 3, 1, 2)]
    ours = norm.of(maps)
    every = torch.cat([one.transpose(0, 1).flatten(1) for one in maps], dim=1)
    expected = plain(every.T).T
    again = torch.cat([one.transpose(0, 1).flatten(1) for one in ours], dim=1)
    assert torch.allclose(again, expected, atol=1e-5)
    assert torch.allclose(norm.running_var, plain.running_var)  # type: ignore[arg-type]
    # One place has no variance: what was kept is taken, and stays.
    before = norm.running_mean.clone()  # type: ignore[union-attr]
    alone = norm.of([maps[0][:, :, :1, :1]])[0]
    assert torch.equal(norm.eval().of([maps[0][:, :, :1, :1]])[0], alone)
    assert torch.equal(norm.running_mean, before)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["upernet", "segmenter", "eomt"])
def test_training_packs_equals_training_on_a_batch(kind: str) -> None:
    """Where nothing is drawn."""
    images = torch.randn(3, 3, 12, 20, generator=torch.Generator().manual_seed(1))
    made = []
    for shown in (images, list(images)):
        model = model_of(kind).train()
        made.append([said(one) for one in model(shown)])
    (batch,), packed = made
    for name, value in batch.items():
        together = torch.cat([one[name] for one in packed])
        assert torch.allclose(value, together, atol=5e-4), name


@pytest.mark.parametrize("kind", OPTIONS)
def test_gradients_are_those_of_finite_differences(kind: str) -> None:
    """In float64, of the images and of every weight of the head."""
    # Rotations are float32, whose rounding the small step would see.
    model = model_of(kind, "learned_1d").double()
    if kind.startswith("upernet"):
        model.train()
    images = torch.randn(2, 3, 8, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    parts = {f"head.{name}": one for name, one in model.head.named_parameters()}

    def total() -> Tensor:
        values = torch.cat([one.flatten() for output in model(images) for one in said(output).values()])
        return (values * torch.linspace(-1, 1, len(values), dtype=values.dtype)).sum()

    images.requires_grad_()
    names, weights = ["images", *parts], [images, *parts.values()]
    gradients = torch.autograd.grad(total(), weights)
    step = 1e-6
    for name, weight, gradient in zip(names, weights, gradients, strict=True):
        direction = torch.randn(weight.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
        with torch.no_grad():
            weight += step * direction
            above = total()
            weight -= 2 * step * direction
            below = total()
            weight += step * direction
        expected = float(above - below) / (2 * step)
        assert float((gradient * direction).sum()) == pytest.approx(expected, rel=1e-4, abs=1e-5), name


@torch.no_grad()
def test_queries_see_their_masks_alone_and_patches_see_all() -> None:
    """Of two images that stand alike in one pack, each its own."""
    model = model_of("eomt", "lookhere_90")
    images = [torch.randn(3, 12, 20), torch.randn(3, 12, 20)]
    seen: list[AttentionRecord] = []
    with record_attention(seen.append):
        outputs = model(images)
    assert [one.layer for one in seen] == [0, 1, 2]
    assert seen[0].pattern is not None
    assert not seen[0].pattern.of_images
    for block, call in enumerate(seen[1:]):
        assert call.pattern is not None
        assert call.keys.num_prefix_tokens == 5 + 3
        biases = []
        for number, (segment, output) in enumerate(zip(call.keys.segments, outputs, strict=True)):
            whole = call.pattern.bias(segment, segment, 8, 8, image=number)[0]
            plain = model.encoding.pattern(1 + block, call.keys).bias(segment, segment, 8, 8)[0]  # type: ignore[union-attr]
            masks = output["earlier_masks"][0, block]
            allowed = nn.functional.interpolate(masks[None], size=tuple(segment.grid), mode="bilinear")[0] > 0
            assert 0 < allowed.float().mean() < 1
            expected = plain.clone()
            expected[:, :5, 8:] += torch.where(allowed.flatten(1), 0.0, -torch.inf)
            assert torch.equal(whole, expected)
            biases.append(whole)
        assert not torch.equal(*biases)


def test_masks_of_heads_of_their_own_and_in_blocks_of_queries() -> None:
    """A bias of images is rendered for some heads, and for blocks of the patches that ask."""
    values = [torch.randn(1, 3, 2, 8)]
    term = ImageMask(values, 3)
    whole = term.of_image(0, slice(None), 2, 6)
    assert torch.equal(whole[:, :, :2], values[0])
    assert (whole[:, :, 2:] == 0).all()
    assert torch.equal(term.of_image(0, slice(1, 3), 2, 6), whole[:, 1:3])
    assert torch.equal(term.of_image(0, slice(None), 0, 4), whole[:, :, 2:6])
    assert ImageMask([values[0][:, :1]], 3).of_image(0, slice(1, 9), 2, 6).shape == (1, 2, 8, 8)
    assert (term.relative(Grid(2, 3), torch.device("cpu")) == torch.zeros(3, 3, 5)).all()


def test_masks_fade_while_training_and_end_before_it_does() -> None:
    model = model_of("eomt")
    head = model.head
    assert isinstance(head, EomtHead)
    assert head.masked_share(1) == 1.0
    head.train()
    # Two blocks: each fades in its own quarter of the training, after the first.
    expected = {0.0: (1, 1), 0.25: (1, 1), 0.375: (0.5**0.9, 1), 0.5: (0, 1), 0.75: (0, 0), 1.0: (0, 0)}
    for done, shares in expected.items():
        head.done = done
        assert [head.masked_share(block) for block in range(2)] == pytest.approx(shares)
    # Drawn by torch's generator, the same for the same seed.
    image = torch.randn(1, 3, 12, 20)
    head.done = 0.375

    def drawn(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return model(image)[0]["masks"]

    assert torch.equal(drawn(1), drawn(1))
    assert any(not torch.equal(drawn(1), drawn(seed)) for seed in range(2, 12))
    head.done = 0.8
    late = model(image)[0]
    assert late["earlier_masks"].shape == (1, 2, 5, 6, 10)
    head.eval()
    assert not torch.equal(late["masks"], model(image)[0]["masks"])
    head.options = dataclasses.replace(head.options, masked_in_evaluation=False)
    plain = model(image)[0]
    assert torch.allclose(late["masks"], plain["masks"], atol=1e-5)
    assert plain.keys() == {"masks", "classes"}


def test_blocks_that_are_computed_again_see_the_masks_of_their_own() -> None:
    """In the backward pass a block is computed again after all others: it needs the masks that it had."""
    model, images = model_of("eomt").train(), torch.randn(2, 3, 12, 20)

    def gradients() -> list[Tensor]:
        model.zero_grad()
        sum(one.square().sum() for said in model(images) for one in said.values()).backward()
        return [weight.grad.clone() for weight in model.parameters() if weight.grad is not None]

    kept = gradients()
    model.blocks.activation_checkpointing = True
    for one, other in zip(gradients(), kept, strict=True):
        torch.testing.assert_close(one, other)
