"""Where attention on a CPU may be a step of our own, and where it has to be torch's: whichever form costs least."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from sightline.attention import attend, sdpa, use_backend
from sightline.attention.pattern import ImageMask, Pattern
from sightline.errors import InputError
from sightline.tokens.layout import TokenLayout
from tests.attention.given import assert_close, pattern, random_qkv, with_gradients

FORMS = ("sdpa", "products", "tiles")
LAYOUTS = {
    "a batch": TokenLayout.uniform((3, 7), 2),
    "a short image": TokenLayout.uniform((3, 7), 1),
    "a pack": TokenLayout.packed([(3, 7), (9, 11)]),
}
every_form = pytest.mark.parametrize("form", FORMS)
every_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


@pytest.fixture(params=[False, True], ids=["kept", "made again"])
def made_again(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Biases of short images are kept, or as those of long ones are made for each pass."""
    if request.param:
        monkeypatch.setattr(sdpa, "_CACHED_BYTES", 0)


def leaves(layout: TokenLayout, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    return [one.requires_grad_() for one in random_qkv(layout, dtype=dtype)]


@every_form
@every_layout
@pytest.mark.usefixtures("made_again")
def test_channels_may_stand_apart(layout: TokenLayout, form: str) -> None:
    """The fused operators read memory past such rows, and do not say so."""
    qkv = random_qkv(layout)
    apart = [one.transpose(2, 3).contiguous().transpose(2, 3) for one in qkv]
    assert all(one.stride(-1) > 1 for one in apart)
    with use_backend(form):
        found = with_gradients("auto", apart, pattern(), layout)
    with use_backend("sdpa"):
        assert_close(found, with_gradients("sdpa", qkv, pattern(), layout), 1e-5, 1e-4)


@every_form
@every_layout
@pytest.mark.usefixtures("made_again")
def test_second_derivatives_where_torch_has_them(layout: TokenLayout, form: str) -> None:
    inputs, results = leaves(layout), []
    for one in (form, "sdpa"):
        with use_backend(one), sdpa_kernel(SDPBackend.MATH):
            grads = torch.autograd.grad(attend(*inputs, pattern(), layout).square().sum(), inputs, create_graph=True)
            results.append(torch.autograd.grad(sum(grad.square().sum() for grad in grads), inputs))
    for one, other in zip(*results, strict=True):
        assert other.norm() > 0
        assert (one - other).norm() <= 1e-4 * other.norm()


@every_form
@every_layout
@pytest.mark.usefixtures("made_again")
@pytest.mark.parametrize("learns", [False, True])
def test_a_trace_has_torchs_operators_alone(layout: TokenLayout, form: str, learns: bool) -> None:
    inputs = [one.requires_grad_(learns) for one in random_qkv(layout)]
    with use_backend(form):
        traced = torch.jit.trace(lambda *qkv: attend(*qkv, pattern(), layout), inputs, check_trace=False)
        expected = attend(*inputs, pattern(), layout)
    names = {node.kind() for node in traced.graph.nodes()}
    assert names
    assert all(name.startswith(("aten::", "prim::")) and name != "prim::PythonOp" for name in names)
    torch.testing.assert_close(traced(*inputs), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("learns", [False, True])
@every_form
@every_layout
@pytest.mark.usefixtures("made_again")
def test_a_derivative_of_the_forward_mode_is_never_lost(layout: TokenLayout, form: str, learns: bool) -> None:
    q, k, v = (one.requires_grad_(learns) for one in random_qkv(layout))
    tangent = torch.randn_like(q, memory_format=torch.contiguous_format)
    with use_backend(form), forward_ad.dual_level(), sdpa_kernel(SDPBackend.MATH):
        out = attend(forward_ad.make_dual(q, tangent), k, v, pattern(), layout)
        found = forward_ad.unpack_dual(out).tangent
    assert found is not None
    with use_backend("sdpa"):
        shift = [
            attend(q.double() + step * tangent, k.double(), v.double(), pattern(), layout) for step in (-1e-4, 1e-4)
        ]
    torch.testing.assert_close(found, ((shift[1] - shift[0]) / 2e-4).float(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("form", ["products", "tiles"])
@every_layout
def test_whoever_counts_operators_sees_torchs(layout: TokenLayout, form: str) -> None:
    counts = []
    for one in (form, "sdpa"):
        with use_backend(one), torch.no_grad(), FlopCounterMode(display=False) as counter:
            attend(*random_qkv(layout), pattern(), layout)
        counts.append(counter.get_flop_counts())
    assert counts[0] == counts[1]


class Odd(Tensor):
    """A tensor with operators of its own."""


@every_form
@every_layout
@pytest.mark.usefixtures("made_again")
def test_a_tensor_of_another_kind_is_left_to_torch(layout: TokenLayout, form: str, monkeypatch) -> None:
    monkeypatch.setattr(sdpa, "attend_products", None)
    monkeypatch.setattr(sdpa, "attend_tiles", None)
    inputs = [one.as_subclass(Odd).requires_grad_() for one in random_qkv(layout)]
    with use_backend(form):
        out = attend(*inputs, pattern(), layout)
    # After the numbers that chose have gone.
    grads = torch.autograd.grad(out.sum(), inputs)
    assert all(type(one) is Odd for one in (out, *grads))


@pytest.mark.parametrize("form", FORMS[:2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("images", [1, 2])
def test_a_row_that_is_masked_whole_gives_zeros(images: int, dtype: torch.dtype, form: str) -> None:
    layout = TokenLayout.uniform((3, 5), images, num_prefix_tokens=2)
    values = torch.zeros(1, 1, 2, layout.slots)
    values[:, :, 0] = -torch.inf
    what, inputs = Pattern((ImageMask([values] * len(layout.segments), 12),)), leaves(layout, dtype)
    with use_backend(form):
        out = attend(*inputs, what, layout)
    assert not out[:, :, 0].any()
    assert out[:, :, 1:].any(-1).all()
    assert all(one.isfinite().all() for one in torch.autograd.grad(out.float().square().sum(), inputs))


@pytest.mark.parametrize("form", FORMS[:2])
def test_queries_whose_own_keys_are_gone_may_see_nothing(form: str) -> None:
    whole = TokenLayout.uniform((1, 6), 2, num_prefix_tokens=0)
    first = whole.keep(torch.tensor([[0, 1], [0, 1]]))
    (q, _, _), (_, k, v) = random_qkv(whole), random_qkv(first)
    what = pattern("lookhere_45", rounding="exact")
    hidden = what.bias(whole.segments[0], first.segments[0], 0, 0).isneginf().all(-1)
    assert hidden.any()
    with use_backend(form):
        out = attend(q, k, v, what, first, whole)
    assert torch.equal((out == 0).all(-1), hidden.expand(2, -1, -1))


@every_form
def test_an_image_of_which_nothing_is_left(form: str) -> None:
    layout = TokenLayout.packed([(3, 5), (2, 2)], num_prefix_tokens=0)
    some = layout.keep([torch.arange(4), torch.arange(0)])
    alone = TokenLayout.packed([(3, 5)], num_prefix_tokens=0).keep([torch.arange(4)])
    qkv = random_qkv(alone)
    with use_backend(form):
        for learns in (False, True):
            inputs = [one.requires_grad_(learns) for one in qkv]
            found = attend(*inputs, pattern(), some)
            torch.testing.assert_close(found, attend(*inputs, pattern(), alone), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", ["products", "tiles"])
@pytest.mark.parametrize("grids", [[(9, 7)], [(3, 5), (9, 7)]])
def test_gradients_of_gradients_are_refused_and_never_left_out(form: str, grids: list[tuple[int, int]]) -> None:
    """`autograd.grad` took what a step has no derivative of as nothing, without a word."""
    layout = TokenLayout.packed(grids)
    q, k, v = (one.requires_grad_() for one in random_qkv(layout))

    def second() -> torch.Tensor:
        out = attend(q, k, v, pattern(), layout)
        (first,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
        return torch.autograd.grad(first.square().sum(), q)[0]

    with use_backend(form), pytest.raises(InputError, match="asked for their own gradients"):
        second()
    with sdpa_kernel(SDPBackend.MATH):
        assert second().norm() > 0
