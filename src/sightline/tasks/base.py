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
from sightline.distributed.ranks import Ranks
from sightline.errors import InputError
from sightline.io.config import Depends, build_config, require_effect
from sightline.models import Model, ViTConfig
from sightline.models.box_head import BoxHead
from sightline.models.head import TokenHead, head_class, head_classes, head_settings
from sightline.tasks.drawing import ColorKey
from sightline.tokens.layout import TokenLayout


@dataclass(frozen=True)
class PredictionRecord:
    """The true and the predicted class of an image by name: a line of `predictions.csv`."""

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
        joint: its loss is of all images of a step together (`joint_loss`).
        primary: name of the metric by whose first row runs are compared and the best checkpoint is chosen.
        tuned_by: what `tuning_loss` is, in words.
        Options: a `config_dataclass` of its configuration.
        config: of the model; names: of its classes.
        chance: the value of the primary metric by guessing, None where there is none.
    """

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ("label",)
    mixes: ClassVar[bool] = False
    joint: ClassVar[bool] = False
    primary: ClassVar[str]
    tuned_by: ClassVar[str] = "loss"
    chance: float | None = None
    Options: ClassVar[type]

    def __init__(self, config: ViTConfig, options: Any) -> None:
        """Raises InputError: an option has no effect with another one, or is not what the model's head is made with."""
        self.config, self.options = config, options
        self.names = list(config.class_names or map(str, range(config.num_classes)))
        head = head_settings(config)
        require_effect(options, self.depends(), head, "task_options.")
        for field in dataclasses.fields(options):
            name, value = field.name, getattr(options, field.name)
            if value is not None and name in head and value not in (field.default, head[name]):
                problem = f"task_options.{name} {value!r}: the model's head has {head[name]!r} (expected that)"
                raise InputError(problem, field=f"task_options.{name}", value=value)

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
        """The sum of the loss in float32 at least, and the number of units that it is of, perhaps on the device: the
        loss of a step is the sum of the one over all of its parts, divided by that of the other, at least 1."""

    def joint_loss(self, model: Model, outputs: Any, targets: Sequence[Mapping[str, Any]], ranks: Ranks) -> Tensor:
        """The sum of the loss over this rank's images of a step, of a task whose images depend on one another.

        Args:
            outputs: of all of this rank's parts together; targets: of each part.
        """
        raise NotImplementedError

    def tuning_loss(self, outputs: Any, targets: Mapping[str, Any], layout: TokenLayout) -> tuple[Tensor, int | Tensor]:
        """What a knob is tuned by, as `loss`."""
        return self.loss(outputs, targets, layout)

    def outputs(self, model: Model, batch: Batch, precision: str = "float32") -> Any:
        """The outputs of a model in evaluation, as `predict_batch`."""
        return predict_batch(model, batch, precision)

    @abstractmethod
    def split_outputs(self, outputs: Any, layout: TokenLayout) -> Sequence[Any]:
        """The outputs of each image by itself."""

    def decode(self, output: Any, crop: Crop) -> Any:
        """An output as an answer for the stored image; the output itself by default.

        Args:
            output: as `split_outputs`, float32.
            crop: the part of the stored image that the model was given.
        """
        return output

    def pictures(self, decoded: Any, image: np.ndarray) -> Mapping[str, Image]:
        """Pictures of an answer by the end of their file's name; none by default.

        Args:
            decoded: as `decode`; image: uint8 [height, width, 3], as it is stored.
        """
        return {}

    def comparison_images(
        self, output: Any, targets: Mapping[str, Any], number: int, image: np.ndarray
    ) -> tuple[Image, Image, Image]:
        """An image, the same with its targets, and with the model's answer; not for every task.

        Args:
            output: as `split_outputs`, of the image that has this number in the targets; image: uint8 [height, width,
                3], as the model was given it.
        """
        raise NotImplementedError

    def color_key(self) -> ColorKey:
        """What the colours of `pictures` and `comparison_images` mean."""
        return ()

    @abstractmethod
    def to_json(self, output: Any, image_size: tuple[int, int], topk: int) -> dict[str, Any]:
        """The answer for one image as JSON.

        Args:
            output: as `decode`.
            image_size: (height, width) in pixels of the image as it is stored.
            topk: how many classes or patches, where there is a choice.
        """

    def describe(self, answer: Mapping[str, Any]) -> str:
        """An answer in a line."""
        return json.dumps(answer)

    def prediction_records(self, outputs: Any, batch: Batch) -> list[PredictionRecord]:
        """For each image a line of `predictions.csv`; none where answers are no classes."""
        return []

    def results(self, outputs: Any, batch: Batch) -> list[Any]:
        """For each image what a file of results has beyond `prediction_records`: a picture, or a group of arrays; none
        by default."""
        return []

    def confidence(self, outputs: Any, batch: Batch) -> tuple[Tensor, Tensor]:
        """For each image whether the answer is right, bool, and its score, float64 from 0 to 1.

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
    kind = head_class(name)
    if issubclass(kind, BoxHead) != boxes:
        others = [other for other, one in head_classes().items() if issubclass(one, BoxHead) == boxes]
        problem = f"head {name}: gives no {'boxes' if boxes else 'maps'} (expected {', '.join(others)})"
        raise InputError(problem, field="head", value=name)
    return kind


def check_classes(task: Task, kind: str, classes: Sequence[str], data: str) -> None:
    """Refuse data whose classes of `kind` are not the model's."""
    if list(classes) != task.names:
        raise InputError(f"data {data!r}: its {len(classes)} classes of {kind} are not the model's {len(task.names)}")


def check_provided(kind: type[Task], source: Source, hint: str = "") -> None:
    """Refuse data that does not have what a task needs; `hint` ends the message."""
    missing = ", ".join(one for one in kind.needs if one not in source.provides)
    if missing:
        if missing == "label" and source.attributes:
            hint += f"; choose the class: ,label={next(iter(source.attributes))} (of {', '.join(source.attributes)})"
        provided = ", ".join(source.provides) or "images alone"
        raise InputError(f"data {source.name}: provides {provided}, task {kind.name} needs {missing}{hint}")


def predict_batch(model: Model, batch: Batch, precision: str = "float32") -> Any:
    """The outputs of a model for a batch: a tensor or a tree of them, on the model's device.

    Args:
        batch: on the model's device.
        precision: `float32`, or `bfloat16` for the matrix products.
    """
    config = model.config
    rows, texts = normalize(batch.inputs, config.mean, config.std), batch.targets.get("texts")
    with torch.autocast(batch.inputs.device.type, torch.bfloat16, enabled=precision == "bfloat16"):
        return model(rows, layout=batch.layout) if texts is None else model(rows, layout=batch.layout, texts=texts)
