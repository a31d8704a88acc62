"""Options that several commands take, and what is asked of a run: each becomes options of a command line."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter, convert

from sightline.errors import InputError, require_known

if TYPE_CHECKING:
    from cyclopts import Token


def convert_strictly(kind: type, tokens: Sequence[Token]) -> Any:
    """As cyclopts does, but a fraction is no whole number: its own rule rounds 1.5."""
    if kind is int and "." in tokens[0].value:
        raise ValueError(f'"{tokens[0].value}" is no whole number (int)')
    return convert(kind, tokens)


def _whole(_: object, tokens: Sequence[Token]) -> int:
    return convert_strictly(int, tokens)


def _skip(_: object, tokens: Sequence[Token]) -> int | Literal["all"]:
    from sightline.data.config import SkipUnreadable as Skip
    from sightline.io.config import check_value

    word = tokens[0].value
    number = int(word) if word.removeprefix("-").isdecimal() and word.isascii() and len(word) < 20 else word
    return check_value("--skip-unreadable", number, Skip)


def _pixels(_: object, tokens: Sequence[Token]) -> int:
    from sightline.io.config import Count, check_value

    pixels = convert_strictly(int, tokens)
    check_value("--max-pixels", pixels, Count)
    return pixels


def _mapping(_: object, tokens: Sequence[Token]) -> Any:
    from sightline.io.yaml import parse_yaml

    said = f"{tokens[0].keyword} {tokens[0].value}"
    if not isinstance(value := parse_yaml(tokens[0].value, said), dict):
        raise InputError(f"{said}: expected {tokens[0].keyword}.NAME VALUE")
    return value


def recognised(_: object, tokens: Sequence[Token]) -> str:
    """A data set as it is given, or by the layout of a folder."""
    from sightline.data.open import recognise_layout

    spec = recognise_layout(tokens[0].value)
    if spec != tokens[0].value:
        labels = " (no labels; folders DIR/train/CLASS would give them)" if spec.startswith("images:") else ""
        print(f"{tokens[0].value}: recognised by its layout as {spec}{labels}", file=sys.stderr)
    return spec


_SKIP = Parameter(
    help="Images of a split that may be left out because they cannot be read: a number, or all.",
    allow_leading_hyphen=True,
    converter=_skip,
)
SkipUnreadable = Annotated[int | Literal["all"], _SKIP]
SkipAsTrained = Annotated[int | Literal["all"] | None, _SKIP]
MaxPixels = Annotated[
    int | None,
    Parameter(
        help="Width times height of the largest image that is read; as in training, else 89478485, unless given.",
        converter=_pixels,
    ),
]
RunOrModel = Annotated[Path, Parameter(help="The folder of a run or of a model.")]
AnyModel = Annotated[Path, Parameter(help="The folder of a run or of a model, hf-hub:OWNER/NAME, or timm:NAME.")]
Data = Annotated[str, Parameter(converter=recognised)]
AnyData = Annotated[str | None, Parameter(converter=recognised)]
DataToMeasure = Annotated[AnyData, Parameter(help="The data set; the one that it was trained on unless given.")]
PatchSize = Annotated[
    int | None,
    Parameter(
        help="Side of the patches in pixels, instead of the model's own: its patch embedding is resized "
        "(docs/reference/models.md). Must divide the model's images.",
        converter=_whole,
    ),
]
MostImages = Annotated[
    int | None,
    Parameter(
        help="At most this many of a split, spread over it; 2000 of an embedded one unless given.", converter=_whole
    ),
]
Switch = Annotated[bool, Parameter(show_default=False)]
KeyOptions = Annotated[dict[str, Any] | None, Parameter(converter=_mapping, accepts_keys=True)]
"""Options of options: `--task-options.threshold .1`, as many as wanted."""
Words = Annotated[tuple[str, ...], Parameter(consume_multiple=True, show_default=False)]
Specs = Annotated[tuple[str, ...], Parameter(show_default=False)]
"""Several of what may have commas in it, each after the option's name."""
Device = Annotated[str, Parameter(help="auto, cpu, cuda, cuda:1, mps.")]
Int = Annotated[int, Parameter(converter=_whole)]
Whole = Annotated[int | None, Parameter(converter=_whole)]
"""A whole number in a group of options, which does not take the converter of all."""
Threads = Annotated[
    int | None, Parameter(help="Processor threads; $OMP_NUM_THREADS or one a core unless given.", converter=_whole)
]
Precision = Annotated[str, Parameter(help="auto, float32 or bfloat16.")]
JsonObject = Annotated[bool, Parameter(show_default=False, help="Print a JSON object instead.")]
Json = Annotated[bool, Parameter(show_default=False, help="Print a JSON object a line instead of tables.")]

Workers = Annotated[int, Parameter(help="Processes that read images ahead.", converter=_whole)]


def changed(options: Any, changes: Mapping[str, Any]) -> Any:
    """A class of options with others in their place, as a person gives them in Python: paths may be strings.

    Raises:
        InputError: there is no such option; names the nearest.
    """
    from sightline.runs.sizes import split_words

    names = [one.name for one in fields(options)]
    for name in changes:
        require_known("option", name, names)
    kinds = {one.name: str(one.type) for one in fields(options)}

    def plain(name: str, value: Any) -> Any:
        if "Path" in kinds[name]:
            return Path(value) if isinstance(value, str) else value
        if kinds[name] == "Words":
            return tuple(split_words(value))
        return (value,) if kinds[name] == "Specs" and isinstance(value, str) else value

    return replace(options, **{name: plain(name, value) for name, value in changes.items()})


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class OpenOptions:
    """How a model is opened, and which images of its data may be read.

    Attributes:
        no_pretrained: With random weights instead of those that timm:NAME has published.
        num_classes: Of the head of timm:NAME.
        weights: A file with the state dict of timm:NAME.
    """

    patch_size: PatchSize = None
    skip_unreadable: SkipAsTrained = None
    max_pixels: MaxPixels = None
    no_pretrained: Switch = False
    num_classes: Whole = None
    weights: Path | None = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """What is measured of a model, and where it is written.

    Attributes:
        resolutions: Square sides in pixels, as 20,32,64; and images at their own aspect: native, each at its own size
            with at most 1024 patches, max:PATCHES with another limit, tokens:PATCHES scaled to so many; 64:1024 are
            sides half an octave apart. 0.625 to 2 times the training size unless given, and as it was trained where
            that was at native aspect; of suites the training size.
        frames: Frames of each clip to show a model of clips, as 4,8,16, each at every resolution; as in training unless
            given. What was said of each clip is kept of the first of them that is the training's, or of the first.
        split: Splits to measure; test, and held-out fonts where the data has them, unless given.
        no_shrink: Leave out the images shrunk to the training size, which are measured too at each larger one.
        tune: Also search the encoding's parameter, and how its tables are resized, on minival at each resolution.
        tune_images: Images of minival for that search.
        measures: What is measured of the model beside its answers (docs/reference/metrics.md), as fgsm,speed.
        temperature: Also measure minival at each resolution, and fit on it the temperature that a classifier's logits
            are divided by: nll, brier and ece after it are rows of their own.
        temperature_images: Images of minival for that.
        task_options: Options of the task, as --task-options.threshold 0.1 (which boxes count) and
            --task-options.inference.kind segmenter with .window 512, .stride 341, .scales [0.75,1,1.25], .flip true
            (how images are looked at).
        out: A folder for the rows, and what was said of each image: predictions.csv, of detection COCO's results and of
            segmentation index PNGs in predictions/. The folder of the run unless given, whose predictions.csv is of
            the data of its training.
        logits: Keep the logits of each image too, a file for each measurement of a classifier in logits/ (.npz):
            sightline rescore DIR/logits measures them again with no model.
        overwrite: Replace rows of another model or data set in --out, rows of more images, and logits of other options.
        suite: Test sets, as imagenet:ROOT, scenes, objectnet:ROOT or any data set (docs/how-to/suites.md), instead of
            the data of the training or beside --data; may be given several times.
        preparation: How a suite's images are prepared: model (its own crop and filter, unless given), paper (LookHere),
            navit, navit_vit_baseline.
    """

    resolutions: Words = ()
    frames: Words = ()
    split: Words = ()
    images: MostImages = None
    no_shrink: Switch = False
    tune: Switch = False
    tune_images: Int = 500
    measures: Words = ()
    temperature: Switch = False
    temperature_images: Int = 1000
    task_options: KeyOptions = None
    precision: Precision = "auto"
    out: Path | None = None
    logits: Switch = False
    overwrite: Switch = False
    workers: Workers = 0
    suite: Specs = ()
    preparation: str | None = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PredictOptions:
    """How images are shown to a model, what it says of them, and where that goes.

    Attributes:
        resolution: native keeps each image's own aspect ratio and size, scaled down where it has more than 1024
            patches; max:PATCHES is native with another limit; tokens:PATCHES scales up too, to as many patches as the
            aspect allows; a side or height x width in pixels resizes and crops to it (answers say width x height).
        topk: How many classes to name.
        labels: Words to choose from, as "a dog,a cat"; for models that read texts. Each is read as it stands.
        frames: Frames of a clip that a model of clips sees at most, spread over it; as in its training unless given. It
            takes GIF and WebP files and folders of frames; a still is a clip of one frame.
        precision: auto, float32 or bfloat16, of the matrix products; auto is bfloat16 where this machine is faster with
            it, as in evaluate. Each answer names it.
        out: A new folder for what the task draws of each image (labels with a palette, an overlay), and a sheet.
        predictions: A file for the answers, a JSON object a line. Stopped or killed, the same command goes on where it
            was; several processes (torchrun) share the images.
        overwrite: Replace what is in --out, or --predictions.
    """

    resolution: str = "native"
    topk: Int = 5
    labels: Specs = ()
    frames: Whole = None
    precision: str = "auto"
    out: Path | None = None
    predictions: Path | None = None
    overwrite: Switch = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AnalyseOptions:
    """What is looked at inside models.

    Attributes:
        data: Images are drawn, or resized, at each size; what all of the models were trained on unless given, where it
            is the same, else the embedded scenes.
        split: Of the data; test unless given.
        resolutions: Sides in pixels, HEIGHTxWIDTH, or native (each image at its own, with at most 1024 patches), as
            32,64,96x192; the size of the model and twice that unless given.
        images: How many of the split; unless given what takes about a minute of one core, from 4 to 32.
        measures: As attention_distance,entropy; all that fit the models and the data unless given, but for those that
            take many passes or give very large arrays.
        options: Options of measures, as --options.attention_maps.query [0.25,0.75] (docs/reference/analysis.md).
        out: The folder; RUN/analysis of one run, else analysis, unless given.
        overwrite: Replace it if it exists.
    """

    data: AnyData = None
    split: str | None = None
    resolutions: Words = ()
    images: Whole = None
    measures: Words = ()
    options: KeyOptions = None
    out: Path | None = None
    overwrite: Switch = False
    workers: Workers = 0


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CascadeOptions:
    """Which budgets of tokens are measured, alone and as a cascade of two.

    Attributes:
        tokens: Most patches of an image, as 16,36,64; a quarter to four times those of the training size unless given.
        pair: Patches of the first and second look, as 16,64; the best pair on held-out images unless given.
        alphas: Fractions that are seen again, as 0.1,0.3.
        budget: Mean patches of an image, for which the largest alpha that stays within them is found on held-out
            images.
        split: Of the data; test unless given.
        aspect: native keeps each image's own, square cuts its longer side.
        out: A folder for the files.
        overwrite: Replace those that exist.
        workers: Processes that read images ahead; with any, the times are of a busy machine.
        seed: Of the bootstrap.
    """

    tokens: Words = ()
    pair: Words = ()
    alphas: Words = ()
    budget: float | None = None
    split: str | None = None
    images: MostImages = None
    aspect: Literal["native", "square"] = "native"
    precision: Precision = "auto"
    out: Path = Path("cascade")
    overwrite: Switch = False
    workers: Int = 0
    seed: Int = 0


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PackOptions:
    """How images are packed, to see what that makes of a data set.

    Attributes:
        split: Of the data set.
        patch_size: Side of a patch in pixels.
        sequence_length: Tokens of a sequence, or the budget of a batch.
        packing: first_fit, as the paper, or best_fit, which puts images of one length together.
        most_images: In a sequence (the paper's E_max).
        resolutions: native, or sides in pixels as 64..384 of which one is drawn for each image.
        measure: What the distribution is of: the side, or the area.
        distribution: uniform, normal, or biased to low or high sides.
        drop: Rate of the tokens that are left out, from 0 to 1.
        images: How many of the split; all, or 10,000 of an endless one.
        seed: Of the draws.
    """

    split: str = "train"
    patch_size: Int = 16
    sequence_length: Int = 1024
    packing: Literal["first_fit", "best_fit"] = "first_fit"
    most_images: Whole = None
    resolutions: str = "native"
    measure: Literal["side", "area"] = "side"
    distribution: Literal["uniform", "normal", "low", "high"] = "uniform"
    drop: float | None = None
    images: Whole = None
    seed: Int = 0


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ClassesOptions:
    """Which classes are compared, between what.

    Attributes:
        split: Of the logits; test unless given.
        between: Two sizes, as 224,1024 or 32,native; that of the training and the largest that all have unless given.
        against: The line that gaps are measured from; the other one of two, else mean, the mean of all.
        first: Only images whose ILSVRC number is at most this (5000: those of LookHere's appendix).
        most: Classes of each kind that are shown.
        out: A folder for the files.
        overwrite: Replace those that exist.
    """

    split: str | None = None
    between: Words = ()
    against: str | None = None
    first: Whole = None
    most: Int = 5
    out: Path | None = None
    overwrite: Switch = False
