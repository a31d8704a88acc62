"""Foreign models with a head of a dense task: there and back, what is refused, and the commands from file to scores."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor

from sightline import load_model, save_model
from sightline.convert import export_weights, import_weights
from sightline.convert.verify import fingerprint
from sightline.data.open import open_source
from sightline.errors import InputError
from sightline.models import Model, ViTConfig, make_model
from tests.contract.randomise import randomise_parameters

_TRUNK = {
    "dim": 64, "depth": 3, "heads": 1, "patch_size": 8, "image_size": 32, "num_classes": 3,
    "encoding": "learned_1d",
}  # fmt: skip
_SEGMENTER = {"task": "segmentation", "norm_eps": 1e-5, "fit": "pad"}
_EOMT = {
    "task": "segmentation", "head": "eomt", "encoding_options": {"interpolation": "bicubic_antialias"},
    "mean": (0.25, 0.5, 0.75), "std": (0.5, 0.25, 0.125),
}  # fmt: skip
# Project -> models that it holds, as fields of ours.
HOLDS: dict[str, list[dict[str, Any]]] = {
    "segmenter": [
        {**_SEGMENTER, "head": "linear_map", "head_options": {"norm": False}},
        {**_SEGMENTER, "head": "segmenter", "head_options": {"layers": 1, "heads": 2, "dim": 32}},
        {**_SEGMENTER, "head": "segmenter", "num_registers": 1, "image_size": (24, 40)},
    ],
    "eomt": [
        {**_EOMT, "head_options": {"queries": 4, "blocks": 2, "masked_in_evaluation": True}, "mlp": "swiglu"},
        {
            **_EOMT, "head_options": {"queries": 4, "masked": False}, "num_registers": 4, "layer_scale": 1.0,
            "encoding_options": {"interpolation": "bicubic_antialias", "prefix": False}, "image_size": (16, 40),
        },
    ],
    "owlvit": [
        {
            "task": "detection", "head": "owlvit", "head_options": {"query_dim": 24}, "norm_eps": 1e-5,
            "norm_pre": True, "patch_bias": False, "gelu": gelu, "encoding_options": {"interpolation": "bicubic"},
        }
        for gelu in ("quick", "exact")
    ],
}  # fmt: skip
MODELS = [(project, number) for project, models in HOLDS.items() for number in range(len(models))]
# What is in published files beside what ours computes with.
BESIDE: dict[str, dict[str, Tensor]] = {
    "segmenter": {"encoder.head.weight": torch.ones(7, 64), "encoder.head_dist.bias": torch.ones(7)},
    "eomt": {"criterion.empty_weight": torch.ones(4)},
    "owlvit": {
        "owlvit.text_model.embeddings.token_embedding.weight": torch.ones(5, 24), "owlvit.logit_scale": torch.ones([]),
        "owlvit.vision_model.embeddings.position_ids": torch.arange(17)[None],
        "owlvit.visual_projection.weight": torch.ones(24, 64), "owlvit.text_projection.weight": torch.ones(24, 24),
    },
}  # fmt: skip


def ours(project: str, number: int = 0, **fields: Any) -> Model:
    return randomise_parameters(make_model(ViTConfig(**{**_TRUNK, **HOLDS[project][number], **fields}))).eval()


def exported(project: str, number: int = 0) -> tuple[dict[str, Tensor], dict[str, Any]]:
    state, given = export_weights(ours(project, number), project)
    return {**state, **BESIDE[project]}, given


@pytest.mark.parametrize(("project", "number"), MODELS)
@torch.no_grad()
def test_there_and_back(project: str, number: int, tmp_path: Path) -> None:
    model = ours(project, number)
    state, given = export_weights(model, project)
    # As plain values, which a file can hold.
    again = import_weights(project, {**state, **BESIDE[project]}, json.loads(json.dumps(given)))
    save_model(again, tmp_path / "m")
    read = load_model(tmp_path / "m")
    assert read.config.origin == {"project": project, "config": given}
    back, _ = export_weights(read, project)
    assert back.keys() == state.keys()
    assert all(torch.equal(back[name], one) for name, one in state.items())
    assert fingerprint(read) == fingerprint(model)
    numbers = [one for size in fingerprint(model) for one in size["outputs"]]
    assert np.std(numbers) > 0.05


@pytest.mark.parametrize(("project", "number"), MODELS)
def test_weights_tell_all_but_heads_and_oblong_images(project: str, number: int) -> None:
    state, given = exported(project, number)
    told = {
        name: given[name] for name in ("normalization", "decoder", "hidden_act", "masked_attn_enabled") if name in given
    }
    if isinstance(ours(project, number).config.image_size, tuple):
        with pytest.raises(InputError, match=r"\(height, width\) is needed"):
            import_weights(project, state, told)
        told |= {name: given[name] for name in ("image_size", "img_size", "num_blocks") if name in given}
    elif project == "eomt":
        # As many as there are probabilities.
        state["attn_mask_probs"] = torch.ones(given["num_blocks"])
    model = import_weights(project, state, told)
    assert fingerprint(model) == fingerprint(import_weights(project, state, given))


@pytest.mark.parametrize("project", HOLDS)
def test_what_does_not_belong_is_refused(project: str) -> None:
    state, given = exported(project)

    def refused(words: str, state: dict = state, given: dict = given) -> None:
        with pytest.raises(InputError, match=words) as caught:
            import_weights(project, state, given)
        assert "\n" not in str(caught.value)

    needed = sorted(name for name in state if name not in BESIDE[project])
    # Those that tell what the model is, and some of the others.
    told = [name for name in needed if re.search("pos|patch_embed|pixel|q|dense0|cls|class|fc2", name)]
    for name in [*told[:: max(len(told) // 5, 1)], *needed[::12]]:
        # Without queries, an OWL-ViT has its text tower.
        beside = BESIDE.get(project, {}) if name == "query_embeds" else {}
        refused(f"missing.* {name}", {key: one for key, one in state.items() if key != name and key not in beside})
        wrong = torch.zeros(2, 3, 5, 7, 11)
        refused(rf"{name} is \[2, 3, 5, 7, 11\], expected", {**state, name: wrong})
        broken = state[name].clone()
        broken.view(-1)[-1] = torch.nan
        refused("(mean|std) .*nan" if "pixel_" in name else f"{name} holds a number", {**state, name: broken})
    refused("not expected: head.more", {**state, "head.more": torch.zeros(1)})
    refused("missing ", {})
    refused("argument 'depht' is not known", given={**given, "depht": 2})


WRONG: list[Any] = ["x", -1, 0, [], {}, 1.5, float("nan"), (4,), (4, 4, 4), 7]


# From a file to scores.


def picture(folder: Path) -> Path:
    values = np.random.default_rng(0).integers(0, 256, (40, 56, 3), np.uint8)
    Image.fromarray(values).save(folder / "one.png")
    return folder / "one.png"


def source_of(project: str, file: Path, classes: int) -> list[str]:
    """A file as the project publishes one, and what `convert` has to be told besides."""
    state, given = export_weights(ours(project, num_classes=classes), project)
    state |= {name: one.clone() for name, one in BESIDE[project].items()}
    if project == "segmenter":
        torch.save({"model": state, "optimizer": {}, "n_cls": classes}, file)
        return ["--arguments.normalization=vit"]
    if project == "eomt":
        state["attn_mask_probs"] = torch.zeros(given["num_blocks"])
        state = {name if name in BESIDE[project] else f"network.{name}": one for name, one in state.items()}
        torch.save(state, file)
        return []
    save_file(state, file, metadata={"args": json.dumps({"vision_config": given, "model_type": "owlvit"})})
    return []


@pytest.mark.parametrize(
    ("project", "file", "metric"),
    [
        ("segmenter", "w.pth", "miou"),
        pytest.param("eomt", "w.bin", "miou", marks=pytest.mark.slow),
        pytest.param("owlvit", "w.safetensors", "box_ap", marks=pytest.mark.slow),
    ],
)
def test_from_a_file_to_scores(project: str, file: str, metric: str, cli: Any, tmp_path: Path) -> None:
    data = open_source("scenes:pairs")
    names = tuple(data.object_classes if metric == "box_ap" else data.pixel_classes)
    (tmp_path / "names.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    told = source_of(project, tmp_path / file, len(names))
    dest = tmp_path / "m"
    code, out, err = cli("convert", project, tmp_path / file, dest, *told, "--names", tmp_path / "names.txt")
    assert code == 0, err
    assert f"4x4 patches of 8 pixels, {len(names)} classes" in out
    assert load_model(dest).config.class_names == names
    code, out, err = cli("verify", dest, "--against", tmp_path / file, "--project", project)
    assert code == 0, out + err
    assert out.count("equal") == 4
    code, out, err = cli("predict", dest, picture(tmp_path), "--out", tmp_path / "drawn")
    assert code == 0, err
    code, out, err = cli(
        "evaluate", dest, "--data", "scenes:pairs", "--resolutions", "32,40", "--images", "4", "--split", "test",
        "--out", tmp_path / "rows",
    )  # fmt: skip
    assert code == 0, err
    rows = [json.loads(line) for line in (tmp_path / "rows" / "results.jsonl").read_text().splitlines()]
    assert {row["metric"] for row in rows} >= {metric}
