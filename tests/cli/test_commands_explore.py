"""`sightline explore`: what it refuses, what it prints, and how it ends."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import socket
import subprocess
import sys

import pytest

import sightline
from sightline.explorer import serve
from tests.contract.contract import build


@pytest.fixture
def no_model(monkeypatch):
    def forbidden(*_, **__):
        raise AssertionError("a model was read before the refusal")

    monkeypatch.setattr("sightline.hub.load.load_model", forbidden)


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "0 models are given (expected one or two)"),
        (("a", "b", "c"), "3 models"),
        (("a", "--port", "-1"), "--port"),
        (("a", "--port", "65536"), "at most 65,535"),
        (("a", "--port", "80.5"), "no whole number"),
        (("a", "--no-pretrained"), "--no-pretrained: goes with timm:NAME alone (got a)"),
        (("a", "--max-mib", "0"), "--max-mib"),
        (("a", "--max-mib", "99999999"), "--max-mib 99999999: expected at most"),
        (("a", "--images", "/nowhere"), "--images /nowhere: is no folder"),
        (("a", "--device", "tpu"), "tpu"),
        (("a", "--host", "0.0.0.0"), "--host"),
    ],
)
def test_wrong_words(refused, words, says):
    refused("explore", *words, says=[says])


@pytest.fixture
def opened(monkeypatch):
    """A server that ends at once, and what it would have opened."""
    found = []
    real = serve.serve

    def short(explorer, listening, *, began, ends):
        found.append(explorer)
        real(explorer, listening, began=began, ends=lambda: True)

    monkeypatch.setattr(serve, "serve", short)
    monkeypatch.setattr(serve, "open_browser", found.append)
    return found


def test_the_address_is_printed_and_opened(cli, opened, tmp_path):
    sightline.save_model(build("lookhere_90", depth=1), tmp_path / "one")
    sightline.save_model(build("rope_axial", depth=1), tmp_path / "two")
    code, out, err = cli("explore", tmp_path / "one", tmp_path / "two", "--port", 0)
    assert (code, err) == (0, "")
    (url,) = re.fullmatch(r"Sightline explorer: (http://127\.0\.0\.1:\d+/) \(Ctrl-C ends it\)\n", out).groups()
    assert opened[1:] == [url]
    assert [one["name"] for one in opened[0].said] == ["one", "two"]
    code, _, _ = cli("explore", tmp_path / "one", "--port", 0, "--no-browser")
    assert code == 0
    assert len(opened) == 3


def test_images_of_a_folder(cli, opened, tmp_path):
    from tests.explorer.served import png

    sightline.save_model(build("rope_axial", depth=1), tmp_path / "one")
    (tmp_path / "images/below").mkdir(parents=True)
    (tmp_path / "images/below/b.png").write_bytes(png(8, 12))
    (tmp_path / "images/bad.png").write_bytes(b"no image")
    code, _, err = cli("explore", tmp_path / "one", "--port", 0, "--no-browser", "--images", tmp_path / "images")
    assert code == 0
    assert err.count("\n") == 1
    assert "left out: " in err
    assert "bad.png" in err
    (listed,) = opened[0].pictures.listed()
    assert (listed["name"], listed["height"], listed["width"]) == ("below/b.png", 8, 12)
    for number in range(7):
        (tmp_path / f"images/bad{number}.png").write_bytes(b"no image")
    _, _, err = cli("explore", tmp_path / "one", "--port", 0, "--no-browser", "--images", tmp_path / "images")
    assert err.count("\n") == 6
    assert err.endswith("left out: 3 more\n")
    (tmp_path / "images/below/b.png").unlink()
    from sightline.explorer.errors import HttpError

    with pytest.raises(HttpError, match="no such file"):
        opened[0].pictures.pixels(listed["id"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code", "said"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_signal_ends_it_with_one_line(tmp_path, number, code, said):
    sightline.save_model(build("lookhere_90", depth=1), tmp_path / "one")
    command = [sys.executable, "-m", "sightline", "explore", str(tmp_path / "one"), "--port", "0", "--no-browser"]
    run = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    try:
        port = int(run.stdout.readline().split(":")[3].split("/")[0])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        body = json.dumps({"client": "c", "pane": "left", "model": 0, "image": "s0", "size": 64})
        connection.request("POST", "/api/views", body)
        assert connection.getresponse().read()
        # The connection is kept alive, and another one is open; neither holds it up.
        with contextlib.closing(socket.create_connection(("127.0.0.1", port))):
            run.send_signal(number)
            assert run.wait(30) == code
        assert run.stderr.read() == f"sightline: {said}\n"
    finally:
        run.kill()
        run.communicate()
