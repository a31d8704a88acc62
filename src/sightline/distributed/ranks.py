"""The processes of one run, on one machine or many: how many there are, and what they say to each other.

`python -m torch.distributed.run` (torchrun) starts them. One that fails says so and ends; the others find its
connection closed, or are ended by torchrun. Messages are numbers and JSON, never pickles, and travel between CPUs.
Reads no torch unless there is more than one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sightline.errors import InputError, RanksError

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist

# As long as the first may save, measure or read headers while the others wait.
_TIMEOUT = datetime.timedelta(hours=2)
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
    """This process among those of a run; alone unless said. Each of them must call the same methods, in one order.

    Attributes:
        rank: from 0; size: how many there are.
        device: where it computes.
        group: of torch's in which messages travel; None for that of all.
    """

    rank: int = 0
    size: int = 1
    device: torch.device | str = "cpu"
    group: dist.ProcessGroup | None = None

    @property
    def is_main(self) -> bool:
        """This one writes, and speaks to the user."""
        return self.rank == 0

    def cpu_group(self) -> Ranks:
        """The same ranks in a group of their own, for messages of another thread."""
        if self.size == 1:
            return self
        import torch.distributed as dist

        return dataclasses.replace(self, device="cpu", group=dist.new_group(backend="gloo", timeout=_TIMEOUT))

    def all_reduce_sum(self, values: Sequence[float]) -> list[float]:
        """The sums of numbers over all ranks, in float64."""
        if self.size == 1:
            return list(values)
        import torch
        import torch.distributed as dist

        sums = torch.tensor(list(values), dtype=torch.float64)
        dist.all_reduce(sums, group=self.group)
        return sums.tolist()

    def barrier(self) -> None:
        """Wait until each rank is here."""
        self.all_reduce_sum([0.0])

    def all_gather_json(self, value: Any) -> list[Any]:
        """What each rank says, plain values as JSON has them, in the order of the ranks."""
        if self.size == 1:
            return [value]
        import torch
        import torch.distributed as dist

        content = bytearray(json.dumps(value).encode())
        lengths = self.all_reduce_sum([len(content) * (one == self.rank) for one in range(self.size)])
        own = torch.zeros(int(max(lengths)), dtype=torch.uint8)
        own[: len(content)] = torch.frombuffer(content, dtype=torch.uint8)
        all_of_them = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(all_of_them, own, group=self.group)
        texts = zip(all_of_them, lengths, strict=True)
        return [json.loads(text[: int(length)].numpy().tobytes()) for text, length in texts]

    def broadcast(self, value: Any) -> Any:
        """What the first rank says, a plain value as JSON has it; that of the others is not looked at."""
        return self.all_gather_json(value if self.is_main else None)[0]


SINGLE_RANK = Ranks()


def is_comm_error(error: BaseException) -> bool:
    """Whether torch says that another rank cannot be reached: an error of its own, or gloo's plain RuntimeError."""
    known = getattr(sys.modules.get("torch.distributed"), "DistError", ())
    return isinstance(error, known) or any(word in str(error) for word in _OF_GLOO)


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
        RanksError: another rank ended, or cannot be reached.
    """
    if not is_distributed_launch():
        yield SINGLE_RANK
        return
    import torch
    import torch.distributed as dist

    for name in _NEEDED:
        if name not in os.environ:
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
    backend = "cpu:gloo,cuda:nccl" if gpus else "gloo"
    try:
        dist.init_process_group(backend, rank=rank, world_size=size, timeout=_TIMEOUT)
        yield Ranks(rank, size, own)
    except RuntimeError as error:
        if not is_comm_error(error):
            raise
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise RanksError(f"another rank of the run ended or cannot be reached ({line[:200]})") from None
    finally:
        # Whoever waits for this rank hears at once that it is gone.
        with contextlib.suppress(Exception):
            dist.destroy_process_group()
