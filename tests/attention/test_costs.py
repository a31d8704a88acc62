"""What forms cost: between what was measured, kept for the next process, and never measured in a call."""

from __future__ import annotations

import dataclasses
import json
import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from sightline import runtime
from sightline.attention import calibrate, costs, products
from sightline.attention.calibrate import ALL_GROUPS, calibrated, computed_by, for_long_work
from sightline.attention.costs import Costs, Group, Point, current, dense_forms, using
from sightline.errors import InputError
from sightline.processes import locked
from tests.attention.given import pattern

GROUP = Group("float32", "forward", 64)
ASKED = {"training": False, "head_dim": 64, "images": 1}


def of(**forms: list[Point]) -> Costs:
    return Costs(runtime.processor(), torch.__version__, torch.get_num_threads(), points={GROUP: forms})


@pytest.fixture
def nothing_known(tmp_path, monkeypatch: pytest.MonkeyPatch):
    """A processor that nobody has measured, and a folder of the user's own."""
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(costs, "_shipped", list)
    monkeypatch.setattr(costs, "_MEASURED", {})
    costs.found.cache_clear()
    yield tmp_path / "cache"
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
    assert set(made.of_width(96).points) == {GROUP}
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


def test_records_come_back() -> None:
    made = of(sdpa=[Point(17, 2.0, 1.5)], tiles=[Point(17, 3.0, 2.5), Point(65, 1.0, 1.0)])
    found = Costs.of_record(json.loads(json.dumps(made.as_record())), "here")
    assert found.as_record() == made.as_record()
    assert found.points == made.points


@pytest.mark.parametrize(
    "change",
    [
        {"groups": [{**GROUP._asdict(), "dtype": "float99", "forms": {"sdpa": [[17, 1.0, 1.0]]}}]},
        {"groups": [{**GROUP._asdict(), "dtype": "nn", "forms": {"sdpa": [[17, 1.0, 1.0]]}}]},
        {"groups": [{**GROUP._asdict(), "work": "sleep", "forms": {"sdpa": [[17, 1.0, 1.0]]}}]},
        {"groups": [{**GROUP._asdict(), "forms": {"sdpa": [[65, 1.0, 1.0], [17, 1.0, 1.0]]}}]},
        {"groups": 3}, {"groups": [{}]}, {"threads": 0}, {"threads": True}, {"shown": math.nan}, {"onednn": -1},
        {"groups": [{**GROUP._asdict(), "forms": {"sdpa": [[17, 1.0]]}}]},
        {"groups": [{**GROUP._asdict(), "forms": {"sdpa": [[17, 0.0, 1.0]]}}]},
    ],
)  # fmt: skip
def test_a_damaged_record_is_refused_in_a_line(change) -> None:
    with pytest.raises(InputError, match=r"x\.json: holds no costs of attention") as raised:
        Costs.of_record({**of(sdpa=[Point(17, 1, 1)]).as_record(), **change}, "x.json")
    assert "\n" not in str(raised.value)


def test_what_is_kept_is_found_again(nothing_known) -> None:
    assert not current().points
    made = of(tiles=[Point(17, 1, 1)])
    place = costs.keep(made)
    assert place is not None
    assert place.is_relative_to(nothing_known)
    for forget in (False, True):
        if forget:
            costs._MEASURED.clear()
            costs.found.cache_clear()
        assert current().as_record() == made.as_record()
    with using(of(sdpa=[Point(17, 1, 1)])) as _:
        assert "sdpa" in current().points[GROUP]
    assert "tiles" in current().points[GROUP]


def test_what_another_process_measured_meanwhile_stays(nothing_known) -> None:
    other = GROUP._replace(work="training")
    theirs = dataclasses.replace(of(), points={one: {"sdpa": [Point(17, 2, 2)]} for one in (GROUP, other)})
    # Asked before they wrote theirs.
    assert not current().points
    place = costs.kept_file(torch.get_num_threads())
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps(theirs.as_record()))
    assert costs.keep(of(tiles=[Point(17, 1, 1)])) == place
    expected = {GROUP: {"tiles": [Point(17, 1, 1)]}, other: theirs.points[other]}
    assert Costs.of_record(json.loads(place.read_text()), "there").points == expected
    assert current().points == expected
    # Of another processor, torch or number of threads, as a file that somebody copied: it goes.
    for change in ({"processor": "another"}, {"torch": "0.1"}, {"threads": 99}):
        place.write_text(json.dumps({**theirs.as_record(), **change}))
        costs.keep(of(tiles=[Point(17, 1, 1)]))
        assert set(Costs.of_record(json.loads(place.read_text()), "there").points) == {GROUP}


def test_all_that_keep_at_the_same_time_keep_theirs(nothing_known) -> None:
    made = [
        dataclasses.replace(of(), points={GROUP._replace(head_dim=width): {"sdpa": [Point(17, 1, 1)]}})
        for width in range(1, 9)
    ]
    with ThreadPoolExecutor(len(made)) as pool:
        (place,) = set(pool.map(costs.keep, made))
    found = Costs.of_record(json.loads(place.read_text()), "there")
    assert {group.head_dim for group in found.points} == set(range(1, 9))


def test_what_ships_of_the_nearest_number_of_threads(nothing_known, monkeypatch: pytest.MonkeyPatch) -> None:
    some = [Costs(name, "any", threads) for name in (runtime.processor(), "another") for threads in (1, 3, 8)]
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


@pytest.mark.parametrize("content", ["", "{", "[]", '{"processor": 1}', "another"])
def test_what_cannot_be_read_or_is_of_another_is_as_if_it_were_not_there(nothing_known, content: str) -> None:
    path = costs.kept_file(torch.get_num_threads())
    path.parent.mkdir(parents=True)
    if content == "another":
        content = json.dumps({**of(tiles=[Point(17, 1, 1)]).as_record(), "processor": "another"})
    path.write_text(content)
    assert not current().points


def test_a_folder_that_cannot_be_reached_is_as_if_it_were_not_there(tmp_path, nothing_known, monkeypatch) -> None:
    """As a home that another user may not enter: no call of a model fails for it."""
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / ("x" * 300)))
    assert not current().points
    assert costs.keep(of(tiles=[Point(17, 1, 1)])) is None
    assert "tiles" in current().points[GROUP]


def test_a_folder_that_cannot_be_written_keeps_them_in_the_process(nothing_known) -> None:
    nothing_known.write_text("a file")
    assert costs.keep(of(tiles=[Point(17, 1, 1)])) is None
    assert "tiles" in current().points[GROUP]


def test_what_ships_is_whole() -> None:
    assert costs._shipped()
    for one in costs._shipped():
        assert set(one.points) == set(ALL_GROUPS)
        for group, forms in one.points.items():
            needed = {*dense_forms(getattr(torch, group.dtype), 197), *costs.SPARSE_FORMS}
            assert needed <= set(forms)
            assert all(points == sorted(points) for points in forms.values())


def test_a_long_work_measures_what_is_not_known_once(nothing_known, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[Group] = []
    monkeypatch.setattr(calibrate, "_measured", lambda group: measured.append(group) or {"tiles": [Point(17, 1, 1)]})
    monkeypatch.setattr(calibrate, "onednn_gains", lambda: 1.0)
    other = GROUP._replace(work="training")
    for pairs, groups, expected in [
        (10**9, [GROUP], []),
        (10**12, [GROUP], [GROUP]),
        (10**12, [GROUP, other], [GROUP, other]),
        (10**12, [GROUP, other], [GROUP, other]),
    ]:
        found = for_long_work(groups, pairs)
        assert measured == expected
        assert set(found.points) == set(expected)
    # A call never does.
    assert current().fastest(("sdpa", "tiles"), torch.bfloat16, tokens=10**4, **ASKED) == "sdpa"
    assert len(measured) == 2


def test_works_that_begin_together_measure_once(nothing_known, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second waits for the numbers of the first, which another process keeps."""
    monkeypatch.setattr(calibrate, "calibrated", None)
    path, other, held = costs.kept_file(torch.get_num_threads()), of(sdpa=[Point(17, 1, 1)]), threading.Event()
    assert path is not None
    path.parent.mkdir(parents=True)

    def measure() -> None:
        with locked(path.with_suffix(".lock")):
            held.set()
            time.sleep(0.3)
            path.write_text(json.dumps(other.as_record()))

    worker = threading.Thread(target=measure)
    worker.start()
    assert held.wait(5)
    assert for_long_work([GROUP], 10**12).as_record() == other.as_record()
    worker.join()
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_all_processes_choose_by_the_numbers_of_the_first(nothing_known) -> None:
    told = []

    class Rank:
        size = 2

        def __init__(self, first: bool) -> None:
            self.first = first

        def told(self, value):
            told.append(value)
            return told[0]

    costs.keep(of(tiles=[Point(17, 1, 1)]))
    first = for_long_work([GROUP], 0, Rank(True))
    costs.keep(of(sdpa=[Point(17, 1, 1)]))
    second = for_long_work([GROUP], 0, Rank(False))
    assert told[1] is None
    assert first.as_record() == second.as_record()


@pytest.mark.parametrize("gains", [1.0, 2.0])
@pytest.mark.parametrize("group", [GROUP, Group("bfloat16", "training", 16)])
def test_every_form_is_measured(group: Group, gains: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "_SIDES", (4, 18))
    monkeypatch.setattr(calibrate, "onednn_gains", lambda: gains)
    chance = torch.get_rng_state()
    found = calibrated([group])
    assert torch.equal(torch.get_rng_state(), chance), "measuring leaves nothing to chance elsewhere"
    assert found.is_of_here
    assert 0.45 < found.shown < 0.6
    forms, dtype = found.points[group], getattr(torch, group.dtype)
    assert (found.onednn, found.wide > 0) == (gains, True)
    # A training's sizes come again: it takes no plain products beside others.
    plain = {one + costs.PLAIN for one in costs.OF_PRODUCTS if group.work == "forward" and gains > 1.25}
    assert set(forms) == {*dense_forms(dtype, 17), *costs.all_forms(dtype, 325)} | plain
    assert [point.tokens for point in forms["sdpa"]] == [17, 325]
    assert [point.tokens for point in forms["explicit"]] == [17], "its weights are not kept beyond"
    assert all(point.alone > 0 and point.beside > 0 for points in forms.values() for point in points)


def test_a_form_alone_computes_whatever_it_can() -> None:
    for name in ("tiles", "tiles" + costs.PLAIN, "by_head", "sdpa"):
        with using(Costs("any", "any", 1, onednn=2.0)), computed_by(name), torch.no_grad():
            chosen = costs.sparse_choice(pattern("lookhere_90"), 300, 1, torch.float32, 64)
            assert chosen == name.removesuffix(costs.PLAIN)


def test_what_leaves_pairs_out_is_judged_by_long_images(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: dict[int, set[str]] = {}

    def calls(group: Group, side: int, images: int, dropped: set[str]) -> dict[str, float]:
        took = {"sdpa": 1.0, "by_head": 2.0, "tiles": 3.0 if side < 40 else 0.5, "rectangles": 0.9}
        tried[side] = took.keys() - dropped
        return {form: seconds for form, seconds in took.items() if form not in dropped}

    monkeypatch.setattr(calibrate, "_fastest_calls", calls)
    calibrate._measured(ALL_GROUPS[0])
    assert {side for side in tried if "tiles" in tried[side]} == {4, 8, 14, 24, 32}
    assert {side for side in tried if "by_head" in tried[side]} == {4, 8, 14}
    assert {side for side in tried if "rectangles" in tried[side]} == {4, 8, 14, 24, 32, 48}


@pytest.mark.parametrize(("onednn", "expected"), [(0.0, False), (1.2, False), (2.0, True)])
def test_the_product_of_the_faster_library(onednn: float, expected: bool) -> None:
    with using(Costs("any", "any", 1, onednn=onednn)), products.expected_shapes(ever_new=False):
        if products.has_onednn():
            assert (costs.product_of({(1, 2, 3)}) is products.times_transposed) == expected
        assert (costs.product_of({(1, 2, 3)}) is products.plain) != (expected and products.has_onednn())


def test_a_run_of_before_goes_on_without_what_was_not_measured_then() -> None:
    record = of(tiles=[Point(17, 1, 1)]).as_record()
    del record["wide"]
    assert Costs.of_record(record, "here").wide == 0
    with pytest.raises(InputError, match="here"):
        Costs.of_record({**record, "wide": -1}, "here")


def test_a_form_that_was_given_up_is_not_taken_where_it_was_not_measured() -> None:
    """By its last number, of shorter images, it led at ever more tokens."""
    made = of(sdpa=[Point(100, 1.0, 1.0), Point(1000, 9.0, 9.0)], by_head=[Point(100, 3.0, 3.0)])
    for tokens, expected in ((100, "sdpa"), (400, "by_head"), (999, "by_head"), (1000, "sdpa"), (5000, "sdpa")):
        assert made.fastest(("sdpa", "by_head"), torch.float32, tokens=tokens, **ASKED) == expected, tokens


def test_what_an_older_version_kept_hides_nothing_that_ships(nothing_known, monkeypatch: pytest.MonkeyPatch) -> None:
    record = of(tiles=[Point(17, 1, 1)]).as_record()
    del record["wide"]
    path = costs.kept_file(torch.get_num_threads())
    assert path is not None
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(record))
    ships = of(sdpa=[Point(17, 1, 1)])
    monkeypatch.setattr(costs, "_shipped", lambda: [ships])
    assert current() is ships
    path.write_text(json.dumps({**record, "wide": 1.0}))
    costs.found.cache_clear()
    assert "tiles" in current().points[GROUP]


@pytest.mark.parametrize("onednn", [0.0, 2.0])
def test_a_form_by_torchs_own_products_is_computed_whatever_is_faster(onednn: float) -> None:
    with using(Costs("any", "any", 1, onednn=onednn)), computed_by("tiles" + costs.PLAIN), torch.no_grad():
        assert costs.sparse_choice(pattern("lookhere_90"), 300, 1, torch.float32, 64) == "tiles"
