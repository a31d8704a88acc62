"""The processes of one run, on one machine or many: how many there are, and what they say to each other.

`python -m torch.distributed.run` (torchrun) starts them. Each holds the whole model and sees its part of each step;
what decides anything (losses, counts, a wish to stop, a fault) is said to all of them, so that they decide alike.
Messages are numbers and JSON, never pickles. Reads no torch unless there is more than one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sightline import errors
from sightline.errors import InputError, RanksError, SightlineError, StoppedError

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist

# As long as the first may save, measure or read headers while the others wait.
_PATIENCE = datetime.timedelta(hours=2)
_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
# What gloo's messages hold where a connection broke or nobody answered.
_OF_GLOO = (
    "gloo/transport",
    "gloo/rendezvous",
    "Connection closed by peer",
    "Connection reset by peer",
    "Connect timeout",
)


@dataclass(frozen=True)
class Ranks:
    """This process among those of a run; alone unless said.

    Attributes:
        rank: from 0; size: how many there are; local: the rank on this machine.
        device: where messages travel: a GPU's for NCCL.
        group: of torch's that they travel in; None for that of all.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    device: torch.device | str = "cpu"
    group: dist.ProcessGroup | None = None

    @property
    def is_main(self) -> bool:
        """This one writes, and speaks to the user."""
        return self.rank == 0

    def cpu_group(self) -> Ranks:
        """The same ranks on processors, whose messages do not meet those of these; each must call it."""
        if self.size == 1:
            return self
        import torch.distributed as dist

        with translate_comm_errors():
            return dataclasses.replace(self, device="cpu", group=dist.new_group(backend="gloo", timeout=_PATIENCE))

    def all_reduce_sum(self, values: Sequence[float]) -> list[float]:
        """The sums of numbers over all ranks, in float64 where the device has it; each must call it."""
        if self.size == 1:
            return list(values)
        import torch
        import torch.distributed as dist

        told = torch.tensor(list(values), dtype=torch.float64, device=self.device)
        with translate_comm_errors():
            dist.all_reduce(told, group=self.group)
        return told.tolist()

    def all_gather_json(self, value: Any) -> list[Any]:
        """What each rank says, plain values as JSON has them, in the order of the ranks; each must call it."""
        if self.size == 1:
            return [value]
        import torch
        import torch.distributed as dist

        content = json.dumps(value).encode()
        lengths = [
            int(one) for one in self.all_reduce_sum([len(content) * (one == self.rank) for one in range(self.size)])
        ]
        told = torch.zeros(max(lengths), dtype=torch.uint8, device=self.device)
        told[: len(content)] = torch.tensor(list(content), dtype=torch.uint8)
        heard = [torch.empty_like(told) for _ in range(self.size)]
        with translate_comm_errors():
            dist.all_gather(heard, told, group=self.group)
        texts = (bytes(one[:length].tolist()) for one, length in zip(heard, lengths, strict=True))
        return [json.loads(text) for text in texts]

    def broadcast(self, value: Any) -> Any:
        """What the first rank says, plain values as JSON has them; each must call it, and that of the others is not
        looked at."""
        if self.size == 1:
            return value
        import torch
        import torch.distributed as dist

        content = bytearray(json.dumps(value).encode() if self.is_main else b"")
        length = int(self.all_reduce_sum([len(content)])[0])
        told = torch.zeros(length, dtype=torch.uint8, device=self.device)
        if self.is_main:
            told.copy_(torch.frombuffer(content, dtype=torch.uint8))
        with translate_comm_errors():
            dist.broadcast(told, 0, group=self.group)
        return json.loads(told.cpu().numpy().tobytes())

    def raise_together(self, fault: SightlineError | None = None) -> None:
        """Go on where none has a fault; else each raises that of the lowest rank which has one. Each must call it."""
        if self.size == 1:
            if fault is not None:
                raise fault
            return
        signal = fault.exit_code if isinstance(fault, StoppedError) and fault.by_signal else None
        said = self.all_gather_json(None if fault is None else [type(fault).__name__, str(fault), signal])
        for rank, one in enumerate(said):
            if one is not None:
                name, line, signal = one
                if rank == self.rank and fault is not None:
                    raise fault
                raise StoppedError(line, signal) if signal is not None else getattr(errors, name, SightlineError)(line)

    @contextlib.contextmanager
    def raising_together(self) -> Iterator[None]:
        """Inside, each does the same; a fault of one ends all of them with its line."""
        fault = None
        try:
            yield
        except SightlineError as error:
            if self.size == 1 or isinstance(error, RanksError):
                raise
            fault = error
        self.raise_together(fault)

    def run_on_main(self, work: Callable[[], object]) -> None:
        """Have the first rank do something while the others wait; each must call it."""
        with self.raising_together():
            if self.is_main:
                work()


SINGLE_RANK = Ranks()


@contextlib.contextmanager
def translate_comm_errors() -> Iterator[None]:
    """Inside, a broken connection to another rank is a RanksError; any other fault is raised as it is."""
    try:
        yield
    except RuntimeError as error:
        if not is_comm_error(error):
            raise
        raise comm_error(error) from None


def is_comm_error(error: BaseException) -> bool:
    """Whether torch says that another rank cannot be reached: an error of its own, or gloo's plain RuntimeError."""
    known = getattr(sys.modules.get("torch.distributed"), "DistError", ())
    return isinstance(error, known) or any(word in str(error) for word in _OF_GLOO)


def comm_error(error: BaseException) -> RanksError:
    """The same in one line."""
    line = (str(error).splitlines() or [type(error).__name__])[0]
    return RanksError(f"another rank of the run ended or cannot be reached ({line[:200]})")


def is_distributed_launch() -> bool:
    """Whether a launcher, as torchrun, started this process as one of several."""
    return os.environ.get("WORLD_SIZE", "1") != "1" and "RANK" in os.environ


def is_main_process() -> bool:
    """Whether this process is the one that speaks, also before the ranks have joined."""
    return not is_distributed_launch() or os.environ["RANK"] == "0"


@contextlib.contextmanager
def init_ranks(device: str = "auto") -> Iterator[Ranks]:
    """Inside, the ranks that a launcher started are joined; a process that is alone is alone.

    Args:
        device: `auto` and `cuda` give each rank of a machine its own GPU, where there are some.

    Raises:
        InputError: the launcher's variables are incomplete, or there are fewer GPUs than ranks here.
        RanksError: the others cannot be reached.
    """
    if not is_distributed_launch():
        yield SINGLE_RANK
        return
    import torch
    import torch.distributed as dist

    found = {name: os.environ.get(name) for name in _NEEDED}
    for name, value in found.items():
        if value is None:
            raise InputError(f"{name}: is not set, beside WORLD_SIZE (expected torchrun, which sets both)")
    rank, size = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE"))
    local = int(os.environ.get("LOCAL_RANK", rank))
    gpus = torch.cuda.device_count() if device != "cpu" else 0
    if gpus and local >= gpus:
        raise InputError(
            f"rank {local} of this machine: has no GPU ({gpus} here; expected as many ranks, or --device cpu)"
        )
    own = torch.device("cuda", local) if gpus else torch.device("cpu")
    if gpus:
        torch.cuda.set_device(own)
    with translate_comm_errors():
        dist.init_process_group("nccl" if gpus else "gloo", rank=rank, world_size=size, timeout=_PATIENCE)
    try:
        yield Ranks(rank, size, local, own)
    finally:
        with contextlib.suppress(Exception):
            dist.destroy_process_group()
