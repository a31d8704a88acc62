"""Work on several ranks of this machine, joined by gloo, as torchrun would start them."""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sightline.distributed.ranks import init_ranks
from tests.tiny import fork_server


def free_port() -> int:
    """A port of this machine that nobody listens on.

    Below those that the system gives to whoever asks for any: until it is used, a connection of another test's ranks
    might get one of them.
    """
    for port in random.SystemRandom().sample(range(11_000, 32_000), 100):
        with socket.socket() as found, contextlib.suppress(OSError):
            found.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


def together(size: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What `run_worker(ranks, *arguments)` gives on each of `size` ranks, processes of their own; an exception is given
    back as it was raised. What is passed is pickled."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        given = [(rank, size, port, Path(folder) / str(rank), work, arguments) for rank in range(size)]
        processes = [fork_server().Process(target=_as_rank, args=one) for one in given]
        for process in processes:
            process.start()
        # Reached where they wait for each other for ever: no test waits for it.
        deadline = time.monotonic() + 600
        for process in processes:
            process.join(max(deadline - time.monotonic(), 0))
        for process in processes:
            process.kill()
            process.join()
        said = [Path(folder) / str(rank) for rank in range(size)]
        codes = [process.exitcode for process in processes]
        assert all(one.exists() for one in said), f"a rank said nothing: exit codes {codes}"
        return [pickle.loads(one.read_bytes()) for one in said]


def _as_rank(rank: int, size: int, port: int, out: Path, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    import torch

    torch.set_num_threads(1)
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }  # fmt: skip
    try:
        with init_ranks("cpu") as ranks:
            found = work(ranks, *arguments)
    except Exception as error:
        found = error
    # Renamed when it is whole.
    out.with_suffix(".part").write_bytes(pickle.dumps(found))
    out.with_suffix(".part").rename(out)
