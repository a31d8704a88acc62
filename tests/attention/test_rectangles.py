"""torch's fused kernel on tiles and the rectangles that they see, beside the readable reference."""

from __future__ import annotations

import pytest
import torch

from sightline.attention import attend, use_backend
from sightline.attention.backends import rectangles
from sightline.attention.backends.rectangles import _Plan
from sightline.attention.costs import of_one_form, using
from sightline.attention.dispatch import dispatch
from sightline.tokens.layout import TokenLayout
from tests.attention.given import PATTERNS, assert_close, layouts_of, pattern, random_qkv, with_gradients


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("prefix", [0, 1, 5])
@pytest.mark.parametrize("name", PATTERNS)
def test_as_the_reference(name: str, prefix: int) -> None:
    for layout in layouts_of(prefix):
        what, qkv = pattern(name, **PATTERNS[name]), random_qkv(layout)
        with use_backend("rectangles"):
            assert dispatch(what, layout, layout, qkv[0]).name == "rectangles"
        found = with_gradients("rectangles", qkv, what, layout)
        assert_close(found, with_gradients("dense", qkv, what, layout), 1e-5, 1e-4)


@pytest.mark.parametrize("grid", [(20, 34), (33, 17)])
def test_tiles_as_they_are(grid: tuple[int, int]) -> None:
    layout = TokenLayout.uniform(grid, 2)
    what, qkv = pattern("lookhere_90"), random_qkv(layout)
    expected = with_gradients("dense", qkv, what, layout)
    assert_close(with_gradients("rectangles", qkv, what, layout), expected, 1e-5, 1e-4)


def test_bfloat16_is_as_exact_as_sdpa() -> None:
    """RMS errors against float64 at most 1.2 times those of SDPA in bfloat16."""
    layout, what = TokenLayout.uniform((20, 34), 2), pattern("lookhere_90")
    qkv = random_qkv(layout, head_dim=16, dtype=torch.bfloat16)
    exact = with_gradients("dense", [one.double() for one in qkv], what, layout)
    with using(of_one_form("sdpa")):
        reference = with_gradients("dense", qkv, what, layout)
    found = with_gradients("rectangles", qkv, what, layout)
    for one, other, truth in zip(found, reference, exact, strict=True):
        assert one.dtype == torch.bfloat16
        mine, theirs = ((each.double() - truth).square().mean().sqrt() for each in (one, other))
        assert 0 < mine <= 1.2 * theirs


def test_a_long_neighbour_changes_no_short_image_in_bfloat16() -> None:
    """Whose precision it would have changed too."""
    pack, alone = (TokenLayout.packed(grids) for grids in ([(20, 20), (50, 50)], [(20, 20)]))
    what, (q, k, v) = pattern("lookhere_90"), random_qkv(pack, dtype=torch.bfloat16)
    with using(of_one_form("rectangles")), torch.no_grad():
        together = attend(q, k, v, what, pack)[:, :, : alone.slots]
        single = attend(*(one[:, :, : alone.slots] for one in (q, k, v)), what, alone)
    assert torch.equal(together, single)


def test_two_threads_give_the_same() -> None:
    layout, what = TokenLayout.uniform((20, 34), 1), pattern("lookhere_90")
    qkv, before = random_qkv(layout), torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(with_gradients("rectangles", qkv, what, layout))
    finally:
        torch.set_num_threads(before)
    assert_close(found[1], found[0], 1e-6, 1e-6)


def test_heads_that_see_alike_are_one_call_while_their_masks_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    layout, what = TokenLayout.uniform((40, 30), 1), pattern("lookhere_90")
    q = torch.empty(1, 12, layout.slots, 8, dtype=torch.bfloat16)
    groups = _Plan.of(what, layout.segments[0], 1, q).groups
    assert max(group.heads.stop - group.heads.start for group in groups) > 1
    assert [head for group in groups for head in range(12)[group.heads]] == list(range(12))
    monkeypatch.setattr(rectangles, "_MASK_BYTES", 0)
    groups = _Plan.of(what, layout.segments[0], 1, q).groups
    assert [group.heads for group in groups] == [slice(head, head + 1) for head in range(12)]


def test_what_it_does_not_support() -> None:
    layout = TokenLayout.uniform((3, 5), 1)
    q = torch.empty(1, 12, layout.slots, 8)
    one = rectangles.Rectangles()
    assert one.supports(pattern(), layout, layout, q)
    assert not one.supports(None, layout, layout, q)
    assert not one.supports(pattern("rpe_learned"), layout, layout, q)
    assert not one.supports(pattern(), layout, layout, q.half())
    assert not one.supports(pattern(), layout, layout, q.to("meta"))
