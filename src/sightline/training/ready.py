"""Batches that one process makes for several runs of the same images: drawn once, and read by each from shared memory.

Runs that differ in their encoding alone see the same batches. Each still makes whatever is not there, so that nothing
waits, and no run hangs on the process that makes them ahead, or on how far that came.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import multiprocessing
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor

from sightline import runtime, signals
from sightline.data.batch import Batch
from sightline.data.discovery import source_class, taken_apart
from sightline.data.loader import Planned
from sightline.layout import TokenLayout
from sightline.processes import end_with_parent
from sightline.tasks.base import task_class
from sightline.training.config import TrainConfig
from sightline.training.plan import Plan, shown, training_plan
from sightline.training.prepare import build_model, resolve, task_options
from sightline.training.run import open_training_data

# The most memory for the batches of a run; those that do not fit are made by each run.
_BYTES = 256 << 20
# Room for a batch over the first one's: of the same images each takes as much, but for names.
_ROOM = 4096


@dataclass(frozen=True)
class Ready:
    """Shared memory for the first batches of a run, by their number; given to processes as they begin.

    Attributes:
        memory: bytes, a slot for each batch.
        sums: uint32, of each batch the checksum of its bytes, 0 while it is not there; sizes: how many they are.
    """

    memory: Any
    sums: Any
    sizes: Any

    @classmethod
    def of(cls, slots: int, size: int, context: Any = multiprocessing) -> Ready:
        """Room for so many batches of up to `size` bytes."""
        return cls(context.RawArray("B", slots * size), context.RawArray("I", slots), context.RawArray("I", slots))

    def _slot(self, number: int) -> np.ndarray:
        each = len(self.memory) // len(self.sums)
        return np.frombuffer(self.memory, np.uint8)[number * each : (number + 1) * each]

    def put(self, number: int, batch: Batch) -> None:
        """Keep a batch, if there is room for it."""
        content = dumped(batch)
        if content is not None and number < len(self.sums) and len(content) <= len(self._slot(number)):
            self._slot(number)[: len(content)] = np.frombuffer(content, np.uint8)
            self.sizes[number] = len(content)
            self.sums[number] = zlib.crc32(content)

    def get(self, number: int) -> Batch | None:
        """The batch of that number; None where it is not there, or not whole."""
        if number >= len(self.sums) or not self.sums[number]:
            return None
        content = self._slot(number)[: self.sizes[number]].tobytes()
        return _loaded(content) if zlib.crc32(content) == self.sums[number] else None

    def before(self, make: Callable[[Sequence[Planned]], Batch], first: int) -> Callable[[Sequence[Planned]], Batch]:
        """`make`, called for one batch after the other from number `first` on, where the batch is not there."""
        numbers = itertools.count(first)

        def made(planned: Sequence[Planned]) -> Batch:
            batch = self.get(next(numbers))
            # Of another plan there is none here; a mistake in that would train on other images in silence.
            same = batch is not None and batch.indices.tolist() == [one.index for one in planned]
            return batch if batch is not None and same else make(planned)

        return made


def dumped(batch: Batch) -> bytes | None:
    """A batch of whole images of one size on the CPU as the bytes of a safetensors file; None where it is another."""
    kinds = {(tuple(one.grid), one.complete, one.pixels, one.window) for one in batch.layout.segments}
    (grid, *others), *more = kinds
    if more or others != [True, None, None] or batch.layout.padding or batch.left_out:
        return None
    tensors: dict[str, Tensor] = {"inputs": batch.inputs, "indices": batch.indices}
    if batch.layout.seeds is not None:
        tensors["seeds"] = batch.layout.seeds
    try:
        targets = _named(batch.targets, tensors)
    except TypeError:
        return None
    said = {
        "grid": grid,
        "prefix": batch.layout.num_prefix_tokens,
        "names": batch.names,
        "slices": [dict(one) for one in batch.slices],
        "targets": targets,
    }
    tensors["said"] = torch.frombuffer(bytearray(json.dumps(said).encode()), dtype=torch.uint8)
    return save({name: one.contiguous() for name, one in tensors.items()})


def _named(tree: Any, tensors: dict[str, Tensor]) -> list[Any]:
    """A tree for JSON, each of its knots with what it is; tensors are put beside the others, and named.

    Raises:
        TypeError: there is something else in it.
    """
    if isinstance(tree, Tensor):
        name = str(len(tensors))
        tensors[name] = tree
        return ["tensor", name]
    if isinstance(tree, Mapping):
        return ["group", [[name, _named(one, tensors)] for name, one in tree.items()]]
    if isinstance(tree, list | tuple):
        kind = "list" if isinstance(tree, list) else "tuple"
        return [kind, [_named(one, tensors) for one in tree]]
    if type(tree) in (int, float, str, bool, type(None)):
        return ["value", tree]
    raise TypeError(type(tree).__name__)


def _loaded(content: bytes) -> Batch:
    tensors = load(content)
    said = json.loads(tensors["said"].numpy().tobytes())
    layout = TokenLayout.uniform(said["grid"], len(said["names"]), num_prefix_tokens=said["prefix"])
    if "seeds" in tensors:
        layout = layout.seeded(tensors["seeds"].tolist())
    targets = _tensors(said["targets"], tensors)
    return Batch(tensors["inputs"], layout, targets, tensors["indices"], said["names"], said["slices"])


def _tensors(knot: list[Any], tensors: Mapping[str, Tensor]) -> Any:
    kind, tree = knot
    if kind == "tensor":
        return tensors[tree]
    if kind == "group":
        return {name: _tensors(one, tensors) for name, one in tree}
    if kind == "value":
        return tree
    each = [_tensors(one, tensors) for one in tree]
    return each if kind == "list" else tuple(each)


def images_of(config: TrainConfig) -> TrainConfig:
    """What of a configuration says which batches there are: equal for runs that see the same."""
    return replace(config, encoding="none", encoding_options={})


def may_share(config: TrainConfig) -> bool:
    """Whether batches of a run can be made by another process: of drawn images of one size, which no worker makes. The
    data set's class says it: to open one may take seconds.

    Raises:
        InputError: there is no such data set.
    """
    usual = config.packing is None and config.patch_sizes is None and not config.progressive
    alone = config.accumulate == 1 and config.workers == 0 and config.init_from is None
    return usual and alone and source_class(taken_apart(config.data)[0]).drawn


class Ahead:
    """The processes that make batches ahead, one for each group of runs that see the same; they end with the runs."""

    def __init__(self, configs: Sequence[TrainConfig], context: Any) -> None:
        """Of all runs that are to begin; `context` of multiprocessing starts the processes."""
        self._left = list(map(images_of, configs))
        self._shared = [config for number, config in enumerate(self._left) if config in self._left[:number]]
        # What could not be shared is remembered too.
        self._context, self._rooms = context, list[tuple[TrainConfig, Ready | None]]()
        self._processes: list[Any] = []

    def of(self, config: TrainConfig) -> Ready | None:
        """What a run that begins may read from; None where no other sees the same. The first one starts the process."""
        seen = images_of(config)
        if seen not in self._shared:
            return None
        if not any(known == seen for known, _ in self._rooms):
            self._rooms.append((seen, self._begun(seen)))
        ready = next(ready for known, ready in self._rooms if known == seen)
        self._left.remove(seen)
        if seen not in self._left:
            # The last one has it: the memory goes when the runs do.
            self._rooms = [one for one in self._rooms if one[0] != seen]
        return ready

    def _begun(self, seen: TrainConfig) -> Ready | None:
        # What is wrong with a run is said by that run itself; somebody else's source may raise anything.
        with contextlib.suppress(Exception):
            return self._begin(seen)
        return None

    def _begin(self, seen: TrainConfig) -> Ready | None:
        if not may_share(seen):
            return None
        ready = room_for(seen, self._context)
        if ready is not None:
            process = self._context.Process(target=make_ahead, args=(seen, ready), daemon=True)
            with signals.held_back():
                process.start()
            self._processes.append(process)
        return ready

    def close(self) -> None:
        """End them; what they would still have made is wanted by nobody."""
        for process in self._processes:
            process.kill()
            process.join()


def room_for(config: TrainConfig, context: Any) -> Ready | None:
    """Room for the batches of a run, as far as they fit; None where the system has none to spare. The first of them is
    made, to see how large they are."""
    source = open_training_data(config)
    steps = Plan.of(resolve(config, source, torch.device("cpu")), source.length("train")).steps
    first = dumped(next(_batches(config)))
    if first is None:
        return None
    each = len(first) + _ROOM
    slots = max(min(steps, _BYTES // each), 1)
    # Where multiprocessing may put shared memory: written to beyond what is there, it would end the process.
    places = [place for place in (Path("/dev/shm"), Path(tempfile.gettempdir())) if place.is_dir()]
    if max(shutil.disk_usage(place).free for place in places) < 2 * slots * each:
        return None
    return Ready.of(slots, each, context)


def make_ahead(config: TrainConfig, ready: Ready) -> None:
    """What the process that makes them does: one batch after the other, then it ends."""
    end_with_parent()
    signals.leave_to_parent()
    runtime.set_threads(1)
    # Each run makes what is missing, and says itself what is wrong.
    with contextlib.suppress(Exception):
        for number, batch in enumerate(itertools.islice(_batches(config), len(ready.sums))):
            ready.put(number, batch)


def _batches(config: TrainConfig) -> Iterator[Batch]:
    """The batches of a run, as its training plan has them."""
    resolved = resolve(config, open_training_data(config), torch.device("cpu"))
    source = shown(open_training_data(config), resolved)
    model = build_model(resolved, source)
    task = task_class(resolved.task)(model.config, task_options(resolved)).on(source, resolved.data)
    for _, (batch,) in training_plan(resolved, model.config, source).batches(model.image_rows, task):
        yield batch
