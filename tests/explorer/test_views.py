"""Views are kept within a bound, and one that nobody waits for any more is not computed on."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from sightline.explorer import answers, app
from tests.contract.contract import build
from tests.explorer.served import serving


@pytest.fixture
def slow():
    """A server whose model stops in its second layer until it is told to go on, and how many passes got how far."""
    model = build("lookhere_90", depth=3)
    reached, go, passed = threading.Semaphore(0), threading.Event(), []

    def wait(module, given):
        passed.append("second")
        reached.release()
        assert go.wait(60)

    model.blocks[1].register_forward_pre_hook(wait)
    model.blocks[2].register_forward_pre_hook(lambda *_: passed.append("third"))
    with serving(model) as server:
        server.reached, server.go, server.passed = reached, go, passed
        try:
            yield server
        finally:
            go.set()


def test_what_a_pane_wants_next_ends_what_it_wanted(slow):
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(slow.view, size=16)
        assert slow.reached.acquire(timeout=60)
        second = pool.submit(slow.view, size=20)
        # Answered at once, although its layer is still being computed.
        answer = first.result(60)
        assert answer.status == 409
        assert answer.json["replaced"] is True
        assert answer.json["error"]
        slow.go.set()
        assert second.result(60).status == 200
    # The first ended between its second and its third layer.
    assert slow.passed == ["second", "second", "third"]
    assert len(slow.explorer.views._views) == 1
    assert not slow.explorer._waiting
    assert not slow.explorer._tickets


def test_one_model_computes_one_view_at_a_time(slow):
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(slow.view, size=size, pane=pane) for size, pane in ((16, "left"), (20, "right"))]
        assert slow.reached.acquire(timeout=60)
        assert not slow.reached.acquire(timeout=0.2)
        # What is there already is answered meanwhile.
        assert slow.get("/api/session").status == 200
        slow.go.set()
        assert [one.result(60).status for one in both] == [200, 200]


def test_a_long_overlay_ends_with_whoever_asked(monkeypatch):
    """And clicks are answered meanwhile."""
    reached, go, went_on = threading.Event(), threading.Event(), []
    real = answers.attention_blocks

    def slowly(call):
        for block in real(call):
            yield block
            reached.set()
            assert go.wait(60)
            went_on.append(call.layer)

    monkeypatch.setattr(answers, "attention_blocks", slowly)
    with serving(build("lookhere_90")) as server:
        view = server.view().json["view"]
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
            path = f"/api/views/{view}/overlay?kind=rollout&query=0"
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
            assert reached.wait(60)
            (ticket,) = server.explorer._waiting
            for _ in range(4):
                assert server.get(f"/api/views/{view}/attention?query=1").status == 200
        until = time.monotonic() + 60
        while not ticket.dropped and time.monotonic() < until:
            time.sleep(0.01)
        go.set()
        until = time.monotonic() + 60
        while server.explorer._waiting and time.monotonic() < until:
            time.sleep(0.01)
    # Not on to the layer below.
    assert went_on == [1]


def test_no_more_wait_than_a_bound(slow, monkeypatch):
    monkeypatch.setattr(app, "WAITING", 2)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(slow.view, size=16)
        assert slow.reached.acquire(timeout=60)
        second = pool.submit(slow.view, size=20, client="b")
        until = time.monotonic() + 60
        while len(slow.explorer._waiting) < 2 and time.monotonic() < until:
            time.sleep(0.01)
        answer = slow.view(size=24, client="c")
        assert answer.status == 503
        assert "try again" in answer.json["error"]
        slow.go.set()
        assert [first.result(60).status, second.result(60).status] == [200, 200]


def test_a_pass_that_fails_leaves_the_model_as_it_was(monkeypatch):
    model = build("lookhere_90")
    with serving(model) as server:
        fails = model.blocks[1].register_forward_pre_hook(lambda *_: 1 / 0)
        answer = server.view(knob=0.5, off=[[0, 0]])
        assert answer.status == 500
        assert list(answer.json) == ["error"]
        fails.remove()
        assert model.knob.value == model.knob.default
        assert not any(module._forward_pre_hooks for module in model.modules())
        assert server.view().status == 200


def test_views_are_given_up_by_bytes_the_least_used_first():
    with serving(build("lookhere_90"), max_mib=1) as server:
        views = server.explorer.views
        first, second = (server.view(size=size).json["view"] for size in (32, 36))
        held = views.held_bytes
        assert held == sum(one.seen.nbytes for one in views._views.values())
        assert server.get(f"/api/views/{first}/attention?query=0").status == 200
        size = 40
        while views.held_bytes <= views.most_bytes and second in views._views:
            assert server.view(size=size, pane="right").status == 200
            size += 4
        assert views.held_bytes <= views.most_bytes
        assert views.held_bytes == sum(one.seen.nbytes for one in views._views.values())
        assert first in views._views
        for part in ("attention?query=0", "field?query=0", "overlay?kind=norms", "picture.png"):
            answer = server.get(f"/api/views/{second}/{part}")
            assert (answer.status, answer.json["gone"]) == (410, True)
        # Asked for again, it is another one.
        again = server.view(size=36).json["view"]
        assert again != second
        assert server.get(f"/api/views/{again}/attention?query=0").status == 200
