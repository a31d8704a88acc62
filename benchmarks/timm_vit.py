"""timm's ViT as a baseline, also where torchvision was built for another torch and cannot register its operators."""

from __future__ import annotations

from typing import Any

from torch import nn

from sightline.distributed.machine import import_timm
from sightline.errors import InputError


def timm_vit(name: str, image_size: int, **options: Any) -> nn.Module | None:
    """timm's `name` at `image_size` pixels without pretrained weights, or None where timm does not import; `options`
    are of its ViT."""
    try:
        timm = import_timm()
    except InputError:
        return None
    return timm.create_model(name, img_size=image_size, dynamic_img_size=True, **options)
