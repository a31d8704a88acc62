"""The vision transformer and its registered sizes."""

from sightline.models.config import ViTConfig
from sightline.models.create import create_model, list_models, model_config
from sightline.models.vit import VisionTransformer

__all__ = ["ViTConfig", "VisionTransformer", "create_model", "list_models", "model_config"]
