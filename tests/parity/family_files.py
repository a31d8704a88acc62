"""Reference tensors of the families of models: see golden_families/README.md of who made them for their formats.

`SIGHTLINE_GOLDEN` names other folders (separated as in PATH), whose files are then tried instead, whatever they are
called and however deep they lie: what a file is of is what its metadata say.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

HERE = Path(__file__).parent
GIVEN = os.environ.get("SIGHTLINE_GOLDEN")
FOLDERS = (
    [Path(one) for one in GIVEN.split(os.pathsep)]
    if GIVEN
    else [HERE / one for one in ("golden", "golden_families", "golden_hf", "golden_text")]
)
TOLERANCE = 5e-5
"""Of outputs in float32."""

KINDS: Mapping[str, str] = {
    "hybrid": "models_vit.VisionTransformer with resnet|vision_transformer_hybrid",
    "swin": "SwinTransformer|create_model('swin",
    "irpe_buckets": "get_bucket_ids_2d",
    "irpe": "RPEAttention",
    "axial_scenic": "EncoderAxial",
    "axial_lucidrains": "AxialAttention",
    "relative1d_paper": "definition",
    "relative1d_scenic": "SelfAttentionWith1DRelativePos",
    "mpp_full": "mpp.MPP with",
    "mpp_loss": "mpp.MPPLoss",
    "mpp_paper": "definition",
    "flexi_resample": "flexi.vit.resample_patchemb",
    "flexi_bigvision": "flexi.vit._Model",
    "flexi_timm": "set_input_size(img_size, patch_size)",
    "tubelet_scenic": "init_embedding",
    "vivit": "Vivit",
    "segmenter": "segm.model.segmenter",
    "upernet": "Feature2Pyramid",
    "eomt": "models.eomt",
    "vitdet_pyramid": "SimpleFeaturePyramid",
    "owlvit_heads": "OwlViTBoxPredictionHead",
    "open_clip": "open_clip.model.CLIP",
    "clip_pair": "CLIPModel",
    "siglip_pair": "SiglipModel",
    "siglip2_pair": "Siglip2Model",
    "owlvit_whole": "OwlViTForObjectDetection",
    "owlvit_model": "OwlViTForObjectDetection",
    "hf_vision": "ViTModel|ViTFor|ViTMAE|DeiT|Dinov2|DINOv3ViT|BeitModel|BeitFor|SiglipVisionModel|CLIPVisionModel",
    "hf_folder": "a folder of transformers'",
}
"""What is tried -> what the class of its files has in its name, one of several."""

# Of one class, or definitions and no class: the one that has such a tensor.
_MARKS = {"relative1d_paper": "index.offset", "mpp_paper": "out.mean.labels", "owlvit_whole": "in.tokens"}


def _kind(said: Mapping[str, str], names: set[str]) -> str | None:
    """The first kind that a file is of."""
    for kind, words in KINDS.items():
        if any(word in said.get("cls", "") for word in words.split("|")) and _MARKS.get(kind, "") in {"", *names}:
            return kind
    return None


@lru_cache(maxsize=1)
def _found() -> dict[str, tuple[Path, str | None]]:
    """Every file by a name of its own: where it lies, and of what it is."""
    found = {}
    for folder in FOLDERS:
        for path in sorted(folder.rglob("*.safetensors")):
            with safe_open(path, "pt") as opened:
                said = opened.metadata() or {}
                if (path.parent / "config.json").exists():
                    said = {"cls": KINDS["hf_folder"]}
                kind = _kind(said, set(opened.keys()))
            name = path.relative_to(folder).with_suffix("").as_posix()
            while name in found:
                name += "+"
            found[name] = path, kind
    return found


def files(kind: str) -> list[str]:
    """The names of the files of a kind."""
    assert kind in KINDS, kind
    return [name for name, (_, found) in _found().items() if found == kind]


def unclaimed() -> dict[str, Path]:
    """Files of no kind."""
    return {name: path for name, (path, kind) in _found().items() if kind is None}


def path_of(file: str) -> Path:
    """Where a file lies."""
    return _found()[file][0]


def said_of(file: str) -> dict[str, str]:
    """The metadata of a file."""
    with safe_open(_found()[file][0], "pt") as opened:
        return opened.metadata()


def timm_name(file: str) -> str | None:
    """The name by which timm made the model of a file; None where it did not."""
    found = re.search(r"timm\.create_model\('([^']+)'", said_of(file)["cls"])
    return None if found is None else found[1]


@lru_cache(maxsize=4)
def _tensors(file: str) -> dict[str, Tensor]:
    return load_file(_found()[file][0])


def read(file: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a file, and with which arguments they were made."""
    return dict(_tensors(file)), json.loads(said_of(file)["args"])


def weights(tensors: Mapping[str, Tensor], start: str = "") -> dict[str, Tensor]:
    """The original's state dict, or what of it begins so."""
    start = f"sd.{start}"
    return {key.removeprefix(start): value for key, value in tensors.items() if key.startswith(start)}


def assert_close(ours: Tensor, theirs: Tensor, tolerance: float = TOLERANCE) -> None:
    """Equal but for `tolerance`, and no constant."""
    assert ours.shape == theirs.shape
    # What is the same everywhere would equal anything.
    assert theirs.numel() < 4 or theirs.std() > 5 * max(tolerance, TOLERANCE)
    assert (ours.double() - theirs.double()).abs().max() <= tolerance
