"""The vision transformer and its registered sizes."""

from sightline.models.architectures.vit import VisionTransformer
from sightline.models.config import ViTConfig
from sightline.models.create import create_model, list_models, make_model, model_config
from sightline.models.model import Model

__all__ = [
    "Model",
    "ViTConfig",
    "VisionTransformer",
    "create_model",
    "list_models",
    "make_model",
    "model_config",
]
