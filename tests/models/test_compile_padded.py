"""torch.compile on packs of ever new images: what a fixed length keeps from compiling anew, and what it does not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

from sightline.data.packing import padded_length
from sightline.models import VisionTransformer
from sightline.models.block import Block
from sightline.tokens.layout import TokenLayout
from tests.contract.contract import LOGITS, PATCH, assert_same_gradients, build, gradients, loss_of

pytestmark = pytest.mark.slow
BUCKETS = (256, 384)


@pytest.fixture(autouse=True)
def _reset():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def packs(count: int = 10) -> list[TokenLayout]:
    """Packs of 3 to 8 images of random grids; no two are alike."""
    generator = torch.Generator().manual_seed(0)
    found = []
    while len(found) < count:
        images = int(torch.randint(3, 9, (), generator=generator))
        grids = torch.randint(1, 13, (images, 2), generator=generator).tolist()
        layout = TokenLayout.packed([(rows, cols) for rows, cols in grids])
        if layout.slots <= max(BUCKETS):
            found.append(layout)
    return found


def patches(layout: TokenLayout) -> Tensor:
    count = sum(segment.patches for segment in layout.segments) + layout.padding
    return torch.randn(1, count, 3 * PATCH**2, generator=torch.Generator().manual_seed(count))


def in_buckets() -> list[TokenLayout]:
    return [layout.pad_to(padded_length(layout.slots, BUCKETS)) for layout in packs()]


def counted(model: VisionTransformer) -> CompileCounterWithBackend:
    """The MLPs compiled in place for fixed shapes; counts the graphs of all of them together."""
    counter = CompileCounterWithBackend("aot_eager")
    for block in model.blocks:
        assert isinstance(block, Block)
        block.mlp.compile(backend=counter, dynamic=False)
    return counter


@pytest.mark.parametrize("name", ["none", "rope_mixed", "lookhere_90", "rpe_learned"])
def test_what_sees_slots_alone_has_a_graph_for_each_length(name: str) -> None:
    """Layers share it: as many graphs as lengths, however many packs, forward and backward."""
    model, eager = (build(name, depth=3, dim=48).train() for _ in range(2))
    counter = counted(model)
    layouts = in_buckets()
    assert {layout.slots for layout in layouts} == set(BUCKETS)
    for layout in layouts:
        found = []
        for one in (model, eager):
            logits = one(patches(layout), layout=layout)
            loss_of(logits).backward()
            found.append((logits.detach(), gradients(one)))
        assert (found[0][0] - found[1][0]).abs().max() < LOGITS
        assert_same_gradients(found[0][1], found[1][1])
    assert counter.frame_count == len(BUCKETS)


@torch.no_grad()
def test_without_padding_each_pack_is_compiled_anew() -> None:
    model = build("none", depth=3, dim=48)
    counter = counted(model)
    layouts = packs(6)
    for layout in layouts:
        model(patches(layout), layout=layout)
    assert counter.frame_count == len({layout.slots for layout in layouts}) == 6


@torch.no_grad()
def test_a_whole_model_is_compiled_for_each_pack() -> None:
    """It is right, but a fixed length is not enough: which images there are is part of the graph."""
    model = build("rope_mixed", "mean", depth=1, dim=48, class_token=True)
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(model, backend=counter, dynamic=False)
    for number, layout in enumerate(in_buckets()[:5], start=1):
        given = patches(layout)
        assert (compiled(given, layout=layout) - model(given, layout=layout)).abs().max() < LOGITS
        assert counter.frame_count == number
