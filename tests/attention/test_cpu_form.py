"""Which form and which precision a CPU takes."""

from __future__ import annotations

import pytest
import torch

from sightline.attention import AttentionSpec, cpu, use_backend
from sightline.attention.cpu import chosen_precision, cpu_form, default_precision
from sightline.attention.dispatch import choose_backend
from sightline.attention.sdpa import supports_form
from sightline.distributed import machine
from sightline.errors import InputError
from sightline.tokens.layout import TokenLayout
from tests.attention.given import pattern

FLOAT, LOW = torch.float32, torch.bfloat16


@pytest.mark.parametrize(
    ("directed", "tokens", "dtype", "training", "amd", "amx", "expected"),
    [
        (True, 799, FLOAT, True, False, False, "sdpa"),
        (True, 800, FLOAT, True, False, False, "tiles"),
        (True, 800, LOW, False, True, False, "tiles"),
        (False, 4000, FLOAT, False, False, False, "sdpa"),
        (False, 4000, FLOAT, False, True, False, "products"),
        (True, 399, FLOAT, False, True, False, "sdpa"),
        (True, 400, LOW, False, True, False, "products"),
        (True, 10, LOW, True, False, False, "products"),
        (True, 10, LOW, False, False, False, "sdpa"),
        # AMX is of bfloat16 alone.
        (True, 800, LOW, False, False, True, "sdpa"),
        (True, 399, LOW, True, False, True, "products"),
        (True, 400, LOW, True, False, True, "sdpa"),
        (True, 2999, LOW, True, False, True, "sdpa"),
        (True, 3000, LOW, True, False, True, "tiles"),
        (True, 4000, LOW, False, False, True, "sdpa"),
        (False, 4000, LOW, True, False, True, "sdpa"),
        (True, 800, FLOAT, True, False, True, "tiles"),
        (True, 4000, torch.float64, True, False, True, "tiles"),
    ],
)
def test_the_rule(directed, tokens, dtype, training, amd, amx, expected) -> None:
    what = pattern() if directed else None
    assert cpu_form(what, tokens, dtype, training=training, amd=amd, amx=amx) == expected


def test_what_each_form_supports() -> None:
    layout, q = TokenLayout.uniform((3, 5), 1), torch.zeros(1, 12, 16, 8)
    whole = layout.segments[0]
    for name in ("tiles", "products", "sdpa"):
        assert supports_form(name, pattern(), whole, True, q)
        assert supports_form(name, None, whole, True, q) == (name != "tiles")
        # Other queries, some patches, tokens of another kind.
        assert supports_form(name, pattern(), whole, False, q[:, :, :2]) == (name == "sdpa")
        assert supports_form(name, pattern(), whole, True, q.to("meta")) == (name == "sdpa")
    some = layout.keep(torch.arange(0, 15, 2).unsqueeze(0)).segments[0]
    assert supports_form("products", pattern(), some, True, q[:, :, :9])
    assert not supports_form("tiles", pattern(), some, True, q[:, :, :9])


def test_a_form_may_be_asked_for() -> None:
    layout, spec = TokenLayout.uniform((3, 5), 1), AttentionSpec(torch.device("cpu"), FLOAT, 12, 8)
    assert choose_backend(pattern(), layout, layout, spec) == "auto"
    with use_backend("tiles"):
        assert choose_backend(pattern(), layout, layout, spec) == "tiles"
        with use_backend("auto"):
            assert choose_backend(pattern(), layout, layout, spec) == "auto"
        assert choose_backend(pattern(), layout, layout, spec) == "tiles"
    with pytest.raises(InputError) as error:
        use_backend("tile")
    assert "'tiles'" in str(error.value)


@pytest.mark.parametrize(
    ("features", "vendor", "expected"),
    [
        ({"amx_tile", "avx512_bf16"}, "intel", "bfloat16"),
        ({"avx512_bf16"}, "intel", "float32"),
        ({"avx512_bf16"}, "amd", "bfloat16"),
        (set(), "amd", "float32"),
        ({"avx512_bf16"}, "other", "float32"),
    ],
)
def test_the_precision_of_a_processor(features, vendor, expected, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "has_cpu_feature", lambda name: name in features)
    monkeypatch.setattr(machine, "cpu_vendor", lambda: vendor)
    assert default_precision("cpu") == default_precision(torch.device("cpu")) == expected
    assert chosen_precision("auto", "cpu") == expected
    assert chosen_precision("bfloat16", "cpu") == "bfloat16"
    assert cpu.has_amx() == ("amx_tile" in features)
