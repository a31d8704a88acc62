"""What is counted from shapes is what torch counts while it runs."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from sightline.models import create_model
from sightline.models.create import model_config
from sightline.models.flops import forward_flops, training_flops
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout

GRIDS = ((3, 5), (8, 2), (1, 1))


def _counted(model, layout, patches, *, backward=False):
    # torch's counter knows the products of the plain kernel, not those inside a fused one.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        out = model(patches, layout=layout)
        if backward:
            out.sum().backward()
    return counter.get_total_flops()


@pytest.mark.parametrize(
    "options",
    [
        {"pool": "cls", "num_registers": 2},
        {"pool": "mean", "mlp": "swiglu", "head": "mlp"},
        {"pool": "mean", "num_classes": 0},
        {"pool": "attention"},
        {"pool": "attention", "class_token": True, "pool_prefix": True, "pool_mlp_ratio": 2.0},
        {"pool": "attention", "head_dim": 24, "pool_heads": 5},
        {"pool": "query", "head_dim": 8},
    ],
)
def test_a_packed_forward(options):
    model = create_model("vit_micro_patch4", encoding="none", **{"num_classes": 7, **options})
    config = model.config
    layout = TokenLayout.packed(GRIDS, num_prefix_tokens=config.num_prefix_tokens)
    kept = [torch.arange(rows * cols)[: max(rows * cols - 3, 1)] for rows, cols in GRIDS]
    counts = [len(one) for one in kept]
    found = _counted(model, layout.keep(kept), torch.randn(1, sum(counts), 48))
    query = 2 * config.dim * config.probe_width if config.has_probe else 0
    assert found - query == forward_flops(config, counts)


@pytest.mark.parametrize("edges", ["smaller", "padded"])
@pytest.mark.parametrize("size", [(20, 36), (12, 8), (56, 32)])
@pytest.mark.parametrize(
    "options",
    [
        {"encoding": "rope_mixed"},
        {"encoding": "irpe_qkv", "mlp": "swiglu", "patch_norm": False},
        {"head": "mlp", "head_dim": 10, "encoding": "none"},
        {"window_grows": True, "encoding": "none"},
    ],
)
def test_a_forward_of_stages_on_any_grid(options, size, edges) -> None:
    """Windows at the edges, shifted ones, the zeros that an image is filled up with, and odd sides that are merged."""
    grows = options.get("window_grows", False)
    if grows and edges == "padded":
        edges = "smaller"
    own = {"depths": [2, 3], "heads": [4, 8], "window": [4, 3], "edges": edges, "window_grows": grows}
    fields = {"num_classes": 3, "image_size": 32, "dim": 48, "depth": 5, "heads": 4, "architecture_options": own}
    fields |= {name: value for name, value in options.items() if name != "window_grows"}
    model = create_model("swin_micro_patch4", **fields).eval()
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model([torch.randn(3, *size), torch.randn(3, 32, 40)])
    assert counter.get_total_flops() == forward_flops(model.config, [model.config.grid_of(size), Grid(8, 10)])


def test_training_is_three_times_a_forward():
    model = create_model("vit_micro_patch4", encoding="none", num_classes=7, pool="mean")
    layout = TokenLayout.packed(GRIDS, num_prefix_tokens=0)
    found = _counted(model, layout, torch.randn(1, 32, 48), backward=True)
    # The patches are given, so that nothing is computed for their gradient.
    patches = 2 * 32 * 48 * model.config.dim
    assert found + patches == training_flops(model.config, [15, 16, 1])


def test_an_encoding_that_says_something_of_each_layer_is_counted() -> None:
    options = {"directions": ["halves-diagonals-none"] * 4}
    each = model_config("vit_micro_patch4", encoding="lookhere", encoding_options=options)
    plain = model_config("vit_micro_patch4", encoding="none")
    assert forward_flops(each, [64]) == forward_flops(plain, [64])
