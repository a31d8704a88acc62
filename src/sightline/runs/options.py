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
    help="How many unreadable images of a split may be left out: a number, or all.",
    allow_leading_hyphen=True,
    converter=_skip,
)
SkipUnreadable = Annotated[int | Literal["all"], _SKIP]
SkipAsTrained = Annotated[int | Literal["all"] | None, _SKIP]
MaxPixels = Annotated[
    int | None,
    Parameter(
        help="Most pixels of an image (width times height); larger images are unreadable. Default: as in training, or "
        "89478485.",
        converter=_pixels,
    ),
]
RunOrModel = Annotated[Path, Parameter(help="The folder of a run or of a model.")]
AnyModel = Annotated[Path, Parameter(help="The folder of a run or of a model, hf-hub:OWNER/NAME, or timm:NAME.")]
Data = Annotated[str, Parameter(converter=recognised)]
AnyData = Annotated[str | None, Parameter(converter=recognised)]
DataToMeasure = Annotated[AnyData, Parameter(help="The data set. Default: the one that the model was trained on.")]
PatchSize = Annotated[
    int | None,
    Parameter(
        help="Side of the patches in pixels, instead of the model's own; the patch embedding is resized "
        "(docs/reference/models.md). Must divide the model's image size.",
        converter=_whole,
    ),
]
MostImages = Annotated[
    int | None,
    Parameter(help="Most images of a split, spread over it. Default: all; 2000 of drawn data.", converter=_whole),
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
    int | None, Parameter(help="Processor threads. Default: $OMP_NUM_THREADS, else one per core.", converter=_whole)
]
Precision = Annotated[str, Parameter(help="auto, float32 or bfloat16.")]
JsonObject = Annotated[bool, Parameter(show_default=False, help="Print one JSON object instead of tables.")]
Json = Annotated[bool, Parameter(show_default=False, help="Print JSON instead of tables, one object per line.")]

Workers = Annotated[int, Parameter(help="Processes that load images.", converter=_whole)]


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
        no_pretrained: For timm:NAME: random weights instead of timm's published ones.
        num_classes: For timm:NAME: number of classes.
        weights: For timm:NAME: a file with its state dict.
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
        resolutions: Square sides in pixels, for example 20,32,64; 64:1024 stands for sides half an octave apart. Views
            that keep the aspect ratio: native (each image at its own size, at most 1024 patches), max:PATCHES (native
            with another limit), tokens:PATCHES (scaled to that number of patches). Default: 0.625 to 2 times the
            training size, plus the view of training if that kept the aspect ratio; for suites the training size.
        frames: For models of clips: frames to show of each clip, for example 4,8,16, each at every resolution. Default:
            as in training. predictions.csv has the predictions for the number of frames in training, or else for the
            first number.
        split: Splits to measure. Default: test, and heldout_fonts if the data has it.
        no_shrink: Leave out the baseline: at each size above the training size, the same images shrunk to the training
            size.
        tune: Also search the encoding's parameter, and the rule that resizes its tables, on minival at each resolution.
        tune_images: Images of minival for --tune.
        measures: Further measures of the model, for example fgsm,speed (docs/reference/metrics.md).
        temperature: Fit a temperature for a classifier's logits on minival at each resolution. Adds rows of nll, brier
            and ece with this temperature.
        temperature_images: Images of minival for --temperature.
        task_options: Options of the task (docs/reference/dense.md): --task-options.threshold 0.1 is the lowest score of
            a box; --task-options.inference.kind segmenter with .window 512, .stride 341, .scales [0.75,1,1.25], .flip
            true says how images are shown.
        out: A folder for the rows and the predictions: predictions.csv, and in predictions/ COCO results (detection) or
            index PNGs (segmentation). Default: the folder of the run; predictions.csv there is only for the run's own
            data set.
        logits: Also store the logits of each image, one .npz file in logits/ for each measurement of a classifier.
            sightline rescore DIR/logits computes the metrics again without the model.
        overwrite: Replace rows of another model or data set in --out, rows of more images, and logits with other
            options.
        suite: Test sets, for example imagenet:ROOT, scenes, objectnet:ROOT or any data set (docs/how-to/suites.md).
            They replace the run's data set, or are measured beside --data. May be given several times.
        preparation: How a suite's images are prepared: model (the model's own crop and filter; the default), paper
            (LookHere), navit, navit_vit_baseline.
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
    """How images are shown to a model, and where its predictions go.

    Attributes:
        resolution: native keeps each image's size and aspect ratio, and scales it down if it has more than 1024
            patches. max:PATCHES is native with another limit. tokens:PATCHES also scales up, to as many patches as the
            aspect ratio allows. A side, or height x width, in pixels resizes and crops. Sizes are printed as width x
            height.
        topk: How many classes to name.
        labels: For models that read texts: labels to choose from, for example "a dog,a cat". They are used as they
            stand, without a template.
        frames: For models of clips: most frames of a clip, spread over it. Default: as in training. Clips are GIF and
            WebP files and folders of frames; a still image is a clip of one frame.
        precision: Precision of the matrix products: auto, float32 or bfloat16. auto is bfloat16 if this machine is
            faster with it, as in evaluate. Each prediction names it.
        out: A new folder for pictures of the predictions (for example label maps and overlays) and a sheet of them.
        predictions: A file for the predictions, one JSON object per line. After an interruption the same command
            continues. Several processes (torchrun) share the images.
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
        data: The data set; images are drawn or resized at each size. Default: the one that all models were trained on,
            or else the embedded scenes.
        split: Split of the data. Default: test.
        resolutions: Sides in pixels, HEIGHTxWIDTH, or native (each image at its own size, at most 1024 patches), for
            example 32,64,96x192. Default: the size of the model and twice that.
        images: Images of the split. Default: 4 to 32, as many as take about a minute on one core.
        measures: For example attention_distance,entropy. Default: all that fit the models and the data, except those
            that take many passes or give very large arrays.
        options: Options of measures, for example --options.attention_maps.query [0.25,0.75]
            (docs/reference/analysis.md).
        out: The output folder. Default: RUN/analysis for one run, else analysis.
        overwrite: Replace the folder if it exists.
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
        tokens: Most patches of an image, for example 16,36,64. Default: a quarter to four times those of the training
            size.
        pair: Patches of the first and the second pass, for example 16,64. Default: the best pair on held-out images.
        alphas: Shares of images that are shown again, for example 0.1,0.3.
        budget: Mean patches of an image. The largest alpha within this budget is found on held-out images.
        split: Split of the data. Default: test.
        aspect: native keeps the aspect ratio of each image; square crops its longer side.
        out: The output folder.
        overwrite: Replace files that exist.
        workers: Processes that load images. Above 0, they run beside what is timed.
        seed: Seed of the bootstrap.
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
        split: Split of the data set.
        patch_size: Side of a patch in pixels.
        sequence_length: Tokens of a sequence: the budget of a training step.
        packing: first_fit, as in NaViT's paper, or best_fit, which puts images of one length together.
        most_images: Most images in a sequence (the paper's E_max).
        resolutions: native, or a range of sides in pixels, for example 64..384, from which one is drawn for each image.
        measure: What the distribution is of: the side, or the area.
        distribution: uniform, normal, or biased to low or high sides.
        drop: Share of tokens that are dropped, from 0 to 1.
        images: Images of the split. Default: all, or 10,000 if images are drawn without end.
        seed: Seed of the random draws.
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
        split: Split of the logits. Default: test.
        between: Two sizes, for example 224,1024 or 32,native. Default: the training size and the largest size that all
            runs have.
        against: The run that gaps are measured from, or mean (of all runs). Default: of two the other one, else mean.
        first: Only images with an ILSVRC number up to this one (5000 in LookHere's appendix).
        most: How many classes of each kind to show.
        out: A folder for the files.
        overwrite: Replace files that exist.
    """

    split: str | None = None
    between: Words = ()
    against: str | None = None
    first: Whole = None
    most: Int = 5
    out: Path | None = None
    overwrite: Switch = False
