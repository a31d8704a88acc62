"""Batch norms in heads on several ranks: the statistics, gradients and kept values of one process with all images."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from torch import nn

from sightline.distributed.ranks import Ranks
from sightline.hub.load import load_model
from sightline.models.batch_norm import JointBatchNorm, PatchBatchNorm
from sightline.training.batch_norm import JointBatchNorms
from sightline.training.config import OptimizerConfig
from tests.ranks import together
from tests.tiny import MODEL, log_lines, tiny_config, train
from tests.training.test_ranks import run

SGD = OptimizerConfig(lr=0.05, name="sgd", clip=0.5)


def config(head, **changes):
    options = {"head": head}
    if head == "upernet":
        options["head_options"] = {"channels": 6}
    small = {**MODEL, "depth": 4 if head == "upernet" else 2}
    return tiny_config(
        data="scenes:pairs", task="segmentation", task_options=options, model_options=small, images=15, batch_size=5,
        checkpoint_every=15, optimizer=SGD, **changes,
    )  # fmt: skip


def assert_alike(first, second):
    """The same losses, weights, and what the norms keep for evaluation."""
    losses = [[json.loads(line)["loss"] for line in log_lines(run)] for run in (first, second)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    one, other = (load_model(run).state_dict() for run in (first, second))
    assert any(name.endswith("running_var") for name in one)
    for name, value in one.items():
        torch.testing.assert_close(other[name], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("head", "sharing"), [("linear_map", "ddp"), pytest.param("upernet", "fsdp", marks=pytest.mark.slow)]
)
def test_two_ranks_norm_as_one(head, sharing, tmp_path):
    train(config(head), tmp_path / "one")
    assert together(2, run, config(head, sharing=sharing), tmp_path / "two") == [0, 1]
    assert_alike(tmp_path / "one", tmp_path / "two")


@pytest.mark.slow
def test_a_rank_without_an_image_counts_nothing(tmp_path):
    """Of the last step, of one image, one rank has none; and of every step in three parts some have none."""
    one_left = dataclasses.replace(config("linear_map"), images=11, checkpoint_every=11)
    train(one_left, tmp_path / "one")
    assert together(2, run, one_left, tmp_path / "two") == [0, 1]
    assert_alike(tmp_path / "one", tmp_path / "two")
    in_parts = dataclasses.replace(one_left, accumulate=3)
    assert together(2, run, in_parts, tmp_path / "parts") == [0, 1]


class Norms(nn.Module):
    def __init__(self, momentum):
        super().__init__()
        self.patches, self.maps = PatchBatchNorm(3, momentum=momentum), JointBatchNorm(3, momentum=momentum)

    def forward(self, tokens, maps):
        return self.patches(tokens), self.maps.of(maps)


def given(rank):
    generator = torch.Generator().manual_seed(rank)
    tokens = torch.randn((2 + 5 * rank, 3), generator=generator, dtype=torch.float64) * (1 + rank) + rank
    maps = [torch.randn((1, 3, 2 + rank, 5), generator=generator, dtype=torch.float64) for _ in range(1 + rank)]
    return tokens.requires_grad_(), [one.requires_grad_() for one in maps]


def weighed(outputs):
    """A number whose gradient is another one at each place."""
    tokens, maps = outputs
    every = torch.cat([tokens.flatten(), *(one.flatten() for one in maps)])
    return (every * torch.linspace(-1, 2, len(every), dtype=every.dtype)).sum() + every.pow(3).sum()


def on_a_rank(ranks: Ranks, momentum, steps):
    model = Norms(momentum).double().train()
    norms = JointBatchNorms(model, ranks)
    assert norms
    for _ in range(steps):
        tokens, maps = given(ranks.rank)
        if ranks.rank == 2:
            with norms.uncounted():
                (weighed(model(tokens, maps)) * 0).backward()
        else:
            weighed(model(tokens, maps)).backward()
    norms.close()
    kept = {name: one.clone() for name, one in model.named_buffers()}
    model.eval()
    return tokens.grad, [one.grad for one in maps], kept, torch.equal(model.patches(tokens), model(tokens, maps)[0])


@pytest.mark.parametrize("momentum", [0.1, pytest.param(None, marks=pytest.mark.slow)])
def test_every_value_and_gradient(momentum):
    """Against torch's own layers with the places of two ranks together; a third counts nothing."""
    said = together(3, on_a_rank, momentum, 2)
    model = Norms(momentum).double().train()
    for _ in range(2):
        inputs = [given(rank) for rank in range(2)]
        tokens = model.patches(torch.cat([tokens for tokens, _ in inputs]))
        maps = model.maps.of([one for _, maps in inputs for one in maps])
        counts = [len(inputs[0][0]), len(inputs[0][1])]
        parts = ((tokens[: counts[0]], maps[: counts[1]]), (tokens[counts[0] :], maps[counts[1] :]))
        sum(weighed(part) for part in parts).backward()
    for (of_tokens, of_maps, kept, whole), (tokens, maps) in zip(said[:2], inputs, strict=True):
        assert whole
        torch.testing.assert_close(of_tokens, tokens.grad, rtol=1e-9, atol=1e-12)
        for one, other in zip(of_maps, maps, strict=True):
            torch.testing.assert_close(one, other.grad, rtol=1e-9, atol=1e-12)
        for name, buffer in model.named_buffers():
            torch.testing.assert_close(kept[name], buffer, rtol=1e-9, atol=1e-12)
    assert all(torch.equal(said[2][2][name], one) for name, one in said[0][2].items())
    # What counts nothing gets no gradient but what it says itself, which is 0.
    assert not said[2][0].any()
