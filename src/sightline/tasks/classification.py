"""Classification: labels, the two losses that train it, and scores from 0 to 1."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.attention.wide import at_least_float32
from sightline.data.batch import Batch
from sightline.data.source import Example, Source
from sightline.errors import InputError, unknown_name_error
from sightline.io.config import Fraction, config_dataclass
from sightline.models import ViTConfig
from sightline.models.head import ScoreLink
from sightline.tasks.base import PredictionRecord, Task
from sightline.tokens.layout import TokenLayout

Loss = Literal["bce", "bce_mean", "ce"]
LINK_OF: dict[str, ScoreLink] = {"bce": "sigmoid", "bce_mean": "sigmoid", "ce": "softmax"}
"""Loss -> how the logits that it trained are read."""


@config_dataclass(kw_only=False)
class ClassificationOptions:
    """`loss`: `bce` is the sigmoid cross entropy summed over classes (LookHere), `bce_mean` its mean over classes, with
    which clipping does not depend on their number (DeiT III), `ce` the softmax cross entropy (ViT).
    `label_smoothing`: share of the target that is spread over all classes."""

    loss: Loss = "ce"
    label_smoothing: Fraction = 0.0


class Classification(Task):
    """One class an image, perhaps mixed of two.

    Attributes:
        groups: name of a group of classes that are easily confused -> the model's labels in it.
    """

    name: ClassVar[str] = "classification"
    mixes: ClassVar[bool] = True
    primary: ClassVar[str] = "accuracy"
    tuned_by: ClassVar[str] = "softmax cross entropy"
    Options: ClassVar[type] = ClassificationOptions

    def __init__(self, config: ViTConfig, options: ClassificationOptions) -> None:
        super().__init__(config, options)
        if not config.has_classifier:
            raise InputError(
                f"task classification: head {config.head} gives no scores of classes (expected head linear or mlp, or "
                "the head's own task)"
            )
        self.chance = 1 / config.num_classes if config.num_classes else None
        self.groups: Mapping[str, Sequence[int]] = {}
        self._labels = np.arange(config.num_classes)

    @classmethod
    def model_options(cls, source: Source, options: ClassificationOptions) -> dict[str, Any]:
        names = tuple(source.classes)
        return {"num_classes": len(names), "class_names": names, "score_link": LINK_OF[options.loss]}

    @classmethod
    def model_defaults(cls, source: Source, options: ClassificationOptions) -> dict[str, Any]:
        # With every class at 1 / classes from the start, the first steps are not spent on the prior.
        if LINK_OF[options.loss] != "sigmoid":
            return {}
        return {"head_bias": -math.log(max(len(source.classes) - 1, 1))}

    def bind(self, source: Source, data: str) -> Self:
        """As `Task.bind`. The model's label of each class of the data is found by its name where the model knows its
        classes' names: a folder that holds only some of the classes numbers them otherwise than the model does.

        Raises:
            InputError: more classes than the model's head has, or one that it does not know.
        """
        config, task = self.config, copy.copy(self)
        if len(source.classes) > config.num_classes:
            raise InputError(f"data {data!r}: has {len(source.classes)} classes, the model's head {config.num_classes}")
        if config.class_names is not None:
            unknown = [name for name in source.classes if name not in config.class_names]
            if unknown:
                raise unknown_name_error(f"data {data!r}: class of the model", unknown[0], config.class_names)
            task._labels = np.array([config.class_names.index(name) for name in source.classes])
        task.groups = {name: [int(task._labels[one]) for one in members] for name, members in source.groups.items()}
        task.names = list(self.names)
        for label, name in zip(task._labels.tolist(), source.classes, strict=False):
            task.names[label] = name
        return task

    def targets(self, examples: Sequence[Example]) -> Mapping[str, Tensor]:
        """`labels`, and where images are mixed `others` and `shares`: int64, int64 and float32 [images]."""
        labels: Any = [one.target for one in examples]
        found = {"labels": torch.tensor([int(self._labels[one.label]) for one in labels], dtype=torch.int64)}
        if any(one.other is not None for one in labels):
            found["others"] = torch.tensor([int(self._labels[one.other]) for one in labels], dtype=torch.int64)
            found["shares"] = torch.tensor([one.share for one in labels], dtype=torch.float32)
        return found

    def loss(self, outputs: Tensor, targets: Mapping[str, Any], layout: TokenLayout) -> tuple[Tensor, int]:
        """Each image counts alike, whatever its size and its neighbours."""
        return classification_loss(outputs, self.options.loss, self.options.label_smoothing, **targets), len(outputs)

    def tuning_loss(self, outputs: Tensor, targets: Mapping[str, Any], layout: TokenLayout) -> tuple[Tensor, int]:
        """The softmax cross entropy, whatever trained the model (docs/explanation/decisions/weights.md)."""
        return classification_loss(outputs, "ce", 0.0, **targets), len(outputs)

    def split_outputs(self, outputs: Tensor, layout: TokenLayout) -> Sequence[Tensor]:
        return outputs.unbind()

    def to_json(self, output: Tensor, image_size: tuple[int, int], topk: int) -> dict[str, Any]:
        """The best classes with their scores."""
        best = scores_of(output, self.config.score_link).topk(min(topk, len(self.names)))
        pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
        return {"top": [{"class": self.names[index], "index": index, "score": score} for score, index in pairs]}

    def describe(self, answer: Mapping[str, Any]) -> str:
        return ", ".join(f"{one['class']} {one['score']:.2f}" for one in answer["top"])

    def prediction_records(self, outputs: Tensor, batch: Batch) -> list[PredictionRecord]:
        right, scores = self.confidence(outputs, batch)
        best = outputs.argmax(dim=1).tolist()
        each = zip(batch.targets["labels"].tolist(), best, scores.tolist(), right.tolist(), strict=True)
        return [
            PredictionRecord(self.names[label], self.names[guess], score, good) for label, guess, score, good in each
        ]

    def confidence(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        right = outputs.argmax(dim=1) == batch.targets["labels"]
        return right, scores_of(outputs.double(), self.config.score_link).amax(-1)


def classification_loss(
    logits: Tensor,
    loss: Loss,
    label_smoothing: float,
    labels: Tensor,
    others: Tensor | None = None,
    shares: Tensor | None = None,
) -> Tensor:
    """The sum of the loss over images, in float32 at least.

    Args:
        logits: [images, classes].
        loss, label_smoothing: as `ClassificationOptions`.
        labels: int64 [images].
        others, shares: int64 and float32 [images], the second label of mixed images and the part of the first.
    """
    logits, classes = at_least_float32(logits), logits.shape[-1]
    target = F.one_hot(labels, classes).to(logits)
    if others is not None and shares is not None:
        target = torch.lerp(F.one_hot(others, classes).to(logits), target, shares.to(logits).unsqueeze(1))
    if loss == "ce":
        classes_or_shares = labels if others is None else target
        return F.cross_entropy(logits, classes_or_shares, label_smoothing=label_smoothing, reduction="sum")
    target = target * (1 - label_smoothing) + label_smoothing / classes
    total = F.binary_cross_entropy_with_logits(logits, target, reduction="none").sum(-1).sum()
    return total / classes if loss == "bce_mean" else total


def scores_of(logits: Tensor, link: ScoreLink) -> Tensor:
    """Logits [..., classes] as scores from 0 to 1, by the model's score link."""
    return logits.sigmoid() if link == "sigmoid" else logits.softmax(-1)
