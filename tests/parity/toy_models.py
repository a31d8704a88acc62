"""The committed toy models as ours: the original's weights and arguments, through `import_weights`."""

from __future__ import annotations

import json
import re
from typing import Any

from safetensors import safe_open

from sightline.convert import import_weights
from sightline.models import VisionTransformer
from tests.parity.golden_files import FOLDER, keys, weights

# The beginning of a file's name -> the project whose weights it holds.
_PROJECTS = {
    "lookhere_model": "lookhere",
    "ropevit": "rope_vit",
    "bigvision": "big_vision",
    "timm": "timm",
    "navit": "navit",
}

LEFT_OUT = {"timm_swin"} | {
    f"swin_{kind}" for kind in ("base_rpb", "rope_axial", "rope_axial_rpb", "rope_mixed", "rope_mixed_rpb")
}
"""Files of models that ours are not: windows."""

FILES = {
    path.stem: project
    for path in sorted(FOLDER.glob("*.safetensors"))
    for start, project in _PROJECTS.items()
    if path.stem.startswith(start) and path.stem not in LEFT_OUT and keys(path.stem, "sd.")
}
"""File -> project."""


def arguments(file: str) -> dict[str, Any]:
    """What the original class was built with."""
    with safe_open(FOLDER / f"{file}.safetensors", "pt") as opened:
        metadata = opened.metadata()
    given = json.loads(metadata["args"])
    named = re.search(r"create_model\('([^']+)'\)", metadata["cls"])
    return {"model": named[1], **given} if named else given


def toy_model(file: str) -> VisionTransformer:
    """Our model with the weights of a golden file."""
    return import_weights(FILES[file], weights(file), arguments(file))
