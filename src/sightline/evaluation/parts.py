"""Work in numbered parts, dealt to the ranks; what is finished is kept beside its result's place until that is whole.

Each rank adds lines to files of its own: a part a line, with its checksum. Whoever begins the same work again, with any
number of ranks, finds what is finished by its number and goes on with the rest; the first rank reads all parts in
their order. What the work is (the model's weights, options, inputs) is in the folder's name: another work has another
folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import heapq
import json
import re
import shutil
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import torch
from filelock import Timeout

from sightline.distributed.ranks import SINGLE_RANK, Ranks
from sightline.errors import InputError, StorageError
from sightline.evaluation.as_json import dumped, loaded
from sightline.io.atomic import storage_errors
from sightline.io.run_lock import locked
from sightline.models import Model

_FORMAT = 1
_LOCK = "lock"
_NAME = re.compile(r"(?P<work>[0-9a-f]{12})-(?P<session>\d+)-(?P<rank>\d+)-of-(?P<ranks>\d+)\.jsonl")
Record = tuple[int, float, bytes]


class WorkFolder:
    """The parts of some works, each a sequence of parts from 0 on; without a folder they are kept in memory.

    Attributes:
        ranks: that work together, of which this process is one.
        folder: where finished parts are kept; None for a process that is alone.
    """

    def __init__(self, ranks: Ranks = SINGLE_RANK, folder: Path | None = None, session: int = 1) -> None:
        self.ranks, self.folder, self._session = ranks, folder, session
        # Of a work the parts that no file holds: number -> (seconds, value).
        self._here: dict[str, dict[int, tuple[float, Any]]] = {}
        self._counts: dict[str, int] = {}

    @property
    def identity(self) -> str:
        """Tells the model's weights, and all else that decides the values, from any other; "" without a folder."""
        return "" if self.folder is None else "-".join(self.folder.name.rsplit("-", 2)[1:])

    def each(
        self,
        work: str,
        sizes: Sequence[int],
        make: Callable[[Sequence[int]], Iterator[Any]],
        advance: Callable[[int], None] | None = None,
    ) -> None:
        """Make each part of a work that is not finished, this rank its share; each rank must call it.

        Args:
            work: its name; sizes: how much `advance` counts of each part.
            make: from numbers of parts, rising, to their values in that order.

        Raises:
            SightlineError: what `make` raised.
        """
        self._counts[work], ranks = len(sizes), self.ranks
        finished = self._finished(work)
        todo = [number for number in range(len(sizes)) if number not in finished]
        mine = todo[ranks.rank :: ranks.size]

        def advanced(numbers: Sequence[int] | set[int]) -> None:
            if advance is not None:
                advance(sum(sizes[number] for number in numbers))

        if finished:
            advanced(finished)
        with contextlib.ExitStack() as held:
            made = make(mine) if mine else iter(())
            file: BinaryIO | None = None
            last = time.perf_counter()
            for start in range(0, len(todo), ranks.size):
                if start + ranks.rank < len(todo):
                    value = next(made)
                    now = time.perf_counter()
                    if self.folder is not None and file is None:
                        file = held.enter_context(self._opened(work))
                    self._put(work, file, todo[start + ranks.rank], now - last, value)
                    last = now
                advanced(todo[start : start + ranks.size])
        # Every file is closed now, so that the first finds all of it.
        ranks.barrier()

    def values(self, work: str) -> Iterator[Any]:
        """The values of a work that was carried out, in the order of its parts; for the first rank.

        Raises:
            StorageError: a part is not there any more.
        """
        here, expected = self._here.get(work, {}), 0
        streams = [_records(file) for file in self._files(work)]
        numbered = ((number, seconds, b"") for number, (seconds, _) in sorted(here.items()))
        for number, _, text in heapq.merge(*streams, numbered, key=lambda record: record[0]):
            if number < expected:
                continue
            if number > expected:
                break
            expected += 1
            yield here[number][1] if number in here else loaded(text)
        if expected != self._counts[work]:
            raise StorageError(f"{self.folder}: part {expected} is gone (was the folder changed meanwhile?)")

    def took(self, work: str) -> tuple[float, int]:
        """Seconds that a work took, those of earlier sessions too, and the most ranks that worked at it; for the
        first rank."""
        sessions: dict[int, list[float]] = {}
        most = self.ranks.size
        for file in self._files(work):
            said = _NAME.fullmatch(file.name)
            assert said is not None
            sessions.setdefault(int(said["session"]), []).append(sum(seconds for _, seconds, _ in _records(file)))
            most = max(most, int(said["ranks"]))
        there = sum(seconds for seconds, _ in self._here.get(work, {}).values())
        return sum(map(max, sessions.values())) + there, most

    def forget(self, work: str) -> None:
        """Of a work whose result is there nothing is kept in memory."""
        self._here.pop(work, None)

    def forget_others(self, kind: str, but: str) -> None:
        """Of works whose names begin with `kind` those alone stay in memory whose names begin with `but`."""
        for name in [name for name in self._here if name.startswith(kind) and not name.startswith(but)]:
            self.forget(name)

    def once(self, work: str, make: Callable[[], Any]) -> Any:
        """What `make` gives, on each rank the same, or gave before; each rank must call it."""
        self._counts[work] = 1
        known = 0 in self._finished(work)
        made = None
        if not known:
            began = time.perf_counter()
            made = make()
            if self.ranks.is_main:
                with self._opened(work) if self.folder is not None else contextlib.nullcontext() as file:
                    self._put(work, file, 0, time.perf_counter() - began, made)
        return self.ranks.broadcast(next(self.values(work)) if self.ranks.is_main else None)

    def discard(self) -> None:
        """The result is whole: none of it is needed any more; nor is what was kept beside it of other weights. For the
        first rank."""
        if self.folder is None:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        stem, model, _ = self.folder.name.rsplit("-", 2)
        for other in list(self.folder.parent.iterdir()):
            if other.name.startswith(f"{stem}-") and other.name.rsplit("-", 2)[1] != model:
                with contextlib.suppress(InputError, StorageError), _locked(other):
                    shutil.rmtree(other, ignore_errors=True)

    def is_empty(self) -> bool:
        """Whether no part is kept in the folder."""
        return self.folder is not None and not any(_NAME.fullmatch(file.name) for file in self.folder.glob("*"))

    def _files(self, work: str) -> list[Path]:
        if self.folder is None:
            return []
        there = sorted(self.folder.glob(f"{_digest(work)}-*.jsonl"))
        return [file for file in there if _NAME.fullmatch(file.name)]

    def _finished(self, work: str) -> set[int]:
        """The parts that are, as the first rank finds them: no other may see another state of the files."""
        runs: list[list[int]] = []
        if self.ranks.is_main:
            here = set(self._here.get(work, ()))
            found = here.union(number for file in self._files(work) for number, _, _ in _records(file))
            for number in sorted(number for number in found if number < self._counts[work]):
                if runs and runs[-1][1] == number:
                    runs[-1][1] += 1
                else:
                    runs.append([number, number + 1])
        return {number for begin, end in self.ranks.broadcast(runs) for number in range(begin, end)}

    @contextlib.contextmanager
    def _opened(self, work: str) -> Iterator[BinaryIO]:
        """A new file of this rank."""
        assert self.folder is not None
        ranks = self.ranks
        place = self.folder / f"{_digest(work)}-{self._session:04}-{ranks.rank:05}-of-{ranks.size:05}.jsonl"
        with storage_errors(f"{place}: cannot be written"):
            # Unbuffered: a line is handed over by one call, and a kill leaves whole lines.
            file = place.open("xb", buffering=0)
        with file:
            with storage_errors(f"{place}: cannot be written"):
                file.write(json.dumps({"format": _FORMAT, "work": work}).encode() + b"\n")
            yield file

    def _put(self, work: str, file: BinaryIO | None, number: int, seconds: float, value: Any) -> None:
        if file is not None:
            try:
                text = dumped(value).encode()
            except TypeError as error:
                if self.ranks.size > 1:
                    raise InputError(
                        f"several ranks: {error} cannot be told to another one (expected of a metric of a plug-in: "
                        "plain values and arrays of numpy, or its own `state` and `restore`)"
                    ) from None
            else:
                with storage_errors(f"{self.folder}: cannot be written"):
                    line = b"%d\t%r\t%d\t%b\n" % (number, seconds, zlib.crc32(text), text)
                    # What a disk that is full takes of a line is no part.
                    if file.write(line) != len(line):
                        raise OSError("the disk is full")
                return
        self._here.setdefault(work, {})[number] = seconds, value


def _records(file: Path) -> Iterator[Record]:
    """The whole lines of a file: number, seconds, value; what a kill cut off ends it."""
    with contextlib.suppress(ValueError), file.open("rb") as lines:
        if json.loads(next(lines, b"null")) is None:
            return
        for line in lines:
            number, seconds, checksum, text = line.split(b"\t", 3)
            if not text.endswith(b"\n") or zlib.crc32(text[:-1]) != int(checksum):
                return
            yield int(number), float(seconds), text[:-1]


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
    """The `identity` of parts: of a model's `weights_digest` and all else that decides the values."""
    return f"{weights}-{_digest(json.dumps([_FORMAT, about], sort_keys=True, default=str))}"


@contextlib.contextmanager
def kept_beside(
    out: Path, model: Model, about: Callable[[], Mapping[str, Any]], ranks: Ranks = SINGLE_RANK
) -> Iterator[WorkFolder]:
    """Parts in a hidden folder beside `out`; what another session left of the same work counts. Each rank must call it.

    Args:
        about: all that decides the values beside the model, as JSON has it; asked of the first rank alone.

    Raises:
        InputError: another process does the same work now.
        StorageError: the folder cannot be made.
    """
    with contextlib.ExitStack() as held:
        told: list[Any] = []
        if ranks.is_main:
            folder = out.parent / f".{out.name}.writing-parts-{work_of(weights_digest(model), about())}"
            with storage_errors(f"{folder}: cannot be made"):
                folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(_locked(folder))
            sessions = [int(said["session"]) for file in folder.iterdir() if (said := _NAME.fullmatch(file.name))]
            told = [str(folder), max(sessions, default=0) + 1]
        place, session = ranks.broadcast(told)
        parts = WorkFolder(ranks, Path(place), session)
        try:
            yield parts
        finally:
            # Nothing was finished: nothing is left.
            if ranks.is_main and parts.is_empty():
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
