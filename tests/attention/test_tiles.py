"""The tiles of a CPU: in every precision, cut small, under every mode, and pruned."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sightline.attention import DirectedBias, FieldOfView, Pattern, attend, use_backend
from sightline.attention.tiles import _Plan
from sightline.attention.visible_blocks import fraction
from sightline.distributed import machine
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from tests.attention.given import PATTERNS, assert_close, layouts_of, pattern, random_qkv, with_gradients

CPU = torch.device("cpu")
PACK = [(3, 5), (1, 7), (17, 9), (14, 14)]


@pytest.mark.slow
@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("prefix", [0, 1, 5])
@pytest.mark.parametrize("name", PATTERNS)
def test_many_rectangles(name: str, prefix: int) -> None:
    for layout in layouts_of(prefix):
        what, qkv = pattern(name, **PATTERNS[name]), random_qkv(layout)
        assert_close(with_gradients("tiles", qkv, what, layout), with_gradients("sdpa", qkv, what, layout), 1e-5, 1e-4)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("prefix", [0, 1])
@pytest.mark.parametrize("name", ["lookhere_90", "lookhere"])
def test_gradients_in_float64(name: str, prefix: int) -> None:
    layout = TokenLayout.uniform((4, 5), 1, num_prefix_tokens=prefix)
    what = pattern(name, heads=12, **PATTERNS[name])
    qkv = [one.requires_grad_() for one in random_qkv(layout, head_dim=2, dtype=torch.float64)]
    with use_backend("tiles"):
        assert torch.autograd.gradcheck(lambda *qkv: attend(*qkv, what, layout), qkv, fast_mode=True)
        out = attend(*qkv, what, layout)
    assert out.dtype == torch.float64
    assert_close(with_gradients("tiles", qkv, what, layout), with_gradients("sdpa", qkv, what, layout), 1e-12, 1e-12)


DIRECTED = ["lookhere_180", "lookhere_90", "lookhere_45", "alibi_2d"]
SOME = [(name, grids) for name in DIRECTED for grids in ([(3, 5)], [(17, 9)], PACK)]
MANY = pytest.param("lookhere_90", [(32, 40)], marks=pytest.mark.slow)


@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "grids"), [*SOME, MANY])
def test_error_in_16_bits(grids: list[tuple[int, int]], name: str, dtype: torch.dtype) -> None:
    """RMS error over 5 seeds, of the output and of each gradient, at most 1.2 times that of SDPA in 16 bits."""
    layout, what, squares = TokenLayout.packed(grids), pattern(name), torch.zeros(2, 4)
    for seed in range(5):
        qkv = random_qkv(layout, head_dim=16, seed=seed, dtype=dtype)
        exact = with_gradients("sdpa", [one.double() for one in qkv], what, layout, seed)
        for index, backend in enumerate(("tiles", "sdpa")):
            found = with_gradients(backend, qkv, what, layout, seed)
            assert all(one.dtype == dtype for one in found)
            for which, (one, other) in enumerate(zip(found, exact, strict=True)):
                squares[index, which] += float((one.double() - other).square().sum())
    assert (squares[1] > 0).all()
    assert ((squares[0] / squares[1]).sqrt() <= 1.2).all()


def test_a_slope_of_0_keeps_the_mask() -> None:
    """What a head does not see does not matter, by whatever it is multiplied; what it sees does."""
    layout = TokenLayout.uniform((20, 18), 1, num_prefix_tokens=1)
    up = FieldOfView(((-1, 0),))
    for rounding in ("official", "exact"):
        what = Pattern((DirectedBias((up, FieldOfView()), (0.0, 0.0), (False, False), scale=0.0, rounding=rounding),))
        q, k, v = random_qkv(layout, heads=2)
        with use_backend("tiles"):
            before = attend(q, k, v, what, layout)
            below = slice(1 + 10 * 18, None)
            changed = [one.clone() for one in (k, v)]
            for one in changed:
                one[:, :, below] = 1e4
            after = attend(q, *changed, what, layout)
        assert before.isfinite().all()
        above = slice(1, 1 + 10 * 18)
        assert torch.equal(before[:, 0, above], after[:, 0, above])
        assert not torch.isclose(before[:, 1, above], after[:, 1, above]).any()
        assert (before[:, :, below] != after[:, :, below]).all()
        found, expected = (with_gradients(name, (q, k, v), what, layout) for name in ("tiles", "sdpa"))
        assert_close(found, expected, 1e-5, 1e-4)


@pytest.mark.parametrize("scale", [30.0, 1000.0])
def test_large_scores(scale: float) -> None:
    """No overflow: the greatest score of a row is taken away first, and a row may have one key that counts."""
    layout = TokenLayout.uniform((18, 17), 1)
    q, k, v = random_qkv(layout)
    found, expected = (with_gradients(name, (q * scale, k, v), pattern(), layout) for name in ("tiles", "sdpa"))
    assert all(one.isfinite().all() for one in found)
    assert (found[0] - expected[0]).norm() < 1e-3 * expected[0].norm()


@pytest.mark.parametrize("grad_enabled", [True, False])
@pytest.mark.parametrize("vendor", ["amd", "intel"])
def test_autocast_rounds_nothing(vendor: str, grad_enabled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Autocast does not know oneDNN's operator, but it would round torch.mm."""
    monkeypatch.setattr(machine, "cpu_vendor", lambda: vendor)
    layout = TokenLayout.uniform((18, 17), 1)
    qkv = random_qkv(layout)
    with use_backend("tiles"), torch.set_grad_enabled(grad_enabled):
        expected = attend(*qkv, pattern(), layout)
        with torch.autocast("cpu", torch.bfloat16):
            found = attend(*qkv, pattern(), layout)
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)
    plain = with_gradients("tiles", qkv, pattern(), layout)
    with torch.autocast("cpu", torch.bfloat16):
        for one, other in zip(with_gradients("tiles", qkv, pattern(), layout), plain, strict=True):
            assert torch.equal(one, other)


PRUNED = Grid(40, 44)


def _share(what: Pattern) -> float:
    """The share of pairs that the tiles of a pattern compute, read from the plan itself."""
    segment = TokenLayout.uniform(PRUNED, 1).segments[0]
    return fraction(_Plan.of(what, segment, 1, torch.zeros(1)).covers, PRUNED)


@pytest.mark.parametrize("name", ["lookhere_90", "alibi_2d", "lookhere"])
def test_pruning(name: str) -> None:
    """Beyond a penalty of 12, scores of an ordinary spread do not matter; each gradient stays near too."""
    layout = TokenLayout.uniform(PRUNED, 1)
    qkv, what = random_qkv(layout), pattern(name, **PATTERNS[name])
    pruned = {bound: replace(what, prune_below=bound) for bound in (8.0, 12.0)}
    shares = [_share(what), _share(pruned[12.0]), _share(pruned[8.0])]
    assert shares[0] > shares[1] > shares[2]
    expected = with_gradients("tiles", qkv, what, layout)
    errors = {}
    for bound, one in pruned.items():
        found = with_gradients("tiles", qkv, one, layout)
        errors[bound] = [float((x - y).norm() / y.norm()) for x, y in zip(found, expected, strict=True)]
        assert all(error > 0 for error in errors[bound])
    assert max(errors[8.0]) < 5e-4
    assert max(errors[12.0]) < 2e-5
    with use_backend("sdpa"):
        assert torch.equal(attend(*qkv, pruned[8.0], layout), attend(*qkv, what, layout))


@pytest.mark.parametrize("bound", [0.0, 0.5, 1.0])
def test_a_penalty_at_the_bound_is_not_pruned(bound: float) -> None:
    """Whatever is pruned, each query still sees itself, and what costs no more than the bound."""
    grid = Grid(3, 40)
    table = DirectedBias((FieldOfView(),), (0.5,), (False,)).relative(grid, CPU)
    layout = TokenLayout.uniform(grid, 1, num_prefix_tokens=0)
    what = Pattern((DirectedBias((FieldOfView(),), (0.5,), (False,)),), prune_below=bound)
    tiles = _Plan.of(what, layout.segments[0], 0, torch.zeros(1)).covers[0]
    for (top, bottom, left, right), keys in tiles:
        held = torch.zeros(*grid, dtype=torch.bool)
        for piece in keys:
            held[piece.top : piece.bottom, piece.left : piece.right] = True
        for y in range(top, bottom):
            for x in range(left, right):
                near = table[0, grid.rows - 1 - y :, grid.cols - 1 - x :][: grid.rows, : grid.cols] >= -bound
                assert near[y, x]
                assert held[near].all()
    with use_backend("tiles"):
        assert attend(*random_qkv(layout, heads=1), what, layout).isfinite().all()
