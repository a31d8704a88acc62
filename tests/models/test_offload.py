"""Weights that accelerate keeps elsewhere, and brings for the call of each module, give the model's own outputs."""

from __future__ import annotations

import pytest
import torch
from accelerate import cpu_offload, disk_offload, dispatch_model
from torch.utils._pytree import tree_leaves

from sightline.encodings import list_encodings
from tests.contract.contract import build, images

CPU = torch.device("cpu")
# One model of another kind after the other: each has weights that no other one has.
EXTRAS = [
    {"qkv_bias": "qv", "num_registers": 4, "layer_scale": 0.1, "qk_norm": True},
    {"pool": "attention", "mlp": "swiglu"},
    {"pool": "query", "norm_pre": True, "patch_norm": True},
    {"encoding": "learned_1d_every", "head": "mlp"},
    {"encoding": "rope_mixed+learned_1d"},
    {"encoding": "lookhere_90+rpe_learned", "num_registers": 2},
    {"architecture": "axial", "encoding": "rpe_learned", "pool": "mean"},
    {"embedder": "flexible", "embedder_options": {"base": 6}},
    {"embedder": "resnet", "embedder_options": {"layers": (), "width_factor": 0.5}},
    {"embedder": "tubelets", "encoding": "fourier", "embedder_options": {"frames": 1}, "clip_frames": 1},
    {"head": "masked_patches", "head_options": {"target": "pixels"}},
    {"head": "pix", "task": "segmentation"},
    {"head": "linear_map", "task": "segmentation"},
    {"head": "segmenter", "task": "segmentation"},
    {"head": "upernet", "head_options": {"channels": 8}, "depth": 4, "task": "segmentation"},
    {"head": "eomt", "head_options": {"queries": 3, "masked_in_evaluation": True}, "task": "segmentation"},
    {"head": "fcos", "task": "detection"},
    {"head": "simple_pyramid", "task": "detection"},
    {"head": "detr_queries", "task": "detection"},
    {"head": "owlvit", "task": "detection"},
]
SWIN = {"heads": 6, "architecture": "swin", "architecture_options": {"depths": [1, 1], "heads": [6, 12], "window": 3}}
SWINS = [
    {"encoding": encoding, "pool": "mean", **SWIN}
    for encoding in ("rpe_learned", "rope_mixed", "learned_1d", "rope_mixed+rpe_learned")
]


def built(options):
    options = {"depth": 2, "dim": 96, **options}
    return build(options.pop("encoding", "lookhere_90"), options.pop("pool", "cls"), **options)


def on_cpu(model, folder):
    return cpu_offload(model, execution_device=CPU)


def on_disk(model, folder):
    return disk_offload(model, str(folder), execution_device=CPU)


def by_map(model, folder):
    """The encoding and every second part on disk, the others where they are."""
    places = {}
    for number, (name, _) in enumerate(model.named_children()):
        parts = model.blocks.named_children() if name == "blocks" else [("", None)]
        for index, (part, _) in enumerate(parts):
            away = name == "encoding" or (number + index) % 2
            places[f"{name}.{part}".rstrip(".")] = "disk" if away else "cpu"
    for name, _ in [*model.named_parameters(recurse=False), *model.named_buffers(recurse=False)]:
        places[name] = "cpu"
    return dispatch_model(model, places, main_device=CPU, offload_dir=str(folder), force_hooks=True)


def outputs(model, given):
    torch.manual_seed(0)
    with torch.no_grad():
        return tree_leaves(model(given))


def assert_unchanged(options, offload, folder):
    model = built(options)
    batch = images((6, 8))
    of_one_size = [images((4, 4), seed=1)[0], images((6, 4), seed=2)[0], images((4, 4), seed=3)[0]]
    before = [outputs(model, given) for given in (batch, of_one_size)]
    model = offload(model, folder)
    for given, expected in zip((batch, of_one_size), before, strict=True):
        for found, one in zip(outputs(model, given), expected, strict=True):
            assert found.isfinite().all()
            # Of maps whose random weights make hundreds, as parts of the largest.
            assert (found - one).abs().max() < 2e-5 * max(1, float(one.abs().max()) / 10)
    assert all(one.float().std() > 1e-3 for one in before[0] if one.numel() > 1)


OFFLOADED = [*((name, by_map) for name in list_encodings()), ("lookhere_90", on_cpu), ("lookhere_90", on_disk)]


@pytest.mark.parametrize(("encoding", "offload"), OFFLOADED)
def test_offloaded_encodings_give_the_same(encoding, offload, tmp_path):
    assert_unchanged({"encoding": encoding}, offload, tmp_path)


@pytest.mark.parametrize("options", [*EXTRAS, *SWINS], ids=str)
def test_offloaded_models_of_every_kind_give_the_same(options, tmp_path):
    assert_unchanged(options, by_map, tmp_path)


def test_what_accelerate_puts_around_a_linear_layer_is_called(tmp_path):
    """An image of one batch: the product of the class token alone, and a layer in parts, are not taken beside it."""
    model = on_cpu(built({"encoding": "learned_1d"}), tmp_path)
    assert all(one.is_meta for one in model.parameters())
    assert outputs(model, images((6, 8), count=1))[0].shape == (1, 5)
    assert all(one.is_meta for one in model.parameters())
