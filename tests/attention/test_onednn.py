"""Linear layers by oneDNN give what torch's own give, with gradients, and leave to torch what is not theirs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from sightline.attention import onednn
from sightline.attention.onednn import affine, linear, matmul_t
from sightline.distributed import machine
from sightline.models import create_model


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[torch.Size]]:
    """The shapes that oneDNN was given, as on an AMD processor."""
    shapes: list[torch.Size] = []

    def noted(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
        shapes.append(a.shape)
        # Rows with gaps, or one row that stands for all, are computed by a loop.
        assert all(one.is_contiguous() or one.t().is_contiguous() for one in (a, b))
        return matmul_t(a, b, bias)

    monkeypatch.setattr(machine, "cpu_vendor", lambda: "amd")
    monkeypatch.setattr(onednn, "matmul_t", noted)
    return shapes  # type: ignore[return-value]


def given(*shape: int, bias: bool = True) -> tuple[Tensor, Tensor, Tensor | None]:
    torch.manual_seed(0)
    x, weight = torch.randn(*shape, 24), torch.randn(40, 24)
    return x, weight, torch.randn(40) if bias else None


@pytest.mark.parametrize("shape", [(7,), (2, 5), (1, 2, 3), (2, 0), (), (1, 1), (1, 31), (1, 65), (1, 131)])
@pytest.mark.parametrize("bias", [True, False])
def test_output_and_gradients(shape: tuple[int, ...], bias: bool, taken: list[torch.Size]) -> None:
    def found(of) -> list[Tensor]:
        some = [one.double() if of is F.linear and one is not None else one for one in given(*shape, bias=bias)]
        leaves = [None if one is None else one.clone().requires_grad_() for one in some]
        out = of(*leaves)
        torch.manual_seed(1)
        (out * torch.randn(out.shape).to(out)).sum().backward()
        return [out.detach(), *(one.grad for one in leaves if one is not None)]  # type: ignore[misc]

    for one, exact in zip(found(affine), found(F.linear), strict=True):
        assert one.shape == exact.shape
        assert (one - exact).norm() <= 1e-6 * exact.norm()
    # A vector, and nothing at all, are torch's own.
    assert len(taken) == (3 if shape and 0 not in shape else 0)


@pytest.mark.parametrize("learns", [{0}, {1}, {2}, {1, 2}, {0, 2}, {0, 1}], ids=str)
def test_what_learns_has_its_gradient_and_nothing_else_has(learns: set[int], taken: list[torch.Size]) -> None:
    """Biases alone are trained by BitFit: the operator has no gradients of its own, and gives none without a word."""
    leaves = [one.requires_grad_(number in learns) for number, one in enumerate(given(3))]  # type: ignore[union-attr]
    affine(*leaves).sum().backward()
    exact = [one.detach().clone().requires_grad_(one.requires_grad) for one in leaves]
    F.linear(*exact).sum().backward()
    for number, (ours, theirs) in enumerate(zip(leaves, exact, strict=True)):
        assert (ours.grad is not None) == (number in learns)
        torch.testing.assert_close(ours.grad, theirs.grad)
    # One product forward, and those of the gradients of x and of the weight.
    assert len(taken) == 1 + len(learns - {2})


def test_rows_with_gaps_between_them(taken: list[torch.Size]) -> None:
    _, weight, bias = given(3)
    wide = torch.randn(2, 5, 50)
    for x in (
        wide[..., :24],
        wide[:, 1:, 3:27],
        wide[0, :, :24].expand(3, 5, 24),
        wide[:, :, 0, None].expand(2, 5, 24),
    ):
        assert torch.allclose(affine(x, weight, bias), F.linear(x, weight, bias), atol=1e-5)
    assert len(taken) == 4
    # The gradient of a sum is one number for all.
    leaf = wide.requires_grad_()
    affine(leaf[..., :24], weight, bias).sum().backward()
    assert torch.allclose(leaf.grad[..., :24], weight.sum(0).expand(2, 5, 24), atol=1e-5)  # type: ignore[index]
    assert torch.equal(
        affine(wide[..., :24], weight.t().contiguous().t(), bias), F.linear(wide[..., :24], weight, bias)
    )


def test_gradients_of_gradients(taken: list[torch.Size]) -> None:
    def found(of, dtype: torch.dtype) -> tuple[Tensor, ...]:
        x, weight, bias = (one.to(dtype).requires_grad_() for one in given(3))  # type: ignore[union-attr]
        (of_x,) = torch.autograd.grad(of(x, weight, bias).pow(3).sum(), x, create_graph=True)
        return torch.autograd.grad(of_x.square().sum(), (x, weight, bias))

    both = found(affine, torch.float32), found(F.linear, torch.float64)
    assert taken
    for one, exact in zip(*both, strict=True):
        assert (one - exact).norm() <= 1e-5 * exact.norm()


def test_left_to_torch(taken: list[torch.Size]) -> None:
    x, weight, bias = given(3)
    with torch.autocast("cpu", torch.bfloat16):
        assert affine(x, weight, bias).dtype == torch.bfloat16
    assert affine(x.double(), weight.double(), None).dtype == torch.float64
    assert torch.equal(torch.func.vmap(lambda one: affine(one, weight, bias))(x), F.linear(x, weight, bias))
    torch.func.jvp(lambda one: affine(one, weight, bias), (x,), (x,))
    with torch.autograd.forward_ad.dual_level():
        affine(torch.autograd.forward_ad.make_dual(x, x), weight, bias)
    with FlopCounterMode(display=False) as counter:
        affine(x, weight, bias)
    assert counter.get_total_flops() == 2 * 3 * 24 * 40
    assert affine(x.to("meta"), weight.to("meta"), None).is_meta
    assert not taken


class _Adapter(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) + 1


def test_what_a_layer_does_beside_its_product_is_done(taken: list[torch.Size]) -> None:
    x = given(3)[0]
    layer = nn.Linear(24, 40)
    plain = linear(layer, x)
    assert len(taken) == 1
    assert torch.allclose(plain, layer(x), atol=1e-5)
    handle = layer.register_forward_hook(lambda *_: torch.zeros(1))
    assert not linear(layer, x).any()
    handle.remove()
    handle = nn.modules.module.register_module_forward_hook(lambda *_: torch.zeros(1))  # type: ignore[arg-type,return-value]
    assert not linear(layer, x).any()
    handle.remove()
    layer.forward = lambda x: x  # type: ignore[method-assign]
    assert linear(layer, x) is x
    adapter = _Adapter(24, 40)
    adapter.load_state_dict(layer.state_dict())
    assert torch.allclose(linear(adapter, x), plain + 1, atol=1e-5)
    assert len(taken) == 1


def test_a_bias_beside_the_layer_passes_nothing_over(taken: list[torch.Size]) -> None:
    """Of queries and values alone, as BEiT has it: an adapter in the place of the layer was left out without a word."""
    x, weight, bias = given(3)
    layer = nn.Linear(24, 40, bias=False)
    adapter = _Adapter(24, 40, bias=False)
    for one in (layer, adapter):
        one.load_state_dict({"weight": weight})
    plain = linear(layer, x, bias)
    assert torch.allclose(plain, F.linear(x, weight, bias), atol=1e-5)
    assert torch.allclose(linear(adapter, x, bias), plain + 1, atol=1e-5)
    layer.register_forward_hook(lambda *_: torch.zeros(1))
    assert torch.equal(linear(layer, x, bias), bias)
    model = create_model("vit_micro_patch4", depth=1, image_size=16, qkv_bias="qv").eval()
    images = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        before = model(images)
        model.blocks[0].attn.qkv.register_forward_hook(lambda module, given, out: 2 * out)
        assert not torch.allclose(model(images), before)
