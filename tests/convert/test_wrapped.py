"""Weights as training scripts leave them: one function takes them out, whatever project they are of."""

from __future__ import annotations

import argparse
import pathlib

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from sightline.convert import counted_weights, export_weights, import_weights
from sightline.convert.weights import read_weights
from sightline.errors import InputError
from tests.contract.contract import build, images


@pytest.fixture(scope="module")
def state():
    """Weights in names of timm's, its arguments, and the model that they are of."""
    model = build(
        "learned_1d",
        dim=192,
        depth=2,
        heads=3,
        patch_size=16,
        image_size=32,
        encoding_options={"interpolation": "bicubic_antialias"},
    )
    state, given = export_weights(model, "timm")
    return state, given, model


def other(state):
    return {name: torch.full_like(one, 7.0) for name, one in state.items()}


def renamed(state, prefix):
    return {f"{prefix}{name}": one for name, one in state.items()}


WRAPPED = {
    "state_dict": lambda s: {"epoch": 3, "state_dict": s, "optimizer": {"state": {}, "param_groups": []}},
    "model_state_dict": lambda s: {"model_state_dict": s, "loss": torch.zeros(())},
    "compiled in parallel": lambda s: {"model": renamed(s, "module._orig_mod.")},
    "lightning": lambda s: {"state_dict": renamed(s, "model.") | {"criterion.weight": torch.ones(5)}, "epoch": 1},
    "a net": lambda s: {"net": renamed(s, "module."), "acc": 0.5},
    "a mean": lambda s: {"model": other(s), "model_ema": s},
    "timm": lambda s: {"arch": "vit", "state_dict": other(s), "state_dict_ema": s, "args": argparse.Namespace(lr=1)},
    "dino": lambda s: {
        "student": renamed(other(s), "module.backbone."),
        "teacher": renamed(s, "backbone.") | {"head.mlp.0.bias": torch.ones(1), "head.last_layer.w": torch.ones(2)},
    },
    "averaged": lambda s: renamed(s, "module.") | {"n_averaged": torch.tensor(3)},
    "lucidrains": lambda s: renamed(s, "ema_model.") | renamed(other(s), "online_model.") | {"initted": torch.ones(())},
    "ema": lambda s: {"ema": {"decay": 0.99, "module": s}, "model": other(s)},
    "mae": lambda s: {"model": s | {"mask_token": torch.ones(1, 1, 8), "decoder_blocks.0.norm1.weight": torch.ones(8),
                                    "decoder_pos_embed": torch.ones(1, 4, 8), "decoder_pred.weight": torch.ones(8, 8)}},
    "mean teacher": lambda s: renamed(s, "teacher.") | renamed(other(s), "student."),
    "counters": lambda s: s | {"head_bn.num_batches_tracked": torch.tensor(4), "train_acc.total": torch.ones(())},
}  # fmt: skip


@pytest.mark.parametrize("kind", WRAPPED)
@pytest.mark.parametrize("ending", [".pth", ".pth.tar", ".ckpt"])
def test_what_training_scripts_leave_is_read(kind, ending, state, tmp_path):
    plain, given, model = state
    file = tmp_path / f"last{ending}"
    torch.save(WRAPPED[kind](plain), file)
    said = []
    read, _ = read_weights(file, said.append)
    batch = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(import_weights("timm", read, given)(batch), model(batch))
    several = kind in ("a mean", "timm", "dino", "lucidrains", "ema", "mean teacher")
    assert len(said) == several
    assert not said or "\n" not in said[0]
    assert counted_weights("timm", read, plain).keys() == plain.keys()


def test_other_projects_and_kinds_of_files_too(tmp_path):
    model = build("learned_1d", dim=48, depth=2, heads=4, image_size=16, encoding_options={"interpolation": "bicubic"})
    plain, given = export_weights(model, "deit")
    save_file(renamed(plain, "module."), tmp_path / "a.safetensors")
    read, _ = read_weights(tmp_path / "a.safetensors")
    assert read.keys() == plain.keys()
    with torch.no_grad():
        assert torch.equal(import_weights("deit", read, given)(images((4, 4))), model(images((4, 4))))


@pytest.mark.parametrize(
    ("left", "named"), [({"neck.weight": torch.ones(2)}, "neck.weight"), ({"backbone.extra": torch.ones(2)}, "extra")]
)
def test_what_is_left_over_is_refused_by_name(left, named, state):
    plain, given, _ = state
    with pytest.raises(InputError, match=f"not expected: .*{named}"):
        import_weights("timm", renamed(plain, "backbone.") | left, given)


def test_numbers_of_numpy_beside_the_weights_run_no_code(state, tmp_path):
    plain, _, _ = state
    beside = {"best": np.float64(0.5), "step": np.int64(3), "out": pathlib.PosixPath("runs/1")}
    torch.save({"model": plain, **beside}, tmp_path / "a.pth")
    assert read_weights(tmp_path / "a.pth")[0].keys() == plain.keys()

    class Code:
        def __reduce__(self):
            return print, ("never",)

    torch.save({"model": plain, "code": Code()}, tmp_path / "b.pth")
    with pytest.raises(InputError, match="could run code"):
        read_weights(tmp_path / "b.pth")
