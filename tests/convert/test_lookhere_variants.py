"""LookHere models with every head layout and ablation of the golden tables, against timm's blocks with those tables."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sightline.convert import export_weights, import_weights
from sightline.errors import InputError
from sightline.models import create_model
from tests.convert.originals import close, original
from tests.parity.golden_files import golden, keys

# Two layers, and patches of 3 x 5 cells, as the tables of the public code.
_GRID, _PATCH, _DIM = (3, 5), 4, 48
_PLAIN = {"global_slope": 1.0, "layer_slopes": [1.5, 0.5], "head_directions": "corners-triangles-none"}
_ABLATIONS: dict[str, dict[str, Any]] = {
    "fill_zero": {"fill_with": "zero"},
    "fill_max": {"fill_with": "max"},
    "slopes_inverted": {"layer_slopes": [0.5, 1.5]},
    "slopes_constant": {"layer_slopes": [1.0, 1.0]},
    "perlayer_list": {"head_directions": ["halves-diagonals-none", "eighths1-eighths2-none"]},
}


def _cases() -> dict[str, tuple[Tensor, int, dict[str, Any]]]:
    """Name -> (table of the public code, heads, lh_config)."""
    cases = {}
    for key in keys("lookhere_bias_ablations", "bias."):
        what = key.removeprefix("bias.")
        rules = _ABLATIONS[what] if what in _ABLATIONS else {"global_slope": float(what.removeprefix("gs"))}
        cases[what] = (golden("lookhere_bias_ablations")[key], 12, {**_PLAIN, **rules})
    for key in keys("lookhere_bias_layouts", "bias."):
        _, heads, directions, _ = key.split(".")
        rules = {**_PLAIN, "head_directions": directions}
        cases[key] = (golden("lookhere_bias_layouts")[key], int(heads.removeprefix("h")), rules)
    for distance in ("sqrt", "square"):
        table = golden("lookhere_bias_LH180_h12")[f"bias.3x5.{distance}.gs1.0"]
        cases[distance] = (table, 12, {**_PLAIN, "head_directions": "halves-diagonals-none", "distance": distance})
    return cases


CASES = _cases()


class Reference(nn.Module):
    """The published class: timm's blocks (LayerScale, eps 1e-5), a table for each layer, an MLP head."""

    def __init__(self, heads: int, tables: Tensor) -> None:
        super().__init__()
        self.trunk = original(
            "vit_base_patch16_clip_224", img_size=16, patch_size=_PATCH, embed_dim=_DIM, depth=2, num_heads=heads,
            mlp_ratio=2.0, num_classes=0, init_values=1e-4, pos_embed="none", pre_norm=False,
        )  # fmt: skip
        generator = torch.Generator().manual_seed(4)
        self.head = {
            f"head.{layer}.{part}": torch.randn(shape, generator=generator) * 0.2
            for layer, out, wide in (("fc1", 33, _DIM), ("fc2", 5, 33))
            for part, shape in (("weight", (out, wide)), ("bias", (out,)))
        }
        # The CLS token sees all and is seen by all.
        self.tables = nn.functional.pad(tables.float(), (1, 0, 1, 0))

    def weights(self) -> dict[str, Tensor]:
        return {**self.trunk.state_dict(), **self.head}

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.trunk.patch_embed(images).flatten(1, 2)
        tokens = torch.cat((self.trunk.cls_token.expand(len(tokens), 1, -1), tokens), dim=1)
        for block, table in zip(self.trunk.blocks, self.tables, strict=True):
            tokens = block(tokens, attn_mask=table)
        first, second = (
            (self.head[f"head.{layer}.weight"], self.head[f"head.{layer}.bias"]) for layer in ("fc1", "fc2")
        )
        hidden = torch.tanh(nn.functional.linear(self.trunk.norm(tokens)[:, 0], *first))
        return nn.functional.linear(hidden, *second)


def _arguments(heads: int, rules: dict[str, Any]) -> dict[str, Any]:
    return {
        "img_size": 16, "patch_size": _PATCH, "embed_dim": _DIM, "depth": 2, "num_heads": heads, "mlp_ratio": 2.0,
        "num_classes": 5, "lh_config": rules,
    }  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_every_layout_and_ablation(case: str) -> None:
    tables, heads, rules = CASES[case]
    theirs = Reference(heads, tables)
    given = _arguments(heads, rules)
    ours = import_weights("lookhere", theirs.weights(), given)
    images = torch.randn(2, 3, _GRID[0] * _PATCH, _GRID[1] * _PATCH)
    close(ours(images), theirs(images))

    back, arguments = export_weights(ours, "lookhere")
    assert all(torch.equal(back[name], tensor) for name, tensor in theirs.weights().items())
    assert arguments["lh_config"] == rules
    assert {key: arguments[key] for key in given} == given


@pytest.mark.parametrize("heads", [12, 16])
@pytest.mark.parametrize("preset", ["lookhere_180", "lookhere_90", "lookhere_45"])
@torch.no_grad()
def test_presets_are_written_in_the_public_language(preset: str, heads: int) -> None:
    model = create_model(
        "vit_micro_patch4", encoding=preset, depth=2, dim=192, heads=heads, head="mlp", norm_eps=1e-5,
        layer_scale=0.5, num_classes=5,
    )  # fmt: skip
    _, given = export_weights(model, "lookhere")
    named = {"lookhere_180": "halves-diagonals-none", "lookhere_90": "triangles-corners-none"}
    assert given["lh_config"]["head_directions"] == named.get(preset, "eighths1-eighths2-none")


def test_what_the_public_code_has_no_words_for() -> None:
    shared = {"depth": 1, "head": "mlp", "norm_eps": 1e-5, "layer_scale": 0.5, "num_classes": 5}

    def refused(words: str, encoding: str = "lookhere_45", options: dict | None = None, **more: Any) -> None:
        model = create_model(
            "vit_micro_patch4", encoding=encoding, encoding_options=options or {}, **{**shared, **more}
        )
        with pytest.raises(InputError, match=words):
            export_weights(model, "lookhere")

    refused("cannot hold lookhere_45 with 6 heads", heads=6)
    refused("cannot hold lookhere_45 head_slopes", options={"head_slopes": [0.5] * 12})
    refused("cannot hold lookhere views", "lookhere", {"views": [[0, 90, 0.5]] * 12})
    refused("cannot hold lookhere_45 rounding = 'exact'", options={"rounding": "exact"})
    refused("cannot hold lookhere_45 prune_below = 40.0", options={"prune_below": 40.0})
    refused("cannot hold num_classes = 0", num_classes=0)


def test_a_turned_slope_is_the_one_that_is_exported() -> None:
    tables, heads, rules = CASES["gs0.75"]
    ours = import_weights("lookhere", Reference(heads, tables).weights(), _arguments(heads, rules))
    ours.set_knob(1.25)
    state, given = export_weights(ours, "lookhere")
    assert given["lh_config"]["global_slope"] == 1.25
    again = import_weights("lookhere", state, given)
    images = torch.randn(1, 3, 12, 20)
    assert torch.equal(again(images), ours(images))
