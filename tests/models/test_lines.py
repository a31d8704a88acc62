"""Lines of one program for all sizes are those of a layout: what is compiled or exported gives what the model gives."""

from __future__ import annotations

import pytest
import torch

from sightline.models import create_model
from sightline.models.architectures.axial import Lines
from sightline.tokens.layout import TokenLayout
from tests.contract.randomise import randomise_parameters

ENCODINGS = ["rpe_learned", "rope_axial+rpe_learned", "lookhere_90", "irpe_qkv", "relative_1d", "rope_mixed"]


@pytest.mark.parametrize("grid", [(8, 8), (5, 12), (12, 3)])
@pytest.mark.parametrize("encoding", ENCODINGS)
@torch.no_grad()
def test_a_compiled_block_is_the_block(encoding: str, grid: tuple[int, int]) -> None:
    model = randomise_parameters(create_model("axial_vit_micro_patch4", encoding=encoding, dim=48, heads=4, depth=2), 0)
    layout = TokenLayout.uniform(grid, 2, num_prefix_tokens=0)
    trunk, x = model.blocks, torch.randn(2, layout.slots, 48)
    for layer in range(2):
        expected = trunk.layer(layer, x, layout, model.encoding.hooks)
        lines = Lines(layout, layer)
        inputs = trunk.inputs_of(layer, x, layout, lines.layout, model.encoding.hooks, windows=lines)
        assert expected.std() > 0.01
        torch.testing.assert_close(trunk[layer](x, inputs), expected, atol=1e-5, rtol=1e-5)
