"""Linear layers by oneDNN give what torch's own give, with gradients, and leave to torch what is not theirs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from sightline.attention import products
from sightline.attention.costs import Costs, using
from sightline.models import create_model, linear
from sightline.models.linear import affine
from tests.contract.randomise import randomise_parameters


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[torch.Size]]:
    """The shapes that oneDNN was given, where it counts as the faster one whatever the machine, as bfloat16 does."""
    if products._onednn() is None:
        pytest.skip("this torch has no oneDNN")
    shapes: list[torch.Size] = []

    def noted(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
        shapes.append(a.shape)
        # Rows with gaps, or one row that stands for all, are computed by a loop.
        assert all(one.is_contiguous() or one.t().is_contiguous() for one in (a, b))
        return products.matmul_t(a, b, bias)

    monkeypatch.setattr(linear, "takes_onednn", lambda: True)
    monkeypatch.setattr(linear, "takes_wide", lambda: False)
    monkeypatch.setattr(linear, "product_of", lambda _: noted)
    return shapes  # type: ignore[return-value]


def given(*shape: int, bias: bool = True) -> tuple[Tensor, Tensor, Tensor | None]:
    torch.manual_seed(0)
    x, weight = torch.randn(*shape, 24), torch.randn(40, 24)
    return x, weight, torch.randn(40) if bias else None


@pytest.mark.parametrize("shape", [(7,), (2, 5), (1, 2, 3), (2, 0), ()])
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


@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_what_needs_no_gradient_has_none(frozen: int, taken: list[torch.Size]) -> None:
    leaves = [one.requires_grad_(number != frozen) for number, one in enumerate(given(3))]  # type: ignore[union-attr]
    affine(*leaves).sum().backward()
    assert [one.grad is None for one in leaves] == [number == frozen for number in range(3)]
    # One product forward, and those of the gradients of x and of the weight.
    assert len(taken) == 3 - (frozen < 2)


@pytest.mark.parametrize("learns", range(3))
def test_what_learns_alone_has_its_gradient(learns: int, taken: list[torch.Size]) -> None:
    """Biases alone are trained by BitFit: the operator has no gradients of its own, and gives none without a word."""
    leaves = [one.requires_grad_(number == learns) for number, one in enumerate(given(3))]  # type: ignore[union-attr]
    affine(*leaves).sum().backward()
    exact = [one.detach().clone().requires_grad_(one.requires_grad) for one in leaves]
    F.linear(*exact).sum().backward()
    torch.testing.assert_close(leaves[learns].grad, exact[learns].grad)
    assert taken


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


def test_packs_of_any_length_share_kernels(taken: list[torch.Size]) -> None:
    weight, bias = given(1)[1:]
    for length in range(1000, 1100):
        x = torch.randn(1, length, 24)
        found = affine(x, weight, bias)
        assert found.shape == (1, length, 40)
        assert torch.allclose(found, F.linear(x, weight, bias), atol=1e-5)
    assert len({rows for rows, _ in taken}) <= 6
    assert all(rows < 1.04 * length for (rows, _), length in zip(taken, range(1000, 1100), strict=True))
    taken.clear()
    # Of a batch none is added.
    affine(torch.randn(2, 1001, 24), weight, bias)
    assert taken == [(2002, 24)]


@pytest.mark.parametrize("length", [1, 31, 65, 131])
def test_gradients_of_one_row_of_tokens(length: int, taken: list[torch.Size]) -> None:
    def found(of, dtype: torch.dtype) -> list[Tensor]:
        torch.manual_seed(length)
        x, weight, bias = torch.randn(1, length, 24), torch.randn(40, 24), torch.randn(40)
        leaves = [one.to(dtype).requires_grad_() for one in (x, weight, bias)]
        of(*leaves).square().sum().backward()
        return [one.grad for one in leaves]  # type: ignore[misc]

    for one, exact in zip(found(affine, torch.float32), found(F.linear, torch.float64), strict=True):
        assert (one - exact).norm() <= 1e-6 * exact.norm()
    assert len(taken) == 3


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


def test_sizes_that_are_ever_new_are_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "takes_onednn", lambda: True)
    monkeypatch.setattr(linear, "_computed", lambda *_: torch.zeros(1))
    x, weight, bias = given(3)
    with using(Costs("any", "any", 1, onednn=2.0)):
        with products.expected_shapes(ever_new=True):
            assert torch.equal(affine(x, weight, bias), F.linear(x, weight, bias))
        with products.expected_shapes(ever_new=False):
            assert not affine(x, weight, bias).any()


class _Adapter(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) + 1


def test_what_a_layer_does_beside_its_product_is_done(taken: list[torch.Size]) -> None:
    x = given(3)[0]
    layer = nn.Linear(24, 40)
    plain = linear.linear(layer, x)
    assert len(taken) == 1
    assert torch.allclose(plain, layer(x), atol=1e-5)
    handle = layer.register_forward_hook(lambda *_: torch.zeros(1))
    assert not linear.linear(layer, x).any()
    handle.remove()
    handle = nn.modules.module.register_module_forward_hook(lambda *_: torch.zeros(1))  # type: ignore[arg-type,return-value]
    assert not linear.linear(layer, x).any()
    handle.remove()
    layer.forward = lambda x: x  # type: ignore[method-assign]
    assert linear.linear(layer, x) is x
    adapter = _Adapter(24, 40)
    adapter.load_state_dict(layer.state_dict())
    assert torch.allclose(linear.linear(adapter, x), plain + 1, atol=1e-5)
    assert len(taken) == 1


def test_a_bias_beside_the_layer_passes_nothing_over(taken: list[torch.Size]) -> None:
    """Of queries and values alone, as BEiT has it: an adapter in the place of the layer was left out without a word."""
    x, weight, bias = given(3)
    layer = nn.Linear(24, 40, bias=False)
    adapter = _Adapter(24, 40, bias=False)
    for one in (layer, adapter):
        one.load_state_dict({"weight": weight})
    plain = linear.linear(layer, x, bias)
    assert torch.allclose(plain, F.linear(x, weight, bias), atol=1e-5)
    assert torch.allclose(linear.linear(adapter, x, bias), plain + 1, atol=1e-5)
    layer.register_forward_hook(lambda *_: torch.zeros(1))
    assert torch.equal(linear.linear(layer, x, bias), bias)
    model = create_model("vit_micro_patch4", depth=1, image_size=16, qkv_bias="qv").eval()
    images = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        before = model(images)
        model.blocks[0].attn.qkv.register_forward_hook(lambda module, given, out: 2 * out)
        assert not torch.allclose(model(images), before)


def test_a_model_takes_it_for_all_its_blocks(taken: list[torch.Size]) -> None:
    torch.manual_seed(0)
    model = randomise_parameters(create_model("vit_micro_patch4", depth=2, image_size=16)).eval()
    images = torch.randn(2, 3, 16, 20)
    with torch.inference_mode():
        found = model(images)
        # The patches', four of a block, and of the last one, for its class tokens alone, five.
        assert len(taken) == 1 + 4 + 5
        exact = model.double()(images.double())
    assert exact.std() > 0.1
    assert (found - exact).abs().max() < 1e-5 * exact.abs().max()


def test_where_nothing_is_gained_torch_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "takes_onednn", lambda: False)
    x, weight, bias = given(3)
    assert torch.equal(affine(x, weight, bias), F.linear(x, weight, bias))


@pytest.fixture(params=[False, True], ids=["torch", "onednn"])
def wide(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[torch.dtype]:
    """The precisions of products, where bfloat16 counts as the slower one whatever the machine."""
    kinds: list[torch.dtype] = []

    def noted(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
        out = products.plain(a, b, bias)
        kinds.extend(one.dtype for one in (a, b, bias, out) if one is not None)
        return out

    monkeypatch.setattr(linear, "takes_onednn", lambda: request.param)
    monkeypatch.setattr(linear, "takes_wide", lambda: True)
    monkeypatch.setattr(linear, "product_of", lambda _: noted)
    monkeypatch.setattr(linear, "plain", noted)
    return kinds


@pytest.mark.parametrize("shape", [(7,), (2, 65), (1, 70)])
@pytest.mark.parametrize("held", [torch.float32, torch.bfloat16])
def test_products_of_bfloat16_in_float32(shape: tuple[int, ...], held: torch.dtype, wide: list[torch.dtype]) -> None:
    """What torch's own product of bfloat16 gives, by autocast or of weights that are held so, but for sums in another
    order; outputs and gradients in the same precisions."""

    def found(of, dtype: torch.dtype) -> tuple[Tensor, ...]:
        # Numbers of bfloat16, so that float64 rounds no input.
        leaves = [one.bfloat16().to(dtype).requires_grad_() for one in given(*shape)]  # type: ignore[union-attr]
        low = dtype == torch.float32
        with torch.autocast("cpu", torch.bfloat16, enabled=low):
            out = of(*leaves)
        assert out.dtype == (torch.bfloat16 if low else dtype)
        torch.manual_seed(1)
        return out, *torch.autograd.grad(out, leaves, torch.randn(out.shape).bfloat16().to(out.dtype))

    if held == torch.bfloat16:
        x, weight, bias = (one.bfloat16() for one in given(*shape))  # type: ignore[union-attr]
        out = affine(x, weight, bias)
        assert out.dtype == torch.bfloat16
        exact = F.linear(x.double(), weight.double(), bias.double())
        assert torch.equal(out, exact.to(torch.bfloat16)) or (out - exact).abs().max() < 2**-7 * exact.abs().max()
    for ours, torchs, exact in zip(
        found(affine, torch.float32), found(F.linear, torch.float32), found(F.linear, torch.float64), strict=True
    ):
        assert ours.dtype == torchs.dtype
        assert (ours - exact).norm() <= max(1.02 * (torchs - exact).norm(), 1e-3 * exact.norm())
        assert (ours - exact).norm() <= 4e-3 * exact.norm()
    assert set(wide) == {torch.float32}


def test_gradients_of_gradients_in_bfloat16(wide: list[torch.dtype]) -> None:
    def found(of, dtype: torch.dtype) -> tuple[Tensor, ...]:
        x, weight, bias = (one.to(dtype).requires_grad_() for one in given(3))  # type: ignore[union-attr]
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.float32):
            out = of(x, weight, bias)
        (of_x,) = torch.autograd.grad(out.to(dtype).pow(3).sum(), x, create_graph=True)
        return torch.autograd.grad(of_x.square().sum(), (x, weight, bias))

    both = found(affine, torch.float32), found(F.linear, torch.float64)
    assert wide
    for one, exact in zip(*both, strict=True):
        assert (one - exact).norm() <= 2e-2 * exact.norm()


def test_what_autocast_leaves_alone_is_left_alone(wide: list[torch.dtype]) -> None:
    x, weight, bias = given(3)
    with torch.autocast("cpu", torch.float16):
        assert affine(x, weight, bias).dtype == torch.float16
    with torch.autocast("cpu", torch.bfloat16):
        assert affine(x.double(), weight.double(), None).dtype == torch.float64
        with torch.autocast("cpu", enabled=False), using(Costs("any", "any", 1)):
            plainly = affine(x, weight, bias)
    assert plainly.dtype == torch.float32
    assert torch.float32 not in wide or linear.takes_onednn()


def test_the_gradient_of_autocast_within_autocast(wide: list[torch.dtype]) -> None:
    leaves = [one.requires_grad_() for one in given(2, 65)]  # type: ignore[union-attr]
    found = []
    for inside in (False, True):
        with torch.autocast("cpu", torch.bfloat16):
            total = affine(*leaves).float().square().sum()
            if inside:
                found.append(torch.autograd.grad(total, leaves))
        if not inside:
            found.append(torch.autograd.grad(total, leaves))
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)
    assert set(wide) == {torch.float32}


def test_other_precisions_of_autocast_are_torchs(taken: list[torch.Size], monkeypatch: pytest.MonkeyPatch) -> None:
    """float16 was computed in float32 where oneDNN is the faster library."""
    monkeypatch.setattr(linear, "product_of", lambda _: products.matmul_t)
    monkeypatch.setattr(linear, "takes_wide", lambda: True)
    x, weight, bias = given(3)
    for learns in (False, True):
        with torch.autocast("cpu", torch.float16):
            assert affine(x.requires_grad_(learns), weight, bias).dtype == torch.float16
    low = [one.bfloat16() for one in (x, weight)]
    for some in ((low[0], low[1], bias), (low[0], weight, None), (x, low[1], None)):
        with pytest.raises(RuntimeError, match="same dtype"):
            affine(*some)
    assert not taken
