"""Independent pieces of work on all cores of a CPU: one Python thread a core, each operator on one core.

An attention head in tiles is hundreds of short operators. Spread over cores one by one they wait for each other (and
stall for whole time slices where another process has a core); heads side by side do not (docs/LOG.md).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")

LARGEST_BYTES = 32 << 20
"""The largest buffer that glibc takes from its heap: a larger one comes from the system page by page, each time, which
takes longer than to read it (docs/LOG.md)."""

# (process, threads) -> its workers: those of the parent of a fork are not alive in the child.
_POOLS: dict[tuple[int, int], ThreadPoolExecutor] = {}


def run_parallel(work: Callable[[T], None], items: Iterable[T]) -> None:
    """Call `work` on each item, in no order, on as many threads as torch computes with; without gradients.

    An error in one call is raised here, after all have ended.
    """
    inference = torch.is_inference_mode_enabled()

    def alone(item: T) -> None:
        # Modes belong to a thread, so a worker has not those of its caller.
        with torch.inference_mode(inference), torch.no_grad(), torch.autocast("cpu", enabled=False):
            work(item)

    items = list(items)
    threads = torch.get_num_threads()
    if threads == 1 or len(items) == 1:
        for item in items:
            alone(item)
        return
    pool = _pool(threads)
    futures = [pool.submit(alone, item) for item in items]
    for error in [future.exception() for future in futures]:
        if error is not None:
            raise error


def _pool(threads: int) -> ThreadPoolExecutor:
    key = (os.getpid(), threads)
    # Looked up once: another thread, with another number, may put its pool in the place of this one meanwhile.
    pool = _POOLS.get(key)
    if pool is None:
        started = threading.Barrier(threads + 1)

        def use_one_core() -> None:
            # Asking first makes torch settle this thread's number, which the next line then changes for good.
            torch.get_num_threads()
            torch.set_num_threads(1)
            started.wait()

        pool = ThreadPoolExecutor(threads, "sightline-attention", initializer=use_one_core)
        for _ in range(threads):
            pool.submit(int)
        started.wait()
        # The workers' numbers are their own, but also went into torch's default for threads to come.
        torch.set_num_threads(threads)
        _POOLS.clear()
        _POOLS[key] = pool
    return pool
