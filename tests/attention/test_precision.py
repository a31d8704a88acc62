"""In which precision a machine computes where nobody said it."""

from __future__ import annotations

import pytest
import torch

from sightline.attention import precision
from sightline.attention.costs import Costs, using
from sightline.attention.precision import chosen_precision, default_precision
from sightline.distributed import machine

PROBES = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")


def ships(monkeypatch: pytest.MonkeyPatch, wide: float | None) -> None:
    monkeypatch.setattr(precision, "shipped", lambda _: None if wide is None else Costs("any", "any", 1, wide=wide))


@pytest.mark.parametrize(("probe", "expected"), [(True, "bfloat16"), (False, "float32"), (None, "float32")])
def test_it_follows_the_processor(probe: bool | None, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROBES:
        if probe is None:
            monkeypatch.delattr(torch.cpu, name, raising=False)
        else:
            monkeypatch.setattr(torch.cpu, name, lambda: probe, raising=False)
    ships(monkeypatch, None)
    assert default_precision("cpu") == default_precision(torch.device("cpu")) == expected


@pytest.mark.parametrize(("wide", "expected"), [(0.0, "bfloat16"), (1.2, "bfloat16"), (1.3, "float32")])
def test_instructions_that_are_slow_here_are_no_reason(
    wide: float, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in PROBES:
        monkeypatch.setattr(torch.cpu, name, lambda: True, raising=False)
    ships(monkeypatch, wide)
    assert default_precision("cpu") == chosen_precision("auto", "cpu") == expected
    assert chosen_precision("bfloat16", "cpu") == "bfloat16"
    # What is measured in the middle of a work changes nothing: two runs that are compared have one precision.
    for other in (0.0, 3.0):
        with using(Costs("any", "any", 1, wide=other)):
            assert default_precision("cpu") == expected


def test_the_tables_that_ship_say_it_of_their_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROBES:
        monkeypatch.setattr(torch.cpu, name, lambda: True, raising=False)
    for processor, expected in (
        ("AuthenticAMD 26 2 avx512_bf16", "bfloat16"),
        ("GenuineIntel 6 207 avx512_bf16", "float32"),
        ("another", "bfloat16"),
    ):
        monkeypatch.setattr(machine, "processor", lambda processor=processor: processor)
        assert default_precision("cpu") == expected
