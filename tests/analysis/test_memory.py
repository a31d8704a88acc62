"""What a pass will take: exact where it is counted, near what fresh processes take, and told of any size."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import sightline
from sightline.analysis.memory import estimate_memory, warn_of_memory
from sightline.distributed import machine
from sightline.models import VisionTransformer, model_config

SMALL = {"patch_size": 4, "dim": 48, "heads": 4, "depth": 3, "image_size": (12, 20), "num_classes": 7}


def config(encoding="none", **changes):
    return model_config("vit_micro_patch4", encoding=encoding, **{**SMALL, **changes})


RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


@pytest.mark.parametrize("encoding", [*sightline.list_encodings(), "rope_mixed+learned_1d", "lookhere_90+fourier"])
def test_parameters_are_counted_exactly(encoding):
    for changes in (
        {},
        {"pool": "attention", "layer_scale": 0.1},
        {"pool": "mean", "num_registers": 3, "head": "mlp"},
        {"pool": "query", "qk_norm": "heads", "patch_norm": True, "block_bias": "mlp", "head_dim": 8},
        # Of layers that the head names.
        {"task": "segmentation", "head": "eomt", "head_options": {"queries": 5, "blocks": 2}},
    ):
        one = config(encoding, **changes)
        expected = sum(parameter.numel() for parameter in VisionTransformer(one).parameters())
        for training in (False, True):
            estimate = estimate_memory(one, (12, 20), training=training)
            assert estimate.parameters == 4 * expected
            assert estimate.gradients == (4 * expected if training else 0)
            assert estimate.optimizer == (8 * expected if training else 0)


@pytest.mark.parametrize(
    ("head", "options"),
    [
        ("pix", {}),
        ("upernet", {"layers": [0, 1, 2, 2], "channels": 8}),
        ("eomt", {"queries": 5, "blocks": 3}),
        ("detr_queries", {"queries": 3}),
    ],
)
def test_heads_of_all_tokens_are_counted_exactly(head, options):
    """Also those that read some layers, of which one block alone has not so many."""
    settings = {"depth": 3, "num_classes": 4, "image_size": 32, "head": head, "head_options": options}
    one = model_config("vit_micro_patch4", **settings, class_names=tuple("abcd"), final_norm="both")
    parameters = sum(parameter.numel() for parameter in VisionTransformer(one).parameters())
    assert estimate_memory(one, 32).parameters == 4 * parameters


@pytest.mark.parametrize("encoding", ["none", "lookhere_90", "rpe_learned"])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_more_of_anything_takes_more(encoding, training, dtype):
    def total(size, batch=1, **changes):
        return estimate_memory(config(encoding, **changes), size, batch=batch, dtype=dtype, training=training).total

    assert total((12, 20)) < total((12, 24)) < total((16, 24)) < total((40, 24))
    assert total((12, 20)) < total((12, 20), batch=2) < total((12, 20), batch=100)
    assert total((12, 20)) < total((12, 20), mlp_ratio=8.0)
    assert total((12, 20)) < total((12, 20), depth=4)
    if not training:
        assert estimate_memory(config(encoding), (12, 20), dtype=dtype, training=True).total > total((12, 20))


@pytest.mark.parametrize("sharing", ["ddp", "fsdp"])
def test_near_what_two_processes_took(sharing):
    """As benchmarks/sharding.py measured them."""
    rows = [json.loads(line) for line in (RESULTS / "sharding.jsonl").read_text().splitlines()]
    row = next(one for one in rows if one["sharing"] == sharing)
    found = estimate_memory(
        model_config(row["model"]), row["side"], batch=row["images"] // row["ranks"], training=True,
        sharers=row["ranks"] if sharing == "fsdp" else 1,
    )  # fmt: skip
    assert found.total / 2**20 == pytest.approx(row["steps_mib"] - row["begun_mib"], rel=0.25)


@pytest.mark.parametrize("training", [False, True])
def test_what_is_more_than_is_free_is_warned_of_in_a_line(training, monkeypatch):
    one, said = config("lookhere_90"), []
    found = estimate_memory(one, 400, training=training, saves=training)
    needed = found.total - (0 if training else found.parameters)
    for available in (None, needed, needed - 1):
        monkeypatch.setattr(machine, "available_memory", lambda available=available: available)
        assert said == []
        warn_of_memory(one, 400, said.append, what="m", training=training)
    assert len(said) == 1
    assert "m at 400x400 px" in said[0]
    # Of a GPU torch itself says it.
    warn_of_memory(one, 400, said.append, what="m", training=training, device="cuda")
    assert len(said) == 1


_MEASURE = """
import json, sys, torch
from sightline import create_model
from sightline.distributed import machine
from sightline.training.config import OptimizerConfig
from sightline.training.optim import make_optimizer

def run(name, side, training, **options):
    model = create_model(name, encoding=sys.argv[2], **options)
    images = torch.randn(1, 3, side, side)
    if not training:
        with torch.inference_mode():
            return model(images)
    optimizer = make_optimizer(model, OptimizerConfig())
    for _ in range(2):
        loss = model(images).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

name, side, training = sys.argv[1], int(sys.argv[3]), sys.argv[4] == "True"
# What is loaded on first use counts before, not after.
run("vit_micro_patch4", 32, training, depth=1, dim=96, heads=4)
before = machine.peak_memory()
run(name, side, training, **json.loads(sys.argv[5]))
print(machine.peak_memory() - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("encoding", "side", "training", "options"),
    [
        ("none", 384, False, {}),
        ("lookhere_90", 384, True, {}),
        ("none", 384, True, {"mlp": "swiglu", "mlp_norm": True, "attn_norm": True}),
    ],
)
def test_near_what_a_fresh_process_takes(encoding, side, training, options):
    """Within a quarter; 2 to 10 % on the machine where the shares were set."""
    assert_near("vit_base_patch16", encoding, side, training, options, 0.25)


def assert_near(name, encoding, side, training, options, share):
    words = [sys.executable, "-c", _MEASURE, name, encoding, str(side), str(training), json.dumps(options)]
    measured = int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    estimated = estimate_memory(model_config(name, encoding=encoding, **options), side, training=training).total
    assert estimated == pytest.approx(measured, rel=share)
