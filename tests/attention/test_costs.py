"""What forms cost, between and beyond what was measured, and which is chosen by it."""

from __future__ import annotations

import itertools

import pytest
import torch

from sightline.attention import costs, products
from sightline.attention.costs import Costs, Group, Point, current, dense_forms, of_one_form, takes_wide, using
from sightline.distributed import machine
from tests.attention.given import pattern

GROUP = Group("float32", "forward", 64)
ASKED = {"training": False, "head_dim": 64, "images": 1}


def of(**forms: list[Point]) -> Costs:
    return Costs(machine.processor(), torch.__version__, torch.get_num_threads(), points={GROUP: forms})


@pytest.fixture
def nothing_known(monkeypatch: pytest.MonkeyPatch):
    """A processor without numbers."""
    monkeypatch.setattr(costs, "_shipped", list)
    costs.found.cache_clear()
    yield
    costs.found.cache_clear()


def test_between_and_beyond_what_was_measured() -> None:
    # As many images as a batch has at each size.
    many = costs.images_of_batch(1)
    made = of(sdpa=[Point(100, 8.0, 2.0), Point(400, 2.0, 2.0)])
    alone = [made.predicted(GROUP, "sdpa", tokens, 1) for tokens in (50, 100, 200, 400, 800, 1600)]
    assert alone == pytest.approx([8.0, 8.0, 4.0, 2.0, 2.0, 2.0])
    # Long ones as the last two go on, up to twice as many.
    long = of(sdpa=[Point(1000, 8.0, 8.0), Point(4000, 2.0, 2.0)])
    assert [long.predicted(GROUP, "sdpa", tokens, 1) for tokens in (500, 2000, 8000, 16000)] == pytest.approx(
        [8, 4, 1, 1]
    )
    assert of(sdpa=[Point(100, 8.0, 2.0)]).predicted(GROUP, "sdpa", 400, 1) == pytest.approx(8.0)
    assert made.predicted(GROUP, "sdpa", 100, many) == pytest.approx(2.0)
    assert 2.0 < made.predicted(GROUP, "sdpa", 100, 2) < 8.0
    # A batch has one image of those: alone it costs what one alone did, and two are beside each other.
    assert costs.images_of_batch(4097) == 1
    apart = of(sdpa=[Point(2305, 8.0, 2.0)])
    assert [apart.predicted(GROUP, "sdpa", 4097, images) for images in (1, 2, 8)] == pytest.approx([8.0, 2.0, 2.0])


def test_a_measured_batch_has_about_four_thousand_tokens() -> None:
    """Of 2,305 tokens two images: with one another form led than with two (docs/LOG.md)."""
    assert [costs.images_of_batch(one) for one in (17, 65, 197, 577, 1025, 2305, 4097)] == [64, 64, 21, 7, 4, 2, 1]


def test_the_nearest_width_and_the_first_where_nothing_is_known() -> None:
    wide = Group("float32", "forward", 16)
    made = Costs("any", "any", 1, points={GROUP: {"tiles": [Point(1, 1, 1)]}, wide: {"sdpa": [Point(1, 1, 1)]}})
    asked = {"training": False, "images": 1, "tokens": 10}
    forms = ("explicit", "sdpa", "tiles")
    assert made.fastest(forms, torch.float32, head_dim=96, **asked) == "tiles"
    assert made.fastest(forms, torch.float32, head_dim=24, **asked) == "sdpa"
    assert made.fastest(forms, torch.float64, head_dim=24, **asked) == "explicit"
    # Of those that are asked about, and measured.
    assert made.fastest(("explicit",), torch.float32, head_dim=96, **asked) == "explicit"


def test_what_is_shown_makes_sparse_forms_dearer() -> None:
    made = Costs("any", "any", 1, shown=0.5, points={GROUP: {"sdpa": [Point(1, 1.5, 1.5)], "tiles": [Point(1, 1, 1)]}})
    choose = lambda shown: made.fastest(("sdpa", "tiles"), torch.float32, tokens=9, shown=shown, **ASKED)  # noqa: E731
    assert [choose(shown) for shown in (0.3, 0.5, 1.0)] == ["tiles", "tiles", "sdpa"]


def test_shares_that_patterns_show() -> None:
    shares = [
        costs.shown_by(pattern(name).terms) for name in ("lookhere_45", "lookhere_90", "lookhere_180", "alibi_2d")
    ]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    # Of 12 heads 8 see half a plane and 4 everything; the exact counts of a 64 x 64 grid are .421, .504 and .671.
    assert shares[:3] == pytest.approx([0.421, 0.504, 0.671], abs=0.03)
    both = pattern("lookhere_90") + pattern("lookhere_90")
    assert costs.shown_by(both.terms) == shares[1]


@pytest.mark.usefixtures("nothing_known")
def test_of_a_processor_without_numbers_sdpa_computes() -> None:
    assert not current().points
    for dtype in (torch.float32, torch.bfloat16):
        for tokens in (17, 325, 4097):
            assert costs.sparse_choice(pattern("lookhere_90"), tokens, 1, dtype, 64) == "sdpa"
    assert costs.product_of({(1, 2, 3)}) is products.plain
    assert not takes_wide()


@pytest.mark.usefixtures("nothing_known")
def test_what_ships_of_the_nearest_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    some = [Costs(name, "any", threads) for name in (machine.processor(), "another") for threads in (1, 3, 8)]
    monkeypatch.setattr(costs, "_shipped", lambda: some)
    assert [costs.shipped(threads) for threads in (1, 2, 4, 64)] == [some[0], some[0], some[1], some[2]]
    monkeypatch.setattr(costs, "_shipped", lambda: some[3:])
    assert costs.shipped(1) is None


def test_long_images_take_no_form_that_keeps_their_weights() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        assert {"by_head", "explicit"} <= set(dense_forms(dtype, 197))
        assert "by_head" not in dense_forms(dtype, 65)
        assert "by_head" in dense_forms(dtype, 2305)
        assert "explicit" not in dense_forms(dtype, 321)


def test_numbers_may_be_used_inside_each_other() -> None:
    one, other = of(tiles=[Point(17, 1, 1)]), of(sdpa=[Point(17, 1, 1)])
    seen = []
    with using(one):
        with using(other):
            with using(one):
                seen.append(current())
            seen.append(current())
        seen.append(current())
    assert all(found is expected for found, expected in zip(seen, (one, other, one), strict=True))


def test_what_ships_is_whole() -> None:
    assert costs._shipped()
    kinds = itertools.product(("float32", "bfloat16"), ("forward", "training"), (16, 64))
    groups = {Group(*kind) for kind in kinds}
    for one in costs._shipped():
        assert set(one.points) == groups
        for group, forms in one.points.items():
            needed = {*dense_forms(getattr(torch, group.dtype), 197), *costs.SPARSE_FORMS}
            assert needed <= set(forms)
            assert all(points == sorted(points) for points in forms.values())


@pytest.mark.parametrize(("onednn", "expected"), [(0.0, False), (1.2, False), (2.0, True)])
def test_the_product_of_the_faster_library(onednn: float, expected: bool) -> None:
    with using(Costs("any", "any", 1, onednn=onednn)), products.expected_shapes(ever_new=False):
        if products.has_onednn():
            assert (costs.product_of({(1, 2, 3)}) is products.matmul_t) == expected
        assert (costs.product_of({(1, 2, 3)}) is products.plain) != (expected and products.has_onednn())


@pytest.mark.parametrize(("wide", "expected"), [(0.0, False), (1.2, False), (2.0, True)])
def test_in_float32_where_it_is_faster_by_a_quarter(wide: float, expected: bool) -> None:
    with using(Costs("any", "any", 1, wide=wide)):
        assert takes_wide() is expected


def test_a_form_alone_computes_whatever_it_can() -> None:
    for name in ("tiles", "by_head", "sdpa"):
        for onednn in (0.0, 2.0):
            with using(Costs("any", "any", 1, onednn=onednn)), using(of_one_form(name)), torch.no_grad():
                assert costs.sparse_choice(pattern("lookhere_90"), 300, 1, torch.float32, 64) == name


def test_a_form_that_was_given_up_is_not_taken_where_it_was_not_measured() -> None:
    """By its last number, of shorter images, it led at ever more tokens."""
    made = of(sdpa=[Point(100, 1.0, 1.0), Point(1000, 9.0, 9.0)], by_head=[Point(100, 3.0, 3.0)])
    for tokens, expected in ((100, "sdpa"), (400, "by_head"), (999, "by_head"), (1000, "sdpa"), (5000, "sdpa")):
        assert made.fastest(("sdpa", "by_head"), torch.float32, tokens=tokens, **ASKED) == expected, tokens
