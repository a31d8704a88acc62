"""Every back end x every encoding x uniform, packed, dropped and tiled layouts, against `sdpa`."""

from __future__ import annotations

from collections import Counter

import pytest
import torch.nn.attention.flex_attention as flex_attention

from tests.contract.backend_cases import ENCODINGS, Case, check_against_dense, pairwise_cases

# `varlen` has no kernel for a CPU (tests/gpu).
# On a CPU FlexAttention is there for tests alone, and takes four times as long as all others: each kind of pattern that
# it computes, and two that it leaves to another.
FLEX = [
    "none", "rope_axial", "alibi_2d", "lookhere_90", "lookhere_45", "lookhere_180 exact", "sqrt", "square", "slope 0",
    "zerocorners", "views", "rotated", "sum", "irpe_qk",
]  # fmt: skip


@pytest.fixture(autouse=True)
def not_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """FlexAttention traces itself for each new layout, 0.4 s; torch's switch for debugging leaves that out."""
    monkeypatch.setattr(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True, raising=False)


def check_pairwise(encoding: str, *backends: str) -> None:
    for case in pairwise_cases():
        if case.encoding == encoding:
            for backend in backends:
                check_against_dense(case, backend)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_pairwise(encoding: str) -> None:
    check_pairwise(encoding, "tiles", "products")


@pytest.mark.slow
@pytest.mark.parametrize("encoding", FLEX)
def test_pairwise_by_flex(encoding: str) -> None:
    check_pairwise(encoding, "flex")


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
