"""The last layer for class tokens alone: the same function, gradients included, of which nobody who looks misses
anything."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from sightline.attention import record_attention
from sightline.encodings import list_encodings
from sightline.models import VisionTransformer, linear
from sightline.models.block import Block, Mlp
from sightline.tokens.layout import TokenLayout
from tests.contract.contract import build, images

GRIDS = [(3, 5), (5, 2), (1, 1), (3, 5)]


def both_ways(model: VisionTransformer, rows: Tensor, layout: TokenLayout) -> list[list[Tensor]]:
    """Logits, and the gradients of all parameters and of the rows: as `forward` computes, and of all tokens."""
    results = []
    for whole in (False, True):
        given = rows.clone().requires_grad_()
        assert model.blocks.gives_first(layout)
        out = model.head(model.pool(model.encode(given, layout), layout)) if whole else model(given, layout=layout)
        wanted = [given, *(one for one in model.parameters() if one.requires_grad)]
        found = torch.autograd.grad(out.square().sum(), wanted, allow_unused=True)
        results.append([out, *(torch.zeros(1) if one is None else one for one in found)])
    return results


def check(model: VisionTransformer, rows: Tensor, layout: TokenLayout, tolerance: float = 1e-9) -> None:
    found, expected = both_ways(model, rows, layout)
    assert expected[0].std() > 0.02
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def laid_out(model: VisionTransformer, how: str) -> tuple[Tensor, TokenLayout]:
    prefix = model.num_prefix_tokens
    if how == "uniform":
        layout = TokenLayout.uniform((3, 5), 2, num_prefix_tokens=prefix)
    else:
        layout = TokenLayout.packed(GRIDS, num_prefix_tokens=prefix)
    if how == "dropped":
        layout = layout.keep([torch.arange(0, rows * cols, 2) for rows, cols in GRIDS])
    if how == "padded":
        layout = layout.pad_to(layout.slots + 3)
    patches = layout.slots - prefix * len(layout.segments)
    layout = layout.with_seeds(range(layout.images))
    return torch.randn(layout.rows, patches, 48, generator=torch.Generator().manual_seed(0)).double(), layout


@pytest.mark.parametrize("how", ["uniform", "packed", "dropped", "padded"])
@pytest.mark.parametrize("name", [*list_encodings(), "rope_axial+learned_1d", "lookhere_90+rpe_learned"])
def test_it_is_what_all_tokens_give(name: str, how: str) -> None:
    model = build(name).double()
    if not model.attn_pool.reads_first or model.encoding.made_for not in (None, 2):
        pytest.fail("a class token is pooled, of images")
    # A sum of terms, and so its gradient, is in float32.
    check(model, *laid_out(model, how), 1e-5 if "+rpe" in name else 1e-9)


@pytest.mark.parametrize("how", ["uniform", "padded"])
@pytest.mark.parametrize(
    "options",
    [
        {"num_registers": 2},
        {"qkv_bias": "qv", "attn_norm": True, "mlp_norm": True},
        {"qkv_bias": False, "qk_norm": True, "layer_scale": 0.3, "norm_pre": True},
        {"mlp": "swiglu", "final_norm": "after_pool", "depth": 1},
        {"drop_path": 0.5, "dropout": 0.3},
    ],
    ids=lambda one: "-".join(one),
)
def test_whatever_a_block_is_made_of(options: dict[str, Any], how: str) -> None:
    model = build("lookhere_90", **options).double().train()
    check(model, *laid_out(model, how))


def test_what_is_computed_again_is_the_same() -> None:
    model = build("rope_axial").double()
    rows, layout = laid_out(model, "packed")
    kept = both_ways(model, rows, layout)[0]
    model.blocks.activation_checkpointing = True
    for one, other in zip(both_ways(model, rows, layout)[0], kept, strict=True):
        assert torch.equal(one, other)


def test_the_last_layer_computes_no_other_token(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    before = Mlp._activated
    monkeypatch.setattr(Mlp, "_activated", lambda self, x: seen.append(x.shape[1]) or before(self, x))
    model = build("lookhere_90", depth=3)
    with torch.no_grad():
        model(images((3, 5)))
        model([one for grid in GRIDS for one in images(grid, 1)])
    assert seen == [16, 16, 1, *2 * [sum(rows * cols + 1 for rows, cols in GRIDS)], len(GRIDS)]
    seen.clear()
    model.reset_classifier(5, "mean")
    with torch.no_grad():
        model(images((3, 5)))
    assert seen == [16] * 3


def _as(place: Callable[[Any], nn.Module], **methods: Any) -> Callable[[Any], None]:
    """What makes a module of the model one of a class of its own."""

    def change(model: Any) -> None:
        module = place(model)
        module.__class__ = type("Mine", (type(module),), methods)

    return change


class _Mixed(nn.Module):
    """An MLP that looks at all tokens."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor, *given: Any) -> Tensor:
        return self.inner(x, *given) + x.mean(1, keepdim=True)


class _Weight(Tensor):
    """As quantised weights are, which know a linear layer alone."""


def _weighted(model: Any) -> None:
    layer = model.blocks[-1].attn.qkv
    layer.weight = nn.Parameter(layer.weight.detach().as_subclass(_Weight), requires_grad=False)


def _called_by_name(model: Any) -> None:
    block = model.blocks[-1]
    block.attended = lambda *given: Block.attended(block, *given)


LOOKING: dict[str, Callable[[Any], Any]] = {
    "a hook of the block": lambda model: model.blocks[-1].register_forward_hook(lambda *_: None),
    "a hook inside": lambda model: model.blocks[-1].mlp.fc1.register_forward_pre_hook(lambda *_: None),
    "a hook of the norm": lambda model: model.norm.register_forward_hook(lambda *_: None),
    "a hook of the pooling": lambda model: model.attn_pool.register_forward_hook(lambda *_: None),
    "a hook of gradients": lambda model: model.blocks[-1].register_full_backward_hook(lambda *_: None),
    "a hook of all": lambda _: nn.modules.module.register_module_forward_hook(lambda *_: None),  # type: ignore[arg-type]
    "a call that is replaced": lambda model: setattr(model.blocks[-1], "forward", model.blocks[-1].forward),
    "attention of another class": _as(lambda model: model.blocks[-1].attn),
    "a block of another class": _as(lambda model: model.blocks[-1]),
    "a layer that is no linear one": _as(lambda model: model.blocks[-1].attn.qkv),
    "an MLP that may mix tokens": _as(lambda model: model.blocks[-1].mlp),
    "a norm that may": _as(lambda model: model.norm),
    "a trunk of another class": _as(lambda model: model.blocks),
    "a hook of the trunk": lambda model: model.blocks.register_forward_hook(lambda *_: None),
    "a pooling of another class": _as(lambda model: model.attn_pool),
    "a method of the block": _called_by_name,
    "weights of another kind": _weighted,
    "a model with a way of its own": _as(
        lambda model: model, through=lambda self, *given: VisionTransformer.through(self, *given)
    ),
    "a pooling of its own": _as(lambda model: model, pool=lambda self, *given: VisionTransformer.pool(self, *given)),
    "a pooling that is replaced": lambda model: setattr(model, "pool", model.pool),
    "a way that is replaced": lambda model: setattr(model, "encode", model.encode),
}


@pytest.mark.parametrize("how", LOOKING)
@torch.no_grad()
def test_who_looks_sees_all_tokens(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, given, seen = build("rope_axial"), images((3, 5)), []
    before = Mlp._activated
    monkeypatch.setattr(Mlp, "_activated", lambda self, x: seen.append(x.shape[1]) or before(self, x))
    plain = model(given)
    assert seen == [16, 1]
    handle: Any = LOOKING[how](model)
    try:
        torch.testing.assert_close(model(given), plain)
        assert seen == [16, 1, 16, 16]
    finally:
        if handle is not None:
            handle.remove()


@torch.no_grad()
def test_what_mixes_tokens_is_given_all() -> None:
    model, given = build("rope_axial"), images((3, 5))
    model.blocks[-1].mlp = _Mixed(model.blocks[-1].mlp)
    torch.testing.assert_close(model(given), model.forward_head(model.forward_features(given)))
    pooling: Any = type("Own", (nn.Module,), {"forward": lambda self, tokens, layout: tokens[:, 1:].sum(1)})()
    model.attn_pool = pooling
    torch.testing.assert_close(model(given), model.forward_head(model.forward_features(given)))


@torch.no_grad()
def test_who_counts_or_records_counts_all() -> None:
    model, given = build("rope_axial"), images((3, 5))
    shapes: list[int] = []
    with record_attention(lambda one: shapes.append(one.q.shape[2])):
        model(given)
    assert shapes == [16, 16]
    counts = []
    for call in (model, lambda given: model.forward_head(model.forward_features(given))):
        with FlopCounterMode(display=False) as counter:
            call(given)
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1]
    # A mode without hooks of modules: it looks at operators alone.
    layout = TokenLayout.uniform((3, 5), 1)
    assert model.blocks.gives_first(layout)
    with _Mode():
        assert not model.blocks.gives_first(layout)


class _Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def test_many_packs_of_few_images_prepare_few_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: set[tuple[int, int, int]] = set()
    before = linear.product_of
    monkeypatch.setattr(linear, "takes_onednn", lambda: True)
    monkeypatch.setattr(linear, "product_of", lambda shapes: prepared.update(shapes) or before(shapes))
    model = build("rope_axial")
    with torch.no_grad():
        for count in range(1, 33):
            model([torch.randn(3, 8, 8)] * count)
    rows = {m for m, _, _ in prepared if m <= 32}
    assert rows == {16, 32}


@torch.no_grad()
def test_a_copy_and_a_state_give_the_same() -> None:
    model, given = build("lookhere_90"), images((5, 3))
    assert torch.equal(copy.deepcopy(model)(given), model(given))


@torch.no_grad()
@pytest.mark.parametrize("images_given", [[], None])
def test_nothing_is_pooled_of_nothing(images_given: list[Tensor] | None) -> None:
    model = build("lookhere_90")
    given = torch.zeros(0, 3, 12, 20) if images_given is None else images_given
    assert model(given).shape == (0, 5)


@torch.no_grad()
def test_weights_that_do_not_learn_give_the_same_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model read back under inference mode gave other last bits: torch folds rows with gaps by what learns."""
    monkeypatch.setattr(linear, "takes_onednn", lambda: False)
    model, given = build("lookhere_90"), images((5, 3))
    before = model(given)
    assert torch.equal(model.requires_grad_(False)(given), before)
