"""Names, options and knobs: what is refused, and in which words."""

from __future__ import annotations

import math
from typing import ClassVar

import pytest

from sightline.encodings import create_encoding
from sightline.encodings.base import AddedEncoding, PatternEncoding, RotaryEncoding
from sightline.errors import InputError

SHAPE = {"depth": 2, "heads": 3, "dim": 48, "train_grid": (4, 4)}


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("rope_axal", "did you mean 'rope_axial'"),
        ("lookhere90", "did you mean 'lookhere_90'"),
        ("", "not known"),
        ("rope_axial+", "not known"),
        ("rope_axial+learned1d", "did you mean 'learned_1d'"),
        (None, "not known"),
        (5, "not known"),
        (["rope_axial"], "not known"),
    ],
)
def test_unknown_names(name, match: str) -> None:
    with pytest.raises(InputError, match=match) as raised:
        create_encoding(name, **SHAPE)
    assert "rpe_learned_shared" in str(raised.value)


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("rope_axial", {"thta": 3.0}, "did you mean 'theta'"),
        ("rope_axial", {"theta": 1.0}, "more than 1"),
        ("rope_axial", {"theta": "100"}, "finite number"),
        ("rope_axial", {"theta": math.nan}, "finite number"),
        ("rope_axial", {"axis_order": "ij"}, "xy, yx"),
        ("rope_axial", {"coordinates": "squeezd"}, "did you mean 'squeezed'"),
        ("rope_mixed", {"theta": -1}, "more than 1"),
        ("alibi_2d", {"global_slope": -0.5}, "at least 0"),
        ("sincos_2d", {"order": "moco"}, "big_vision"),
        ("sincos_2d", {"temperature": 1}, "more than 1"),
        ("sincos_2d", {"new_grid": "bilinaer"}, "did you mean 'bilinear'"),
        ("learned_1d", {"interpolation": "nearest"}, "bicubic"),
        ("learned_1d", {"prefix": "no"}, "true or false"),
        ("learned_2d", {"max_side": 0}, "at least 1"),
        ("learned_2d", {"max_side": 2.5}, "whole number"),
        ("learned_2d", {"lookup": "relative"}, "absolute, aspect|aspect"),
        ("factorized", {"combine": "add"}, "sum, stack, product"),
        ("factorized", {"table": "sin"}, "sinusoidal"),
        ("factorized", {"max_side": 3.5}, "whole number"),
        ("factorized", {"max_side": True}, "whole number"),
        ("fourier", {"features": 7}, "even"),
        ("fourier", {"features": 8.0}, "whole number"),
        ("fourier", {"mlp": False, "features": 8}, "dim 48"),
        ("fourier", {"mlp": 1}, "true or false"),
        ("fourier", {"scale": 0}, "more than 0"),
        ("rpe_learned", {"shared": "yes"}, "true or false"),
        ("rpe_learned", {"interpolation": "biet"}, "did you mean 'beit'"),
        ("none", {"theta": 1}, "theta"),
        ("rope_axial+rope_mixed", {"theta": 50.0}, "ambiguous"),
        ("rope_axial+learned_1d", {"rope_axial.thta": 50.0}, "theta"),
        ("rope_axial+learned_1d", {"rope_mixed.theta": 50.0}, "rope_axial.theta"),
    ],
)
def test_wrong_options(name: str, options: dict, match: str) -> None:
    with pytest.raises(InputError, match=match) as raised:
        create_encoding(name, **SHAPE, **options)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "change", "match"),
    [
        ("rope_axial", {"dim": 18}, "head_dim 6"),
        ("rope_mixed", {"dim": 18}, "head_dim 6"),
        ("none", {"train_grid": (0, 4)}, "train_grid"),
        ("none", {"train_grid": (4.0, 4)}, "train_grid"),
        ("sincos_2d", {"dim": 42}, "multiple of 4"),
        ("sincos_2d", {"heads": 1, "dim": 4}, "8 or more"),
        ("factorized", {"heads": 1, "dim": 7, "combine": "stack"}, "multiple of 2"),
        ("factorized", {"heads": 1, "dim": 6, "combine": "stack", "table": "sinusoidal"}, "multiple of 4"),
    ],
)
def test_wrong_trunks(name: str, change: dict, match: str) -> None:
    with pytest.raises(InputError, match=match):
        create_encoding(name, **{**SHAPE, **change})


@pytest.mark.parametrize(("base", "options"), [(AddedEncoding, ["at"]), (RotaryEncoding, []), (PatternEncoding, [])])
def test_an_encoding_without_a_config_of_its_own(base, options, monkeypatch) -> None:
    class Plain(base):
        names: ClassVar[dict[str, dict[str, object]]] = {"plain": {}}

        def embedding_on(self, grid, device):
            raise NotImplementedError

    monkeypatch.setattr("sightline.encodings.create.registry", lambda: {"plain": Plain})
    assert create_encoding("plain", **SHAPE).name == "plain"
    assert list(Plain.Config.__dataclass_fields__) == options
    with pytest.raises(InputError):
        create_encoding("plain", **SHAPE, theta=2.0)
