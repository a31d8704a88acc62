"""The vision transformer and its registered sizes."""

from sightline.models.architectures.vit import VisionTransformer as VisionTransformer
from sightline.models.config import ViTConfig as ViTConfig
from sightline.models.create import create_model as create_model
from sightline.models.create import list_models as list_models
from sightline.models.create import make_model as make_model
from sightline.models.create import model_config as model_config
from sightline.models.model import Model as Model
