"""What torch does around attention: compilers, exports, traces, torch.func, recomputation; and other heads."""

from __future__ import annotations

import pytest
import torch

from sightline.attention import attend, sdpa, use_backend
from sightline.encodings import create_encoding
from sightline.errors import InputError
from sightline.models import VisionTransformer, create_model
from sightline.tokens.layout import TokenLayout
from tests.attention.given import pattern


def model(encoding: str = "lookhere_90") -> VisionTransformer:
    torch.manual_seed(0)
    return create_model("vit_micro_patch4", encoding=encoding, num_classes=5, dim=32, heads=4, depth=2).eval()


IMAGES = torch.randn(2, 3, 72, 80, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("encoding", ["lookhere_90", "none", "rope_axial"])
def test_one_graph_without_breaks(encoding: str) -> None:
    torch._dynamo.reset()
    whole = model(encoding)
    compiled = torch.compile(whole, backend="eager", fullgraph=True)
    with torch.no_grad():
        assert torch.allclose(compiled(IMAGES), whole(IMAGES), atol=1e-5)
    torch._dynamo.reset()


@pytest.mark.slow
def test_strict_export() -> None:
    whole = model()
    exported = torch.export.export(whole, (IMAGES,), strict=True).module()
    with torch.no_grad():
        assert torch.allclose(exported(IMAGES), whole(IMAGES), atol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_traced() -> None:
    whole = model()
    with torch.no_grad():
        traced = torch.jit.trace(whole, IMAGES)
        assert torch.allclose(traced(IMAGES), whole(IMAGES), atol=1e-5)


def test_vmap_and_jacobian() -> None:
    """Under torch.func `dense` computes."""
    whole = model()
    with torch.no_grad():
        assert torch.allclose(torch.vmap(whole)(IMAGES.unsqueeze(1))[:, 0], whole(IMAGES), atol=1e-5)
    assert torch.autograd.functional.jacobian(whole, IMAGES[:1]).isfinite().all()


@pytest.mark.parametrize("name", ["sdpa", "products", "tiles"])
def test_recomputation_asks_for_the_same_back_end(name: str) -> None:
    whole = model().train()
    gradients = []
    for checkpointing in (False, True):
        whole.set_grad_checkpointing(checkpointing)
        whole.zero_grad()
        with use_backend(name):
            loss = whole(IMAGES).square().sum()
        loss.backward()
        gradients.append([parameter.grad.clone() for parameter in whole.parameters() if parameter.grad is not None])
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))


@pytest.mark.parametrize("name", ["sdpa", "products", "tiles"])
@pytest.mark.parametrize("heads", [3, 13])
def test_a_pattern_of_other_heads_is_refused(name: str, heads: int) -> None:
    layout = TokenLayout.uniform((5, 7), 2)
    q, k, v = torch.randn(3, 2, heads, layout.slots, 4).unbind(0)
    with use_backend(name), pytest.raises(InputError, match=f"a pattern of 12 heads for queries of {heads}"):
        attend(q, k, v, pattern(), layout)


def test_flex_keeps_models_of_other_heads_apart() -> None:
    layout = TokenLayout.uniform((4, 6), 1)
    for heads in (3, 12, 3):
        what = create_encoding("lookhere_90", depth=1, heads=heads, dim=8 * heads, fill="max").pattern(0, layout)
        q, k, v = torch.randn(3, 1, heads, layout.slots, 8).unbind(0)
        found = []
        for name in ("flex", "sdpa"):
            with torch.no_grad(), use_backend(name):
                found.append(attend(q, k, v, what, layout))
        assert (found[0] - found[1]).abs().max() < 1e-5


def test_dropped_tokens_keep_the_bound_of_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    """The displacements of any tokens take 20 bytes a pair: so few queries at a time that these fit."""
    layout = TokenLayout.uniform((12, 12), 1).keep(torch.randperm(144)[:100].unsqueeze(0))
    q, k, v = torch.randn(3, 1, 12, layout.slots, 4).unbind(0)
    expected = attend(q, k, v, pattern(), layout)
    monkeypatch.setattr(sdpa, "BIAS_BYTES", 101 * 101 * 12)
    pairs = []
    whole = sdpa._sdpa
    monkeypatch.setattr(sdpa, "_sdpa", lambda *given: pairs.append(given[3].shape[-2:].numel()) or whole(*given))
    with use_backend("sdpa"), torch.no_grad():
        assert torch.allclose(attend(q, k, v, pattern(), layout), expected, atol=1e-6)
    assert max(pairs) * 20 <= 101 * 101 * 12 + 20 * 101


@pytest.mark.parametrize("size", [(1, 12, 28), (2, 32, 32), (2, 76, 76)])
@pytest.mark.parametrize("name", ["lookhere_45", "alibi_2d", "rpe_learned"])
def test_a_trace_that_checks_itself_passes(name, size):
    """By default tracing runs twice, with gradients and without, and compares the graphs to the last name."""
    batch, height, width = size
    sdpa._BIASES.clear()
    model = create_model("vit_micro_patch4", encoding=name, depth=2, dim=64, heads=8, num_classes=3, pool="mean").eval()
    images = torch.randn(batch, 3, height, width)
    # A traced program takes torch's own products.
    torch.testing.assert_close(torch.jit.trace(model, images)(images), model(images), rtol=0, atol=1e-6)
