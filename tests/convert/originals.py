"""timm's own models with random weights, beside ours with the same ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from sightline.convert import export_weights, import_weights
from sightline.distributed.machine import import_timm
from sightline.models import VisionTransformer

TOLERANCE = 2e-5
"""Largest absolute difference of outputs in float32 on a CPU, as golden/README.md says."""


def randomise_original(module: nn.Module, seed: int = 0) -> nn.Module:
    """Overwrite every parameter, so that each of them shows in the outputs; in evaluation mode."""
    generator = torch.Generator().manual_seed(seed)
    factors = {
        id(part.weight)
        for part in module.modules()
        if "norm" in type(part).__name__.lower() and hasattr(part, "weight")
    }
    matrices = {id(part.weight) for part in module.modules() if isinstance(part, nn.Linear | nn.Conv2d)}
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            values = torch.randn(parameter.shape, generator=generator)
            if id(parameter) in matrices:
                values *= parameter[0].numel() ** -0.5
            elif id(parameter) in factors or "gamma" in name:
                values = 1 + 0.3 * values
            else:
                values *= 0.5
            parameter.copy_(values)
    return module.eval()


def original(name: str, *, seed: int = 0, **arguments: Any) -> Any:
    """What timm builds, randomised; for any size of images where timm can do that (`takes_any_size`)."""
    timm = import_timm()
    try:
        module = timm.create_model(name, **{"dynamic_img_size": True, **arguments})
    except TypeError:
        module = timm.create_model(name, **arguments)
    return randomise_original(module, seed)


def takes_any_size(module: Any) -> bool:
    """Whether a module of timm runs at sizes that it was not built for."""
    return type(module).__name__ == "NaFlexVit" or bool(getattr(module, "dynamic_img_size", False))


def close(ours: Tensor, theirs: Tensor) -> None:
    """Equal within the tolerance, and not because everything is flat."""
    assert ours.shape == theirs.shape
    assert theirs.std() > 0.1, "the original's output is flat and would prove nothing"
    assert (ours - theirs).abs().max() <= TOLERANCE


def other_grid(rows: int, cols: int) -> tuple[int, int]:
    """A grid of another shape and count: about half as high, and wider than it is high."""
    return max(rows // 2, 1), max(rows // 2, 1) + 3 + cols % 2


@torch.no_grad()
def compare(ours: VisionTransformer, theirs: Any, *, features: bool = True) -> None:
    """Outputs at the training size, then at a size that is not square, and one that patches do not divide."""
    config, generator = ours.config, torch.Generator().manual_seed(5)
    side, grid = config.patch_size, config.train_grid
    more = other_grid(*grid)
    sizes = [(grid.rows * side, grid.cols * side), (more[0] * side, more[1] * side)]
    if config.fit == "pad" and takes_any_size(theirs):
        sizes.append((more[0] * side + 1, more[1] * side - 1))
    for size in sizes:
        if size != sizes[0] and not takes_any_size(theirs):
            # The last thing that is asked of it: its own tables are resized.
            theirs.set_input_size(size)
        few = size[0] * size[1] < 100 * side**2
        images = torch.randn(2 if few else 1, config.channels, *size, generator=generator)
        close(ours(images), theirs(images))
        if features:
            close(ours.forward_features(images), theirs.forward_features(images))


def imported(theirs: Any, config: Mapping[str, Any]) -> VisionTransformer:
    """Ours with the same weights, which come back bit by bit, as does the configuration."""
    state = theirs.state_dict()
    ours = import_weights("timm", state, config)
    back, given = export_weights(ours, "timm")
    assert back.keys() == state.keys()
    for name, tensor in state.items():
        assert torch.equal(back[name], tensor), name
    assert given == json.loads(json.dumps({**config, "num_classes": ours.num_classes}))
    return ours
