"""The explorer as an ASGI application: routes, bodies within their bounds, and work outside the event loop."""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from sightline.errors import SightlineError
from sightline.explorer import answers
from sightline.explorer.errors import HttpError, superseded
from sightline.explorer.gate import as_json
from sightline.explorer.images import ImageStore, as_png
from sightline.explorer.limits import MAX_PIXELS, QUESTION_BYTES, UPLOAD_BYTES, UPLOADS, WAITING
from sightline.explorer.models import ExplorerModel
from sightline.explorer.requests import ViewSpec, read_query, read_request
from sightline.explorer.views import CachedView, CancelToken, ViewCache
from sightline.io.config import check_value, whole

T = TypeVar("T")
_PAGE = Path(__file__).parent / "page"
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
_LOOKING = 2


class Explorer:
    """Models, images and views, and what is answered of them.

    A model computes one pass at a time, in a thread of its own; what is asked of a view that is there is answered by
    other threads meanwhile.
    """

    def __init__(self, subjects: list[ExplorerModel], pictures: ImageStore, most_bytes: int) -> None:
        """Args:
        most_bytes: of all views that are kept.
        """
        self.subjects, self.pictures, self.views = subjects, pictures, ViewCache(most_bytes)
        # Before a pass may turn a knob.
        self.said = [one.said(number, answers.overlays_of(one)) for number, one in enumerate(subjects)]
        self.limits = {
            "upload_bytes": UPLOAD_BYTES,
            "max_pixels": MAX_PIXELS,
            "max_tokens": min(one.max_tokens for one in subjects),
        }
        # All that is served, read once: no path of a request ever becomes a path of the disk.
        self.page = {file.name: file.read_bytes() for file in _PAGE.iterdir() if file.suffix in _KINDS}
        self._passes = [ThreadPoolExecutor(1, f"sightline-model-{number}") for number in range(len(subjects))]
        self._looks = ThreadPoolExecutor(_LOOKING, "sightline-looks")
        # Of a view too, but as long as a pass: clicks do not wait for them.
        self._long = ThreadPoolExecutor(1, "sightline-long")
        self._tickets: dict[tuple[str, str], tuple[CancelToken, asyncio.Event]] = {}
        self._waiting: set[CancelToken] = set()
        self._uploads = asyncio.Semaphore(UPLOADS)

    def close(self) -> None:
        """End what is being computed, at the next layer."""
        for ticket in list(self._waiting):
            ticket.drop()
        for pool in (*self._passes, self._looks, self._long):
            pool.shutdown(wait=True, cancel_futures=True)

    def app(self) -> Starlette:
        """The routes; a `Gate` belongs before them."""
        view = "/api/views/{view}"
        routes = [
            Route("/", self._index),
            Route("/page/{name}", self._file),
            Route("/api/session", self._session),
            Route("/api/images", self._upload, methods=["POST"]),
            Route("/api/images/{image}/thumbnail.png", self._thumbnail),
            Route("/api/views", self._view, methods=["POST"]),
            Route(f"{view}/picture.png", self._picture),
            Route(f"{view}/attention", self._attention),
            Route(f"{view}/field", self._field),
            Route(f"{view}/overlay", self._overlay),
        ]
        faults: Any = {HttpError: _refused, SightlineError: _wrong, HTTPException: _unknown, Exception: _ours}
        app = Starlette(routes=routes, exception_handlers=faults)
        app.router.redirect_slashes = False
        return app

    async def _index(self, request: Request) -> Response:
        return Response(self.page["index.html"], media_type=_KINDS[".html"])

    async def _file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self.page:
            raise HttpError(404, "the page has no such file")
        return Response(self.page[name], media_type=_KINDS[Path(name).suffix])

    async def _session(self, request: Request) -> Response:
        return _json({"models": self.said, "images": self.pictures.listed(), "limits": self.limits})

    async def _upload(self, request: Request) -> Response:
        async with self._uploads:
            content = await _body(request, UPLOAD_BYTES)
            if not content:
                raise HttpError(400, "the image file is empty")
            name = unquote(request.headers.get("x-name", ""), errors="replace")
            picture = await self._looked(partial(self.pictures.add, content, name))
        return _json(picture.said(), 201)

    async def _thumbnail(self, request: Request) -> Response:
        return _png(await self._looked(partial(self.pictures.thumbnail, request.path_params["image"])))

    async def _picture(self, request: Request) -> Response:
        view = self.views[request.path_params["view"]]
        return _png(await self._looked(partial(as_png, view.seen.picture)))

    async def _attention(self, request: Request) -> Response:
        view, asked = self._of_view(request, ("query",))
        return await self._said(partial(answers.attention, view.seen, **asked))

    async def _field(self, request: Request) -> Response:
        view, asked = self._of_view(request, ("query",))
        return await self._said(partial(answers.field, view.seen, **asked))

    async def _overlay(self, request: Request) -> Response:
        view, asked = self._of_view(request, ("kind", "layer", "query"))
        work = partial(answers.overlay, self.subjects[view.wanted.model], view.seen, **asked)
        if asked["kind"] not in answers.LONG:
            return await self._said(work)
        ticket = CancelToken()
        content = await self._while_wanted(request, self._long, ticket, lambda: as_json(work(check=ticket.check)))
        return Response(content, media_type="application/json")

    def _of_view(self, request: Request, keys: tuple[str, ...]) -> tuple[CachedView, dict[str, Any]]:
        view = self.views[request.path_params["view"]]
        return view, read_query(request.query_params, keys)

    async def _said(self, answer: Callable[[], dict[str, Any]]) -> Response:
        content = await self._looked(lambda: as_json(answer()))
        return Response(content, media_type="application/json")

    async def _looked(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._looks, work)

    async def _view(self, request: Request) -> Response:
        question = read_request(await _body(request, QUESTION_BYTES))
        wanted = question.wanted
        check_value("model", wanted.model, whole(0, len(self.subjects) - 1))
        self.subjects[wanted.model].check(wanted)
        # Raises where it is not there.
        self.pictures[wanted.image]
        view = self.views.of(wanted)
        async with self._ticket((question.client, question.pane)) as (ticket, dropped):
            if view is None:
                view = await self._computed(request, wanted, ticket, dropped)
        return _json(self._told(view))

    @asynccontextmanager
    async def _ticket(self, pane: tuple[str, str]) -> AsyncIterator[tuple[CancelToken, asyncio.Event]]:
        """What the pane wanted before is wanted no more."""
        if pane in self._tickets:
            ticket, dropped = self._tickets.pop(pane)
            ticket.drop()
            dropped.set()
        mine = self._tickets[pane] = CancelToken(), asyncio.Event()
        try:
            yield mine
        finally:
            if self._tickets.get(pane) is mine:
                del self._tickets[pane]

    async def _computed(
        self, request: Request, wanted: ViewSpec, ticket: CancelToken, dropped: asyncio.Event
    ) -> CachedView:
        def work() -> CachedView:
            ticket.check()
            # The other pane may have asked for the same meanwhile.
            known = self.views.of(wanted)
            if known is not None:
                return known
            pixels = self.pictures.pixels(wanted.image)
            plain = self.views.of(replace(wanted, off=())) if wanted.off else None
            whole = None if plain is None else plain.seen.classes
            return self.views.put(wanted, self.subjects[wanted.model].seen(pixels, wanted, ticket.check, whole))

        return await self._while_wanted(request, self._passes[wanted.model], ticket, work, dropped)

    async def _while_wanted(
        self,
        request: Request,
        pool: ThreadPoolExecutor,
        ticket: CancelToken,
        work: Callable[[], T],
        dropped: asyncio.Event | None = None,
    ) -> T:
        """What `work` gives, in a thread of a pool; it is given up where whoever asked is gone, or `dropped` is set.

        Raises:
            HttpError: 409, it was given up; 503, too many others wait.
        """
        if len(self._waiting) >= WAITING:
            raise HttpError(503, "too much is being computed; try again in a moment")
        self._waiting.add(ticket)
        task: Future[T] = pool.submit(work)
        task.add_done_callback(lambda _: self._waiting.discard(ticket))
        passing = asyncio.wrap_future(task)
        # Read when nobody waits for it any more, or asyncio would complain.
        passing.add_done_callback(lambda one: one.cancelled() or one.exception())
        others: list[asyncio.Future[Any]] = [asyncio.ensure_future(_left(request))]
        if dropped is not None:
            others.append(asyncio.ensure_future(dropped.wait()))
        try:
            await asyncio.wait([passing, *others], return_when=asyncio.FIRST_COMPLETED)
            if passing.done():
                return passing.result()
            raise superseded()
        finally:
            for one in others:
                one.cancel()
            if not passing.done():
                ticket.drop()
                task.cancel()

    def _told(self, view: CachedView) -> dict[str, Any]:
        seen, subject = view.seen, self.subjects[view.wanted.model]
        return {
            "view": view.id,
            "grid": list(seen.grid),
            "image_size": list(seen.picture.shape[:2]),
            "tokens": seen.grid.cells + len(subject.prefix),
            "prefix": subject.prefix,
            "classes": seen.classes,
            "scores": subject.model.config.score_link,
            "whole": seen.whole,
            "seconds": seen.seconds,
        }


async def _left(request: Request) -> None:
    """Until whoever asked is gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _body(request: Request, most: int) -> bytes:
    """The body of a request, cut off where it is too long.

    Raises:
        HttpError: 413; 400 where it breaks off.
    """
    too_long = HttpError(413, f"more than {most >> 10} KiB are not taken here")
    length = request.headers.get("content-length", "")
    # The connection is closed with the answer, whatever else is on its way.
    if length.isdecimal() and (len(length) > 18 or int(length) > most):
        raise too_long
    found = bytearray()
    try:
        async for part in request.stream():
            found += part
            if len(found) > most:
                raise too_long
    except ClientDisconnect:
        raise HttpError(400, "the request broke off") from None
    return bytes(found)


def _json(value: object, status: int = 200) -> Response:
    return Response(as_json(value), status, media_type="application/json")


def _png(content: bytes) -> Response:
    return Response(content, media_type="image/png")


async def _refused(_: Request, fault: HttpError) -> Response:
    response = _json({"error": fault.said, **fault.more}, fault.status)
    if fault.status == 413:
        response.headers["connection"] = "close"
    return response


async def _wrong(_: Request, fault: SightlineError) -> Response:
    return _json({"error": " ".join(str(fault).split())}, 400)


async def _unknown(_: Request, fault: HTTPException) -> Response:
    said = "this is not asked so" if fault.status_code == 405 else "there is nothing at this address"
    return _json({"error": said}, fault.status_code)


async def _ours(_: Request, fault: Exception) -> Response:
    with suppress(OSError):
        traceback.print_exception(fault, file=sys.stderr)
    if isinstance(fault, MemoryError | RuntimeError) and "memory" in str(fault):
        return _json({"error": "there is not enough memory for this; try a smaller size"}, 500)
    return _json({"error": "the server made a mistake, which its terminal shows"}, 500)
