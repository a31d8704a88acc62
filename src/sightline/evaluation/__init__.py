"""Measuring a model: accuracy at many resolutions, and the search for its knob."""

from sightline.evaluation.measure import EvaluateConfig, evaluate
from sightline.evaluation.predict import predict_split
from sightline.evaluation.tune import tune_parameter

__all__ = ["EvaluateConfig", "evaluate", "predict_split", "tune_parameter"]
