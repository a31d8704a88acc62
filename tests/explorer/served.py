"""An explorer's server on a free port, in a thread, and requests to it as a browser makes them or would never."""

from __future__ import annotations

import base64
import contextlib
import http.client
import io
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from sightline.explorer.app import Explorer
from sightline.explorer.images import ImageStore
from sightline.explorer.models import ExplorerModel
from sightline.explorer.serve import listen, serve
from sightline.models import Model

MIB = 1 << 20


@dataclass
class Answer:
    status: int
    headers: http.client.HTTPMessage
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)


@dataclass
class Server:
    explorer: Explorer
    port: int

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        """One request in a connection of its own; an object as `body` goes as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            content = json.dumps(body).encode() if isinstance(body, dict | list) else body
            connection.request(method, path, content, headers or {})
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, headers={key.replace("_", "-"): value for key, value in headers.items()})

    def view(self, **wanted: Any) -> Answer:
        """A view of the first model, at its training size unless said otherwise."""
        given = {"client": "test", "pane": "left", "model": 0, "image": "s0", "size": [24, 32], **wanted}
        return self.ask("POST", "/api/views", given)

    def send(self, content: bytes, name: str = "a.png") -> Answer:
        return self.ask("POST", "/api/images", content, {"X-Name": name})


@contextlib.contextmanager
def serving(*models: Model, max_mib: int = 64, pictures: ImageStore | None = None) -> Iterator[Server]:
    """A server of these models."""
    listening, began, end = listen(0), threading.Event(), threading.Event()
    subjects = [ExplorerModel(model, f"model {number}", max_mib * MIB) for number, model in enumerate(models)]
    explorer = Explorer(subjects, pictures or ImageStore(), max_mib * MIB)
    run = threading.Thread(target=serve, args=(explorer, listening), kwargs={"began": began.set, "ends": end.is_set})
    run.start()
    try:
        assert began.wait(60)
        yield Server(explorer, listening.getsockname()[1])
    finally:
        end.set()
        run.join(60)
        assert not run.is_alive()


def array(text: str, kind: str, *shape: int) -> np.ndarray:
    """An array as the page reads it."""
    return np.frombuffer(base64.b64decode(text), kind).reshape(shape)


def png(height: int = 20, width: int = 30, seed: int = 0) -> bytes:
    """A noisy picture's file."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()
