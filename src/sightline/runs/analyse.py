"""One analysis from what was asked for to its folder: checks first, then one pass a model and size, then all files."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from sightline.analysis.analyse import analysed_together, refuse_stages
from sightline.analysis.found import Analysis
from sightline.analysis.images import NATIVE, Size
from sightline.analysis.labels import SplitBatches, split_batches
from sightline.analysis.measures.base import Measure, measure_classes, measures_by_name
from sightline.analysis.measures.cka import Cka
from sightline.analysis.rows import rows_of
from sightline.data.open import open_source
from sightline.data.source import Source
from sightline.distributed import machine, signals
from sightline.errors import InputError, SightlineError, require_known
from sightline.evaluation.inside import check_sizes, usual_images
from sightline.evaluation.measure import spread_indices
from sightline.io.config import Index, check_value, whole
from sightline.io.run_files import INSIDE
from sightline.models import Model
from sightline.reports.analysis_page import count_figures
from sightline.reports.content import Sample
from sightline.reports.maps import MOST_SHOWN
from sightline.reports.words import duration
from sightline.results.analysis import AnalysisRow, size_words
from sightline.results.rows import to_frame
from sightline.runs import outputs
from sightline.runs.analysis_folder import claim_analysis, write_analysis
from sightline.runs.analysis_pairs import Pair, compared, pairs_of
from sightline.runs.analysis_work import Make, OpenedModel, PlannedWork, with_origin
from sightline.runs.console import command_line, option_words
from sightline.runs.options import AnalyseOptions, OpenOptions
from sightline.runs.progress import Progress
from sightline.runs.run import Run, set_unique_names
from sightline.runs.sizes import parse_sizes, split_words
from sightline.tokens.grid import Grid

SCENES = "scenes"
# Operations a second of one core, and how many passes looking inside is worth: for the line that says what is planned.
_SPEED, _TIMES = 6e10, 10
# (height, width) in pixels of an image of no size on the page.
_SHOWN = 64, 64
# Of a split without an end; arrays keep what is of each.
_MOST_IMAGES = 1_000_000


@dataclass(frozen=True)
class Inside:
    """What an analysis found: `rows` by layer and size, the `arrays` of each model and measure, and the folder."""

    rows: list[AnalysisRow]
    arrays: list[Analysis]
    path: Path

    def frame(self) -> Any:
        """The rows as a `pandas.DataFrame`."""
        return to_frame(self.rows)


def open_models(
    models: Sequence[str | Path], asked: AnalyseOptions, opening: OpenOptions, device: str = "auto"
) -> list[Run]:
    """The models of an analysis, each under a name that no other one has.

    Raises:
        InputError: there is none, one is there twice, or as `Run.open`.
    """
    names = [str(one) for one in models]
    if not names:
        raise InputError("analyse: expected a model: a folder, hf-hub:OWNER/NAME or timm:NAME")
    for name in (one for one in names if names.count(one) > 1):
        raise InputError(f"analyse: {name} is there twice (expected each model once)")
    data = asked.data or usual_data(names)
    plain = replace(opening, no_pretrained=False, num_classes=None, weights=None)
    timm = [one.startswith("timm:") for one in names]
    runs = [
        Run.open(name, data, device=device, options=opening if here or not any(timm) else plain)
        for name, here in zip(names, timm, strict=True)
    ]
    set_unique_names(runs)
    return runs


def analyse(runs: Sequence[Run], asked: AnalyseOptions, progress: Progress) -> Inside:
    """Look inside models at each size, and write the folder whole; see `Run.analyse`.

    Raises:
        InputError: anything is wrong with what was asked for; before the first image is read.
    """
    check_value("--workers", asked.workers, Index)
    if asked.images is not None:
        check_value("--images", asked.images, whole(1, _MOST_IMAGES))
    sizes = parse_sizes_or_native(asked.resolutions)
    usual = [one for one in measure_classes().values() if one.by_default]
    names = split_words(asked.measures)
    chosen = measures_by_name(names) if names else usual
    given = check_measure_options(asked.options or {}, chosen)
    first, data = runs[0], asked.data or runs[0].data
    if not data:
        raise InputError(f"{first.path}: does not say what it was trained on; give the data (--data)")
    paths = [run.path for run in runs]
    if asked.out is None and any(run.patch_size is not None for run in runs):
        raise InputError("--patch-size: what is found is not of the model's own patches; give --out DIR for it")
    out = default_out(paths) if asked.out is None else asked.out
    claim_analysis(
        out,
        outputs.Inputs(models=paths, data=[data], files=[run.opening.weights for run in runs]),
        overwrite=asked.overwrite,
    )
    source = open_source(data).with_view(max_pixels=min(run.max_pixels for run in runs))
    split = asked.split or ("test" if "test" in source.splits else source.splits[-1])
    source.check(split)
    wanted = [(run.model, sizes or usual_sizes(run.model)) for run in runs]
    for model, some in wanted:
        check_sizes(model, source, split, some)
    count = usual_images(wanted, source.length(split)) if asked.images is None else asked.images
    source = progress.read_headers(source, [split], first.skip_unreadable)
    indices = spread_indices(source, split, count)
    opened, left_out, tried = [], {}, progress.counter("trying measures", len(chosen) * len(runs))
    for (model, some), run in zip(wanted, runs, strict=True):
        read = partial(split_batches, model, source, split, indices, data=data)
        images = {size: read(size, workers=asked.workers) for size in some}
        name = run.identity.run
        made, left_out[name] = _that_fit(model, name, images, chosen, given, tried, explicit=bool(names))
        opened.append(OpenedModel(model, run.identity, some, images, made))
    for name, reasons in left_out.items():
        _say_left_out(name, reasons)
    pairs = pairs_of(opened, given.get(Cka.name, {}), count)
    _say_plan(opened, pairs, data, split, source, count)
    hardware = machine.hardware_name(first.model.anchor.device)
    origin = {"data": data, "split": split, "commit": machine.git_commit(), "hardware": hardware}
    found: list[Analysis] = []
    with signals.resume_hint("the same command"):
        move = progress.counter("analysing (patches)", sum(one.patches() for one in (*opened, *pairs)))
        for one in opened:
            shown = {size: PlannedWork(batches, move) for size, batches in one.images.items()}
            fresh = analysed_together(one.model, one.measures, shown, called=one.identity.run)
            found += [with_origin(analysis, origin, given.get(analysis.measure, {})) for analysis in fresh]
        found += compared(pairs, origin, move)
    progress.say_left_out(source)
    if not any(any(names) for one in found for names in one.names.values()):
        raise InputError(f"analyse: no image of {data}/{split} can be read (expected one or more)")
    rows = _rows(opened, found, origin)
    words = [*option_words(replace(asked, data=data)), *option_words(opening_of(runs))]
    command = command_line("analyse", *paths, *words, "--out", out)
    shown = _first_images(source, split, indices, wanted[0][1][0])
    write_analysis(out, rows, found, command, progress.counter("drawing figures", count_figures(rows, found)), shown)
    return Inside(rows, found, out)


def _first_images(source: Source, split: str, indices: Sequence[int], size: Size) -> list[Sample]:
    """Those that maps are drawn of; one that cannot be read is left out. Of annotated people none is shown."""
    found = []
    for index in indices[:MOST_SHOWN] if not source.attributes else ():
        with contextlib.suppress(SightlineError):
            own = source.stored_size(split, index) if size == NATIVE else size
            one = source.example(split, index, own or _SHOWN)
            found.append(Sample(one.middle_frame, f"image {len(found)}: {one.target.describe(source.classes)}"))
    return found


def opening_of(runs: Sequence[Run]) -> OpenOptions:
    """How the models were opened; options of timm's go with `timm:NAME` alone."""
    return next((run.opening for run in runs if run.is_timm), runs[0].opening)


def default_out(models: Sequence[Path]) -> Path:
    """The folder of an analysis unless one is given: that of the run, where it is one run's."""
    if len(models) == 1 and ":" not in str(models[0]) and outputs.is_run(models[0]):
        return models[0] / INSIDE
    return Path(INSIDE)


def parse_sizes_or_native(given: Sequence[str]) -> list[Size]:
    """(height, width) pairs, each once, from "32,96x192,native".

    Raises:
        InputError: a word is none of these.
    """
    found = []
    for word in split_words(given):
        found += [NATIVE] if word == "native" else parse_sizes([word], example="32,96x192 or native")
    return list(dict.fromkeys(found))


def usual_sizes(model: Model) -> list[Size]:
    """The size that images are prepared for, and twice that."""
    height, width = Grid.checked(model.config.image_size, "image_size")
    return [(height, width), (2 * height, 2 * width)]


def usual_data(models: Sequence[str]) -> str:
    """What all of the models were trained on, if it is the same; else the embedded scenes."""
    trained = {outputs.trained_on(Path(one.removeprefix("local-dir:"))) for one in models}
    one = trained.pop() if len(trained) == 1 else None
    return one or SCENES


def check_measure_options(given: Mapping[str, Any], chosen: Sequence[type[Measure]]) -> dict[str, dict[str, Any]]:
    """Options by measure.

    Raises:
        InputError: there is no such measure among those chosen, or it has no such option.
    """
    names = {one.name: one for one in chosen}
    for name, values in given.items():
        require_known("--options: measure", name, names)
        if not isinstance(values, Mapping):
            said = f"--options.{name} {values}: expected --options.MEASURE.OPTION VALUE"
            raise InputError(said, field=f"options.{name}", value=values)
        known = list(inspect.signature(names[name].__init__).parameters)[2:]
        for option in values:
            if not known:
                raise InputError(f"--options.{name}.{option}: {name} has no options", field=f"options.{name}.{option}")
            require_known(f"--options: option of {name}", option, known)
    return {name: dict(values) for name, values in given.items()}


def _that_fit(
    model: Model,
    name: str,
    images: Mapping[Size, SplitBatches],
    chosen: Sequence[type[Measure]],
    given: Mapping[str, Mapping[str, Any]],
    tried: Callable[[int], None],
    *,
    explicit: bool,
) -> tuple[dict[str, Make], dict[str, str]]:
    """The measures that can be taken of a model, each tried on some images, and why others cannot, which are refused
    where they were asked for.

    Args:
        tried: told of each.
    """
    refuse_stages(model)
    made, left_out = dict[str, Make](), dict[str, str]()
    some = {size: batches.ends() for size, batches in images.items()}
    for one in chosen:
        make = partial(one, **given.get(one.name, {}))
        try:
            one.check(model)
            analysed_together(model, {one.name: make}, some)
        except InputError as error:
            said = str(error).removeprefix(f"{one.name}: ")
            if explicit or one.name in given:
                raise InputError(f"{one.name}: {said}") from None
            left_out[one.name] = said
        else:
            made[one.name] = make
        tried(1)
    if not made:
        raise InputError(f"analyse: no measure fits {name} and these images")
    return made, left_out


def _say_left_out(name: str, reasons: Mapping[str, str]) -> None:
    if reasons:
        first, *others = set(reasons.values())
        why = " (name one by --measures to see why)" if others else f": {first}"
        print(f"left out of {name}: {', '.join(reasons)}{why}", file=sys.stderr)


def _say_plan(
    opened: Sequence[OpenedModel], pairs: Sequence[Pair], data: str, split: str, source: Source, count: int
) -> None:
    """What will be done, on stderr, before it is: by its operations hours of work are seen."""
    # Of a pair the layers' outputs alone are looked at: the pass itself, of each of the two.
    operations = _TIMES * sum(one.operations() for one in opened) + sum(pair.operations() for pair in pairs)
    sizes = list(dict.fromkeys(size for one in opened for size in one.sizes))
    drawn = " (embedded, drawn at each size)" if source.name == SCENES else ""
    measures = list(dict.fromkeys(name for one in opened for name in one.measures))
    shown = ", ".join(size_words(size) for size in sizes)
    models = f"{len(opened)} model{'s' if len(opened) > 1 else ''}"
    took = f"; about {duration(operations / _SPEED)} of one core" if operations > 10 * _SPEED else ""
    line = f"plan: {models}, {count} image{'s' if count > 1 else ''} of {data}/{split}{drawn} at {shown}{took}"
    beside = f", of {len(pairs)} pair{'s' if len(pairs) > 1 else ''} of models too" if pairs else ""
    measures = [f"{name}{beside if name == Cka.name else ''}" for name in measures]
    print(f"{line}; {', '.join(measures)}", file=sys.stderr)


def _rows(opened: Sequence[OpenedModel], found: Sequence[Analysis], origin: Mapping[str, Any]) -> list[AnalysisRow]:
    rows = []
    for one in opened:
        own = {
            "task": one.model.config.task,
            "seed": one.identity.seed,
            "train_resolution": one.identity.train_resolution,
        }
        for analysis in (analysis for analysis in found if analysis.model == one.identity.run):
            rows += rows_of(analysis, **origin, **own)
    return rows
