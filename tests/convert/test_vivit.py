"""transformers' ViViT: weights there and back under the names of its versions 4 and 5, and what cannot be."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from sightline import load_model, save_model
from sightline.convert import export_weights, import_weights
from sightline.errors import InputError
from sightline.models import Model, create_model
from tests.contract.randomise import randomise_parameters

GIVEN: dict[str, Any] = {
    "image_size": [16, 24], "num_frames": 6, "tubelet_size": [2, 8, 8], "hidden_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 3, "intermediate_size": 48,
}  # fmt: skip
OURS: dict[str, Any] = {
    "patch_size": 8, "image_size": (16, 24), "clip_frames": 6, "embedder": "tubelets", "dim": 24, "depth": 2,
    "heads": 3, "mlp_ratio": 2.0, "num_classes": 4, "encoding": "learned_1d", "gelu": "tanh",
}  # fmt: skip


def model_of(**changes: Any) -> Model:
    torch.manual_seed(0)
    return randomise_parameters(create_model("vit_micro_patch8", **{**OURS, **changes})).eval()


def older(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The names of transformers 4, as published files have them."""
    renamed = (
        (r"\.layers\.(\d+)\.attention\.o_proj", r".encoder.layer.\1.attention.output.dense"),
        (r"\.layers\.(\d+)\.mlp\.fc1", r".encoder.layer.\1.intermediate.dense"),
        (r"\.layers\.(\d+)\.mlp\.fc2", r".encoder.layer.\1.output.dense"),
        (r"\.layers\.(\d+)\.attention\.q_proj", r".encoder.layer.\1.attention.attention.query"),
        (r"\.layers\.(\d+)\.attention\.k_proj", r".encoder.layer.\1.attention.attention.key"),
        (r"\.layers\.(\d+)\.attention\.v_proj", r".encoder.layer.\1.attention.attention.value"),
        (r"\.layers\.", ".encoder.layer."),
    )
    found = {}
    for name, tensor in state.items():
        for new, old in renamed:
            name = re.sub(new, old, name)
        found[name] = tensor
    return found


@pytest.mark.parametrize(
    "changes",
    [
        {}, {"num_classes": 0}, {"qkv_bias": False}, {"gelu": "exact"}, {"norm_eps": 1e-5}, {"channels": 1},
        {"embedder_options": {"frames": 1}}, {"embedder_options": {"frames": 3}}, {"image_size": 24},
        {"image_size": (21, 30), "fit": "crop"},
    ],
)  # fmt: skip
@torch.no_grad()
def test_there_and_back_bit_by_bit(changes: dict[str, Any], tmp_path: Path) -> None:
    model = model_of(**changes)
    state, given = export_weights(model, "vivit")
    again = import_weights("vivit", state, json.loads(json.dumps(given)))
    for one, other in zip(model.state_dict().values(), again.state_dict().values(), strict=True):
        assert torch.equal(one, other)
    clip = torch.randn(1, again.config.channels, 6, 16, 32)
    assert torch.equal(model(clip), again(clip))
    save_model(again, tmp_path / "m")
    back, same = export_weights(load_model(tmp_path / "m"), "vivit")
    assert same == given
    assert back.keys() == state.keys()
    assert all(torch.equal(back[name], one) for name, one in state.items())


def test_published_files_of_older_versions() -> None:
    model = model_of()
    state, _ = export_weights(model, "vivit")
    published = {
        **GIVEN, "architectures": ["VivitForVideoClassification"], "model_type": "vivit", "id2label": {"0": "a"},
        "hidden_act": "gelu_fast", "layer_norm_eps": 1e-06, "hidden_dropout_prob": 0.0, "transformers_version": "4.35",
        "video_size": [6, 16, 24],
    }  # fmt: skip
    old = older(state)
    assert old.keys() != state.keys()
    again = import_weights("vivit", old, published)
    assert all(torch.equal(one, again.state_dict()[name]) for name, one in model.state_dict().items())
    # A pooler, which transformers has and nothing here reads, is left out.
    bare, given = export_weights(model_of(num_classes=0), "vivit")
    pooler = {"pooler.dense.weight": torch.randn(24, 24), "pooler.dense.bias": torch.randn(24)}
    import_weights("vivit", bare | pooler, given)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tubelet_size": [2, 8, 4]}, "vivit: tubelet_size (2, 8, 4): expected (frames, side, side), equal sides"),
        ({"tubelet_size": 8}, "vivit: num_frames 6: expected at least 8"),
        ({"tubelet_size": [2, 8]}, "vivit: tubelet_size [2, 8]: expected 3 whole numbers"),
        ({"num_frames": 1}, "vivit: num_frames 1: expected at least 2"),
        ({"num_frames": 8}, "vivit: weights do not fit the model; 1 of another shape: vivit.embeddings"),
        ({"hidden_act": "relu"}, "vivit: hidden_act 'relu'"),
        ({"frames": 8}, "vivit: argument 'frames'"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], said: str) -> None:
    state, _ = export_weights(model_of(), "vivit")
    with pytest.raises(InputError) as raised:
        import_weights("vivit", state, {**GIVEN, **changes})
    assert str(raised.value).startswith(said)


def test_converted_and_verified_by_the_command_line(cli, tmp_path: Path) -> None:
    state, given = export_weights(model_of(), "vivit")
    save_file(state, tmp_path / "v.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(given))
    there = tmp_path / "m"
    code, out, err = cli("convert", "vivit", tmp_path / "v.safetensors", there, "--config", tmp_path / "config.json")
    assert code == 0, err
    assert "3x2x3 patches of 8 pixels" in out
    code, out, err = cli("verify", there, "--against", tmp_path / "v.safetensors", "--project", "vivit", "--json")
    assert code == 0, err
    compared = [json.loads(line)["what"] for line in out.splitlines()]
    assert {"outputs at 6x16x24", "outputs at 7x16x32"} <= set(compared)
    state["vivit.layernorm.bias"] = state["vivit.layernorm.bias"] + 1e-3
    save_file(state, tmp_path / "other.safetensors")
    code, _, _ = cli("verify", there, "--against", tmp_path / "other.safetensors", "--project", "vivit")
    assert code != 0
