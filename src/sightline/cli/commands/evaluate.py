"""`sightline evaluate`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from sightline.cli import options

# Test sizes over the training size: the demo's, from 20 px to 148 px of 32.
_FACTORS = (0.625, 0.75, 1.0, 1.375, 1.75, 2.0)


def evaluate(
    model: options.AnyModel,
    *,
    resolutions: options.Words = (),
    patch_size: options.PatchSize = None,
    frames: options.Words = (),
    data: options.DataToMeasure = None,
    split: options.Words = (),
    images: options.MostImages = None,
    no_shrink: bool = False,
    tune: bool = False,
    tune_images: int = 500,
    measures: options.Words = (),
    temperature: bool = False,
    temperature_images: int = 1000,
    settings: options.Settings = (),
    skip_unreadable: options.SkipAsTrained = None,
    max_pixels: options.MaxPixels = None,
    precision: options.Precision = "auto",
    out: Path | None = None,
    predictions: Path | None = None,
    logits: Path | None = None,
    overwrite: bool = False,
    device: options.Device = "auto",
    threads: options.Threads = None,
    workers: int = 0,
    suite: str | None = None,
    preparation: str | None = None,
    limit: int | None = None,
    no_pretrained: bool = False,
    num_classes: int | None = None,
    weights: Path | None = None,
    json: options.Json = False,
) -> None:
    """Measure a model at a list of resolutions: top-1, top-5, by group and by size.

    Adds rows to results.jsonl and what was said of each image to predictions.csv in the folder of the run (what is
    measured again is replaced), or writes --out and --predictions. Stopped or killed, the same command goes on where it
    was; several processes (torchrun) share the images.

    Args:
        resolutions: Square sides in pixels, as 20,32,64; and images at their own aspect: native, each at its own size
            with at most 1024 patches, max:PATCHES with another limit, tokens:PATCHES scaled to so many. 0.625 to 2
            times the training size unless given, and as it was trained where that was at native aspect.
        frames: Frames of each clip to show a model of clips, as 4,8,16, each at every resolution; as in training unless
            given. What was said of each clip is kept of the first of them that is the training's, or of the first.
        split: Splits to measure; test, and held-out fonts where the data has them, unless given.
        no_shrink: Leave out the images shrunk to the training size, which are measured too at each larger one.
        tune: Also search the encoding's knob, and how its tables are resized, on minival at each resolution.
        tune_images: Images of minival for that search.
        measures: What is measured of the model beside its answers (docs/MEASURES.md), as fgsm,speed.
        temperature: Also measure minival at each resolution, and fit on it the temperature that a classifier's logits
            are divided by: nll, brier and ece after it are rows of their own.
        temperature_images: Images of minival for that.
        settings: KEY=VALUE, options of the task: how images are looked at (inference.kind=segmenter,
            inference.window=512, inference.stride=341, inference.scales=[0.75,1,1.25], inference.flip=true), which
            boxes count (threshold=0.1).
        out: A file for the rows, instead of the run's own; with --suite a folder.
        predictions: A file for what the model said of each image, instead of predictions.csv in the folder of the
            run, which holds those on the data of its training: CSV; of detection COCO's results (JSON), of segmentation
            CSV with a folder of index PNGs.
        logits: A folder for the logits of each image, a file for each measurement of a classifier (.npz): sightline
            rescore FOLDER measures them again with no model.
        overwrite: Replace --out, --predictions and files in --logits if they exist, and of a run's rows those too that
            are of more images.
        workers: Processes that read images ahead.
        suite: Test sets to measure together, as imagenet:ROOT, scenes, objectnet:ROOT or any data set
            (docs/SUITES.md); rows and logits go into the folder --out, and --resolutions 64:1024 takes sizes half an
            octave apart.
        preparation: How a suite's images are prepared: model (its own crop and filter, unless given), paper (LookHere),
            navit, navit_vit_baseline.
        limit: At most this many images of each part of a suite, spread over classes.
        no_pretrained: With random weights instead of those that timm:NAME has published.
        num_classes: Of the head of timm:NAME.
        weights: A file with the state dict of timm:NAME.
    """
    import contextlib
    import shlex
    from dataclasses import replace

    from sightline import __version__, evaluation
    from sightline.analysis.memory import side_of, warn_of_memory
    from sightline.attention.cpu import chosen_precision
    from sightline.cli import guard, next_step, output, progress, suite_run
    from sightline.cli.config import apply_settings
    from sightline.cli.frames import for_frames, in_frames
    from sightline.cli.resolutions import parse_frames, parse_resolutions, split_words
    from sightline.cli.suite_model import SuiteRequest
    from sightline.distributed import machine, signals
    from sightline.distributed.ranks import init_ranks
    from sightline.errors import InputError, StorageError
    from sightline.evaluation import measure
    from sightline.evaluation.as_trained import views_as_trained
    from sightline.evaluation.drawn import Drawing, kept_in, write_pictures
    from sightline.evaluation.logits import StoredLogits, task_record, write_logits
    from sightline.evaluation.measures.base import checked_measures
    from sightline.evaluation.parts import kept_beside
    from sightline.evaluation.result_files import planned_files, write_results
    from sightline.evaluation.temperature import check_task
    from sightline.evaluation.update import update_predictions, update_rows
    from sightline.hub.load import checksum
    from sightline.io.run_files import PICTURES, PREDICTIONS, RESULTS
    from sightline.reports.seen import seen_sizes
    from sightline.reports.tables import print_accuracy
    from sightline.results.predictions import read_predictions
    from sightline.results.rows import dump_rows, measured_on_more_images, read_rows
    from sightline.tasks.base import Task, task_of

    machine.set_threads(threads)
    others = {
        "--data": data, "--split": split, "--images": images, "--no-shrink": no_shrink, "--tune": tune,
        "--frames": frames, "--predictions": predictions, "--logits": logits, "--measures": measures,
        "--temperature": temperature,
    }  # fmt: skip
    own = {"--preparation": preparation, "--limit": limit}
    asked = SuiteRequest(str(model), not no_pretrained, num_classes, weights, patch_size)
    suite_run.refuse_options(suite, others, own)
    if suite is not None:
        suite_run.run_suite(
            asked, suite, out, resolutions=resolutions,
            preparation=preparation or "model", limit=limit, settings=settings, skip_unreadable=skip_unreadable,
            max_pixels=max_pixels, precision=precision, overwrite=overwrite, device=device, workers=workers, json=json,
        )  # fmt: skip
        return
    with contextlib.ExitStack() as held:
        ranks = held.enter_context(init_ranks(device))
        with progress.Bars() as bars:
            where = machine.resolve_device(device if ranks.size == 1 else str(ranks.device))
            if asked.is_timm and out is None:
                raise InputError(f"{model}: is no folder here, where rows could be kept; give --out FILE for them")
            if patch_size is not None and out is None:
                raise InputError("--patch-size: its rows are not the model's own; give --out FILE for them")
            run = asked.run(data, where, skip_unreadable, max_pixels)
            encoding = run.model.encoding
            if tune and encoding.knob is None and encoding.resize_rule is None:
                raise InputError(f"--tune: encoding {encoding.name} has no knob, and no table that is resized")
            patch = run.model.config.patch_size
            lengths = parse_frames(frames)
            in_frames(run.model.config, run.source, lengths)
            shown = parse_resolutions(resolutions)
            kept = guard.home_of(model) / RESULTS if out is None else out
            # What is measured elsewhere replaces no picture that other rows name.
            drawn = PICTURES if out is None else f"{out.stem}_{PICTURES}"
            inputs = guard.Inputs(models=[model], data=[run.data], files=[weights])
            if out is not None:
                output.claim_file(out, inputs=inputs, overwrite=overwrite)
            said = predictions
            if predictions is not None:
                output.claim_file(predictions, inputs=inputs, overwrite=overwrite, option="--predictions")
            elif out is None and run.data == run.config.get("data"):
                said = guard.home_of(model) / PREDICTIONS
            # Read now, so that a damaged file is not found out after the work is done.
            before = read_rows(kept) if out is None and kept.exists() else []
            if said is not None and predictions is None and said.exists():
                read_predictions(said)
            task_options = apply_settings({}, settings)
            task = task_of(run.model, task_options).bind(run.source, run.data)
            if temperature:
                check_task(task)
            if logits is not None:
                task_record(task)
                output.claim_logits(logits, inputs=inputs)
            if (
                Drawing.of(run.model, task) is not None
                and (place := kept.parent / drawn).exists()
                and not place.is_dir()
            ):
                raise InputError(f"{place}: is a file (expected a folder, for pictures of answers)")
            output.check_writable(kept, kept.parent / drawn, *(one for one in (said, logits) if one is not None))
            usual = tuple(name for name in ("test", "heldout_fonts") if name in run.source.splits)
            chosen = tuple(dict.fromkeys(split_words(split))) or usual or run.source.splits[-1:]
            shown = shown or (
                *sorted({max(round(run.side * factor / patch), 1) * patch for factor in _FACTORS}),
                *sorted(views_as_trained(run.config.get("packing"), run.side, patch, run.source, chosen[0])),
            )
            config = measure.EvaluateConfig(
                shown,
                chosen,
                images=measure.default_image_count(run.source) if images is None else images,
                knobs="both" if tune else "default",
                tune_images=tune_images,
                temperature=temperature,
                temperature_images=temperature_images,
                shrink=not no_shrink,
                task_options=task_options,
                precision=chosen_precision(precision, where),
                workers=workers,
                measures=tuple(dict.fromkeys(split_words(measures))),
            )
            checked_measures(config.measures, run.model, task, run.source, chosen)
            # All that can be refused is refused before the first image is read; the plan refuses splits.
            measure.check_sizes(run.model, config)
            largest = max(*config.sides, *(side_of(view.patches, patch) for view in config.views), 1)
            shown_as = for_frames(run.model.config, lengths)
            warn_of_memory(shown_as, largest, next_step.warn, what=str(model), device=where)
            measure.planned_images(run.source, run.model, config, run.side)
            if predictions is not None:
                asked_of = measure.measurements(run.source, replace(config, temperature=False), run.side)
                others, maps = planned_files(predictions, task, asked_of, run.side)
                output.claim_beside(others, maps, inputs=inputs, overwrite=overwrite, option="--predictions")
                for one in (predictions, *others):
                    if out is not None and out.resolve() == one.resolve():
                        raise InputError(f"--predictions {predictions}: {one} is --out too; expected two files")
            read = measure.splits_read(run.source, config)
            source = bars.read_headers(run.source, read, run.skip_unreadable)
            sources = in_frames(run.model.config, source, lengths)
            files = predictions is not None and type(task).results is not Task.results
            each = measure.planned_images(source, run.model, config, run.side)
            advance = bars.counter("testing", each * len(sources))
            # What was said of each clip is kept once, where it is shown as in training if that is asked for.
            told = next((one for one in sources if one.sampling == source.sampling), sources[0])

            def about() -> dict[str, Any]:
                computed = replace(config, workers=0)
                return {
                    "command": f"evaluate {__version__} {machine.git_commit()}",
                    "config": repr(computed),
                    "identity": vars(run.identity),
                    "device": where.type,
                    # By which its attention is chosen: parts of another one would differ in their last bits.
                    "processor": list(machine.processor()) if where.type == "cpu" else None,
                    "max_pixels": run.max_pixels,
                    "logits": logits is not None,
                    "files": files,
                    "data": [source.fingerprint(name).digest for name in read],
                }

            parts = held.enter_context(kept_beside(kept, run.model, about, ranks))
            if logits is not None:
                names = [
                    name for one in sources for name in measure.planned_logits(one, run.model, config, run.identity)
                ]
                output.refuse_other_logits(logits, names, parts.identity, overwrite=overwrite, beside=(kept, said))
            answers: list[Any] = []
            pictures: dict[str, Any] = {}

            def keep(name: str, stored: StoredLogits) -> None:
                assert logits is not None
                write_logits(logits, name, replace(stored, work=parts.identity))

            with signals.resume_hint("the same command"):
                rows = []
                for one in sources:
                    rows += evaluation.evaluate(
                        run.model, one, config, run.identity, advance=advance,
                        answers=answers if one is told else None, pictures=pictures if one is told else None,
                        wanted="results" if files else "prediction_records", parts=parts,
                        keep=None if logits is None else keep,
                    )  # fmt: skip
            bars.say_left_out(source)
        if ranks.is_main:
            if out is None and checksum(model) != run.written:
                parts.discard()
                raise StorageError(
                    f"{model}: its checkpoint was replaced while the one before was measured, as by a training "
                    "that goes on; no rows are written (measure it when that has ended, or with --out FILE)"
                )
            # Images that cannot be read any more are no reason: all that are there were measured.
            fewer = images is None or overwrite
            more = {} if fewer else measured_on_more_images(before, rows)
            if more:
                line = f"{kept} keeps what was measured on more images: {', '.join(more.values())}"
                print(f"{line}; --overwrite replaces it", file=sys.stderr)
            if said is not None and files:
                write_results(said, source, answers, run.side)
            elif said is not None:
                update_predictions(said, answers, anew=predictions is not None, fewer=fewer)
            rows, pictures = kept_in(rows, pictures, drawn)
            # Rows first: a picture that finds no room costs none of them.
            update_rows(kept, rows, anew=out is not None, fewer=fewer)
            write_pictures([row for row in rows if row.measurement not in more], pictures, kept.parent)
            parts.discard()
    if not ranks.is_main:
        return
    if json:
        print(dump_rows(rows), end="")
        return
    print_accuracy(rows, seen={rows[0].run: seen_sizes(run.config, patch)} if run.config else None)
    print(f"rows: {kept}")
    if said is not None and said.exists():
        print(f"predictions: {said}")
    if logits is not None:
        print(f"logits: {logits} (sightline rescore {shlex.quote(str(logits))})")
    print(f"computed in {config.precision}")
    if not asked.is_timm:
        next_step.say_after_evaluation(run, data, shown, again=bool(resolutions))
