"""Training keeps no layer's bias, whichever back end computes: what autograd saves, and what the process takes."""

from __future__ import annotations

import functools
import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor

import sightline.attention.dispatch as dispatching
from sightline.attention import use_backend
from sightline.models import create_model

HEADS, GRID = 12, 24
TOKENS = 1 + GRID * GRID


def largest_saved(backend: str, as_list: bool = False) -> int:
    """Elements of the largest storage that a training step keeps for its backward pass."""
    torch.manual_seed(0)
    model = create_model("vit_micro_patch4", encoding="lookhere_90", num_classes=5, dim=48, depth=3).train()
    images = torch.randn(1, 3, 4 * GRID, 4 * GRID)
    kept: list[int] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor.untyped_storage().nbytes() // tensor.element_size())
        return tensor

    with use_backend(backend):
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            logits = model(list(images) if as_list else images)
        logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    return max(kept)


@pytest.mark.parametrize("as_list", [False, True])
@pytest.mark.parametrize("backend", ["auto", *dispatching.BACKENDS])
def test_no_bias_is_saved(backend: str, as_list: bool) -> None:
    largest = largest_saved(backend, as_list)
    assert largest < HEADS * TOKENS**2, "a layer's bias"
    # Nor that of one head: the hidden layer of an MLP is the largest.
    # One row of tokens is multiplied with up to a thirtieth more of zeros.
    assert largest <= TOKENS * 4 * 48 * 33 // 32 < TOKENS**2


STEP = """
import sys, torch
# 80 MB of Python that optimisers and torch.utils.checkpoint load when they are first called.
import torch._dynamo
from sightline.attention import use_backend
from sightline.models import create_model

encoding, backend, depth = sys.argv[1], sys.argv[2], int(sys.argv[3])
torch.manual_seed(0)
torch.set_num_threads(1)

def status(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(field + ":")) * 1024

def step(size):
    with use_backend(backend):
        model(torch.randn(2, 3, size, size)).square().sum().backward()
    model.zero_grad(set_to_none=True)

model = create_model("vit_small_patch16", encoding=encoding, num_classes=10, depth=depth).train()
# Libraries load and make their own buffers in the first step.
step(32)
before = status("VmRSS")
step(384)
print(before, status("VmHWM"))
"""


@functools.cache
def peak(encoding: str, backend: str, depth: int) -> tuple[int, int]:
    """Bytes of a fresh process: before and at most during a training step at 384 px."""
    # Freed memory goes back at once, so that the peak is what was needed and not what was fragmented.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    words = [sys.executable, "-c", STEP, encoding, backend, str(depth)]
    ran = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300, env=environment)
    before, most = ran.stdout.split()
    return int(before), int(most)


# Float32, 6 heads, 24 x 24 patches and CLS.
BIAS = 4 * 6 * 577**2

linux = pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads Linux's /proc")


@pytest.mark.slow
@linux
def test_peak_of_a_training_step() -> None:
    """With LookHere at most 1.15 times that without any position encoding, also without what the process had before."""
    none, lookhere = peak("none", "auto", 4), peak("lookhere_90", "auto", 4)
    assert lookhere[1] <= 1.15 * none[1]
    assert lookhere[1] - lookhere[0] <= 1.15 * (none[1] - none[0])


@pytest.mark.slow
@linux
@pytest.mark.parametrize("backend", ["auto", "sdpa", "tiles"])
def test_peak_does_not_grow_with_a_bias_a_layer(backend: str) -> None:
    """From 4 layers to 8 the step grows by less than two biases more than without a position encoding."""
    grown = {}
    for encoding, name in {"none": "auto", "lookhere_90": backend}.items():
        few, many = (peak(encoding, name, depth) for depth in (4, 8))
        grown[encoding] = (many[1] - many[0]) - (few[1] - few[0])
    assert grown["none"] > 4 * 2 * 577 * 384 * 4, "each layer keeps several tensors of all tokens"
    assert grown["lookhere_90"] - grown["none"] < 2 * BIAS
