"""The chunked losses of pairs equal the whole ones, on any number of ranks, in value and gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.distributed.ranks import Ranks
from sightline.tasks.pair_losses import pair_loss
from tests.ranks import together

KINDS = ("softmax", "sigmoid")
MEANINGS = torch.tensor([0, 1, -1, 0, 2, 1, -1, 3, 0, 0, 2])
COUNTS = {1: [11], 2: [7, 4], 4: [5, 0, 2, 4]}


def pairs(dtype: torch.dtype) -> list[Tensor]:
    torch.manual_seed(0)
    sides = [F.normalize(torch.randn(11, 6, dtype=dtype), dim=-1) for _ in range(2)]
    return [one.requires_grad_() for one in (*sides, torch.tensor(7.3, dtype=dtype), torch.tensor(-2.0, dtype=dtype))]


def whole(kind: str, images: Tensor, texts: Tensor, scale: Tensor, bias: Tensor, meanings: Tensor | None) -> Tensor:
    """The definition, of all scores at once."""
    own = -1 - torch.arange(len(images))
    names = own if meanings is None else torch.where(meanings < 0, own, meanings)
    same, scores = (names[:, None] == names).to(images), scale * images @ texts.T
    if kind == "sigmoid":
        return -F.logsigmoid((2 * same - 1) * (scores + bias)).sum()
    target = same / same.sum(1, keepdim=True)
    return -sum((target * one.log_softmax(1)).sum() for one in (scores, scores.T)) / 2


def of_rank(ranks: Ranks, kind: str, dtype: torch.dtype, meanings: Tensor | None, chunk: int) -> list[Tensor]:
    images, texts, scale, bias = pairs(dtype)
    first = sum(COUNTS[ranks.size][: ranks.rank])
    own = slice(first, first + COUNTS[ranks.size][ranks.rank])
    said = None if meanings is None else meanings[own]
    loss = pair_loss(kind, images[own], texts[own], scale, bias, said, ranks=ranks, chunk=chunk)
    return [loss.detach(), *torch.autograd.grad(loss, (images, texts, scale, bias))]


def all_cases(ranks: Ranks, dtype: torch.dtype) -> list[list[Tensor]]:
    return [
        of_rank(ranks, kind, dtype, said, chunk) for kind in KINDS for said in (None, MEANINGS) for chunk in (3, 64)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("size", COUNTS)
def test_chunks_are_the_whole(size, dtype):
    found = together(size, all_cases, dtype) if size > 1 else [all_cases(Ranks(), dtype)]
    cases = [(kind, said) for kind in KINDS for said in (None, MEANINGS) for _ in range(2)]
    limit = 1e-10 if dtype == torch.float64 else 1e-5
    for number, (kind, said) in enumerate(cases):
        inputs = pairs(dtype)
        loss = whole(kind, *inputs, said)
        expected = [loss.detach(), *torch.autograd.grad(loss, inputs, allow_unused=True)]
        for place, theirs in enumerate(expected):
            ours = sum(one[number][place] for one in found)
            theirs = torch.zeros_like(ours) if theirs is None else theirs
            assert (ours - theirs).abs().max() <= limit * theirs.abs().max().clamp(min=1e-12), (kind, place)


def test_half_precision_is_computed_in_single():
    images, texts, scale, _ = (one.detach() for one in pairs(torch.float32))
    low = [images.bfloat16(), texts.bfloat16()]
    with torch.autocast("cpu", torch.bfloat16):
        found = pair_loss("softmax", *low, scale)
    assert found.dtype == torch.float32
    assert torch.equal(found, pair_loss("softmax", *(one.float() for one in low), scale))
