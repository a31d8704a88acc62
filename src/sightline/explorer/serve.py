"""The explorer's server: a socket on this machine alone, until it is told to end."""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import threading
import webbrowser
from collections.abc import Callable, Iterator

import uvicorn

from sightline.errors import InputError
from sightline.explorer.app import Explorer
from sightline.explorer.gate import Gate, names_of
from sightline.explorer.limits import CONNECTIONS

PORT = 8765
"""Where it listens unless told otherwise, so that a link to a view goes on working."""
_LOOPBACK = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))


def listen(port: int | None = None) -> socket.socket:
    """A socket on the loopback address of this machine, and on no other.

    Args:
        port: None takes `PORT`, or any other where that is taken; 0 takes any.

    Raises:
        InputError: the port is taken, or may not be listened on.
    """
    if port is None:
        with contextlib.suppress(InputError):
            return listen(PORT)
        port = 0
    for family, host in _LOOPBACK:
        try:
            # Named, or asyncio lets the kernel hold back the last part of each answer for 40 ms.
            found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        except OSError:
            continue
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind((host, port))
            found.listen(64)
            return found
        except OSError as error:
            found.close()
            if error.errno == errno.EADDRNOTAVAIL:
                continue
            why = "is taken by another program" if error.errno == errno.EADDRINUSE else (error.strerror or str(error))
            raise InputError(f"--port {port}: {why} (expected: one that is free; 0 takes any)") from None
    raise InputError("this machine has no loopback address to listen on")


def url_of(listening: socket.socket) -> str:
    """What a browser opens."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


class _Server(uvicorn.Server):
    """Ends when it is told to, and leaves signals to who listens to them."""

    def __init__(self, config: uvicorn.Config, began: Callable[[], None], ends: Callable[[], bool]) -> None:
        super().__init__(config)
        self._began, self._ends = began, ends

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._began()

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) or self._ends()


def serve(explorer: Explorer, listening: socket.socket, *, began: Callable[[], None], ends: Callable[[], bool]) -> None:
    """Answer until `ends` says so, which is asked ten times a second; then everything is closed.

    Args:
        began: called when requests are answered.
    """
    # What a foreign program sends is no business of the terminal; faults of ours are written by the application.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    config = uvicorn.Config(
        Gate(explorer.app(), names_of(listening.getsockname()[1])),
        http="h11", ws="none", limit_concurrency=CONNECTIONS, lifespan="off", loop="asyncio", log_config=None,
        access_log=False, server_header=False, proxy_headers=False, timeout_keep_alive=30, timeout_graceful_shutdown=1,
    )  # fmt: skip
    try:
        _Server(config, began, ends).run(sockets=[listening])
    finally:
        listening.close()
        explorer.close()


def open_browser(url: str) -> None:
    """Show it in the user's browser, where there is one with a window of its own."""

    def show() -> None:
        with contextlib.suppress(Exception):
            browser = webbrowser.get()
            # One that runs in this terminal would take it over.
            if type(browser) is not webbrowser.GenericBrowser:
                browser.open(url)

    threading.Thread(target=show, daemon=True).start()
