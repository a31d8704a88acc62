"""Every back end x every encoding x uniform, packed, dropped and tiled layouts, against `sdpa`."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
import torch.nn.attention.flex_attention as flex_attention

import sightline.attention.dispatch as dispatching
from sightline.attention import sdpa
from sightline.encodings import list_encodings
from tests.contract.backend_cases import (
    ENCODINGS,
    FORMS,
    PREFIXES,
    WHERE,
    Case,
    by_dense,
    check_against_dense,
    every_case,
    pairwise_cases,
)

OTHERS = [name for name in dispatching.BACKENDS if name != "sdpa"]


# On a CPU FlexAttention is there for tests alone, and takes four times as long as all others.
SLOW_FLEX = pytest.param("flex", marks=pytest.mark.slow)


@pytest.fixture(autouse=True)
def not_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """FlexAttention traces itself for each new layout, 0.4 s; torch's switch for debugging leaves that out."""
    monkeypatch.setattr(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True, raising=False)


def test_the_cases_hold_every_pair_of_values() -> None:
    met = set()
    for case in pairwise_cases():
        met |= set(itertools.combinations(vars(case).values(), 2))
    for one, other in itertools.combinations((ENCODINGS, WHERE, PREFIXES, FORMS), 2):
        assert met >= set(itertools.product(one, other))
    assert set(list_encodings()) < set(ENCODINGS)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("backend", [name if name != "flex" else SLOW_FLEX for name in OTHERS])
def test_pairwise(backend: str, encoding: str) -> None:
    for case in pairwise_cases():
        if case.encoding == encoding:
            check_against_dense(case, backend)


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_full_product(encoding: str) -> None:
    for case in every_case():
        if case.encoding == encoding:
            for name in OTHERS:
                if name != "flex" or case.form == "views":
                    check_against_dense(case, name)


def test_who_computes() -> None:
    """The tests above are not of `dense` against itself."""
    encodings = ("lookhere_90", "alibi_2d", "none", "rpe_learned", "sum with a table")
    found = {
        (name, encoding, where): check_against_dense(Case(encoding, where, 1, "views"), name)
        for name in ("tiles", "flex")
        for encoding in encodings
        for where in ("3x5", "pack", "17x9 dropped", "17x9 in tiles")
    }
    directed, row_major = ("lookhere_90", "alibi_2d"), ("3x5", "pack")
    for (name, encoding, where), computed in found.items():
        tiled = name == "tiles" and encoding in directed and where in row_major
        assert (computed.backend == "tiles") == tiled
        assert (computed.backend_without == name) == (encoding in directed and (name == "flex" or where in row_major))
    assert Counter(one.backend for one in found.values()) == {"tiles": 4, "auto": 36}


def test_a_wrong_back_end_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds are narrow enough for keys that are wrong by a thousandth."""
    case = Case("lookhere_45", "14x14", 1, "views")
    by_dense.cache_clear()
    original = sdpa.attend_tiles
    monkeypatch.setattr(sdpa, "attend_tiles", lambda q, k, *rest: original(q, k * (1 + 1e-3), *rest))
    with pytest.raises(AssertionError, match="output"):
        check_against_dense(case, "tiles")
