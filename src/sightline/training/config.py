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
    """An optimizer, with decay on matrices only, warm-up and a schedule.

    Attributes:
        lr: the highest learning rate.
        name: `adamw` (decoupled decay), `adam` (decay as a part of the gradient), `sgd` or `lamb` (timm's).
        betas: of the moments, (0.9, 0.99) unless given. Not of `sgd`.
        eps: beside the root of the second moment, 1e-8 unless given. Not of `sgd`.
        momentum: of `sgd` alone, 0.9 unless given.
        weight_decay: on weights with two dimensions or more that the model does not except.
        head_decay: the same of the head's weights (NaViT appendix B.1); None takes `weight_decay`.
        layer_decay: factor of the rate from each layer to the one before it (BEiT); None leaves all at `lr`.
        schedule: after the warm-up: half a `cosine`, `linear`, `rsqrt` (peak / sqrt(1 + steps / `timescale`), Zhai et
            al. 2022) or `constant`.
        warmup: over which the rate rises from 0: a fraction of the run below 1, or a whole number of steps.
        cooldown: over which the rate falls linearly to `final_lr` at the end, said as `warmup`.
        timescale: of `rsqrt` alone, in steps, 10,000 unless given.
        final_lr: what `cosine`, `linear` and a cool-down end at.
        clip: highest norm of the gradient; None does not clip.
        ema: decay of the running mean of the weights, which is then what is saved and tested; None keeps none.
        ema_warmup: the decay is at most (1 + step) / (10 + step), as TensorFlow's `ExponentialMovingAverage`, so that
            the mean of a short run is not one of its first weights. None in runs without `ema`.
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
    """A curve on `minival`, or on a test that is called `val`, while training; it changes no weight.

    Attributes:
        times: at most so often in a run, at checkpoints; seldom enough in a short one to cost little.
        images: at most so many, spread over the split.
        best: by what the best model is kept: a metric that the curve holds, the task's primary one (as `top1`) or
            `loss`; None takes the primary one.
    """

    times: Count = 10
    images: Count = 256
    best: str | None = None


@config_dataclass
class TrainConfig:
    """Everything that decides the weights that come out.

    Attributes:
        data: a data set, as `scenes`, `scenes:pairs`, `digits`, `imagefolder:DIR`, `hf:NAME`, `wds:SHARDS`.
        model: a registered model; None takes vit_micro_patch4, or what `init_from` is.
        model_options: fields of `ViTConfig`.
        init_from: what `load_model` takes: the first weights are this model's, all but those of another encoding and
            of other classes. Its preparation of images stays as it is.
        frozen: the head alone learns, on the trunk of `init_from` as it is (a probe).
        encoding: a registered position encoding, or some joined by "+".
        encoding_options: its configuration.
        resolution: side of the training images in pixels; None takes the model's.
        progressive: sides in pixels of the training images before `resolution`, rising, each for an equal part of the
            run's steps (Tan and Le 2021, EfficientNetV2, section 4.2). Not with `packing`.
        patch_sizes: of which each step draws one (each pack, with `packing`), for a model whose embedder resizes its
            kernel to them (`embedder: flexible`); `resolution` stays, and the grid changes. None: the model's own.
        frames: of each clip that are shown, for a model of clips, which takes an image as a clip of one frame; None
            takes those of `init_from`, else 8.
        frame_stride: from one frame to the next, in frames of the clip; None spreads them over it
            (`data.sizes.FrameSampling`).
        images: how many images are shown in all; 48,000 where no other length is given, and 30 epochs of folders.
        epochs: the same in passes over the data.
        tokens: the same in tokens that go through the trunk, prefix tokens too.
        flops: the same in operations of the matrix products of training (`models.flops`).
        batch_size: images a step, 32 unless given, of folders 64; a packed run has none: `packing.tokens` says how much
            a step holds.
        accumulate: parts in which a process computes its images of a step one after the other, where they are too
            many at once.
        recompute: blocks compute their activations again in the backward pass instead of keeping them.
        deterministic: kernels that give the same bits each time, where torch has them; without, a GPU may be faster,
            and a run that is repeated or resumed ends in slightly other weights.
        compile: blocks are compiled (`torch.compile`), which takes minutes at the start of a run.
        sharing: `ddp`, each process of several holds the whole model; `fsdp`, each a part of every weight, gradient and
            moment. A process that is alone holds it all.
        packing: images of every size, packed; None shows all at `resolution`.
        task: what is learnt: classification, segmentation, detection, masked_patches, or a plug-in's task.
        task_options: its configuration, as the kind of head: pix for segmentation, fcos for detection.
        loss: of classification, `bce` (summed over classes) unless given, of folders `ce`; or `bce_mean` (their mean).
            None for tasks with a loss of their own.
        label_smoothing: of classification, the share of the target spread over all classes; 0 unless given, of
            folders .1.
        parts: smallest part of a training image's area that is shown, a random one each time, or `simple` (the simple
            random crop of DeiT III), `bit` (BiT's crop) or `whole` (`data.crops.RandomResizedCrop`). Unless given, what
            is usual of the data: folders .35, drawn scenes whole.
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
        keep_last: how many checkpoints stay, the last one and those before it (`checkpoints/step-00000123`), and the
            best by validation. While a run trains, one before the last is kept in any case.
        validation: on `minival`, or on a test that is called `val`, while training, where the data has one; None leaves
            it out.
        workers: processes that make batches ahead; they do not change the result.
        skip_unreadable: images of a split that may be left out because they cannot be read, or "all".
        max_pixels: of the largest image that is read; larger ones cannot be read.
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
