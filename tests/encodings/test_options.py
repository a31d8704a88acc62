"""Names, options and knobs: what is refused, and in which words."""

from __future__ import annotations

import math

import pytest
import torch

from sightline.encodings import create_encoding
from sightline.encodings.discovery import registry
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


def test_options_of_joined_parts() -> None:
    joined = create_encoding("rope_axial+rope_mixed", **SHAPE, **{"rope_mixed.theta": 7.0})
    assert [part.config.theta for part in joined.parts] == [100.0, 7.0]
    plain = create_encoding("rope_axial+learned_1d", **SHAPE, theta=50.0, prefix=False)
    assert plain.parts[0].config.theta == 50.0
    assert plain.parts[1].prefix is None
    assert plain.no_weight_decay() == {"parts.1.table"}
    assert create_encoding("rope_mixed", **SHAPE).no_weight_decay() == {"freqs"}


@pytest.mark.parametrize("layer", [-1, 2, 7])
def test_layers_that_are_not_there(layer: int) -> None:
    with pytest.raises(InputError, match="expected 0 to 1"):
        create_encoding("alibi_2d", **SHAPE).bias_matrix((3, 3), layer=layer)
    for name in ("rope_axial", "rope_mixed"):
        with pytest.raises(InputError, match="expected 0 to 1"):
            create_encoding(name, **SHAPE).rotation_angles((3, 3), layer=layer)


@pytest.mark.parametrize("name", sorted(registry()))
def test_every_encoding_says_where_it_is_from(name: str) -> None:
    cls = registry()[name]
    assert cls.__doc__
    assert cls.source
    assert cls.extrapolation
    assert name in cls.names
    assert cls.Config.__doc__
    config = create_encoding(name, **{**SHAPE, "heads": 12}).config
    assert hash(config) == hash(create_encoding(name, **{**SHAPE, "heads": 12}).config)


@pytest.mark.parametrize("grid", [(0, 3), (3,), 0, (2.0, 3), "3x3"])
def test_wrong_grids(grid) -> None:
    for name, call in [("alibi_2d", "bias_matrix"), ("rope_axial", "rotation_angles")]:
        with pytest.raises(InputError, match="grid"):
            getattr(create_encoding(name, **SHAPE), call)(grid)


def test_public_accessors_give_what_is_promised() -> None:
    added = create_encoding("learned_1d", **SHAPE).embedding((3, 5))
    angles = create_encoding("rope_mixed", **SHAPE).rotation_angles((3, 5), layer=1)
    shared = create_encoding("rope_axial", **SHAPE)
    bias = create_encoding("rpe_learned", **SHAPE).bias_matrix((3, 5), layer=1)
    assert (added.shape, added.dtype) == ((15, 48), torch.float32)
    assert (angles.shape, angles.dtype) == ((3, 15, 8), torch.float32)
    assert shared.rotation_angles((3, 5)).shape == (1, 15, 8)
    assert shared.pairing == "adjacent"
    assert (bias.shape, bias.dtype) == ((3, 16, 16), torch.float32)


def test_a_number_beyond_floating_point_is_refused() -> None:
    for options in ({"global_slope": 10**400}, {"prune_below": 10**400}, {"prune_below": 0}, {"prune_below": "8"}):
        with pytest.raises(InputError, match=r"global_slope|prune_below"):
            create_encoding("lookhere_90", depth=1, heads=12, dim=24, **options)
    encoding = create_encoding("lookhere_90", depth=1, heads=12, dim=24)
    with pytest.raises(InputError, match="global_slope"):
        encoding.set_knob(10**400)


def test_pruning_is_said_by_the_pattern() -> None:
    encoding = create_encoding("lookhere_90", depth=2, heads=12, dim=24, prune_below=8)
    assert [encoding.layer_pattern(layer).prune_below for layer in (0, 1)] == [8, 8]
    assert create_encoding("lookhere_90", depth=1, heads=12, dim=24).layer_pattern(0).prune_below is None
