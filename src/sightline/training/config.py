"""A training run in one record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sightline.checks import STRICT, require, require_bool, require_number, require_whole
from sightline.data.allowance import SkipUnreadable, check_skip
from sightline.data.image_file import MAX_PIXELS
from sightline.data.mixing import MixingConfig
from sightline.data.packs import PackingConfig
from sightline.errors import InputError
from sightline.tasks.classification import ClassificationOptions, Loss

Precision = Literal["auto", "float32", "bfloat16"]
# What the random generators of numpy and torch both take; no number of images is larger.
MAX_SEED = 2**63 - 1
DEFAULT_MODEL = "vit_micro_patch4"
# How the length of a run may be said.
BUDGETS = ("images", "epochs", "tokens", "flops")
_DECIDED_BY = {
    "name": "model",
    "encoding": "encoding",
    "encoding_options": "encoding_options",
    "image_size": "resolution",
    "table_grid": "encoding",
    "num_classes": "data",
    "class_names": "data",
    "channels": "data",
    "score_link": "loss",
    "task": "task",
    "head_options": "task_options",
}


@dataclass(frozen=True)
class OptimizerConfig:
    """AdamW with decay on matrices only, warm-up and cosine.

    Attributes:
        lr: the highest learning rate.
        betas: of the moments.
        weight_decay: on weights with two dimensions or more that the model does not except.
        warmup: fraction of the steps over which the rate rises from 0.
        clip: highest norm of the gradient; None does not clip.
        ema: decay of the running mean of the weights, which is then what is saved and tested; None keeps none.
    """

    __pydantic_config__ = STRICT

    lr: float = 1.5e-3
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.05
    warmup: float = 0.1
    clip: float | None = 1.0
    ema: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.betas, list):
            object.__setattr__(self, "betas", tuple(self.betas))
        require_number("optimizer.lr", self.lr, above=True)
        require_number("optimizer.weight_decay", self.weight_decay)
        for name, value in (("optimizer.warmup", self.warmup), *(("optimizer.betas", beta) for beta in self.betas)):
            require_number(name, value)
            if value >= 1:
                raise InputError(f"{name} {value}: expected 0 to less than 1")
        if self.clip is not None:
            require_number("optimizer.clip", self.clip, above=True)
        if self.ema is not None:
            require_number("optimizer.ema", self.ema, above=True)
            if self.ema >= 1:
                raise InputError(f"optimizer.ema {self.ema}: expected more than 0 and less than 1")


@dataclass(frozen=True)
class ValidationConfig:
    """A curve on `minival` while training; it changes no weight.

    Attributes:
        times: at most so often in a run, at checkpoints; seldom enough in a short one to cost little.
        images: at most so many, spread over the split.
    """

    __pydantic_config__ = STRICT

    times: int = 10
    images: int = 256

    def __post_init__(self) -> None:
        for name in ("times", "images"):
            require_whole(f"validation.{name}", getattr(self, name), 1)


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides the weights that come out.

    Attributes:
        data: a data set, as `scenes`, `scenes:pairs`, `digits`, `imagefolder:DIR`, `hf:NAME`, `wds:SHARDS`.
        model: a registered model; None takes vit_micro_patch4, or what `init_from` is; model_options: fields of
            `ViTConfig`.
        init_from: what `load_model` takes: the first weights are this model's, all but those of another encoding and
            of other classes. Its preparation of images stays as it is.
        frozen: the head alone learns, on the trunk of `init_from` as it is (a probe).
        encoding: a registered position encoding, or some joined by "+"; encoding_options: its configuration.
        resolution: side of the training images in pixels; None takes the model's.
        images: how many images are shown in all; epochs: the same in passes over the data; tokens: how many go
            through the trunk, prefix tokens too; flops: how many operations the matrix products of training take
            (`analysis.flops`). One of them, or none for 48,000 images.
        batch_size: images a step; with `packing`, its `tokens` say instead.
        packing: images of every size, packed; None shows all at `resolution`.
        task: what is learnt: a file in `tasks/`, or a plug-in; task_options: its configuration.
        loss: `bce` (summed over classes) or `ce`; label_smoothing: share of the target spread over all classes.
        parts: smallest part of a training image's area that is shown, a random one each time; None leaves that to the
            data: folders .35, drawn scenes whole.
        mixing: mixup and CutMix; None mixes nothing (as NaViT).
        optimizer: of the weights.
        precision: of the matrix products; `auto` is bfloat16 where this machine is faster with it.
        seed: of the first weights, the order of the images and their augmentation.
        checkpoint_every: images between checkpoints; None saves twenty times in a run.
        validation: on `minival` while training, where the data has it; None leaves it out.
        workers: processes that make batches ahead; they do not change the result.
        skip_unreadable: images of a split that may be left out because they cannot be read, or "all".
        max_pixels: of the largest image that is read; larger ones cannot be read.
    """

    __pydantic_config__ = STRICT

    data: str = "scenes"
    model: str | None = None
    init_from: str | None = None
    frozen: bool = False
    model_options: dict[str, Any] = field(default_factory=dict)
    encoding: str = "lookhere_90"
    encoding_options: dict[str, Any] = field(default_factory=dict)
    resolution: int | None = None
    images: int | None = None
    epochs: float | None = None
    tokens: int | None = None
    flops: float | None = None
    batch_size: int = 32
    packing: PackingConfig | None = None
    task: str = "classification"
    task_options: dict[str, Any] = field(default_factory=dict)
    loss: Loss = "bce"
    label_smoothing: float = 0.0
    parts: float | None = None
    mixing: MixingConfig | None = None
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    precision: Precision = "auto"
    seed: int = 0
    checkpoint_every: int | None = None
    validation: ValidationConfig | None = field(default_factory=ValidationConfig)
    workers: int = 0
    skip_unreadable: SkipUnreadable = 0
    max_pixels: int = MAX_PIXELS

    def __post_init__(self) -> None:
        for names in (BUDGETS, ("model", "init_from")):
            given = [f"{name} {getattr(self, name)}" for name in names if getattr(self, name) is not None]
            if len(given) > 1:
                raise InputError(f"{given[0]} and {given[1]}: expected one of them, not both")
        require_bool("frozen", self.frozen)
        if self.frozen and self.init_from is None:
            raise InputError("frozen true: keeps the trunk that a run begins with (expected init_from)")
        for name, low in (("batch_size", 1), ("seed", 0), ("workers", 0), ("max_pixels", 1)):
            require_whole(name, getattr(self, name), low, MAX_SEED)
        check_skip(self.skip_unreadable)
        for name in ("resolution", "images", "tokens", "checkpoint_every"):
            if getattr(self, name) is not None:
                require_whole(name, getattr(self, name), 1, MAX_SEED)
        for name, high in (("epochs", None), ("flops", None), ("parts", 1)):
            if getattr(self, name) is not None:
                require_number(name, getattr(self, name), above=True, high=high)
        ClassificationOptions(self.loss, self.label_smoothing)
        require("precision", self.precision, ("auto", "float32", "bfloat16"))
        for key, instead in _DECIDED_BY.items():
            if key in self.model_options:
                raise InputError(f"model_options.{key}: is decided by {instead!r} of the run")


def renamed(saved: Mapping[str, Any]) -> dict[str, Any]:
    """A saved configuration with the names of today: `max_unreadable` was what `skip_unreadable` is."""
    return {"skip_unreadable" if key == "max_unreadable" else key: value for key, value in saved.items()}
