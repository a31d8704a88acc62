"""What is sent is bounded, read strictly, and refused in one sentence; the server goes on."""

from __future__ import annotations

import contextlib
import io
import json
import socket

import pytest
from PIL import Image

from sightline.explorer import app
from tests.contract.contract import build
from tests.explorer.served import png, serving

GOOD = {"client": "c", "pane": "left", "model": 0, "image": "s0", "size": 16, "knob": None, "off": []}


def refused(answer, status=400):
    assert answer.status == status, answer.content
    said = answer.json["error"]
    assert "\n" not in said
    assert len(said) < 400
    return said


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"size": 18}, "nearest: 16 or 20"),
        ({"size": [16, 18]}, "nearest: 16x16 or 16x20"),
        ({"size": 3}, "nearest: 4"),
        ({"size": 100_000}, "largest of this shape: 512x512"),
        ({"size": [4, 1_000_000]}, "largest of this shape: 4x"),
        ({"size": 0}, "size = 0"),
        ({"size": 16.0}, "whole number"),
        ({"size": "large"}, "native"),
        ({"size": [16, 16, 16]}, "size"),
        ({"model": 2}, "at most 1"),
        ({"model": "0"}, "model"),
        ({"pane": "middle"}, "left, right"),
        ({"client": "c" * 65}, "client"),
        ({"image": 7}, "image"),
        ({"knob": -1}, "expected 0 to"),
        ({"knob": 10**400}, "finite"),
        ({"knob": "1"}, "knob"),
        ({"model": 1, "knob": 0.5}, "expected 1 to"),
        ({"off": [[0]]}, "off[0]"),
        ({"off": [[2, 0]]}, "layer 2, head 0"),
        ({"off": [[0, 99]]}, "layer 0, head 99"),
        ({"off": [0]}, "off[0]"),
        ({"sizes": 16}, "did you mean 'size'"),
    ],
    ids=lambda value: json.dumps(value)[:40],
)  # fmt: skip
def test_a_wrong_question(server, change, says):
    answer = server.ask("POST", "/api/views", {**GOOD, **change})
    assert says in refused(answer)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"no image", "not an image in a known format"),
        (png()[:60], "a.png: "),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "not an image in a known format"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not an image in a known format"),
        (b"P6 200000 200000 255\n", "pixels are too many"),
        (b"P6 0 5 255\n", "a.png: "),
    ],
)
def test_what_is_no_image(server, content, says):
    before = server.get("/api/session").json["images"]
    assert says in refused(server.send(content))
    assert server.get("/api/session").json["images"] == before


def test_images_are_read_as_predict_reads_them(server):
    frames = [Image.new("RGB", (6, 4), colour) for colour in ("red", "blue")]
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
    sent = server.send(file.getvalue(), "two.gif").json
    pixels = server.explorer.pictures.pixels(sent["id"])
    assert pixels.shape == (4, 6, 3)
    assert pixels[0, 0].tolist() == [255, 0, 0]
    # Lying on its side.
    exif = Image.Exif()
    exif[0x0112] = 6
    file = io.BytesIO()
    Image.new("RGB", (8, 4), "green").save(file, "JPEG", exif=exif)
    sent = server.send(file.getvalue(), "../../etc/x%0Ay.jpg").json
    assert (sent["height"], sent["width"]) == (8, 4)
    assert sent["name"] == "xy.jpg"


def test_a_body_that_says_that_it_is_too_long_is_not_read(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        head = f"POST /api/images HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Length: {10**12}\r\n\r\n"
        connection.sendall(head.encode())
        # Not a byte of the body was sent: what is answered, and the end, came before it.
        found = b""
        while part := connection.recv(65536):
            found += part
    assert b" 413 " in found.split(b"\r\n")[0]
    assert b'{"error":"more than 32768 KiB are not taken here"}' in found


@pytest.mark.parametrize("path", ["/api/images", "/api/views"])
def test_a_body_without_a_length_is_cut_off(server, path, monkeypatch):
    monkeypatch.setattr(app, "UPLOAD_BYTES", 1 << 18)
    sent = 0
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        )
        part = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        found = b""
        with contextlib.suppress(OSError):
            while sent < 64 << 20:
                connection.sendall(part)
                sent += 0x10000
        with contextlib.suppress(OSError):
            found = connection.recv(65536)
    # The system's own buffers took some.
    assert sent < 32 << 20
    assert not found or b" 413 " in found.split(b"\r\n")[0]
    assert server.get("/api/session").status == 200


def test_images_have_a_bound(monkeypatch):
    from sightline.explorer.images import ImageStore

    one = len(png(seed=0))
    pictures = ImageStore(sent_bytes=int(2.5 * one))
    with serving(build("rope_axial", depth=1), pictures=pictures) as server:
        first, second = (server.send(png(seed=seed)).json["id"] for seed in (0, 1))
        assert server.get(f"/api/images/{first}/thumbnail.png").status == 200
        third = server.send(png(seed=2)).json["id"]
        # The one that was not looked at since.
        answer = server.get(f"/api/images/{second}/thumbnail.png")
        assert (answer.status, answer.json["gone"]) == (410, True)
        listed = {one["id"] for one in server.get("/api/session").json["images"]}
        assert {first, third} <= listed
        assert second not in listed
        assert server.view(image=second, size=16).status == 410
