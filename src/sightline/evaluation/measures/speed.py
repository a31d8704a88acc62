"""How fast a model is on this machine, what memory a pass takes, and what it computes."""

from __future__ import annotations

import ctypes
import functools
import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import cycle, islice
from typing import Any, ClassVar

import torch

from sightline.data.batch import Batch
from sightline.data.loader import SampleSpec
from sightline.data.source import Source
from sightline.distributed import machine
from sightline.evaluation.measures.base import MeasureInput, ModelMeasure
from sightline.evaluation.parts import WorkFolder
from sightline.evaluation.predict import images_a_batch, read_split, to_cpu_float32
from sightline.models import Model
from sightline.models.flops import forward_flops
from sightline.models.model import eval_mode
from sightline.results.rows import MetricValue
from sightline.tasks.base import Task

# So many passes of a batch and of one image are enough after a second; of slow ones three, where they took so long.
_BATCHES, _SINGLES = 9, 15
_SECONDS, _PATIENCE = 1.0, 20.0
_LEAST, _MOST = 3, 200
_MIB = 2**20


class Speed(ModelMeasure):
    """`throughput` of a full batch, `latency` of one image, `peak_memory` and `flops`, of whatever task.

    A pass is from bytes of pixels that lie on the device to outputs on the CPU: reading images is no part of it. Times
    are medians; their intervals of 95 % are order statistics, which ask for no distribution, and the quartiles of
    `latency` are rows beside it. `peak_memory` is of the weights and of what a pass of a full batch takes beside them:
    on a GPU by torch's allocator, on a CPU by how far the process grew beyond what it held, its heap emptied before;
    where the system does not say so there is no row. `flops` (`models.flops`) is of a classifier alone.

    Of several ranks the first measures and the others wait: those of one machine would share it.
    """

    name: ClassVar[str] = "speed"
    tasks: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def check(cls, model: Model, task: Task, source: Source, splits: Sequence[str]) -> None:
        """Every model and task has a speed."""

    @classmethod
    def passes(cls, source: Source, split: str, count: int) -> int:
        """None of the bar's: how many hangs on the machine."""
        return 0

    def rows(
        self, subject: MeasureInput, parts: WorkFolder, work: str, advance: Callable[[int], None] | None = None
    ) -> list[MetricValue]:
        device = subject.model.anchor.device
        # What another machine, or another number of threads, finished before is not this one's.
        where = json.dumps([work, machine.hardware_name(device), torch.get_num_threads()])

        def made() -> list[dict[str, Any]]:
            return [vars(one) for one in measured(subject)] if parts.ranks.is_main else []

        return [MetricValue(**one) for one in parts.once(where, made) or ()]


def measured(subject: MeasureInput) -> list[MetricValue]:
    """The rows of `Speed` on this process; none where no image can be read.

    Raises:
        UnreadableDataError: as `predict_split`.
    """
    model, planned = subject.model, subject.planned()
    usual = max(planned, key=len)
    # Where the split is smaller than a batch, its images come again.
    full = list(islice(cycle(usual), images_a_batch(model, usual[0].tokens, subject.view)))
    of = model, subject.task, subject.source, subject.split
    (many,) = read_split(*of, [full], subject.view)
    if not len(many):
        return []
    # The first that can be read.
    (single,) = read_split(*of, [[next(one for one in full if one.index == many.indices[0])]], subject.view)
    device, count = model.anchor.device, len(many)
    with eval_mode(model), torch.inference_mode():
        batch = functools.partial(_seconds, subject, many.to(device))
        batches = _times(batch, _BATCHES)
        singles = [1000 * one for one in _times(functools.partial(_seconds, subject, single.to(device)), _SINGLES)]
        grown = _grown(batch, device)
    limits = median_limits(batches)
    throughput = MetricValue(
        "throughput", count / statistics.median(batches), "images/s", count, better="higher", counted="images a pass",
        interval=None if limits is None else (count / limits[1], count / limits[0]),
    )  # fmt: skip
    first, middle, third = statistics.quantiles(singles, n=4, method="inclusive")
    latency = MetricValue("latency", middle, "ms", len(singles), better="lower", counted="passes")
    quartiles = [replace(latency, value=one, slices={"quartile": part}) for part, one in ((1, first), (3, third))]
    rows = [throughput, replace(latency, interval=median_limits(singles)), *quartiles]
    if grown is not None:
        held = sum(one.numel() * one.element_size() for one in (*model.parameters(), *model.buffers()))
        memory = (held + grown) / _MIB
        rows.append(MetricValue("peak_memory", memory, "MiB", count, better="lower", counted="images a pass"))
    if model.config.has_classifier:
        rows.append(_flops(model, planned))
    return rows


def _seconds(subject: MeasureInput, batch: Batch) -> float:
    """Of one pass of a batch on the device."""
    if batch.inputs.device.type == "cuda":
        # What the device still does is not counted.
        torch.cuda.synchronize(batch.inputs.device)
    began = time.perf_counter()
    to_cpu_float32(subject.task.outputs(subject.model, batch, subject.precision))
    return time.perf_counter() - began


def _times(one_pass: Callable[[], float], enough: int) -> list[float]:
    """Seconds of passes, after one that makes kernels and tables."""
    one_pass()
    found: list[float] = []
    while len(found) < _LEAST or (len(found) < _MOST and sum(found) < _PATIENCE):
        if len(found) >= enough and sum(found) >= _SECONDS:
            break
        found.append(one_pass())
    return found


def _grown(one_pass: Callable[[], float], device: torch.device) -> int | None:
    """Bytes that a pass takes for a moment; None where that is not known."""
    if device.type == "cuda":
        machine.reset_peak_memory(device)
        held = torch.cuda.memory_allocated(device)
    elif device.type != "cpu" or not _trim_heap() or not machine.reset_peak_memory():
        return None
    else:
        held = machine.peak_memory()
    one_pass()
    return machine.peak_memory(device) - held


def _trim_heap() -> bool:
    """Return the C library's free memory to the system; False where it has no such call (glibc has)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and trim(0) in (0, 1)


def median_limits(values: Sequence[float]) -> tuple[float, float] | None:
    """Where the median of what the values were drawn from lies with at least 95 %, whatever its distribution: between
    two of the values (order statistics); None of fewer than 6 values."""
    from scipy.stats import quantile_test

    limits: Any = quantile_test(values).confidence_interval(0.95)
    low, high = map(float, limits)
    return None if math.isnan(low) or math.isnan(high) else (low, high)


def _flops(model: Model, planned: Sequence[Sequence[SampleSpec]]) -> MetricValue:
    """Operations of an image, in the mean over the images where they differ."""
    images = [one for batch in planned for one in batch]
    # Windows, rows and columns are those of a grid, and no measurement drops patches of theirs.
    grids = [model.config.grid_of(one.image_size) for one in images]
    shown = [
        grid if one.patch_indices is None and grid.cells == one.tokens else one.tokens
        for one, grid in zip(images, grids, strict=True)
    ]
    return MetricValue("flops", forward_flops(model.config, shown) / len(shown), "FLOP", len(shown), better="lower")
