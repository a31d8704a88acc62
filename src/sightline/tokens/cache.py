"""What is made once and kept for the next time: by bytes and not by number, the least recently used given up first.

Every store here is in `CACHES`, so that one test holds all of them to their bounds.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

T = TypeVar("T")

CACHES: dict[str, ByteLRUCache] = {}

# What an entry takes beside what it was counted for: its key, its place, the objects around its numbers.
_ENTRY_BYTES = 512


_GUARDS: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()


class ForkSafeLock:
    """A lock among threads, which is free in the child of a fork that was made while another thread held it.

    Attributes:
        lock: to be asked for each time: the child has another.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        _GUARDS.add(self)


def _free_locks() -> None:
    """In the child of a fork: who held one there does not live here."""
    for guard in _GUARDS:
        guard.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_locks)


class ByteLRUCache:
    """Values by key, at most `most_bytes` of them together; safe among threads.

    Attributes:
        most_bytes: the bound.
        held_bytes: what the values were counted for.
    """

    def __init__(self, name: str, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.held_bytes = 0
        self._values: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._guard = ForkSafeLock()
        CACHES[name] = self

    def get(self, key: Hashable) -> Any:
        """The value, which becomes the most recently used one, or None."""
        with self._guard.lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def put(self, key: Hashable, value: Any, size: int) -> None:
        """Keep a value that takes `size` bytes; one that is larger than the bound alone is not kept."""
        size += _ENTRY_BYTES
        with self._guard.lock:
            self.held_bytes -= self._values.pop(key, (None, 0))[1]
            if size > self.most_bytes:
                return
            self._values[key] = value, size
            self.held_bytes += size
            while self.held_bytes > self.most_bytes:
                _, (_, freed) = self._values.popitem(last=False)
                self.held_bytes -= freed

    def get_tensor(self, key: Hashable, device: torch.device, make: Callable[[], Tensor]) -> Tensor:
        """The tensor of a key (`device` is part of it), to be read and not written: made without gradients, and kept
        where it may be."""
        if not is_cacheable(device):
            return make()
        found = self.get(key)
        if found is None:
            found = make_detached(make)
            self.put(key, found, found.nbytes)
        return found

    def clear(self) -> None:
        """Give up everything."""
        with self._guard.lock:
            self._values.clear()
            self.held_bytes = 0

    def __len__(self) -> int:
        return len(self._values)


def is_cacheable(device: torch.device) -> bool:
    """Whether what is made now may be used again: no compiler, no trace, no transform of torch.func and no fake tensor
    is at work, whose sizes are symbols and whose tensors are gone afterwards."""
    # A trace that is taken twice, to compare, would have a constant where it computed something before.
    if torch.compiler.is_compiling() or in_functorch() or torch.jit.is_tracing():  # pyright: ignore[reportPrivateImportUsage]
        return False
    return type(torch.empty(0, device=device)) is Tensor


def in_functorch() -> bool:
    """Whether grad, vmap or another of torch.func's transforms is under way; a private question, whose safe answer is
    no."""
    asked = getattr(torch._C, "_are_functorch_transforms_active", None)
    return asked is not None and not torch.compiler.is_compiling() and asked()


def is_traced() -> bool:
    """Whether something looks for torch's own operators or knows no others: a transform, a tracer, a mode that counts
    or replaces operators, derivatives of the forward mode."""
    if in_functorch() or torch._C._get_tracing_state() is not None:
        return True
    return torch._C._len_torch_dispatch_stack() > 0 or forward_ad._current_level >= 0


def is_plain_cpu_tensor(x: object) -> bool:
    """Whether it is a tensor as others are, on a CPU, and no subclass with operators of its own."""
    return type(x) in (Tensor, nn.Parameter) and x.device.type == "cpu"  # type: ignore[union-attr]


def make_detached(make: Callable[[], T]) -> T:
    """What `make` gives, without a history; a tensor born under inference mode could never be used in training."""
    with torch.inference_mode(False), torch.no_grad():
        return make()


def cached_by_bytes(most_bytes: int, size: Callable[..., int]) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """A function of hashable arguments whose results are kept, as `functools.lru_cache` does, within so many bytes.

    Args:
        size: bytes of a result, from it and the arguments.
    """

    def decorate(make: Callable[..., T]) -> Callable[..., T]:
        store = ByteLRUCache(f"{make.__module__}.{make.__name__}", most_bytes)

        @functools.wraps(make)
        def found(*key: Any) -> T:
            value = store.get(key)
            if value is None:
                value = make(*key)
                store.put(key, value, size(value, *key))
            return value

        found.cache_clear = store.clear  # type: ignore[attr-defined]
        return found

    return decorate
