"""Shifted windows of a rolled image are the windows in pieces, in training, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from sightline.attention import recording, use_backend
from sightline.grid import Grid
from sightline.layout import TokenLayout
from sightline.models import create_model
from sightline.models.architectures import swin
from sightline.models.architectures.swin import Swin
from sightline.models.rolled import Rolled, rolled_of
from sightline.models.windows import Cut

# Shifted by half a window, of grids that the window divides, none of them square.
GRIDS = [(8, 12), (16, 8), (8, 8)]


def model_of(encoding: str, **options) -> Swin:
    torch.manual_seed(0)
    own = {"depths": (2,), "heads": (6,), "window": 4, **options}
    model = create_model("swin_micro_patch4", dim=24, depth=2, encoding=encoding, architecture_options=own)
    assert isinstance(model, Swin)
    for one in model.parameters():
        torch.nn.init.normal_(one, std=0.3)
    return model.train()


def shifted(model: Swin, grid: tuple[int, int]) -> tuple[Tensor, list[Tensor]]:
    """Outputs of the shifted layer, and the gradients of what was given and of the weights."""
    layout = TokenLayout.uniform(Grid(*grid), 2, num_prefix_tokens=0)
    torch.manual_seed(1)
    x = torch.randn(2, layout.slots, 24, requires_grad=True)
    attn: Any = model.blocks[1].attn
    out = attn(x, 1, layout, model.encoding)
    given = [x, *attn.parameters(), *model.encoding.parameters()]
    found = torch.autograd.grad((out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum(), given, allow_unused=True)
    return out, [torch.zeros_like(one) if grad is None else grad for one, grad in zip(given, found, strict=True)]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each shifted layer took whole windows."""
    asked: list[bool] = []

    def told(*given):
        found = rolled_of(*given)
        asked.append(found is not None)
        return found

    monkeypatch.setattr(swin, "rolled_of", told)
    return asked


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("edges", ["smaller", "padded"])
@pytest.mark.parametrize("encoding", ["rpe_learned", "rope_mixed+rpe_learned", "rpe_learned+alibi_2d"])
def test_outputs_and_gradients_are_those_of_pieces(grid, edges, encoding, taken, monkeypatch) -> None:
    model = model_of(encoding, edges=edges)
    out, gradients = shifted(model, grid)
    assert taken == [True]
    monkeypatch.setattr(swin, "rolled_of", lambda *_: None)
    expected, others = shifted(model, grid)
    assert out.std() > 0.1
    for one, other in zip([out, *gradients], [expected, *others], strict=True):
        assert (one - other).detach().abs().max() <= 1e-5 * max(1.0, float(other.detach().abs().max()))


@pytest.mark.parametrize("shift", [(2, 2), (1, 0), (0, 3)])
def test_laid_and_put_back(shift) -> None:
    layout = TokenLayout.uniform(Grid(8, 12), 2, num_prefix_tokens=0)
    rolled = Rolled(layout, Cut(Grid(4, 4), shift))
    tokens = torch.randn(2, 96, 3)
    laid = rolled.lay(tokens)
    assert laid.shape == (2 * 6, 16, 3)
    # The first window begins at the shift.
    assert torch.equal(laid[0, 0], tokens[0, shift[0] * 12 + shift[1]])
    assert torch.equal(rolled.back(laid), tokens)


def test_where_pieces_are_taken(taken) -> None:
    model = model_of("rpe_learned")

    def whole(grid: tuple[int, int] = (8, 12), model: Swin = model) -> bool:
        taken.clear()
        shifted(model, grid)
        return taken[0]

    assert whole()
    # Not divided; not shifted; and more windows than pay.
    assert not whole((9, 12))
    assert not whole((4, 12))
    assert not whole((32, 32))
    with recording(lambda _: None):
        assert not whole()
    with use_backend("dense"):
        assert not whole()
    with torch.autocast("cpu", torch.bfloat16):
        assert not whole()
    # Nothing learns, or heads measure from the centre of a piece.
    for encoding in ("rope_mixed", "alibi_2d", "lookhere_90", "none"):
        assert not whole(model=model_of(encoding))
    taken.clear()
    with torch.no_grad():
        model(torch.randn(1, 3, 32, 48))
    assert not any(taken)
    # Images of several sizes in a pack.
    model([torch.randn(3, 32, 48), torch.randn(3, 32, 32)])
    assert not any(taken)
