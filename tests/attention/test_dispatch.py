"""Who computes: by size, precision and gradients; as asked for; and a back end that is one new file."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import Tensor

import sightline.attention.dispatch as dispatching
from sightline.attention import Pattern, attend, backends, preferred_tile, use_backend
from sightline.attention.backends.base import BackendFailed
from sightline.attention.costs import Costs, Group, Point, shown_by, using
from sightline.attention.dispatch import BACKENDS, dispatch
from sightline.attention.products import expected_shapes
from sightline.errors import InputError
from sightline.tokens.layout import TokenLayout
from tests.attention.given import pattern, random_qkv


def chosen(layout: TokenLayout, dtype: torch.dtype = torch.float32, what: Pattern | None = None) -> str:
    return dispatch(what or pattern(), layout, layout, torch.empty(1, 12, layout.slots, 8, dtype=dtype)).name


def numbers(*, dtype: torch.dtype = torch.float32, training: bool = True, **forms: float) -> Costs:
    """Costs by which tiles are the fastest beyond 200 tokens; or other ones, the same at all sizes."""
    group = Group.of(dtype, training=training, head_dim=8)
    tiles = {"sdpa": [Point(10, 1.0, 1.0)], "tiles": [Point(10, 100.0, 100.0), Point(4000, 0.01, 0.01)]}
    points = {name: [Point(10, cost, cost)] for name, cost in forms.items()} or tiles
    return Costs("any", "any", 1, shown=shown_by(pattern().terms), points={group: points})


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_by_what_is_the_fastest(dtype: torch.dtype, training: bool) -> None:
    what = pattern()
    with torch.set_grad_enabled(training), using(numbers(dtype=dtype, training=training)):
        for tokens in range(1, 1101, 9):
            layout = TokenLayout.uniform((1, tokens), 2, num_prefix_tokens=0)
            assert chosen(layout, dtype, what) == ("tiles" if tokens > 200 else "dense")
    with torch.set_grad_enabled(not training), using(numbers(dtype=dtype, training=training)):
        assert chosen(TokenLayout.uniform((1, 1000), 2), dtype, what) == "dense", "nothing was measured of it"


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_what_was_not_measured_is_sdpas(dtype: torch.dtype) -> None:
    with using(numbers()):
        assert chosen(TokenLayout.uniform((1, 1000), 2), dtype) == "dense"


@pytest.fixture
def by_numbers():
    with using(numbers()):
        yield


def test_each_form_where_it_costs_least() -> None:
    layout = TokenLayout.uniform((20, 20), 1)
    for forms, expected in [
        ({"sdpa": 3.0, "tiles": 2.0, "rectangles": 1.0}, "rectangles"),
        ({"sdpa": 3.0, "tiles": 1.0, "rectangles": 2.0}, "tiles"),
        ({"sdpa": 1.0, "tiles": 1.0, "rectangles": 1.0}, "dense"),
        ({"tiles": 9.0}, "tiles"),
    ]:
        with using(numbers(**forms)):
            assert chosen(layout) == expected
    # Where products are torch's own, tiles cost what they cost with these.
    made = numbers(sdpa=2.0, tiles=1.0, tiles_plain_products=3.0)
    for onednn, expected in ((2.0, "dense"), (1.0, "tiles")):
        with using(dataclasses.replace(made, onednn=onednn)):
            assert chosen(layout) == "tiles"
            with expected_shapes(ever_new=True):
                assert chosen(layout) == expected, "where no other product is taken, there is no other number"


def test_what_a_pattern_shows_counts() -> None:
    """Tiles of heads that see everything gain nothing by what is left out."""
    layout, costs = TokenLayout.uniform((20, 20), 1), numbers(sdpa=1.5, tiles=1.0)
    with using(costs):
        assert chosen(layout) == "tiles"
        assert chosen(layout, what=pattern("alibi_2d")) == "dense"


def test_by_tokens_of_an_image_on_average() -> None:
    with using(numbers()):
        for few, many in [(10, 400), (10, 389)]:
            layout = TokenLayout.packed([(1, few), (1, many)], num_prefix_tokens=0)
            assert chosen(layout) == ("tiles" if few + many > 401 else "dense")
        # Prefix tokens are tokens.
        assert chosen(TokenLayout.uniform((1, 196), 1, num_prefix_tokens=5)) == "tiles"


def test_what_tiles_do_not_support(by_numbers) -> None:
    layout = TokenLayout.uniform((20, 20), 1)
    q = torch.empty(1, 12, layout.slots, 8)
    assert dispatch(pattern(), layout, layout, q).name == "tiles"
    others = [
        (None, layout, layout, q),
        (pattern("rpe_learned"), layout, layout, q),
        (pattern("rpe_learned") + pattern(), layout, layout, q),
        (pattern(), layout.query_layout(2), layout, q[:, :, :2]),
        (pattern(), layout, layout, q.to("meta")),
    ]
    kept = layout.keep(torch.arange(400).unsqueeze(0))
    others.append((pattern(), kept, kept, q))
    for call in others:
        with use_backend("tiles"):
            assert dispatch(*call).name == "dense"


@pytest.mark.parametrize("name", ["tilse", "tile", "Tiles"])
def test_an_unknown_name(name: str) -> None:
    with (
        pytest.raises(InputError, match=r"back end .* is not known.*tiles.*allowed: auto, dense") as raised,
        use_backend(name),
    ):
        pass
    assert "\n" not in str(raised.value)
    assert chosen(TokenLayout.uniform((3, 5), 1)) == "dense"


def test_nested(by_numbers) -> None:
    layout = TokenLayout.uniform((3, 5), 1)
    assert chosen(layout) == "dense"
    with use_backend("tiles"):
        assert chosen(layout) == "tiles"
        with use_backend("dense"):
            assert chosen(layout) == "dense"
            with use_backend("auto"):
                assert chosen(layout) == "dense"
                assert chosen(TokenLayout.uniform((20, 20), 1)) == "tiles"
            assert chosen(TokenLayout.uniform((20, 20), 1)) == "dense"
        assert chosen(layout) == "tiles"
        with pytest.raises(ZeroDivisionError), use_backend("dense"):
            raise ZeroDivisionError
        assert chosen(layout) == "tiles"
    assert chosen(layout) == "dense"


def test_the_order_of_tokens() -> None:
    """A CPU keeps row-major order; whoever asks for a back end gets the order that it wants."""
    layout = TokenLayout.uniform((64, 64), 1)
    assert preferred_tile(pattern(), layout) is None
    for name, backend in BACKENDS.items():
        with use_backend(name):
            assert preferred_tile(pattern(), layout) == backend.tile
    assert BACKENDS["tiles"].tile is None


def test_a_back_end_that_does_not_run_here_is_said_once_and_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Tensor:
        raise BackendFailed("no compiler")

    monkeypatch.setattr(dispatching, "_FAILED", set())
    monkeypatch.setattr(type(BACKENDS["tiles"]), "__call__", fail)
    layout = TokenLayout.uniform((5, 7), 1)
    q, k, v = torch.randn(3, 1, 12, layout.slots, 4).unbind(0)
    with use_backend("dense"):
        expected = attend(q, k, v, pattern(), layout)
    with use_backend("tiles"):
        with pytest.warns(UserWarning, match="tiles does not run here.*no compiler"):
            assert torch.equal(attend(q, k, v, pattern(), layout), expected)
        assert torch.equal(attend(q, k, v, pattern(), layout), expected)


def test_preference() -> None:
    preferences = [backend.preference for backend in BACKENDS.values()]
    assert preferences == sorted(preferences, reverse=True)
    assert len(set(preferences)) == len(preferences), "no two are equal: the order would be that of the files"
    assert list(BACKENDS)[-1] == "dense"
    assert all(name == backend.name for name, backend in BACKENDS.items())


NEW = '''
"""A back end of one new file."""
from sightline.attention.backends.base import Backend
from sightline.attention.backends.tiles import TileBackend


class Unfinished(Backend):
    name, preference = "unfinished", 99


class Twice(TileBackend):
    name, preference = "twice", 50

    def pays(self, pattern, keys, q):
        return keys.slots == 16

    def __call__(self, *given):
        return 2 * super().__call__(*given)
'''


def test_a_new_file_is_a_new_back_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "twice.py").write_text(NEW)
    monkeypatch.setattr(backends, "__path__", [*backends.__path__, str(tmp_path)])
    found = dispatching._find()
    # Neither what it imports nor what is abstract is found a second time.
    assert list(found) == ["twice", *BACKENDS]
    before = {name: type(backend) for name, backend in BACKENDS.items()}
    assert {name: type(backend) for name, backend in found.items() if name != "twice"} == before

    layout = TokenLayout.uniform((3, 5), 1)
    qkv = random_qkv(layout)
    once = attend(*qkv, pattern(), layout)
    monkeypatch.setattr(dispatching, "BACKENDS", found)
    assert chosen(layout) == "twice"
    assert chosen(TokenLayout.uniform((3, 6), 1)) == "dense"
    assert (attend(*qkv, pattern(), layout) - 2 * once).abs().max() < 1e-5
    with use_backend("twice"):
        assert chosen(TokenLayout.uniform((3, 6), 1)) == "twice"


@pytest.mark.parametrize("backend", list(BACKENDS))
def test_wrong_slots(backend: str) -> None:
    layout = TokenLayout.uniform((3, 5), 1)
    q, k, v = random_qkv(layout)
    with use_backend(backend):
        for queries, keys in [(q[:, :, :-1], k), (q, k[:, :, 1:])]:
            with pytest.raises(InputError, match=r"queries of 1[56] and keys of 1[56] slots, expected 16 and 16"):
                attend(queries, keys, v, pattern(), layout)


@pytest.mark.parametrize("layout", [TokenLayout.uniform((3, 5), 0), TokenLayout.packed([])], ids=["rows", "images"])
@pytest.mark.parametrize("backend", list(BACKENDS))
def test_no_images_give_no_outputs(backend: str, layout: TokenLayout) -> None:
    for what in (None, pattern(), pattern("rpe_learned")):
        q, k, v = (one.requires_grad_() for one in random_qkv(layout))
        with use_backend(backend):
            out = attend(q, k, v, what, layout)
        assert out.shape == (layout.rows, 12, layout.slots, 8)
        assert out.numel() == 0
        out.sum().backward()
        assert all(one.grad is None or one.grad.shape == one.shape for one in (q, k, v))
