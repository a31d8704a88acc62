"""The finished items of a long work, each a file beside its result's place until that is whole: a kill costs the item
that it was in.

What the work is (the model's weights, options, inputs) is in the folder's name: another work has another folder.
Values are JSON, to the last bit, and never pickles.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import Timeout
from PIL import Image

from sightline.distributed.ranks import SINGLE_RANK, Ranks
from sightline.errors import InputError, StorageError
from sightline.io.atomic import storage_errors, write_file
from sightline.io.run_lock import locked
from sightline.models import Model

_FORMAT = 2
_LOCK = "lock"
_ENDING = ".json"


@dataclass(frozen=True, eq=False)
class Gathered:
    """What all ranks made together: the values of all batches in their order, in how many seconds, by how many."""

    values: list[Any]
    seconds: float
    ranks: int


class WorkFolder:
    """The items of a work by their keys; without a folder none is kept.

    Attributes:
        ranks: that work together, of which this process is one.
        folder: where finished items are.
        shared: what measures keep in memory for each other, by name.
    """

    def __init__(self, ranks: Ranks = SINGLE_RANK, folder: Path | None = None) -> None:
        self.ranks, self.folder = ranks, folder
        self.shared: dict[str, Any] = {}

    @property
    def identity(self) -> str:
        """Tells the model's weights, and all else that decides the values, from any other; "" without a folder."""
        return "" if self.folder is None else "-".join(self.folder.name.rsplit("-", 2)[1:])

    def __contains__(self, key: str) -> bool:
        return self.folder is not None and self._file(key).exists()

    def load(self, key: str) -> Any:
        """A finished item.

        Raises:
            StorageError: it is not there any more.
        """
        file = self._file(key)
        with storage_errors(f"{file}: cannot be read (was the folder changed meanwhile?)"):
            return loaded(file.read_bytes())

    def save(self, key: str, value: Any) -> None:
        """Keep a finished item; a value that `dumped` cannot write is not kept.

        Raises:
            StorageError: it cannot be written.
        """
        if self.folder is not None:
            with contextlib.suppress(TypeError):
                write_file(self._file(key), dumped(value))

    def once(self, key: str, make: Callable[[], Any]) -> Any:
        """What `make` gives, or gave before, on the first rank, and None on the others; each must call it."""
        if self.ranks.broadcast(key in self):
            return self.load(key) if self.ranks.is_main else None
        value = make()
        if self.ranks.is_main:
            self.save(key, value)
        # Whoever waits hears of a fault of the first.
        self.ranks.barrier()
        return value if self.ranks.is_main else None

    def gather(
        self,
        key: str,
        sizes: Sequence[int],
        make: Callable[[Sequence[int]], Iterator[Any]],
        advance: Callable[[int], None] | None = None,
    ) -> Gathered | None:
        """The batches of an item, of which each rank makes its share; on the first rank. Each must call it.

        Args:
            sizes: how much `advance` counts of each batch.
            make: from numbers of batches, rising, to their values in that order.

        Raises:
            InputError: a value cannot be told to another rank.
        """
        ranks, count, made = self.ranks, len(sizes), False
        moved = advance or (lambda _: None)

        def together() -> list[Any]:
            nonlocal made
            began, values, made = time.perf_counter(), [], True
            mine = make(range(ranks.rank, count, ranks.size))
            for start in range(0, count, ranks.size):
                if start + ranks.rank < count:
                    values.append(next(mine))
                moved(sum(sizes[start : start + ranks.size]))
            shares = [values]
            if ranks.size > 1:
                try:
                    shares = [loaded(one) for one in ranks.all_gather_json(dumped(values))]
                except TypeError as error:
                    raise InputError(
                        f"several ranks: {error} cannot be told to another one (expected of a metric of a plug-in: "
                        "plain values and arrays of numpy, or its own `state` and `restore`)"
                    ) from None
            in_order = [shares[number % ranks.size][number // ranks.size] for number in range(count)]
            return [in_order, time.perf_counter() - began, ranks.size]

        found = self.once(key, together)
        if not made:
            moved(sum(sizes))
        return None if found is None else Gathered(*found)

    def discard(self) -> None:
        """The result is whole: no item is needed any more, nor those beside it of other weights. For the first rank."""
        if self.folder is None:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        stem, model, _ = self.folder.name.rsplit("-", 2)
        for other in list(self.folder.parent.iterdir()):
            if other.name.startswith(f"{stem}-") and other.name.rsplit("-", 2)[1] != model:
                with contextlib.suppress(InputError, StorageError), _locked(other):
                    shutil.rmtree(other, ignore_errors=True)

    def _file(self, key: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{_digest(key)}{_ENDING}"


def _digest(what: str) -> str:
    return hashlib.sha256(what.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def weights_digest(model: Model) -> str:
    """Tells a model from every other: its configuration, weights and knob."""
    seen = hashlib.sha256(repr(model.config).encode())
    for name, value in sorted(model.state_dict().items()):
        seen.update(name.encode())
        if isinstance(value, torch.Tensor):
            seen.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        else:
            seen.update(repr(value).encode())
    return seen.hexdigest()[:12]


def work_of(weights: str, about: Mapping[str, Any]) -> str:
    """The `identity` of a work: of a model's `weights_digest` and all else that decides the values."""
    return f"{weights}-{_digest(json.dumps([_FORMAT, about], sort_keys=True, default=str))}"


@contextlib.contextmanager
def work_folder(
    out: Path, model: Model, about: Callable[[], Mapping[str, Any]], ranks: Ranks = SINGLE_RANK
) -> Iterator[WorkFolder]:
    """Items in a hidden folder beside `out`; what another session left of the same work counts. Each rank must call it.

    Args:
        about: all that decides the values beside the model, as JSON has it; asked of the first rank alone.

    Raises:
        InputError: another process does the same work now.
        StorageError: the folder cannot be made.
    """
    with contextlib.ExitStack() as held:
        place = ""
        if ranks.is_main:
            folder = out.parent / f".{out.name}.writing-parts-{work_of(weights_digest(model), about())}"
            with storage_errors(f"{folder}: cannot be made"):
                folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(_locked(folder))
            place = str(folder)
        work = WorkFolder(ranks, Path(ranks.broadcast(place)))
        try:
            yield work
        finally:
            if ranks.is_main and not any(Path(place).glob(f"*{_ENDING}")):
                shutil.rmtree(place, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a folder while inside: no other process may; the lock goes with its holder, killed or not."""
    with contextlib.ExitStack() as held:
        with storage_errors(f"{folder}: cannot be held"):
            try:
                held.enter_context(locked(folder / _LOCK, 0))
            except Timeout:
                raise InputError(f"{folder}: another process is at the same work (expected: one at a time)") from None
        yield


def dumped(value: Any) -> str:
    """A tree of numbers, texts, lists, tuples, groups, arrays of numpy and pictures, on one line.

    Raises:
        TypeError: something else is in it.
    """
    return json.dumps(_plain(value))


def loaded(text: str | bytes) -> Any:
    """The inverse of `dumped`."""
    return _back(json.loads(text))


def _plain(value: Any) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, list):
        return [_plain(one) for one in value]
    # Groups of one key, so that nothing in a tree is taken for them: its own groups are lists of pairs.
    if isinstance(value, tuple):
        return {"tuple": [_plain(one) for one in value]}
    if isinstance(value, dict):
        return {"group": [[_plain(key), _plain(one)] for key, one in value.items()]}
    content = io.BytesIO()
    if isinstance(value, np.ndarray | np.generic) and value.dtype != object:
        np.save(content, value, allow_pickle=False)
        return {"array": base64.b64encode(content.getvalue()).decode()}
    if isinstance(value, Image.Image):
        value.save(content, format="PNG")
        return {"picture": base64.b64encode(content.getvalue()).decode()}
    raise TypeError(type(value).__name__)


def _back(value: Any) -> Any:
    if isinstance(value, list):
        return [_back(one) for one in value]
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind == "tuple":
        return tuple(_back(one) for one in inner)
    if kind == "group":
        return {_back(key): _back(one) for key, one in inner}
    content = io.BytesIO(base64.b64decode(inner))
    if kind == "array":
        # A number of numpy is an array without axes.
        return np.load(content, allow_pickle=False)[()]
    picture = Image.open(content)
    picture.load()
    return picture
