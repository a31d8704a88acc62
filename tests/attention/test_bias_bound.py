"""`sdpa` within its bound: a bias by heads and by blocks of queries is the same attention."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sightline.attention import Pattern, attend, sdpa, use_backend
from sightline.encodings import create_encoding
from sightline.tokens.layout import TokenLayout
from tests.attention.given import assert_close, pattern, random_qkv, with_gradients
from tests.contract.randomise import randomise_parameters

pytestmark = pytest.mark.slow

# In biases of one head of the largest image: a few heads at a time, blocks of queries, and one query at a time.
BOUNDS = {"heads": 1.5, "queries": 0.2, "one query": 0.0}


def layouts(prefix: int) -> dict[str, TokenLayout]:
    uniform = TokenLayout.uniform((7, 8), 2, num_prefix_tokens=prefix)
    packed = TokenLayout.packed([(6, 9), (1, 1), (3, 5)], num_prefix_tokens=prefix)
    dropped = [torch.randperm(56)[:30] for _ in range(2)]
    return {
        "uniform": uniform,
        "packed": packed,
        "dropped": uniform.keep(torch.stack(dropped)),
        "packed and dropped": packed.keep([torch.randperm(54)[:31], torch.tensor([0]), torch.tensor([3, 14, 7])]),
    }


@pytest.mark.parametrize("prefix", [0, 1, 5])
@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("which", layouts(0))
def test_the_same_within_any_bound(which: str, bound: str, prefix: int, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = layouts(prefix)[which]
    images = layout.segments[0].coords.shape[0]
    one_head = 4 * images * max(layout.seqlens) ** 2
    limit = int(BOUNDS[bound] * one_head)
    made: list[Tensor] = []
    render = Pattern.bias

    def spy(self: Pattern, *args: object, **kwargs: object) -> Tensor:
        made.append(render(self, *args, **kwargs))
        return made[-1]

    patterns = [pattern("lookhere_45", 4), pattern("lookhere", 4, directions="center", rounding="exact")]
    for what in patterns if prefix == 1 else patterns[:1]:
        qkv = random_qkv(layout, heads=4)
        expected = with_gradients("sdpa", qkv, what, layout)
        with monkeypatch.context() as patched:
            patched.setattr(sdpa, "BIAS_BYTES", limit)
            patched.setattr(Pattern, "bias", spy)
            found = with_gradients("sdpa", qkv, what, layout)
        assert_close(found, expected, 1e-6, 1e-6)
    largest = max(one.numel() * one.element_size() for one in made)
    # Never less than one query of one head, with the prefix slots beside it.
    assert largest <= max(limit, 4 * images * (1 + prefix) * max(layout.seqlens))
    assert len(made) > 2 * len(layout.segments), "in parts, forward and backward"


def test_gradients_of_a_table_within_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table's gradient is the sum of those of all parts."""
    layout = TokenLayout.uniform((7, 9), 2)
    encoding = create_encoding("rpe_learned", depth=1, heads=12, dim=48, train_grid=(4, 5))
    randomise_parameters(encoding)
    found = []
    for bound in (sdpa.BIAS_BYTES, 40_000, 5_000):
        monkeypatch.setattr(sdpa, "BIAS_BYTES", bound)
        encoding.zero_grad()
        with use_backend("sdpa"):
            out = attend(*random_qkv(layout), encoding.layer_pattern(0), layout)
        (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
        found.append([out.detach(), *(one.grad.clone() for one in encoding.parameters())])
    assert len(found[0]) > 1
    for other in found[1:]:
        for one, theirs in zip(other, found[0], strict=True):
            assert theirs.norm() > 0
            assert (one - theirs).norm() <= 1e-5 * theirs.norm()
