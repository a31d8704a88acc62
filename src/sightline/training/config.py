"""A training run in one record."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, Literal

from sightline.data.augmenting import make_augmentations
from sightline.data.config import MixingConfig, PackingConfig, PatchSizes, SkipUnreadable
from sightline.data.frames import MOST_FRAMES
from sightline.data.image_file import MAX_PIXELS
from sightline.data.transforms import INTERPOLATIONS, SIMPLE, Parts
from sightline.errors import InputError
from sightline.io.checks import STRICT, require, require_bool, require_number, require_whole
from sightline.io.config import check_value
from sightline.tasks.classification import ClassificationOptions, Loss
from sightline.training.optimizer_config import OptimizerConfig

Precision = Literal["auto", "float32", "bfloat16"]
# How several processes hold a model: each all of it, or each a part (torch's names).
Sharing = Literal["ddp", "fsdp"]
# What the random generators of numpy and torch both take; no number of images is larger.
MAX_SEED = 2**63 - 1
DEFAULT_MODEL, DEFAULT_BATCH_SIZE = "vit_micro_patch4", 32
DEFAULT_LOSS: Loss = "bce"
# Parts of a step; each is a batch, if an empty one.
_MOST_PARTS = 1 << 16
# How the length of a run may be said.
BUDGETS = ("images", "epochs", "tokens", "flops")
_DECIDED_BY = {
    "name": "model",
    "encoding": "encoding",
    "encoding_options": "encoding_options",
    "image_size": "resolution",
    "clip_frames": "frames",
    "table_grid": "encoding",
    "num_classes": "data",
    "class_names": "data",
    "channels": "data",
    "score_link": "loss",
    "task": "task",
    "head_options": "task_options",
}


@dataclass(frozen=True)
class ValidationConfig:
    """A curve on `minival` while training; it changes no weight.

    Attributes:
        times: at most so often in a run, at checkpoints; seldom enough in a short one to cost little.
        images: at most so many, spread over the split.
        best: by what the best model is kept: a metric that the curve holds, the task's primary one (as `top1`) or
            `loss`; None takes the primary one.
    """

    __pydantic_config__ = STRICT

    times: int = 10
    images: int = 256
    best: str | None = None

    def __post_init__(self) -> None:
        for name in ("times", "images"):
            require_whole(f"validation.{name}", getattr(self, name), 1)
        if self.best is not None and not isinstance(self.best, str):
            raise InputError(f"validation.best {self.best!r}: expected the name of a metric")


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
        progressive: sides in pixels of the training images before `resolution`, rising, each for an equal part of the
            run's steps (Tan and Le 2021, EfficientNetV2, section 4.2). Not with `packing`.
        patch_sizes: of which each step draws one (each pack, with `packing`), for a model whose embedder resizes its
            kernel to them (`embedder: flexible`); `resolution` stays, and the grid changes. None: the model's own.
        frames: of each clip that are shown; None takes those of `init_from`, else 8; of a model of clips alone, which
            takes an image as a clip of one frame. frame_stride: from one to the next, in frames of the clip; None
            spreads them over it (`data.frames.FrameSampling`).
        images: how many images are shown in all; epochs: the same in passes over the data; tokens: how many go
            through the trunk, prefix tokens too; flops: how many operations the matrix products of training take
            (`analysis.flops`). One of them, or none for 48,000 images.
        batch_size: images a step, 32 unless given; a packed run has none: `packing.tokens` says how much a step holds.
        accumulate: parts in which a process computes its images of a step one after the other, where they are too
            many at once.
        recompute: blocks compute their activations again in the backward pass instead of keeping them.
        compile: blocks are compiled (`torch.compile`), which takes minutes at the start of a run.
        sharing: `ddp`, each process of several holds the whole model; `fsdp`, each a part of every weight, gradient and
            moment. A process that is alone holds it all.
        packing: images of every size, packed; None shows all at `resolution`.
        task: what is learnt: a file in `tasks/`, or a plug-in; task_options: its configuration.
        loss: of classification, `bce` (summed over classes) unless given, or `ce`; label_smoothing: share of the target
            spread over all classes, 0 unless given. None for tasks with a loss of their own.
        parts: smallest part of a training image's area that is shown, a random one each time, or `simple`: the simple
            random crop of DeiT III. Unless given, what is usual of the data: folders .35, drawn scenes whole.
        flip: how often a training image is mirrored left-right, from 0 to 1. Unless given, what is usual of the data:
            stored images .5, drawn scenes 0. Give 0 where left and right, or glyphs, are what is to be learnt.
        interpolation: the filter by which training images are resized: bicubic, bilinear, lanczos, box, hamming or
            nearest. Unless given, what is usual of the data: stored images bicubic, drawn scenes bilinear.
        augment: files in `data/augmentations/`, or plug-ins, by name with their options: what is done to each training
            image, in this order, before it is mixed.
        repeats: how many times in a row an image is shown, augmented anew each time (repeated augmentation); a pass
            shows as many images in all, so fewer different ones. Not with `packing`.
        mixing: mixup and CutMix; None mixes nothing (as NaViT).
        optimizer: of the weights.
        precision: of the matrix products; `auto` is bfloat16 where this machine is faster with it.
        seed: of the first weights, the order of the images and their augmentation.
        checkpoint_every: images between checkpoints; None saves twenty times in a run, or `validation.times` where that
            is more.
        keep_last: how many checkpoints stay, the last one and those before it (`checkpoint.step-00000123`). While a run
            trains, one before the last is kept in any case.
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
    progressive: tuple[int, ...] = ()
    patch_sizes: PatchSizes | None = None
    frames: int | None = None
    frame_stride: int | None = None
    images: int | None = None
    epochs: float | None = None
    tokens: int | None = None
    flops: float | None = None
    batch_size: int | None = None
    accumulate: int = 1
    recompute: bool = False
    compile: bool = False
    sharing: Sharing = "ddp"
    packing: PackingConfig | None = None
    task: str = "classification"
    task_options: dict[str, Any] = field(default_factory=dict)
    loss: Loss | None = None
    label_smoothing: float | None = None
    parts: Parts | None = None
    flip: float | None = None
    interpolation: str | None = None
    augment: dict[str, dict[str, Any]] = field(default_factory=dict)
    repeats: int = 1
    mixing: MixingConfig | None = None
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    precision: Precision = "auto"
    seed: int = 0
    checkpoint_every: int | None = None
    keep_last: int = 1
    validation: ValidationConfig | None = field(default_factory=ValidationConfig)
    workers: int = 0
    skip_unreadable: SkipUnreadable = 0
    max_pixels: int = MAX_PIXELS

    @property
    def checkpoints(self) -> int:
        """How many a run saves where `checkpoint_every` does not say: it is validated at checkpoints alone."""
        return max(20, 0 if self.validation is None else self.validation.times)

    def __post_init__(self) -> None:
        for names in (BUDGETS, ("model", "init_from")):
            given = [f"{name} {getattr(self, name)}" for name in names if getattr(self, name) is not None]
            if len(given) > 1:
                raise InputError(f"{given[0]} and {given[1]}: expected one of them, not both")
        for name in ("frozen", "recompute", "compile"):
            require_bool(name, getattr(self, name))
        if self.frozen and self.init_from is None:
            raise InputError("frozen true: keeps the trunk that a run begins with (expected init_from)")
        whole = ("keep_last", "max_pixels")
        for name, low in (*((name, 1) for name in whole), ("seed", 0), ("workers", 0)):
            require_whole(name, getattr(self, name), low, MAX_SEED)
        require_whole("accumulate", self.accumulate, 1, _MOST_PARTS)
        if self.batch_size is not None:
            require_whole("batch_size", self.batch_size, 1, MAX_SEED)
        if self.packing is None and self.accumulate > (size := self.batch_size or DEFAULT_BATCH_SIZE):
            raise InputError(f"accumulate {self.accumulate}: more parts than the {size} images of a step (batch_size)")
        require_whole("repeats", self.repeats, 1, 1000)
        if self.repeats > 1 and self.packing is not None:
            raise InputError(f"repeats {self.repeats}: packs show each image of a pass once (expected 1)")
        for side in self.progressive:
            require_whole("progressive", side, 1, MAX_SEED)
        if any(one >= other for one, other in itertools.pairwise(self.progressive)):
            rising = sorted(set(self.progressive))
            raise InputError(f"progressive {list(self.progressive)}: expected sides that rise, as {rising}")
        if self.progressive and self.packing is not None:
            raise InputError(
                f"progressive {list(self.progressive)}: packs draw their own sizes (expected none, and "
                "packing.resolutions)"
            )
        check_value("skip_unreadable", self.skip_unreadable, SkipUnreadable)
        for name in ("frames", "frame_stride"):
            if getattr(self, name) is not None:
                require_whole(name, getattr(self, name), 1, MOST_FRAMES)
        for name in ("resolution", "images", "tokens", "checkpoint_every"):
            if getattr(self, name) is not None:
                require_whole(name, getattr(self, name), 1, MAX_SEED)
        if isinstance(self.parts, str):
            require("parts", self.parts, (SIMPLE,))
        elif self.parts is not None:
            require_number("parts", self.parts, above=True, high=1)
        for name in ("epochs", "flops"):
            if getattr(self, name) is not None:
                require_number(name, getattr(self, name), above=True)
        make_augmentations(self.augment)
        ClassificationOptions(self.loss or DEFAULT_LOSS, self.label_smoothing or 0.0)
        for name in ("loss", "label_smoothing"):
            if name in self.task_options:
                raise InputError(f"task_options.{name}: is decided by {name!r} of the run")
        if self.flip is not None:
            require_number("flip", self.flip, high=1)
        if self.interpolation is not None:
            require("interpolation", self.interpolation, INTERPOLATIONS)
        require("precision", self.precision, ("auto", "float32", "bfloat16"))
        require("sharing", self.sharing, ("ddp", "fsdp"))
        for key, instead in _DECIDED_BY.items():
            if key in self.model_options:
                raise InputError(f"model_options.{key}: is decided by {instead!r} of the run")
