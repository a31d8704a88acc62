"""Nobody but the server's own page is answered, and what is answered may be used nowhere else."""

from __future__ import annotations

import contextlib
import socket

import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol

from sightline.explorer.gate import names_of
from sightline.explorer.serve import listen
from tests.contract.contract import build
from tests.explorer.served import serving

EVERY = ("/", "/page/index.html", "/api/session", "/api/images/s0/thumbnail.png", "/api/views/x-1/attention?query=0")


def raw(server, text: bytes) -> bytes:
    """Bytes as they are, and all that is answered until the connection is closed."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(text)
        found = b""
        while part := connection.recv(65536):
            found += part
    return found


def test_it_listens_on_the_loopback_address_alone():
    with contextlib.closing(listen(0)) as listening:
        assert listening.getsockname()[0] in ("127.0.0.1", "::1")


def test_no_answer_is_held_back_by_the_kernel(monkeypatch):
    """asyncio asks for TCP_NODELAY where the socket says that it is of TCP: else the last part of an answer on a kept
    connection waits for an acknowledgement that comes after 40 ms."""
    found = []
    real = H11Protocol.connection_made

    def made(self, transport):
        found.append(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        real(self, transport)

    monkeypatch.setattr(H11Protocol, "connection_made", made)
    with serving(build("rope_axial", depth=1)) as server:
        assert server.get("/").status == 200
    assert found == [1]


@pytest.mark.parametrize("path", EVERY)
@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1", "localhost", "127.0.0.1:1", "localhost.evil.example:{port}",
     "127.0.0.1:{port}@evil.example", "0.0.0.0:{port}", "[::]:{port}", "127.1:{port}", "", " ", "127.0.0.1:{port}0"],
)  # fmt: skip
def test_another_name_is_not_answered(server, path, host):
    answer = server.get(path, Host=host.format(port=server.port))
    assert answer.status in (400, 421)
    assert list(answer.json) == ["error"]


def test_the_names_of_this_machine_are_answered(server):
    for host in ("127.0.0.1", "localhost", "[::1]", "LOCALHOST"):
        assert server.get("/api/session", Host=f"{host}:{server.port}").status == 200
    assert "localhost" in names_of(80)
    assert "localhost" not in names_of(8080)


def test_no_host_and_two_hosts(server):
    own = f"127.0.0.1:{server.port}".encode()
    assert b" 421 " in raw(server, b"GET /api/session HTTP/1.0\r\n\r\n").split(b"\r\n")[0]
    two = b"GET /api/session HTTP/1.1\r\nHost: " + own + b"\r\nHost: evil.example\r\n\r\n"
    assert b" 400 " in raw(server, two).split(b"\r\n")[0]
    whole = b"GET http://evil.example/api/session HTTP/1.1\r\nHost: " + own + b"\r\nConnection: close\r\n\r\n"
    assert b" 404 " in raw(server, whole).split(b"\r\n")[0]


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE"])
@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:{port}", "http://127.0.0.1:1", "http://localhost:{port}",
               "http://127.0.0.1", "http://127.0.0.1:{port}.evil.example", "file://"]
)  # fmt: skip
def test_another_origin_is_not_answered(server, method, origin):
    answer = server.ask(method, "/api/session", headers={"Origin": origin.format(port=server.port)})
    assert answer.status == 403
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    assert server.ask(method, "/", headers={"Origin": origin.format(port=server.port)}).status == 403


def test_its_own_origin_is_answered(server):
    own = f"http://127.0.0.1:{server.port}"
    assert server.get("/api/session", Origin=own).status == 200
    given = {"client": "c", "pane": "left", "model": 0, "image": "s0", "size": 16}
    headers = {"Origin": own, "Sec-Fetch-Site": "same-origin"}
    assert server.ask("POST", "/api/views", given, headers).status == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_another_page_begins_is_not_answered(server, site):
    given = {"client": "c", "pane": "left", "model": 0, "image": "s0", "size": 16}
    assert server.ask("POST", "/api/views", given, {"Sec-Fetch-Site": site}).status == 403
    assert server.ask("POST", "/api/images", b"x", {"Sec-Fetch-Site": site}).status == 403
    # As an image of a foreign page: it sends no origin.
    assert server.get("/api/images/s0/thumbnail.png", Sec_Fetch_Site=site).status == 403
    # A link to a view in a mail is opened so.
    assert server.get("/", Sec_Fetch_Site=site).status == 200


@pytest.mark.parametrize("path", [*EVERY, "/nothing"])
def test_headers_of_every_answer(server, path):
    headers = server.get(path).headers
    assert headers["content-security-policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


def test_only_the_files_of_the_page(server):
    names = list(server.explorer.page)
    assert "index.html" in names
    for name in names:
        answer = server.get(f"/page/{name}")
        assert answer.status == 200
        kind = {"html": "text/html", "css": "text/css", "js": "text/javascript"}[name.rsplit(".", 1)[-1]]
        assert answer.headers["content-type"] == f"{kind}; charset=utf-8"
    assert server.get("/").content == server.explorer.page["index.html"]


@pytest.mark.parametrize(
    "path",
    ["/page/", "/page/../app.py", "/page/..%2fapp.py", "/page/%2e%2e/app.py", "/page/%2fetc%2fpasswd",
     "/page//etc/passwd", "/page/index.html%00", "/page/INDEX.HTML", "/page/..\\app.py", "/../../../etc/passwd",
     "/page", "/api", "/api/views", "/api/views/%2e%2e%2f/picture.png", "/api/images/..%2f..%2fx/thumbnail.png",
     "/favicon.ico", "/api/session/", "/page/index.html/", "//api/session"],
)  # fmt: skip
def test_nothing_else_is_served(server, path):
    answer = server.get(path)
    assert answer.status in (404, 405), answer.content
    assert list(answer.json) == ["error"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"])
def test_other_methods(server, method):
    answer = server.ask(method, "/api/session")
    assert answer.status in (404, 405)
    assert list(answer.json) == ["error"]


def test_what_is_no_http(server):
    assert raw(server, b"\x16\x03\x01 hello\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    upgrade = b"GET /api/session HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % server.port
    upgrade += b"Connection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n"
    assert b"101" not in raw(server, upgrade).split(b"\r\n")[0]
