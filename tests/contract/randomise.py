"""Random values for every parameter: fresh models have zero heads and tiny embeddings, and everything is equal."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

Module = TypeVar("Module", bound=nn.Module)


def randomise_parameters(module: Module, seed: int = 0) -> Module:
    """Overwrite all parameters in place, so that each of them shows in the outputs.

    Matrices keep the size of what they multiply; vectors and tables get a standard deviation of 0.5, those that
    start at 1 (norms, scales) are spread around 1.
    """
    generator = torch.Generator().manual_seed(seed)
    scales = {
        id(part.weight) for part in module.modules() if isinstance(part, nn.LayerNorm) and part.weight is not None
    }
    matrices = {id(part.weight): part.in_features for part in module.modules() if isinstance(part, nn.Linear)}
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            values = torch.randn(parameter.shape, generator=generator)
            if id(parameter) in matrices:
                values *= matrices[id(parameter)] ** -0.5
            elif id(parameter) in scales or name.endswith("gamma"):
                values = 1 + 0.3 * values
            else:
                values *= 0.5
            parameter.copy_(values)
    return module
