"""What torch does around attention: compilers, exports, traces, torch.func, recomputation; and other heads."""

from __future__ import annotations

import pytest
import torch

from sightline.attention import sdpa, use_backend
from sightline.models import VisionTransformer, create_model


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


@pytest.mark.slow
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
