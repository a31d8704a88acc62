"""Where attention on a CPU may be a step of our own, and where it has to be torch's: whichever form costs least."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel

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
