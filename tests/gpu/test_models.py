"""Models on a GPU: a pack is its images, a compiled block the eager one, and neither programs nor memory multiply."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

from sightline.encodings import list_encodings
from sightline.models import create_model
from sightline.tokens.layout import TokenLayout
from tests.contract.contract import PATCH, build, images

pytestmark = pytest.mark.gpu
GRIDS = [(3, 5), (14, 14), (1, 7), (9, 17)]
# Slots of a padded pack; FlexAttention is taken from 1,024 on.
CAPACITY = 1152


def loss_of(logits: Tensor) -> Tensor:
    return (logits.float() * torch.linspace(-1, 2, logits.shape[-1], device=logits.device)).sum()


def assert_near(found: Tensor, expected: Tensor, limit: float = 1e-4) -> None:
    assert found.isfinite().all()
    assert float((found - expected).norm()) <= limit * float(expected.norm()) + 1e-6


def model_on(device: str, name: str, **options: Any) -> Any:
    """Heads of 16, the fewest that kernels of a GPU take."""
    return build(name, heads=6, **options).to(device)


@pytest.mark.parametrize("name", list_encodings())
def test_a_pack_is_its_images(name: str, device: str) -> None:
    """Whole and with patches dropped, uniform and packed: float32, so any way of computing may be taken."""
    model = model_on(device, name)
    given = [images(grid, 1, seed)[0].to(device) for seed, grid in enumerate(GRIDS)]
    both = images((14, 14), 2).to(device)
    with torch.no_grad():
        alone = torch.cat([model(one[None]) for one in given])
        assert float(alone.std()) > 0.01
        assert_near(model(given), alone)
        rows, layout = model.cut(both)
        kept = torch.arange(0, 196, 2, device=device)
        uniform = model(rows[:, kept], layout.keep(kept.expand(2, -1)))
        rows, layout = model.cut(list(both))
        packed = model(rows[:, torch.cat([kept, kept + 196])], layout.keep([kept, kept]))
        assert_near(packed, uniform)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["learned_1d", "lookhere_90", "rope_mixed", "rpe_learned"])
def test_compiled_blocks_are_the_eager_ones(name: str, packed: bool, device: str) -> None:
    from sightline.models.compile import compile_blocks

    torch.compiler.reset()
    # FlexAttention is for half precision.
    half = name == "lookhere_90"
    found = []
    for compiled in (False, True):
        model = model_on(device, name).train()
        if compiled:
            compile_blocks(model, dynamic=False)
        given: Any = images((33, 34), 2).to(device)
        with torch.autocast(device, torch.bfloat16, enabled=half):
            logits = model(list(given) if packed else given)
        loss_of(logits).backward()
        found.append({"logits": logits.detach(), **{key: one.grad for key, one in model.named_parameters()}})
    for key, expected in found[0].items():
        if expected is not None:
            assert_near(found[1][key], expected, 0.05 if half else 1e-3)


def pack(seed: int, device: str) -> tuple[Tensor, TokenLayout]:
    """Three to eight images of random grids, padded to the capacity."""
    generator = torch.Generator().manual_seed(seed)
    count = int(torch.randint(3, 9, (), generator=generator))
    grids = torch.randint(1, 12, (count, 2), generator=generator).tolist()
    layout = TokenLayout.packed([(rows, cols) for rows, cols in grids], device=device).pad_to(CAPACITY)
    return torch.randn(1, CAPACITY - count, 3 * PATCH**2, generator=generator).to(device), layout


@pytest.mark.parametrize("name", ["lookhere_90", "learned_1d"])
@pytest.mark.parametrize("sizes", ["packs", "a size a step"])
def test_programs_are_few(sizes: str, name: str, device: str) -> None:
    """Of 20 packs, and of 6 sizes, over all layers, forward and backward, in bfloat16 as a run has them."""
    from torch._dynamo.utils import counters

    from sightline.models.compile import compile_blocks

    torch.compiler.reset()
    counters.clear()
    model = model_on(device, name).train()
    compile_blocks(model, dynamic=sizes != "packs")
    with torch.autocast(device, torch.bfloat16):
        if sizes == "packs":
            for seed in range(20):
                rows, layout = pack(seed, device)
                loss_of(model(rows, layout=layout)).backward()
        else:
            for grid in [(33, 33), (40, 30), (36, 36), (33, 64), (35, 41), (48, 25)]:
                loss_of(model(images(grid).to(device))).backward()
    assert 1 <= counters["stats"]["unique_graphs"] <= 3
    # A large bias is computed outside of the programs.
    assert not counters["graph_break"] or (name, sizes) == ("lookhere_90", "a size a step")


def test_lookhere_at_1024_px_takes_the_memory_of_no_encoding(device: str) -> None:
    """Compiled; masks of all its layers would be 4.8 GB an image."""
    from sightline.models.compile import compile_blocks

    peaks = {}
    for name in ("none", "lookhere_90"):
        torch.compiler.reset()
        model = create_model("vit_base_patch16", encoding=name, num_classes=10).to(device).train()
        compile_blocks(model, dynamic=False)
        for _ in range(2):
            torch.cuda.reset_peak_memory_stats()
            with torch.autocast(device, torch.bfloat16):
                loss_of(model(torch.randn(1, 3, 1024, 1024, device=device))).backward()
            torch.cuda.synchronize()
        peaks[name] = torch.cuda.max_memory_allocated()
        del model
        torch.cuda.empty_cache()
    assert peaks["lookhere_90"] <= 1.1 * peaks["none"]


@pytest.mark.parametrize("name", ["lookhere_90", "learned_1d"])
def test_a_step_hardly_waits_for_the_gpu(name: str, device: str) -> None:
    """Of sizes that were seen before; each wait leaves the GPU without work."""
    model = model_on(device, name).train()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    given = images((33, 34)).to(device)

    def step() -> None:
        with torch.autocast(device, torch.bfloat16):
            loss_of(model(given)).backward()
        optimizer.step()

    for _ in range(2):
        step()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    waits = [str(one.message) for one in said if "synchroniz" in str(one.message)]
    assert len(waits) <= 2, waits
