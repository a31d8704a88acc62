"""Random generators and kernels while a run trains."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


@contextlib.contextmanager
def reproducible(deterministic: bool, device: torch.device) -> Iterator[None]:
    """Inside, deterministic kernels where asked for; afterwards their switches and the random generators are as they
    were."""
    was, warned = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    # Deterministic mode fills all memory with NaN before an operator writes there: time for what nothing reads.
    memory: Any = torch.utils.deterministic
    filled, memory.fill_uninitialized_memory = memory.fill_uninitialized_memory, False
    torch.use_deterministic_algorithms(deterministic, warn_only=True)
    try:
        with torch.random.fork_rng(range(torch.cuda.device_count()) if device.type == "cuda" else ()):
            yield
    finally:
        torch.use_deterministic_algorithms(was, warn_only=warned)
        memory.fill_uninitialized_memory = filled


def seed_generators(seed: int, step: int, device: torch.device) -> None:
    """Seed torch's generators for a step, so that a resumed run draws the same. What draws by the images' seeds needs
    none; a plug-in's head may."""
    # Not by `torch.manual_seed`, which also reaches the GPUs of a run without.
    number = (seed * 2**32 + step) % 2**63
    torch.default_generator.manual_seed(number)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(number)
