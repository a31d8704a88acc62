"""torch.fx, which cannot follow a program whose steps hang on the images' sizes."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.fx import Proxy

from sightline.errors import InputError


def as_leaf(model: nn.Module, images: Proxy) -> Any:
    """The model as one step of the graph of a module that holds it, as torch.nn's own layers are.

    Raises:
        InputError: the model itself is traced; says what gives features, and what gives a graph.
    """
    place = images.tracer.path_of_module(model)  # type: ignore[attr-defined]
    if not place:
        raise InputError(
            "torch.fx cannot trace this model: its steps hang on the images' sizes (expected forward_intermediates for "
            "features, torch.export or torch.compile for a graph; inside another module it is traced as one step)"
        )
    return images.tracer.create_proxy("call_module", place, (images,), {})
