"""The explorer's server: a socket on this machine alone, until it is told to end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import threading
import webbrowser
from collections.abc import Callable, Iterator

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from sightline.errors import InputError
from sightline.explorer.app import Explorer
from sightline.explorer.gate import Gate, as_json, names_of
from sightline.explorer.limits import CONNECTIONS, HEAD_SECONDS

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


class _Impatient(H11Protocol):
    """Closes a connection on which no whole head of a request comes in time, and what is more than `CONNECTIONS`."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS:
            transport.abort()
        else:
            self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._heard()
        elif self._waiting is None:
            self._wait()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # Half a head may be there already; without one, the time to keep a connection alive counts.
        if self.conn.trailing_data[0]:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._heard()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP is answered as everything else."""
        body = as_json({"error": "this is no request that a browser makes"})
        headers = [
            (b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"), (b"x-content-type-options", b"nosniff"),
        ]  # fmt: skip
        with contextlib.suppress(h11.LocalProtocolError):
            for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _wait(self) -> None:
        self._heard()
        self._waiting = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _heard(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None


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
        http=_Impatient, ws="none", lifespan="off", loop="asyncio", log_config=None, access_log=False,
        server_header=False, proxy_headers=False, timeout_keep_alive=30, timeout_graceful_shutdown=1,
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
