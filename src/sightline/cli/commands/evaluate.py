"""`sightline evaluate`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from sightline.cli.data_options import MaxPixels, SkipUnreadable

# Test sizes over the training size: the demo's, from 20 px to 148 px of 32.
_FACTORS = (0.625, 0.75, 1.0, 1.375, 1.75, 2.0)


def evaluate(
    model: Path,
    *,
    resolutions: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = (),
    data: str | None = None,
    split: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = (),
    images: int | None = None,
    tune: bool = False,
    tune_images: int = 500,
    skip_unreadable: SkipUnreadable = None,
    max_pixels: MaxPixels = None,
    precision: str = "auto",
    out: Path | None = None,
    predictions: Path | None = None,
    overwrite: bool = False,
    device: str = "auto",
    threads: int | None = None,
    workers: int = 0,
    json: bool = False,
) -> None:
    """Measure a model at a list of resolutions: top-1, top-5, by group and by size.

    Adds rows to results.jsonl and what was said of each image to predictions.csv in the folder of the run (what is
    measured again is replaced), or writes --out and --predictions.

    Parameters
    ----------
    model
        The folder of a run or of a model.
    resolutions
        Square sides in pixels, as 20,32,64; and images at their own aspect: native, each at its own size with at most
        1024 patches, max:PATCHES with another limit, tokens:PATCHES scaled to so many. 0.625 to 2 times the training
        size unless given, and as it was trained where that was at native aspect.
    data
        The data set; the one that it was trained on unless given.
    split
        Splits to measure; test, and held-out fonts where the data has them, unless given.
    images
        At most this many of a split; 2000 of an embedded one unless given.
    tune
        Also search the encoding's knob on minival at each resolution.
    tune_images
        Images of minival for that search.
    precision
        auto, float32 or bfloat16.
    out
        A file for the rows, instead of the run's own.
    predictions
        A file for what the model said of each image (CSV), instead of predictions.csv in the folder of the run, which
        holds those on the data of its training.
    overwrite
        Replace --out and --predictions if they exist, and of a run's rows those too that are of more images.
    device
        auto, cpu, cuda, cuda:1, mps.
    threads
        Processor threads; all cores unless given.
    workers
        Processes that read images ahead.
    json
        Print the rows as JSON lines instead of a table.
    """
    from sightline import runtime
    from sightline.analysis.memory import refuse_patches_that_cannot_fit, refuse_what_cannot_fit
    from sightline.cli.data_options import data_options, open_data, read_headers
    from sightline.cli.guard import Inputs, home_of
    from sightline.cli.next_step import PACKED, beside, packed_beside, run_of, say_next, say_other, to_train, writing
    from sightline.cli.output import LeftOut, add_predictions, add_rows, claim_file
    from sightline.cli.progress import Bars
    from sightline.cli.resolutions import parse_resolutions
    from sightline.data.views import View
    from sightline.errors import InputError, StorageError
    from sightline.evaluation import EvaluateConfig
    from sightline.evaluation import evaluate as measure
    from sightline.evaluation.accuracy import RunIdentity, check_sizes, labels_of, planned_images, usual_images
    from sightline.evaluation.as_trained import views_as_trained
    from sightline.load import load_model, read_record, seal
    from sightline.predictions import PREDICTIONS, Prediction, read_predictions
    from sightline.reports.seen import seen_sizes
    from sightline.reports.tables import print_accuracy
    from sightline.results import RESULTS, dump_rows, on_more, read_rows

    measured = seal(model)
    training = read_record(model)["training"]
    trained = training.get("config", {})
    options = data_options(skip_unreadable, max_pixels, trained)
    spec = data or trained.get("data")
    if not isinstance(spec, str):
        raise InputError(f"{model}: does not say what it was trained on; give --data")
    runtime.set_threads(threads)
    where = runtime.resolve_device(device)
    loaded = load_model(model).to(where)
    if tune and loaded.knob is None:
        raise InputError(f"--tune: encoding {loaded.encoding.name} has no knob")
    side = trained.get("resolution") or loaded.config.image_size
    side = side if isinstance(side, int) else min(side)
    patch = loaded.config.patch_size
    shown = parse_resolutions(resolutions)
    kept = home_of(model) / RESULTS if out is None else out
    inputs = Inputs(models=[model], data=[spec])
    if out is not None:
        claim_file(out, inputs=inputs, overwrite=overwrite)
    said = predictions
    if predictions is not None:
        claim_file(predictions, inputs=inputs, overwrite=overwrite, option="--predictions")
        if out is not None and out.resolve() == predictions.resolve():
            raise InputError(f"--predictions {predictions}: is --out too; expected two files")
    elif out is None and spec == trained.get("data"):
        said = home_of(model) / PREDICTIONS
    # Read now, so that a damaged file is not found out after the work is done.
    before = read_rows(kept) if out is None and kept.exists() else []
    if said is not None and predictions is None and said.exists():
        read_predictions(said)
    with Bars() as bars:
        source = open_data(spec, options)
        labels_of(loaded, source, spec)
        chosen = tuple(word for part in split for word in part.split(",") if word)
        chosen = chosen or tuple(name for name in ("test", "heldout_fonts") if name in source.splits)
        chosen = chosen or source.splits[-1:]
        most = usual_images(source) if images is None else images
        shown = shown or (
            *sorted({max(round(side * factor / patch), 1) * patch for factor in _FACTORS}),
            *sorted(views_as_trained(trained.get("packing"), side, patch, source, chosen[0])),
        )
        config = EvaluateConfig(
            shown,
            chosen,
            images=most,
            knobs="both" if tune else "default",
            tune_images=tune_images,
            precision=precision,
            workers=workers,
        )
        # All that can be refused is refused before the first image is read; the plan refuses splits.
        check_sizes(loaded, config)
        # The largest alone: no smaller one is hopeless where it is not.
        if config.sides:
            refuse_what_cannot_fit(loaded.config, max(config.sides), what=str(model), device=where, loaded=True)
        for view in config.views:
            refuse_patches_that_cannot_fit(
                loaded.config, view.patches, asked=f"resolution {view.name}", what=str(model), device=where
            )
        planned_images(source, loaded, config, side)
        source = read_headers(source, (*chosen, *(("minival",) if tune else ())), options, bars)
        left_out = LeftOut()
        left_out.say(source)
        total, done = planned_images(source, loaded, config, side), 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            bars.move("testing", done, total)

        place = model.resolve()
        name = place.parent.name if place.name == "checkpoint" else place.name
        identity = RunIdentity(name, spec, side, trained.get("seed", 0))
        answers: list[Prediction] = []
        rows = measure(loaded, source, config, identity, advance=advance, answers=answers)
        left_out.say(source)
    if out is None and seal(model) != measured:
        raise StorageError(
            f"{model}: its checkpoint was replaced while the one before was measured, as by a training that goes on; "
            "no rows are written (measure it when that has ended, or with --out FILE)"
        )
    # Images that cannot be read any more are no reason: all that are there were measured.
    fewer = images is None or overwrite
    more = {} if fewer else on_more(before, rows)
    if more:
        print(
            f"{kept} keeps what was measured on more images: {', '.join(more.values())}; --overwrite replaces it",
            file=sys.stderr,
        )
    if said is not None:
        add_predictions(said, answers, anew=predictions is not None, fewer=fewer)
    add_rows(kept, rows, anew=out is not None, fewer=fewer)
    if json:
        print(dump_rows(rows), end="")
        return
    seen = {rows[0].run: seen_sizes(trained, patch)} if trained else None
    print_accuracy(rows, seen=seen)
    print(f"rows: {kept}")
    if said is not None:
        print(f"predictions: {said}")
    print(f"computed in {runtime.chosen_precision(precision, where)}")
    run = run_of(model)
    if spec.startswith("imagefolder:"):
        if not any(isinstance(one, View) and one.kind == "native" for one in shown):
            say_other(
                "each at its own size",
                "evaluate",
                model,
                *(("--data", data) if data else ()),
                "--resolutions",
                "native",
            )
        if trained.get("packing") is None and spec == trained.get("data") and not packed_beside(run).exists():
            rest = options.skip_unreadable, options.max_pixels, trained.get("images")
            words = to_train(spec, packed_beside(run), *rest, recipe=PACKED)
            say_other("train packed, each at its own aspect", *words)
    say_next("cascade", model, data, *writing("--out", beside(run, "_cascade")))
