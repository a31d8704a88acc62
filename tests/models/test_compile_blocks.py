"""Compiled blocks: few programs for all layers, packs and sizes, and the numbers of the model that is not compiled."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

from sightline.attention import dispatch, use_backend
from sightline.models import VisionTransformer
from sightline.models import compile as compiling
from sightline.models.compile import compile_blocks
from sightline.tokens.layout import TokenLayout
from tests.contract.contract import LOGITS, PATCH, assert_same_gradients, build, gradients, images, loss_of

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")]
LENGTH = 384
DROPS = {"drop_path": 0.2, "dropout": 0.1}


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> CompileCounterWithBackend:
    """Counts the programs, of which torch traces forward and backward and generates no code."""
    counter = CompileCounterWithBackend("aot_eager")
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=counter))
    monkeypatch.setattr(compiling, "_check_compiler", lambda device: None)
    # Flex has no backward pass on a CPU, but torch's reference of it has.
    monkeypatch.setattr("torch.nn.attention.flex_attention._validate_device", lambda *_: None)
    torch._dynamo.reset()
    yield counter
    torch._dynamo.reset()


def packs(count: int) -> list[TokenLayout]:
    """Packs of 3 to 8 images of random grids, padded to one length; no two are alike."""
    generator = torch.Generator().manual_seed(0)
    found: list[TokenLayout] = []
    while len(found) < count:
        number = int(torch.randint(3, 9, (), generator=generator))
        grids = torch.randint(1, 13, (number, 2), generator=generator).tolist()
        layout = TokenLayout.packed([((2 + len(found) % 3) * rows // 2, cols) for rows, cols in grids])
        if layout.slots <= LENGTH:
            found.append(layout.pad_to(LENGTH).with_seeds(range(number)))
    return found


def patches(layout: TokenLayout) -> Tensor:
    count = layout.rows, sum(segment.patches for segment in layout.segments) + layout.padding, 3 * PATCH**2
    return torch.randn(count, generator=torch.Generator().manual_seed(count[1]))


def check_steps(compiled: VisionTransformer, eager: VisionTransformer, layouts: list[TokenLayout], by="auto") -> None:
    """Logits and gradients of each batch are those of the model that is not compiled."""
    for layout in layouts:
        found = []
        for model, backend in ((compiled, by), (eager, "sdpa")):
            model.zero_grad()
            with use_backend(backend):
                logits = model(patches(layout), layout=layout)
            loss_of(logits).backward()
            found.append((logits.detach(), gradients(model)))
        assert (found[0][0] - found[1][0]).abs().max() < LOGITS
        assert_same_gradients(found[0][1], found[1][1])


def pair(name: str, **options) -> tuple[VisionTransformer, VisionTransformer]:
    compiled, eager = (build(name, depth=3, dim=48, **options).train() for _ in range(2))
    compile_blocks(compiled)
    return compiled, eager


@pytest.mark.parametrize(
    ("name", "exact"), [("lookhere_90", "rounding"), ("lookhere_90+rope_mixed", "lookhere_90.rounding")]
)
def test_twenty_packs_by_flex_are_few_programs(name, exact, counter, monkeypatch) -> None:
    monkeypatch.setattr(dispatch, "supports", lambda name, pattern, *_: name == "flex" and pattern is not None)
    compiled, eager = pair(name, encoding_options={exact: "exact"}, **DROPS)
    check_steps(compiled, eager, packs(20), "flex")
    print(f"{name}: {counter.frame_count} programs of 20 packs in 3 layers")
    assert counter.frame_count <= 3


@pytest.mark.parametrize("name", ["none", "rope_mixed", "rpe_learned", "lookhere_90"])
def test_packs_whose_attention_is_outside_are_few_programs(name, counter) -> None:
    compiled, eager = pair(name, **DROPS)
    check_steps(compiled, eager, packs(20))
    print(f"{name}: {counter.frame_count} programs of 20 packs in 3 layers")
    assert counter.frame_count <= 3


@pytest.mark.parametrize("name", ["none", "rope_axial", "rpe_learned", "lookhere_90", "learned_1d"])
def test_sizes_with_a_ready_bias_are_a_program_each(name, counter) -> None:
    """And layers share it, though their slopes differ."""
    compiled, eager = pair(name)
    layouts = [TokenLayout.uniform(grid, 2) for grid in ((3, 5), (4, 7), (3, 5))]
    check_steps(compiled, eager, layouts)
    assert counter.frame_count == 2


def test_ten_sizes_of_symbols_are_few_programs(counter) -> None:
    compiled, eager = (build("rope_axial", depth=3, dim=48).train() for _ in range(2))
    compile_blocks(compiled, dynamic=True)
    check_steps(compiled, eager, [TokenLayout.uniform((rows, 11 - rows), 2) for rows in range(1, 11)])
    assert counter.frame_count <= 3


@torch.no_grad()
@pytest.mark.parametrize("grid", [(3, 5), (17, 9), (30, 21)])
def test_a_compiled_forward_by_flex_is_the_dense_one(grid, counter) -> None:
    exact = {"rounding": "exact"}
    compiled, eager = (build("lookhere_90", encoding_options=exact, depth=3, dim=48).eval() for _ in range(2))
    compile_blocks(compiled)
    given = images(grid)
    with use_backend("flex"):
        found = compiled(given)
    with use_backend("sdpa"):
        assert (found - eager(given)).abs().max() < LOGITS
    assert counter.frame_count == 1
