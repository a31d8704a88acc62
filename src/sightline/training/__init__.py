"""Training in one process: a clear loop that can be stopped anywhere and resumed."""

from sightline.training.config import TrainConfig
from sightline.training.loop import TrainProgress
from sightline.training.run import TrainResult, train

__all__ = ["TrainConfig", "TrainProgress", "TrainResult", "train"]
