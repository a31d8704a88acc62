"""Every registered encoding, and some together, against the contract."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sightline.attention import use_backend
from sightline.encodings import list_encodings
from sightline.encodings.create import components
from sightline.tokens.layout import TokenLayout
from tests.contract.contract import FOR_EACH_POOL, ONCE, assert_same_gradients, build, gradients, images, loss_of
from tests.contract.packed import check_packed_with_drops

JOINED = [
    "rope_mixed+learned_1d",
    "lookhere_90+alibi_2d",
    "rope_axial+rpe_learned",
    "rope_axial+rope_mixed",
    "rope_axial+irpe_bias",
]
NAMES = [*list_encodings(), *JOINED]
POOLS = ["cls", "mean", "attention", "query"]
# What models for packing have beside the plain ViT. A softmax does not see a bias of the keys' norm, whose gradient is
# rounding alone: norms of q and k have none here.
PACKED: list[dict[str, Any]] = [
    {"qk_norm": True, "norm": "layer_no_bias"},
    {"qk_norm": "heads"},
    {"norm": "rms", "qk_norm": True, "qkv_bias": False, "block_bias": "mlp"},
    {"norm": "layer_no_bias", "qkv_bias": False, "block_bias": False, "patch_bias": False, "head_bias": False},
    {"patch_norm": True, "final_norm": "both", "head_dim": 12},
]


# Two each, in turn; the second one is slow.
EACH_POOL = [
    pytest.param(name, POOLS[at % 4], marks=() if at == n else pytest.mark.slow)
    for n, name in enumerate(NAMES)
    for at in (n, n + 2)
]


@pytest.mark.parametrize(("name", "pool"), EACH_POOL)
@pytest.mark.parametrize("check", [*FOR_EACH_POOL, check_packed_with_drops])
def test_contract_with_each_pooling(check, pool: str, name: str) -> None:
    check(name, pool)


@pytest.mark.parametrize("options", PACKED, ids=str)
@pytest.mark.parametrize("pool", POOLS)
def test_packed_with_drops_whatever_the_norms_and_biases(pool: str, options: dict[str, Any]) -> None:
    check_packed_with_drops("rope_axial+factorized", pool, **options)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("check", ONCE)
def test_contract(check, name: str) -> None:
    check(name)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("backend", ["tiles", "products", "flex"])
def test_every_back_end_equals_dense(backend: str, name: str) -> None:
    """Logits and gradients of whole models, on grids that are not square, where a back end is asked for."""
    model = build(name, "attention")
    given = [images((3, 5), 1)[0], images((7, 2), 1)[0]]
    results = []
    for preferred in ("sdpa", backend):
        with use_backend(preferred):
            logits = model(given)
            loss_of(logits).backward()
            results.append((logits.detach(), gradients(model)))
    (dense, expected), (other, found) = results
    assert (dense - other).abs().max() < 1e-5
    assert_same_gradients(found, expected)


@pytest.mark.parametrize("name", NAMES)
def test_hooks_do_not_know_the_batch(name: str) -> None:
    """Whatever a hook gives is one row for all, or one each; past layer 0 nothing is added, unless it is `at` every
    layer."""
    model = build(name)
    layout = TokenLayout.uniform((3, 5), 4, num_prefix_tokens=1)
    added = model.encoding.added(0, layout)
    assert added is None or added.shape == (1, 16, 96)
    later = model.encoding.added(1, layout)
    if {getattr(part.config, "at", "input") for part in components(model.encoding)} == {"input"}:
        assert later is None
    else:
        assert added is not None
        assert later.shape == added.shape
        assert torch.equal(later, added) == (model.encoding.at == "shared")
    rotation = model.encoding.rotation(1, layout)
    assert rotation is None or (rotation.angles.shape[2:] == (16, 4) and not rotation.angles[:, :, 0].any())


@pytest.mark.parametrize("name", NAMES)
def test_more_prefix_tokens(name: str) -> None:
    """Registers beside the CLS token: finite, a list still equals a batch, each register has a gradient."""
    model = build(name, num_registers=2)
    assert model.num_prefix_tokens == 3
    given = images((3, 5), 2)
    logits = model(given)
    assert (logits - model(list(given))).abs().max() < 2e-5
    loss_of(logits).backward()
    assert (gradients(model)["reg_token"].abs().sum(dim=-1) > 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_bfloat16_model(name: str) -> None:
    """A model whose parameters are all held in bfloat16 still works, near its float32 self."""
    model = build(name)
    given = images((5, 7))
    with torch.no_grad():
        expected = model(given)
        found = model.to(torch.bfloat16)(given.bfloat16())
    assert found.dtype == torch.bfloat16
    assert found.isfinite().all()
    assert (found.float() - expected).abs().max() < 0.15 * expected.abs().max()
