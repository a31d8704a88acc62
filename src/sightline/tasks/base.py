"""What a task is: what its targets are, its loss and its metrics, and what its answers look like."""

from __future__ import annotations

import copy
import dataclasses
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from PIL.Image import Image
from torch import Tensor

from sightline import registry
from sightline.data.batch import Batch, normalize
from sightline.data.source import Example, Source
from sightline.data.targets import Crop
from sightline.errors import InputError
from sightline.io.config import Depends, build_config, require_effect
from sightline.models import Model, ViTConfig
from sightline.models.box_head import BoxHead
from sightline.models.head import TokenHead, head_class, head_classes, head_settings
from sightline.tasks.drawing import ColorKey
from sightline.tokens.layout import TokenLayout


@dataclass(frozen=True)
class PredictionRecord:
    """What was said of an image beside what is true: a line of `predictions.csv`, both as words."""

    label: str
    predicted: str
    score: float
    correct: bool


class Task(ABC):
    """One task, in a file of its own. It never asks whether a batch is packed: outputs and targets have a layout.

    Attributes:
        name: as it is configured.
        needs: what a source must provide, as `Source.provides`.
        mixes: its targets can be mixed.
        primary: name of the metric by whose first row knobs are not tuned, but runs are compared and the best
            checkpoint is kept.
        tuned_by: what `tuning_loss` is, in words.
        Options: a `config_dataclass` of its configuration.
        config: of the model; names: of its classes.
        chance: the value of the primary metric by guessing, None where there is none.
    """

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ("label",)
    mixes: ClassVar[bool] = False
    primary: ClassVar[str]
    tuned_by: ClassVar[str] = "loss"
    chance: float | None = None
    Options: ClassVar[type]

    def __init__(self, config: ViTConfig, options: Any) -> None:
        """Raises InputError: an option has no effect with another one, or is not what the model's head is made with."""
        self.config, self.options = config, options
        self.names = list(config.class_names or map(str, range(config.num_classes)))
        made = head_settings(config)
        require_effect(options, self.depends(), made, "task_options.")
        for field in dataclasses.fields(options):
            name, asked = field.name, getattr(options, field.name)
            if asked is not None and name in made and asked not in (field.default, made[name]):
                said = f"task_options.{name} {asked!r}: the model's head has {made[name]!r} (expected that)"
                raise InputError(said, field=f"task_options.{name}", value=asked)

    @classmethod
    def depends(cls) -> Depends:
        """The options that have an effect with some values of another one alone."""
        return {}

    @classmethod
    def model_options(cls, source: Source, options: Any) -> dict[str, Any]:
        """Fields of `ViTConfig` that the task decides, as `head` and `head_options`: those of a `TokenHead`."""
        return {}

    @classmethod
    def model_defaults(cls, source: Source, options: Any) -> dict[str, Any]:
        """Fields of `ViTConfig` that the task chooses where the run leaves them open."""
        return {}

    def bind(self, source: Source, data: str) -> Self:
        """The task on a data set, `data` as it was asked for.

        Raises:
            InputError: the model does not fit the data.
        """
        return copy.copy(self)

    @abstractmethod
    def targets(self, examples: Sequence[Example]) -> Mapping[str, Any]:
        """Targets of some examples together, by name: tensors, or groups and lists of them."""

    @abstractmethod
    def loss(self, outputs: Any, targets: Mapping[str, Any], layout: TokenLayout) -> tuple[Tensor, int | Tensor]:
        """The sum of the loss in float32 at least, and over how many units, 0 where there are none: the mean over all
        parts of a step divides the sum of the one by that of the other, at least 1. Units may be a number on the
        device, so that nothing waits for it."""

    def tuning_loss(self, outputs: Any, targets: Mapping[str, Any], layout: TokenLayout) -> tuple[Tensor, int | Tensor]:
        """By which a knob is tuned, as `loss`."""
        return self.loss(outputs, targets, layout)

    def outputs(self, model: Model, batch: Batch, precision: str = "float32") -> Any:
        """What a model gives where it is measured, as `predict_batch`."""
        return predict_batch(model, batch, precision)

    @abstractmethod
    def split_outputs(self, outputs: Any, layout: TokenLayout) -> Sequence[Any]:
        """The outputs of each image by itself."""

    def decode(self, output: Any, crop: Crop) -> Any:
        """What an output says of the stored image, a part of which the model saw; the output itself by default.

        Args:
            output: as `each`, float32.
            crop: what was shown.
        """
        return output

    def pictures(self, decoded: Any, image: np.ndarray) -> Mapping[str, Image]:
        """What is drawn of an answer: by the end of its file's name; nothing by default.

        Args:
            decoded: as `decode`; image: uint8 [height, width, 3], as it is stored.
        """
        return {}

    def comparison_images(
        self, output: Any, targets: Mapping[str, Any], number: int, image: np.ndarray
    ) -> tuple[Image, Image, Image]:
        """An image, the same with what is true of it, and with what a model says; not for every task.

        Args:
            output: as `each`, of the image that has this number in the targets; image: uint8 [height, width, 3], as the
                model saw it.
        """
        raise NotImplementedError

    def color_key(self) -> ColorKey:
        """What the colours of `pictures` and `compared` mean."""
        return ()

    @abstractmethod
    def to_json(self, output: Any, image_size: tuple[int, int], topk: int) -> dict[str, Any]:
        """What `predict` says of one image, as JSON has it.

        Args:
            output: as `decode`.
            image_size: (height, width) in pixels of the image as it is stored.
            topk: how much is said, where there is a choice.
        """

    def describe(self, answer: Mapping[str, Any]) -> str:
        """An answer in a line."""
        return json.dumps(answer)

    def prediction_records(self, outputs: Any, batch: Batch) -> list[PredictionRecord]:
        """For each image a line of `predictions.csv`; none where that is not how answers look."""
        return []

    def results(self, outputs: Any, batch: Batch) -> list[Any]:
        """For each image what is kept of it in a file of results, where that is more than `judged` says: a picture, or
        a group of arrays; none by default."""
        return []

    def confidence(self, outputs: Any, batch: Batch) -> tuple[Tensor, Tensor]:
        """For each image whether the answer is right, bool, and how sure the model says it is, float64 from 0 to 1.

        Raises:
            InputError: answers of this kind are not right or wrong.
        """
        raise InputError(f"task {self.name}: its answers are not right or wrong, which a cascade asks")


def task_class(name: str) -> type[Task]:
    """The class of a task, from its file in `tasks/` or a plug-in.

    Raises:
        InputError: there is none of that name.
    """
    return registry.find(Task, __package__ or "", "task", name)


def make_task(name: str, config: ViTConfig, options: Mapping[str, Any] | None = None) -> Task:
    """A task of a model.

    Args:
        options: fields of the task's `Options`.

    Raises:
        InputError: the name or an option is not known, or a value is refused.
    """
    kind = task_class(name)
    return kind(config, build_config(kind.Options, options or {}, f"task {name}"))


def task_of(model: Model, options: Mapping[str, Any] | None = None) -> Task:
    """The task of a model, whose head is its; as `make_task`."""
    return make_task(model.config.task, model.config, options)


def check_head(name: str, *, boxes: bool) -> type[TokenHead]:
    """The class of a head that gives boxes, or maps and masks.

    Raises:
        InputError: it gives the other; names those that do not.
    """
    found = head_class(name)
    if issubclass(found, BoxHead) != boxes:
        others = [other for other, kind in head_classes().items() if issubclass(kind, BoxHead) == boxes]
        said = f"head {name}: gives no {'boxes' if boxes else 'maps'} (expected {', '.join(others)})"
        raise InputError(said, field="head", value=name)
    return found


def check_classes(task: Task, kind: str, classes: Sequence[str], data: str) -> None:
    """Refuse data whose classes of `kind` are not the model's."""
    if list(classes) != task.names:
        here, there = len(classes), len(task.names)
        raise InputError(f"data {data!r}: its {here} classes of {kind} are not the model's {there}")


def check_provided(kind: type[Task], source: Source) -> None:
    """Refuse data that does not say what a task needs."""
    missing = [one for one in kind.needs if one not in source.provides]
    if missing:
        raise InputError(
            f"data {source.name}: provides {', '.join(source.provides) or 'images alone'}, task {kind.name} needs "
            f"{', '.join(missing)}"
        )


def predict_batch(model: Model, batch: Batch, precision: str = "float32") -> Any:
    """What a model gives of a batch, a tensor or a tree of them, where the model is: the one way from a batch to
    outputs.

    Args:
        batch: on the model's device.
        precision: `float32`, or `bfloat16` for the matrix products.
    """
    config = model.config
    with torch.autocast(batch.inputs.device.type, torch.bfloat16, enabled=precision == "bfloat16"):
        return model(normalize(batch.inputs, config.mean, config.std), layout=batch.layout)
