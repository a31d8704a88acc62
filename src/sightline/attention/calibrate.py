"""Measure what each way of computing attention costs on this machine: seconds, once for a processor (`costs.py`)."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import get_args

import torch

from sightline import runtime
from sightline.attention.costs import (
    GAINS,
    OF_PRODUCTS,
    PLAIN,
    SPARSE_FORMS,
    Costs,
    Group,
    Pass,
    Point,
    all_forms,
    current,
    found,
    images_of_batch,
    keep,
    kept_file,
    of_one_form,
    shown_by,
    takes_onednn,
    using,
)
from sightline.attention.dispatch import attend
from sightline.attention.pattern import Directed, Pattern
from sightline.attention.products import expected_shapes, onednn_gains, plain, times_transposed, wide_gains
from sightline.attention.view import View
from sightline.heap import pass_of_size
from sightline.layout import TokenLayout
from sightline.processes import locked
from sightline.ranks import ALONE, Ranks
from sightline.runtime import kept_random_state

ALL_GROUPS = tuple(
    Group(dtype, work, head_dim)
    for dtype in ("float32", "bfloat16")
    for work in get_args(Pass)
    for head_dim in (16, 64)
)
# Cells a side of the grids, with a prefix token: 17 to 2,305 tokens.
_SIDES = (4, 8, 14, 24, 32, 48)
# LookHere's mixture: two of three heads see a quarter, one everything.
_VIEWS = (View(((-1, -1), (-1, 1))), View(((1, 0), (0, 1))), View())


# A form so many times slower than the fastest at one number of tokens, which are no few, is not tried with more. What
# leaves pairs out is judged by long images alone: in those of 577 tokens there is little to leave out.
_HOPELESS, _SHORT_TOKENS, _LONG_TOKENS = 1.4, 100, 1000
# At a nanosecond or more a pair, the least that attention took anywhere, a minute and more.
_LONG_PAIRS = 60 * 10**9
# Seconds for another process to measure.
_PATIENCE = 120.0
# Each call is tried so often within so many seconds, and is as fast as its fastest.
_TRIALS, _SECONDS = 4, 0.04


def calibrated(groups: Sequence[Group], say: Callable[[str], None] = lambda _: None) -> Costs:
    """What this machine's forms cost with torch's number of threads: what is known here, and these groups anew.

    One group takes one to four seconds on one core, training with wide heads the longest.

    Args:
        say: is told before each group which it is.
    """
    threads, known = torch.get_num_threads(), current()
    if (known.processor, known.torch, known.threads) != (runtime.processor(), torch.__version__, threads):
        known = Costs(runtime.processor(), torch.__version__, threads)
    # As before the layers of a model: else a form may be measured by the pages that another gave back.
    pass_of_size("calibrate")
    measured, shown, onednn = {}, shown_by((_directed(1),)), onednn_gains()
    wide = wide_gains(times_transposed if onednn > GAINS else plain)
    # Forms are measured by the products that they will take.
    with using(dataclasses.replace(known, shown=shown, onednn=onednn, wide=wide, _chosen={})):
        for group in groups:
            say(f"{group.dtype}, {group.work}, heads of {group.head_dim}")
            measured[group] = _measured(group)
        return dataclasses.replace(current(), points={**known.points, **measured}, _chosen={})


def _heads(tokens: int, head_dim: int) -> int:
    """Of short images more, since a call's own time weighs more in fewer, and of narrow heads, of which models have
    more."""
    times = 4 if tokens <= 100 else 2 if tokens < 500 else 1
    return len(_VIEWS) * max(1, times // (1 if head_dim < 32 else 2))


@functools.cache
def _directed(times: int) -> Directed:
    return Directed(_VIEWS * times, (0.5, 0.5, 0.25) * times, (False,) * len(_VIEWS) * times)


def _pattern(heads: int) -> Pattern:
    return Pattern((_directed(heads // len(_VIEWS)),))


def for_long_work(groups: Sequence[Group], pairs: int, ranks: Ranks = ALONE) -> Costs:
    """The numbers that choose in a work of so many pairs of query and key of a head: where nothing is known of this
    processor and the work takes longer than some minutes, they are measured first, by the first of its processes, and
    kept for the next ones."""
    told = None
    if ranks.first:
        costs = current()
        missing = [group for group in groups if costs.nearest(group) is None]
        if missing and pairs >= _LONG_PAIRS:
            with _one_at_a_time(costs.threads):
                # Another work may have measured them while this one waited.
                costs = current()
                missing = [group for group in missing if costs.nearest(group) is None]
                if missing:
                    costs = calibrated(missing)
                    keep(costs)
        told = costs if ranks.size == 1 else costs.as_record()
    return told if isinstance(told, Costs) else Costs.of_record(ranks.told(told), "the first process")


@contextlib.contextmanager
def _one_at_a_time(threads: int) -> Iterator[None]:
    """Inside, no other process measures for so many threads: works that begin together would slow each other down, and
    choose by other numbers."""
    with contextlib.ExitStack() as held:
        path = kept_file(threads)
        if path is not None:
            # Where nothing can be kept, each measures for itself.
            with contextlib.suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                held.enter_context(locked(path.with_suffix(".lock"), _PATIENCE))
        found.cache_clear()
        yield


def _measured(group: Group) -> dict[str, list[Point]]:
    points: dict[str, list[Point]] = {}
    dropped: set[str] = set()
    with kept_random_state(), torch.set_grad_enabled(group.work == "training"):
        for side in _SIDES:
            tokens = side * side + 1
            alone = _fastest_calls(group, side, 1, dropped)
            many = images_of_batch(tokens)
            batch = alone if many == 1 else _fastest_calls(group, side, many, dropped)
            pairs = _heads(tokens, group.head_dim) * tokens**2
            for form, seconds in alone.items():
                point = Point(tokens, *(round(1e9 * one / pairs, 4) for one in (seconds, batch[form] / many)))
                points.setdefault(form, []).append(point)
            slow = {form for form, took in batch.items() if took > _HOPELESS * min(batch.values())}
            for form in slow:
                of_pairs = form.removesuffix(PLAIN) in SPARSE_FORMS
                if tokens > (_LONG_TOKENS if of_pairs else _SHORT_TOKENS):
                    dropped.add(form)
    return points


def _fastest_calls(group: Group, side: int, images: int, dropped: set[str]) -> dict[str, float]:
    """Seconds of one call of each form, in turn."""
    dtype = getattr(torch, group.dtype)
    layout = TokenLayout.uniform((side, side), images)
    heads = _heads(layout.slots, group.head_dim)
    pattern = _pattern(heads)
    made = torch.randn((images, layout.slots, 3, heads, group.head_dim)).to(dtype)
    leaf = made.requires_grad_(group.work == "training")
    weights = torch.randn((images, heads, layout.slots, group.head_dim)).to(dtype)

    def call(name: str) -> None:
        with computed_by(name):
            q, k, v = leaf.permute(2, 0, 3, 1, 4).unbind(0)
            out = attend(q, k, v, pattern, layout)
            if leaf.requires_grad:
                torch.autograd.grad(out, leaf, weights)

    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    forms = all_forms(dtype, layout.slots)
    # A training's sizes come again.
    ever_new = group.work == "forward" and takes_onednn()
    names = [*forms, *(one + PLAIN for one in forms if ever_new and one in OF_PRODUCTS)]
    names = [one for one in names if one not in dropped]
    fastest: dict[str, float] = {}
    for trial in range(_TRIALS + 1):
        for name in names:
            # The first makes what is kept, tables, kernels, threads and pages: up to four times what comes after it.
            if trial > 1 and fastest[name] * trial > _SECONDS:
                continue
            started = clock()
            call(name)
            taken = clock() - started
            if trial:
                fastest[name] = min(taken, fastest.get(name, taken))
    return fastest


@contextlib.contextmanager
def computed_by(name: str) -> Iterator[None]:
    """Inside, one form computes: a dense one, or a back end, with `PLAIN` behind its name by torch's own products."""
    of = name if takes_onednn() else name.removesuffix(PLAIN)
    with using(of_one_form(of)), expected_shapes(ever_new=name.endswith(PLAIN)):
        yield
