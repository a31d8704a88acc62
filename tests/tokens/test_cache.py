"""What is kept of ever new sizes stays within its bytes, and what is used again stays kept."""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import signal
import threading

import pytest
import torch

import sightline.attention
import sightline.models
from sightline.attention import use_backend
from sightline.models import create_model
from sightline.tokens.cache import CACHES, ByteLRUCache

MODEL = {"depth": 1, "dim": 48, "heads": 12, "num_classes": 3}


@pytest.fixture
def store():
    yield ByteLRUCache("a test's", 10_000)
    del CACHES["a test's"]


def test_threads_leave_the_count_right(store):
    def work(first: int) -> None:
        for key in range(first, first + 2000):
            store.put(key % 50, key, key % 700)
            store.get((key + 1) % 50)

    threads = [threading.Thread(target=work, args=(number * 7,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.held_bytes == sum(size for _, size in store._values.values()) <= store.most_bytes


@pytest.mark.parametrize("encoding", ["lookhere_90", "alibi_2d", "rope_axial", "irpe"])
def test_every_store_stays_within_its_bytes(encoding, monkeypatch):
    """With bounds that a few sizes fill; the real ones are a few megabytes each, but for the windows of Swin's images,
    whose angles are of every slot, and the directed biases of twelve layers."""
    for room in (sightline.attention, sightline.models):
        for module in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            importlib.import_module(module.name)
    assert {"coordinates", "tables of displacements", "sightline.attention.visible_blocks._cover_head"} < set(CACHES)
    large = {"windows", "directed biases"}
    assert all(CACHES[name].most_bytes <= 32 << 20 for name in large)
    assert sum(store.most_bytes for name, store in CACHES.items() if name not in large) <= 32 << 20
    for store in CACHES.values():
        store.clear()
        monkeypatch.setattr(store, "most_bytes", 100_000)
    # Of the last layer class tokens alone ask.
    model = create_model("vit_micro_patch4", encoding=encoding, **{**MODEL, "depth": 2}).eval()
    filled = set()
    with use_backend("tiles"), torch.no_grad():
        for rows, cols in [(3, 4), (9, 11), (12, 7), (17, 18), (3, 4), (20, 5)]:
            model(torch.randn(1, 3, 4 * rows, 4 * cols))
            for name, store in CACHES.items():
                assert store.held_bytes <= 100_000, name
                assert store.held_bytes == sum(size for _, size in store._values.values())
                filled |= {name} if len(store) else set()
    assert "coordinates" in filled
    elsewhere = {"places in tables of displacements", "sines and cosines", "axes of BEiT's interpolation"}
    elsewhere |= {"inverses of patch resizes", "windows", "directed biases"}
    of_buckets = {"buckets of displacements", "buckets of pairs"}
    assert encoding != "lookhere_90" or filled == set(CACHES) - elsewhere - of_buckets
    assert encoding != "irpe" or of_buckets <= filled
    for store in CACHES.values():
        store.clear()


class Slow:
    """A key, and sizes, of which a thread asks while it holds a lock, until the test lets it go on."""

    def __init__(self) -> None:
        self.held, self.goes_on = threading.Event(), threading.Event()

    def wait(self) -> None:
        self.held.set()
        assert self.goes_on.wait(60)

    def __hash__(self) -> int:
        self.wait()
        return 0

    def __sub__(self, _: object) -> set:
        self.wait()
        return set()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_lock_that_a_thread_held_at_a_fork_is_free_in_the_child(store):
    ask = store.get
    slow = Slow()
    thread = threading.Thread(target=ask, args=(slow,))
    thread.start()
    assert slow.held.wait(60)
    child = os.fork()
    if child == 0:
        # A child that hangs is ended by it.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        code = 1
        with contextlib.suppress(Exception):
            ask(frozenset({(1, 2, 3)}))
            code = 0
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    slow.goes_on.set()
    thread.join()
    assert code == 0
