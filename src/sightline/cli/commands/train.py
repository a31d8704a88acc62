"""`sightline train`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from sightline.runs.options import AnyData, Device, Json, MaxPixels, Settings, SkipAsTrained, Threads


def train(
    data: AnyData = None,
    *,
    recipe: str | None = None,
    task: str | None = None,
    head: str | None = None,
    encoding: str | None = None,
    model: str | None = None,
    init_from: str | None = None,
    resolution: int | None = None,
    frames: int | None = None,
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
    dry_run: bool = False,
    track: tuple[str, ...] = (),
    profile: bool = False,
    device: Device = "auto",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Train a model at one resolution, or packed at many, and test it at its own.

    Leaves checkpoint/, config.yaml, log.jsonl, results.jsonl and predictions.csv in the folder of the run.

    Args:
        recipe: What the rest changes: vit_scenes, navit_scenes, navit_imagefolder (a folder at many sizes and every
            aspect, packed), segment_scenes, detect_scenes, flexi_scenes (patches of many sizes), masked_patches (no
            labels), the papers' lookhere_150ep, lookhere_highres, deit3_400ep, vit_imagenet, vit_finetune,
            vit_masked_patches, navit_pretrain, flexivit, or the name of a data set; that of --data unless given.
        data: scenes, scenes:pairs, moving, digits, imagefolder:DIR, clips:DIR, images:DIR (no labels), hf:NAME or
            hf:DIR, wds:SHARDS, each with a recipe; or without one ade20k:DIR, cityscapes:DIR, voc:DIR, masks:DIR,
            coco:DIR, lvis:DIR. What follows changes it.
        task: What is learnt: classification, segmentation, detection, masked_patches, or a plug-in's task.
        head: What the task puts on the tokens, as pix for segmentation, fcos for detection.
        encoding: A position encoding (see `sightline encodings`), or two joined by +.
        model: A registered model (see `sightline models`).
        init_from: Begin with the weights of this model (a run, a folder, hf-hub:owner/name, timm:name); another
            encoding, and the head for other classes, are new.
        resolution: Side of the training images in pixels.
        frames: Frames of each clip that a model of clips is shown (--data moving or clips:DIR).
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
        track: Draw its curves elsewhere too, while it trains: tensorboard (its files in tensorboard/ of the run) or
            wandb; may be given twice. log.jsonl is always written.
        profile: Say where the time of ten steps goes, and leave profile/ with torch's trace of them.
        dry_run: Say what the run would be and what is missing, make two small steps of it, and leave nothing.
    """
    import functools

    from sightline.attention.cpu import chosen_precision
    from sightline.cli import next_step, progress, run_config
    from sightline.cli.dry_run import dry_run as find_out
    from sightline.cli.dry_run import print_dry_run
    from sightline.cli.profile_table import print_profile, profiled_at
    from sightline.distributed import machine, signals
    from sightline.distributed.ranks import init_ranks
    from sightline.errors import InputError
    from sightline.io.config import named_after
    from sightline.io.run_files import CONFIG
    from sightline.recipes.config import TrainingData
    from sightline.reports.seen import seen_sizes
    from sightline.reports.tables import print_accuracy
    from sightline.results.rows import dump_rows
    from sightline.runs import console, outputs
    from sightline.training import train as train_run
    from sightline.training.checkpointer import last_whole
    from sightline.training.config import TrainConfig
    from sightline.training.setup import set_up
    from sightline.training.tracking import check_trackers

    flags = {
        "data": data, "task": task, "encoding": encoding, "model": model, "resolution": resolution, "images": images,
        "epochs": epochs, "tokens": tokens, "flops": flops, "seed": seed, "init_from": init_from,
        "skip_unreadable": skip_unreadable, "max_pixels": max_pixels, "frames": frames,
    }  # fmt: skip
    settings = (*settings, *(() if head is None else (f"task_options.head={head}",)))
    if accept_changed_data and not resume:
        raise InputError("--accept-changed-data: goes with --resume")

    def folder_of(wanted: TrainConfig) -> Path:
        return out or Path("runs") / f"{recipe or wanted.data.replace(':', '_').replace('/', '_')}_{wanted.encoding}"

    began = (lambda wanted: folder_of(wanted) / CONFIG) if resume else None
    # What takes no time is not worth a line: more may yet be refused.
    with progress.Bars(late=0.5) as early:
        opened = TrainingData(early.move)
        asked = run_config.training_config(config, flags, settings, recipe, data=opened, began=began)
    machine.set_threads(threads)
    with init_ranks(device) as ranks, progress.Bars() as bars:
        opened.progress = bars.move
        where = machine.resolve_device(device if ranks.size == 1 else str(ranks.device))
        folder = folder_of(asked)
        inputs = outputs.Inputs(models=[asked.init_from], data=[asked.data], files=[config])
        place = outputs.RunFolder(folder, inputs, resume, overwrite)
        check_trackers(track)
        if ranks.is_main:
            place.check()
        with named_after(config):
            source = opened.open(asked)
        last = last_whole(folder, console.warn) if resume else None
        setup = set_up(
            asked, source, device=where, last=last, test=True, accept_changed_data=accept_changed_data,
            processes=ranks.size, file=config or Path("train"), warn=console.warn, progress=bars.move,
        )  # fmt: skip
        run_config.say_set_up(asked, opened, setup, bars)
        if dry_run:
            found = find_out(setup, where, ranks.size, console.warn)
            return print_dry_run(found, as_json=json) if ranks.is_main else None
        before = profiled_at(folder)
        rest = [*(("--threads", threads) if threads else ()), *(("--device", device) if device != "auto" else ())]
        way_on = console.command_line("train", "--config", folder / CONFIG, "--out", folder, "--resume", *rest)
        name = f"training {setup.config.encoding}"
        with signals.resume_hint(way_on):
            done = train_run(
                setup.config, folder, setup=setup, device=device, trackers=track, profile=profile,
                observe=lambda at: bars.move(name, at.images, at.total, *run_config.progress_notes(at)),
                on_tested=functools.partial(bars.move, "testing"), warn=console.warn,
                lock=lambda: place.claimed(console.warn), ranks=ranks,
            )  # fmt: skip
            bars.say_left_out(setup.source)
    if not ranks.is_main:
        return
    # One of an earlier sitting is not that of this one.
    if profile and not json and profiled_at(folder) not in (None, before):
        print_profile(folder)
    rows, last_step, resolved = done.rows, done.last, done.config
    if done.measured is None:
        if not json:
            print(f"trained; {folder}/checkpoint (the data has no split to test on)")
            next_step.say_export(folder)
        return
    if json:
        print(dump_rows(rows), end="")
        return
    print_accuracy(rows, seen={rows[0].run: seen_sizes(asdict(resolved), done.model.config.patch_size)})
    if last_step is not None:
        print(
            f"shown: {last_step.images:,} images, {last_step.tokens:,} tokens, {last_step.flops:.3g} operations; "
            f"{last_step.images / last_step.seconds:,.0f} images and {last_step.tokens / last_step.seconds:,.0f} "
            "tokens a second"
        )
        if resolved.packing is not None:
            unused = 1 - last_step.tokens / (last_step.step * resolved.packing.tokens)
            average = last_step.images / last_step.step
            print(f"packed: {average:.1f} images a step, {100 * unused:.2f} % of its room unused")
    print(f"checkpoint: {folder / 'checkpoint'}")
    print(f"tested in {chosen_precision(done.measured.precision, where)}")
    next_step.say_next("evaluate", folder)
