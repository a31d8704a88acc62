"""What stands before every answer: a loopback server is reached by any page that the browser has open.

A foreign page may send requests here, and with a name of its own that points to this machine (DNS rebinding) read the
answers too. So the name that is asked for, and who asks, are checked; and nothing that is answered may be used, framed
or embedded elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sightline.explorer.errors import HttpError

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}


def names_of(port: int) -> frozenset[str]:
    """What a browser on this machine may call the server at a port, as the header Host has it."""
    hosts = ("127.0.0.1", "localhost", "[::1]")
    # Of the port that http has anyway, browsers say nothing.
    return frozenset({f"{host}:{port}" for host in hosts} | (set(hosts) if port == 80 else set()))


class Gate:
    """An ASGI application behind it answers only what this server's own page asks."""

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self.app, self.names = app, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        if scope["type"] != "http":
            raise RuntimeError(f"{scope['type']}: only HTTP is spoken here")
        try:
            self.check(scope)
        except HttpError as refused:
            await say(refused, guarded)
            return
        await self.app(scope, receive, guarded)

    def check(self, scope: Scope) -> None:
        """Raises HttpError: 421 for another name than the server's, 403 for a page that is not its own."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self.names:
            raise HttpError(421, "this server answers to the address that it printed, and to no other name")
        for origin in headers.getlist("origin"):
            if origin.lower() != f"http://{hosts[0].lower()}":
                raise HttpError(403, "another page's requests are not answered")
        navigates = scope["method"] in ("GET", "HEAD") and scope["path"] == "/"
        allowed = ("same-origin", "none")
        if not navigates and any(one not in allowed for one in headers.getlist("sec-fetch-site")):
            raise HttpError(403, "another page's requests are not answered")


async def say(refused: HttpError, send: Send) -> None:
    """An answer that is none; the connection is closed, since more of a body may be on its way."""
    body = as_json({"error": refused.said, **refused.more})
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def as_json(value: object) -> bytes:
    """As the page reads it; a number that is not finite is a fault of ours."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode("utf-8", "replace")
