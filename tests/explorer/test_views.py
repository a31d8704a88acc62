"""Views are kept within a bound, and one that nobody waits for any more is not computed on."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from sightline.errors import InputError
from sightline.explorer import answers, app
from sightline.explorer.models import ExplorerModel
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


def test_another_pane_and_another_page_end_nothing(slow):
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(slow.view, size=16)
        assert slow.reached.acquire(timeout=60)
        others = [pool.submit(slow.view, size=20, pane="right"), pool.submit(slow.view, size=24, client="other")]
        slow.go.set()
        assert [one.result(60).status for one in (first, *others)] == [200] * 3


def test_a_wrong_question_ends_nothing(slow):
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(slow.view, size=16)
        assert slow.reached.acquire(timeout=60)
        assert slow.view(size=17).status == 400
        slow.go.set()
        assert first.result(60).status == 200


def test_one_model_computes_one_view_at_a_time(slow):
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(slow.view, size=size, pane=pane) for size, pane in ((16, "left"), (20, "right"))]
        assert slow.reached.acquire(timeout=60)
        assert not slow.reached.acquire(timeout=0.2)
        # What is there already is answered meanwhile.
        assert slow.get("/api/session").status == 200
        slow.go.set()
        assert [one.result(60).status for one in both] == [200, 200]


def test_whoever_leaves_is_not_computed_for(slow):
    body = b'{"client": "c", "pane": "left", "model": 0, "image": "s0", "size": 16}'
    with socket.create_connection(("127.0.0.1", slow.port), timeout=30) as connection:
        head = f"POST /api/views HTTP/1.1\r\nHost: 127.0.0.1:{slow.port}\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        assert slow.reached.acquire(timeout=60)
        (ticket,) = slow.explorer._waiting
    until = time.monotonic() + 60
    while not ticket.dropped and time.monotonic() < until:
        time.sleep(0.01)
    assert ticket.dropped
    slow.go.set()
    assert slow.view(size=20).status == 200
    assert slow.passed == ["second", "second", "third"]


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


def test_the_end_of_the_server_ends_a_pass(slow):
    with ThreadPoolExecutor(2) as pool:
        asked = pool.submit(slow.view, size=16)
        assert slow.reached.acquire(timeout=60)
        (ticket,) = slow.explorer._waiting
        closing = pool.submit(slow.explorer.close)
        until = time.monotonic() + 60
        while not ticket.dropped and time.monotonic() < until:
            time.sleep(0.01)
        slow.go.set()
        closing.result(60)
        assert asked.result(60).status == 409
    assert slow.passed == ["second"]


def test_the_answer_with_all_heads_is_computed_once():
    model, passes = build("lookhere_90"), []
    model.blocks[0].register_forward_pre_hook(lambda *_: passes.append(1))
    with serving(model) as server:
        plain = server.view().json
        off = server.view(off=[[0, 1]]).json
        assert off["whole"] == plain["classes"] != off["classes"]
        assert len(passes) == 2
        # Of another size there is none yet.
        assert server.view(size=16, off=[[0, 1]]).json["whole"]
        assert len(passes) == 4
        # And of another knob it is another one.
        turned = server.view(off=[[0, 1]], knob=0.25).json
        assert turned["whole"] not in (None, plain["classes"])


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


def test_small_views_are_counted_too(monkeypatch):
    """Of one patch, what stands around the tensors is more than they are."""
    from sightline.explorer import views as kept

    monkeypatch.setattr(kept, "MOST_VIEWS", 2)
    with serving(build("lookhere_90")) as server:
        first, second, third = (server.view(size=size).json["view"] for size in (4, 8, 12))
        assert list(server.explorer.views._views) == [second, third]
        assert server.get(f"/api/views/{first}/attention?query=0").status == 410


def test_what_is_counted_is_what_is_kept():
    """No part of queries, keys and values together is kept alive by the queries."""
    with serving(build("learned_1d")) as server:
        server.view(size=32)
        (view,) = server.explorer.views._views.values()
    seen = view.seen
    for tensor in (*seen.tokens, *(one for call in seen.calls for one in (call.q, call.k))):
        assert tensor.dtype == torch.float32
        assert tensor.untyped_storage().nbytes() == tensor.nbytes
    config = server.explorer.subjects[0].model.config
    slots = 64 + 1
    assert seen.nbytes == 4 * config.depth * slots * 3 * config.dim + 32 * 32 * 3
    # And no less than what the bound on tokens counts with.
    assert seen.nbytes <= server.explorer.subjects[0]._slot_bytes * slots


def test_a_bound_that_no_view_fits_into_is_refused():
    with pytest.raises(InputError, match=r"--max-mib 1: a view of big takes \d+ MiB at the size of its training"):
        ExplorerModel(build("lookhere_90", depth=12, image_size=128), "big", 1 << 20)
    subject = ExplorerModel(build("lookhere_90"), "small", 1 << 20)
    assert 48 <= subject.max_tokens < 1000
