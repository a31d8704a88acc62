"""How attention is computed for golden records: one form, whatever the processor."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from sightline.attention import use_backend


@contextlib.contextmanager
def fixed_attention() -> Iterator[None]:
    """Inside, torch's SDPA with a dense bias computes all attention, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with use_backend("sdpa"):
            yield
    finally:
        torch.set_num_threads(threads)
