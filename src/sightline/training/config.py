"""A training run in one record, with its optimizer and its validation."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated, Any, Literal, NoReturn

from pydantic import BeforeValidator, Field

from sightline.data.augmentations import make_augmentations
from sightline.data.config import Interpolation, MixingConfig, PackingConfig, PatchSizes, SkipUnreadable
from sightline.data.image_file import MAX_PIXELS
from sightline.data.sizes import Frames
from sightline.errors import InputError
from sightline.io.config import (
    Count,
    Fraction,
    NonNegative,
    Positive,
    PositiveShare,
    Precision,
    Share,
    config_dataclass,
    require_effect,
)

# How several processes hold a model: each all of it, or each a part (torch's names).
Sharing = Literal["ddp", "fsdp"]
# What the random generators of numpy and torch both take; no number of images is larger.
MAX_SEED = 2**63 - 1
DEFAULT_MODEL, DEFAULT_BATCH_SIZE = "vit_micro_patch4", 32
DEFAULT_LOSS: Literal["bce", "bce_mean", "ce"] = "bce"
# How the length of a run may be said.
BUDGETS = ("images", "epochs", "tokens", "flops")
_MOMENTS = ("name", ("adamw", "adam", "lamb"))
_DEPENDS = {"betas": _MOMENTS, "eps": _MOMENTS, "momentum": ("name", ("sgd",)), "timescale": ("schedule", ("rsqrt",))}
_DEFAULTS = {"betas": (0.9, 0.99), "eps": 1e-8, "momentum": 0.9, "timescale": 10_000.0}
_LOSS = {"loss": "loss", "label_smoothing": "label_smoothing"}
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


def _whole(value: Any) -> Any:
    # 1.0 may mean all of the run or one step: it is neither.
    return int(value) if isinstance(value, float) and value > 1 and value.is_integer() else value


Whole = Annotated[int, Field(ge=1, le=MAX_SEED)]
Decay = Annotated[float, Field(gt=0, lt=1)]
Span = Annotated[Fraction | Count, BeforeValidator(_whole)]
"""A fraction of a run below 1, or a whole number of steps."""


@config_dataclass
class OptimizerConfig:
    """An optimizer, with weight decay on matrices only, warm-up and a schedule.

    Attributes:
        lr: The highest learning rate.
        name: Optimizer: `adamw` (decoupled weight decay), `adam` (decay as a part of the gradient), `sgd` or `lamb`
            (timm's).
        betas: Betas of the moments, not for `sgd`. Default: (0.9, 0.99).
        eps: Added to the root of the second moment, not for `sgd`. Default: 1e-8.
        momentum: Momentum of `sgd`. Default: 0.9.
        weight_decay: Weight decay of weights with two or more dimensions, except those in `no_weight_decay()` of the
            model.
        head_decay: Weight decay of the head (NaViT appendix B.1). Default: `weight_decay`.
        layer_decay: Factor of the learning rate from each layer to the one before it (BEiT); None takes `lr` for all
            layers.
        schedule: Schedule after the warm-up: `cosine` (half a period), `linear`, `rsqrt` (peak / sqrt(1 + steps /
            `timescale`), Zhai et al. 2022) or `constant`.
        warmup: Length of the linear rise of the rate from 0: a fraction of the run below 1, or a whole number of steps.
        cooldown: Length of a linear fall to `final_lr` at the end, in the units of `warmup`.
        timescale: Steps in the formula of `rsqrt`. Default: 10,000.
        final_lr: Last learning rate of `cosine`, `linear` and a cool-down.
        clip: Largest norm of the gradient; None does not clip.
        ema: Decay of an exponential moving average of the weights, which is then saved and tested; None keeps none.
        ema_warmup: Limit the decay to (1 + step) / (10 + step), as TensorFlow's `ExponentialMovingAverage`, so that the
            average of a short run does not keep its first weights. None in runs without `ema`.
    """

    lr: Positive = 1.5e-3
    name: Literal["adamw", "adam", "sgd", "lamb"] = "adamw"
    betas: tuple[Fraction, Fraction] | None = None
    eps: Positive | None = None
    momentum: Fraction | None = None
    weight_decay: NonNegative = 0.05
    head_decay: NonNegative | None = None
    layer_decay: Decay | None = None
    schedule: Literal["cosine", "linear", "rsqrt", "constant"] = "cosine"
    warmup: Span = 0.1
    cooldown: Span = 0.0
    timescale: Positive | None = None
    final_lr: NonNegative = 0.0
    clip: Positive | None = 1.0
    ema: Decay | None = None
    ema_warmup: bool | None = True

    def __post_init__(self) -> None:
        for name in require_effect(self, _DEPENDS):
            if getattr(self, name) is None:
                object.__setattr__(self, name, _DEFAULTS[name])
        if self.final_lr and self.schedule in ("constant", "rsqrt") and not self.cooldown:
            said = f"final_lr {self.final_lr}: has no effect with {self.schedule} (expected a cooldown)"
            raise InputError(said, field="final_lr", value=self.final_lr)


@config_dataclass
class ValidationConfig:
    """Validation during training on `minival`, or on a test split called `val`; it changes no weight.

    Attributes:
        times: Most validations in a run, each at a checkpoint; short runs have fewer, so that they cost little.
        images: Most images of a validation, spread over the split.
        best: Criterion of the best checkpoint: a metric of the validation (for example `top1`) or `loss`. Default: the
            task's primary metric.
    """

    times: Count = 10
    images: Count = 256
    best: str | None = None


@config_dataclass
class TrainConfig:
    """Everything that decides the trained weights.

    Attributes:
        data: A data set: `scenes`, `scenes:pairs`, `digits`, `imagefolder:DIR`, `hf:NAME`, `wds:SHARDS`, ...
        model: A registered model. Default: vit_micro_patch4, or the model of `init_from`.
        model_options: Fields of `ViTConfig`.
        init_from: Start from the weights of this model (as `load_model` takes it), except those of another encoding or
            of other classes. Its preparation of images is kept.
        frozen: Train only the head, on the frozen trunk of `init_from` (a probe).
        encoding: A registered position encoding, or several joined by "+".
        encoding_options: Options of the encoding.
        resolution: Side of the training images in pixels. Default: the model's.
        progressive: Rising sides of the training images in pixels before `resolution`; each has an equal part of the
            steps (Tan and Le 2021, EfficientNetV2, section 4.2). Not with `packing`.
        patch_sizes: Patch sizes of which each step draws one (each pack, with `packing`), for a model whose embedder
            resizes its kernel (`embedder: flexible`). `resolution` stays, and the grid changes. Default: only the
            model's own patch size.
        frames: Frames shown of each clip, for models of clips; an image is a clip of one frame. Default: as
            `init_from`, else 8.
        frame_stride: Distance between the frames, in frames of the clip. Default: they are spread over the clip
            (`data.sizes.FrameSampling`).
        images: Length of the run in images. Default, if no length is given: 48,000 images; for folders 30 epochs.
        epochs: Length of the run in passes over the data.
        tokens: Length of the run in tokens, prefix tokens included.
        flops: Length of the run in FLOPs of matrix products (`models.flops`).
        batch_size: Images per step. Default: 32, for folders 64. Not with `packing`: use `packing.tokens`.
        accumulate: Parts into which a process divides its images of a step, to save memory.
        recompute: Compute the activations of a block again in the backward pass instead of keeping them.
        deterministic: Use deterministic kernels, if torch has them. Without them a GPU may be faster, and a run that is
            repeated or resumed ends with slightly different weights.
        compile: Compile the blocks (`torch.compile`), which takes minutes at the start of a run.
        sharing: With several processes: `ddp` (each holds the whole model) or `fsdp` (each holds a part of every
            weight, gradient and moment).
        packing: Packing of images of many sizes; None shows all images at `resolution`.
        task: Task: classification, segmentation, detection, masked_patches, contrastive, or one of a plug-in.
        task_options: Options of the task, for example `head`. Default heads: pix for segmentation, fcos for detection.
        loss: Loss of classification: `bce` (summed over classes), `bce_mean` (their mean) or `ce`. Default: `bce`, for
            folders `ce`. None for tasks with a loss of their own.
        label_smoothing: Share of the target spread over all classes, for classification. Default: 0, for folders .1.
        parts: Random crop of training images: the smallest share of the area, or `simple` (DeiT III's crop), `bit`
            (BiT's crop) or `whole` (`data.crops.RandomResizedCrop`). Default: for folders .35, for drawn scenes whole.
        flip: Chance of mirroring a training image left-right, from 0 to 1. Default: for stored images .5, for drawn
            scenes 0. Use 0 if classes depend on left and right, as glyphs do.
        interpolation: Filter that resizes training images: bicubic, bilinear, lanczos, box, hamming or nearest.
            Default: for stored images bicubic, for drawn scenes bilinear.
        augment: Augmentations of each training image, applied in this order before mixing: names of files in
            `data/augmentations/`, or plug-ins, with their options.
        repeats: Times that an image is shown in a row, each time augmented anew (repeated augmentation). A pass shows
            as many images in total, so fewer different ones. Not with `packing`.
        mixing: Mixup and CutMix; None mixes nothing (as NaViT).
        optimizer: Optimizer and schedule.
        precision: Precision of the matrix products; `auto` is bfloat16 if this machine is faster with it.
        seed: Seed of the initial weights, the order of the images and their augmentation.
        checkpoint_every: Images between checkpoints. Default: 20 checkpoints in a run, or `validation.times` if that is
            more.
        keep_last: How many of the last checkpoints to keep (`checkpoints/step-00000123`); the best by validation is
            kept too. During training, the one before the last is always kept.
        validation: Validation on `minival`, or on a test split called `val`, if the data has one; None turns it off.
        workers: Processes that load batches; they do not change the result.
        skip_unreadable: How many unreadable images of a split may be left out, or "all".
        max_pixels: Most pixels of an image; larger images are unreadable.
    """

    data: str = "scenes"
    model: str | None = None
    init_from: str | None = None
    frozen: bool = False
    model_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    encoding: str = "lookhere_90"
    encoding_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    resolution: Whole | None = None
    progressive: tuple[Whole, ...] = ()
    patch_sizes: PatchSizes | None = None
    frames: Frames | None = None
    frame_stride: Frames | None = None
    images: Whole | None = None
    epochs: Positive | None = None
    tokens: Whole | None = None
    flops: Positive | None = None
    batch_size: Whole | None = None
    # Each is a batch, if an empty one.
    accumulate: Annotated[int, Field(ge=1, le=1 << 16)] = 1
    recompute: bool = False
    compile: bool = False
    deterministic: bool = True
    sharing: Sharing = "ddp"
    packing: PackingConfig | None = None
    task: str = "classification"
    task_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    loss: Literal["bce", "bce_mean", "ce"] | None = None
    label_smoothing: Fraction | None = None
    parts: PositiveShare | Literal["simple", "bit", "whole"] | None = None
    flip: Share | None = None
    interpolation: Interpolation | None = None
    augment: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    repeats: Annotated[int, Field(ge=1, le=1000)] = 1
    mixing: MixingConfig | None = None
    optimizer: OptimizerConfig = dataclasses.field(default_factory=OptimizerConfig)
    precision: Precision = "auto"
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] = 0
    checkpoint_every: Whole | None = None
    keep_last: Whole = 1
    validation: ValidationConfig | None = dataclasses.field(default_factory=ValidationConfig)
    workers: Annotated[int, Field(ge=0, le=MAX_SEED)] = 0
    skip_unreadable: SkipUnreadable = 0
    max_pixels: Whole = MAX_PIXELS

    @property
    def checkpoints(self) -> int:
        """How many a run saves where `checkpoint_every` does not say: it is validated at checkpoints alone."""
        return max(20, 0 if self.validation is None else self.validation.times)

    @property
    def dynamic_shapes(self) -> bool:
        """Whether compiled blocks meet so many lengths that these are symbols: packs that are not padded."""
        return self.packing is not None and self.packing.padded is None

    def __post_init__(self) -> None:
        for names in (BUDGETS, ("model", "init_from")):
            given = [name for name in names if getattr(self, name) is not None]
            if len(given) > 1:
                said = " and ".join(f"{name} {getattr(self, name)}" for name in given[:2])
                raise InputError(
                    f"{said}: expected one of them, not both", field=given[0], value=getattr(self, given[0])
                )
        packed, size, rising = self.packing is not None, self.batch_size or DEFAULT_BATCH_SIZE, list(self.progressive)
        if self.frozen and self.init_from is None:
            self._refuse("frozen", "keeps the trunk that a run begins with (expected init_from)")
        if not packed and self.accumulate > size:
            self._refuse("accumulate", f"more parts than the {size} images of a step (batch_size)")
        if self.repeats > 1 and packed:
            self._refuse("repeats", "packs show each image of a pass once (expected 1)")
        if rising != sorted(set(rising)):
            self._refuse("progressive", f"expected sides that rise, as {sorted(set(rising))}")
        if rising and packed:
            self._refuse("progressive", "packs draw their own sizes (expected none, and packing.resolutions)")
        make_augmentations(self.augment)
        for group, decided in (("task_options", _LOSS), ("model_options", _DECIDED_BY)):
            for key in (key for key in decided if key in getattr(self, group)):
                field = f"{group}.{key}"
                raise InputError(f"{field}: is decided by {decided[key]!r} of the run", field=field)

    def _refuse(self, name: str, said: str) -> NoReturn:
        value = getattr(self, name)
        raise InputError(f"{name} {json.dumps(value)}: {said}", field=name, value=value)
