"""Heads side by side on two cores: the same numbers in every mode, after a fork, from two threads; and errors."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import nullcontext

import pytest
import torch

from sightline.attention import attend, cpu, use_backend
from sightline.attention.cpu import run_parallel
from sightline.tokens.layout import TokenLayout
from tests.attention.given import pattern, random_qkv, with_gradients

LAYOUT = TokenLayout.uniform((18, 17), 2)


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_the_same_bits_as_on_one_thread() -> None:
    qkv = random_qkv(LAYOUT)
    two = with_gradients("tiles", qkv, pattern(), LAYOUT)
    torch.set_num_threads(1)
    one = with_gradients("tiles", qkv, pattern(), LAYOUT)
    for ours, theirs in zip(two, one, strict=True):
        assert torch.equal(ours, theirs)


MODES = {
    "gradients": nullcontext,
    "no gradients": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
}


@pytest.mark.parametrize("mode", MODES)
def test_modes(mode: str) -> None:
    """A worker has none of its caller's modes of its own; nothing is rounded to 16 bits in one."""
    qkv = random_qkv(LAYOUT)
    expected = with_gradients("tiles", qkv, pattern(), LAYOUT)[0]
    with MODES[mode](), use_backend("tiles"):
        out = attend(*qkv, pattern(), LAYOUT)
    assert out.dtype == torch.float32
    assert out.is_inference() == (mode == "inference")
    assert torch.equal(out, expected)
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_reaches_the_caller(threads: int) -> None:
    torch.set_num_threads(threads)
    done = []

    def work(item: int) -> None:
        if item == 3:
            raise ZeroDivisionError("item 3")
        done.append(item)

    with pytest.raises(ZeroDivisionError, match="item 3"):
        run_parallel(work, range(8))
    if threads == 2:
        assert sorted(done) == [0, 1, 2, 4, 5, 6, 7], "raised after all have ended"
    run_parallel(done.append, [9])
    assert done[-1] == 9


@pytest.mark.parametrize("counts", [[2, 2], [2, 3], [1, 2]])
def test_from_two_threads_at_once(counts: list[int]) -> None:
    """Each with its own number of threads of torch."""
    qkv, errors = random_qkv(LAYOUT, head_dim=4), []
    expected = with_gradients("tiles", qkv, pattern(), LAYOUT)
    cpu._POOLS.clear()
    together = threading.Barrier(len(counts))

    def call(count: int) -> None:
        try:
            torch.set_num_threads(count)
            together.wait(240)
            for _ in range(3):
                for one, other in zip(with_gradients("tiles", qkv, pattern(), LAYOUT), expected, strict=True):
                    assert torch.equal(one, other)
        except BaseException as error:
            errors.append(error)

    calls = [threading.Thread(target=call, args=(count,), daemon=True) for count in counts]
    for thread in calls:
        thread.start()
    for thread in calls:
        thread.join(600)
        assert not thread.is_alive(), "attention hangs"
    assert errors == []


FORK = """
import os, torch
torch.set_num_threads(2)
from sightline.tokens.layout import TokenLayout
from tests.attention.given import pattern, random_qkv, with_gradients

layout = TokenLayout.uniform((5, 6), 1)
qkv = random_qkv(layout, heads=4)
what = pattern(heads=4)
before = with_gradients("tiles", qkv, what, layout)
child = os.fork()
if child == 0:
    after = with_gradients("tiles", qkv, what, layout)
    os._exit(0 if all(torch.equal(one, other) for one, other in zip(before, after)) else 7)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert torch.get_num_threads() == 2
print("child", code)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_after_a_fork() -> None:
    """The workers of the parent are not alive in the child, which makes its own; a hang is a failure.

    So small that torch spreads none of its own operators over threads: those hang after a fork, as in any program.
    """
    ran = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=300, check=False)
    assert ran.stdout == "child 0\n", ran.stderr
