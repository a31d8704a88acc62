"""A tiny model of a data set's classes, and its rows: with what most tests of evaluation begin."""

from __future__ import annotations

from typing import Any

from sightline.data.open import open_source
from sightline.data.source import Source
from sightline.evaluation import EvaluateConfig, evaluate
from sightline.evaluation.measure import RunInfo
from sightline.models import VisionTransformer, create_model
from sightline.results.rows import ResultRow
from tests.contract.randomise import randomise_parameters


def tiny(data: str = "digits", encoding: str = "lookhere_90", **options: Any) -> VisionTransformer:
    """Of one block, for images of 16 px, every parameter random; in evaluation mode."""
    names = tuple(open_source(data).classes)
    given = {"image_size": 16, "depth": 1, "dim": 48, "heads": 4, "num_classes": len(names), "class_names": names}
    return randomise_parameters(create_model("vit_micro_patch4", encoding=encoding, **{**given, **options})).eval()


def identity(data: str = "digits") -> RunInfo:
    return RunInfo("name", data, 16, 3)


def measured(
    model: Any,
    data: str,
    *shown: Any,
    source: Source | None = None,
    advance: Any = None,
    answers: list[Any] | None = None,
    parts: Any = None,
    keep: Any = None,
    **config: Any,
) -> list[ResultRow]:
    """Rows of a model at these sizes, in float32; the rest are fields of `EvaluateConfig`."""
    asked = EvaluateConfig(shown, **{"precision": "float32", **config})
    source = source or open_source(data)
    return evaluate(model, source, asked, identity(data), advance=advance, answers=answers, parts=parts, keep=keep)
