"""Nobody but the server's own page is answered, and what is answered may be used nowhere else."""

from __future__ import annotations

import contextlib

import pytest

from sightline.explorer.serve import listen

EVERY = ("/", "/page/index.html", "/api/session", "/api/images/s0/thumbnail.png", "/api/views/x-1/attention?query=0")


def test_it_listens_on_the_loopback_address_alone():
    with contextlib.closing(listen(0)) as listening:
        assert listening.getsockname()[0] in ("127.0.0.1", "::1")


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
