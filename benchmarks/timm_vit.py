"""timm's ViT as a baseline, also where torchvision was built for another torch and cannot register its operators."""

from __future__ import annotations

from torch import nn
from torch.library import Library


def timm_vit(name: str, image_size: int) -> nn.Module | None:
    """timm's `name` at `image_size` pixels without pretrained weights, or None where timm does not import."""
    try:
        import timm
    except ImportError:
        return None
    except RuntimeError:
        # timm imports torchvision, which asks for two operators that a ViT never calls.
        _OPERATORS.define("nms(Tensor dets, Tensor scores, float threshold) -> Tensor")
        _OPERATORS.define("qnms(Tensor dets, Tensor scores, float threshold) -> Tensor")
        import timm
    return timm.create_model(name, img_size=image_size, dynamic_img_size=True)


# Kept here: the definitions end with the object that made them.
_OPERATORS = Library("torchvision", "FRAGMENT")
