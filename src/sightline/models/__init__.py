"""The vision transformer and its registered sizes."""

from sightline.models.config import ViTConfig
from sightline.models.create import changed, create_model, list_models, model_config
from sightline.models.vit import VisionTransformer

__all__ = ["ViTConfig", "VisionTransformer", "changed", "create_model", "list_models", "model_config"]
