"""`sightline train`."""

from __future__ import annotations

import contextlib
import functools
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sightline.cli.options import Device, Json, MaxPixels, Settings, SkipAsTrained, Threads


def train(
    *,
    recipe: str | None = None,
    data: str | None = None,
    task: str | None = None,
    head: str | None = None,
    encoding: str | None = None,
    model: str | None = None,
    init_from: str | None = None,
    resolution: int | None = None,
    images: int | None = None,
    epochs: float | None = None,
    tokens: int | None = None,
    flops: float | None = None,
    seed: int | None = None,
    skip_unreadable: SkipAsTrained = None,
    max_pixels: MaxPixels = None,
    config: Path | None = None,
    settings: Settings = (),
    out: Path | None = None,
    resume: bool = False,
    accept_changed_data: bool = False,
    overwrite: bool = False,
    take_over: bool = False,
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Train a model at one resolution, or packed at many, and test it at its own.

    Leaves checkpoint/, config.yaml, log.jsonl, results.jsonl and predictions.csv in the folder of the run.

    Args:
        recipe: What the rest changes: vit_scenes, navit_scenes, navit_imagefolder (a folder at many sizes and every
            aspect, packed), segment_scenes, detect_scenes, or the name of a data set; that of --data unless given.
        data: scenes, scenes:pairs, digits, imagefolder:DIR, hf:NAME or hf:DIR, wds:SHARDS, each with a recipe; or
            without one ade20k:DIR, cityscapes:DIR, voc:DIR, masks:DIR, coco:DIR, lvis:DIR. What follows changes it.
        task: What is learnt: classification, segmentation, detection, or a plug-in's task.
        head: What the task puts on the tokens, as pix for segmentation, fcos for detection.
        encoding: A position encoding (see `sightline encodings`), or two joined by +.
        model: A registered model (see `sightline models`).
        init_from: Begin with the weights of this model (a run, a folder, hf-hub:owner/name, timm:name); another
            encoding, and the head for other classes, are new.
        resolution: Side of the training images in pixels.
        images: Training images to show in all.
        epochs: The same in passes over the data.
        tokens: A budget of tokens through the trunk, instead of images.
        flops: A budget of operations of training, as 2e13, instead of images.
        seed: Decides the first weights, the order of the images and their augmentation.
        config: A YAML file of settings.
        settings: One more setting, as optimizer.lr=1e-3; may be given many times.
        out: Folder of the run; runs/DATA_ENCODING, or runs/RECIPE_ENCODING, unless given.
        resume: Continue the run in --out from its last checkpoint.
        accept_changed_data: With --resume, go on also where the data is not what the run saw before.
        overwrite: Delete the run in --out first.
        take_over: Take the folder also from a run that seems to be at work in it; that one ends.
    """
    from sightline import runtime, signals
    from sightline.cli import guard, next_step, output, progress, run_config
    from sightline.cli.config import named_after
    from sightline.cli.next_step import warn
    from sightline.errors import InputError
    from sightline.evaluation import measure
    from sightline.evaluation.drawn import write_pictures
    from sightline.predictions import Prediction
    from sightline.ranks import joined
    from sightline.reports.seen import seen_sizes
    from sightline.reports.tables import print_accuracy
    from sightline.reports.words import quantity
    from sightline.results import dump_rows
    from sightline.run_files import CONFIG, PREDICTIONS, RESULTS
    from sightline.training.config import TrainConfig
    from sightline.training.loop import Progress
    from sightline.training.loop import train as run
    from sightline.training.prepare import decide, prepare
    from sightline.training.run import open_run
    from sightline.training.same_data import say_changes
    from sightline.training.state import last_good

    flags = {
        "data": data, "task": task, "encoding": encoding, "model": model, "resolution": resolution, "images": images,
        "epochs": epochs, "tokens": tokens, "flops": flops, "seed": seed, "init_from": init_from,
        "skip_unreadable": skip_unreadable, "max_pixels": max_pixels,
    }  # fmt: skip
    settings = (*settings, *(() if head is None else (f"task_options.head={head}",)))
    if accept_changed_data and not resume:
        raise InputError("--accept-changed-data: goes with --resume")
    sources = run_config.TrainingSources()

    def folder_of(wanted: TrainConfig) -> Path:
        return out or Path("runs") / f"{recipe or wanted.data.replace(':', '_').replace('/', '_')}_{wanted.encoding}"

    began = (lambda wanted: folder_of(wanted) / CONFIG) if resume else None
    asked = run_config.training_config(config, flags, settings, recipe, summarise=sources.summary, began=began)
    runtime.set_threads(threads)
    folder = folder_of(asked)
    with joined(device) as ranks, progress.Bars() as bars, contextlib.ExitStack() as held:
        where = runtime.resolve_device(device if ranks.size == 1 else str(ranks.device))
        with ranks.agreeing():
            inputs = guard.Inputs(models=[asked.init_from], data=[asked.data], files=[config])
            place = output.RunFolder(folder, inputs, resume, overwrite, take_over)
            place.check()
            with named_after(config):
                source = sources.open(asked)
            before = last_good(folder, warn) if resume else None
            with named_after(config or Path("train")):
                decided = decide(asked, source, where, before)
            built = run_config.built_model(decided, source, config, where)
            split = next((name for name in ("test", "minival") if name in source.splits), None)
            # Also those that it is tested on: now, and not after hours of training.
            source = bars.read_headers(source, ("train", split or "train"), asked.skip_unreadable)
            sources.say(asked)
            prepared = prepare(
                decided,
                source,
                built,
                before,
                init_from=asked.init_from,
                accept_changed_data=accept_changed_data,
                warn=warn,
                progress=functools.partial(bars.move, "comparing files"),
            )
        resolved = prepared.config
        owner = None
        with ranks.agreeing():
            if ranks.first:
                owner = held.enter_context(place.claimed(warn))
                run_config.save_config(resolved, folder)
        rest = [*(("--threads", threads) if threads else ()), *(("--device", device) if device != "auto" else ())]
        way_on = next_step.again("train", "--config", folder / CONFIG, "--out", folder, "--resume", *rest)
        held.enter_context(signals.way_on(way_on))
        last: Progress | None = None

        def observe(at: Progress) -> None:
            nonlocal last
            last = at
            seen = "" if at.validated is None else f", minival {quantity(at.validated.value, at.validated.unit)}"
            loss = "no image could be read" if at.loss is None else f"loss {at.loss:.3f}"
            bars.move(f"training {resolved.encoding}", at.images, at.total, loss + seen)

        with signals.deferred() as stop:
            run(
                resolved, folder, prepared=prepared, device=device, observe=observe, warn=warn, owner=owner, stop=stop,
                ranks=ranks,
            )  # fmt: skip
        if owner is None:
            return
        # In the last step: what was trained is whole, and testing it is not begun.
        signals.end_if_heard()
        bars.say_left_out(source)
        say_changes(source, resolved, warn)
        owner.check()
        if split is None:
            if not json:
                print(f"trained; {folder}/checkpoint (the data has no split to test on)")
                next_step.say_export(folder)
            return
        tested = open_run(folder, device=where, source=source)
        trained = tested.model
        assert resolved.resolution is not None
        # As it was trained: a packed run at native aspect on images at their own aspect too.
        own = measure.views_as_trained(resolved.packing, resolved.resolution, trained.config.patch_size, source, split)
        most = measure.usual_images(source)
        measured = measure.EvaluateConfig((resolved.resolution, *own[:1]), (split,), images=most)
        advance = bars.counter("testing", measure.planned_images(source, trained, measured, resolved.resolution))
        answers: list[Prediction] = []
        pictures: dict[str, Any] = {}
        rows = measure.evaluate(
            trained, source, measured, tested.identity, advance=advance, answers=answers, pictures=pictures
        )
        bars.say_left_out(source)
        with owner.held():
            # What was measured before is of other weights, unless the run was complete already.
            output.add_predictions(folder / PREDICTIONS, answers, anew=last is not None)
            output.add_rows(folder / RESULTS, rows, anew=last is not None)
            write_pictures(rows, pictures, folder)
    if json:
        print(dump_rows(rows), end="")
        return
    print_accuracy(rows, seen={rows[0].run: seen_sizes(asdict(resolved), trained.config.patch_size)})
    if last is not None:
        print(
            f"shown: {last.images:,} images, {last.tokens:,} tokens, {last.flops:.3g} operations; "
            f"{last.images / last.seconds:,.0f} images and {last.tokens / last.seconds:,.0f} tokens a second"
        )
        if resolved.packing is not None:
            unused = 1 - last.tokens / (last.step * resolved.packing.tokens)
            print(f"packed: {last.images / last.step:.1f} images a step, {100 * unused:.2f} % of its room unused")
    print(f"checkpoint: {folder / 'checkpoint'}")
    print(f"tested in {runtime.chosen_precision(measured.precision, where)}")
    next_step.say_next("evaluate", folder)
