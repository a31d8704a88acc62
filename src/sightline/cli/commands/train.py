"""`sightline train`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from sightline.cli.options import command_line_settings, settings_class
from sightline.runs.options import AnyData, Device, Json, Threads
from sightline.training.config import TrainConfig

_TITLES = {
    "Model": (
        "model", "init_from", "frozen", "model_options", "encoding", "encoding_options", "resolution", "progressive",
        "frames", "frame_stride",
    ),
    "Length and batches": ("images", "epochs", "tokens", "flops", "batch_size", "seed"),
    "Task and loss": ("task", "task_options", "loss", "label_smoothing"),
    "Images": ("parts", "flip", "interpolation", "augment", "repeats", "skip_unreadable", "max_pixels"),
    "Checkpoints": ("checkpoint_every", "keep_last"),
    "Memory and speed": (
        "accumulate", "recompute", "compile", "deterministic", "sharing", "precision", "workers",
    ),
}  # fmt: skip

if TYPE_CHECKING:
    Settings = TrainConfig
else:
    # A data set may be given by its place alone.
    Settings = settings_class(TrainConfig, without=("data",), titles=_TITLES)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of a training that are not settings of the run.

    Attributes:
        recipe: Settings to start from; other options change them. vit_scenes, navit_scenes, navit_imagefolder (a
            folder, packed at many sizes and aspect ratios), segment_scenes, detect_scenes, flexi_scenes (patches of
            many sizes), masked_patches (no labels), contrastive_scenes; of papers lookhere_150ep, lookhere_highres,
            deit3_400ep, vit_imagenet, vit_finetune, vit_masked_patches, navit_pretrain, navit_contrastive, flexivit; or
            the name of a data set. Default: the recipe of --data.
        config: A YAML file of settings. The command line overrides it.
        out: Folder of the run. Default: runs/DATA_ENCODING, or runs/RECIPE_ENCODING.
        resume: Continue the run in --out from its last checkpoint.
        accept_changed_data: With --resume, continue even if the data has changed.
        overwrite: Delete the run in --out first.
        dry_run: Print the size of the run and what is missing, compute two small steps, and write nothing.
        track: Also log curves to tensorboard (in tensorboard/ of the run) or wandb. May be given twice. log.jsonl is
            always written.
        profile: Measure where the time of ten steps goes; writes profile/ with torch's trace.
    """

    recipe: str | None = None
    config: Path | None = None
    out: Path | None = None
    resume: bool = False
    accept_changed_data: bool = False
    overwrite: bool = False
    dry_run: bool = False
    track: tuple[str, ...] = ()
    profile: bool = False
    device: Device = "auto"
    threads: Threads = None
    json: Json = False


def train(
    data: AnyData = None,
    *,
    how: RunOptions = RunOptions(),
    settings: Annotated[Settings | None, Parameter(name="*")] = None,
) -> None:
    """Train a model at one image size, or packed at many, and test it.

    Writes checkpoint/, config.yaml, log.jsonl, results.jsonl and predictions.csv to the folder of the run.

    Args:
        data: A folder, whose layout is recognised; or scenes, scenes:pairs, moving, digits, imagefolder:DIR, clips:DIR,
            images:DIR (no labels), hf:NAME or hf:DIR, wds:SHARDS, vtab:DIR/TASK, csv:FILE, ade20k:DIR, cityscapes:DIR,
            voc:DIR, masks:DIR, coco:DIR, coco-captions:DIR, lvis:DIR.
    """
    from functools import partial

    from sightline.cli import dry_run, progress, run_config
    from sightline.cli.profile_table import profiled_at
    from sightline.distributed import machine, signals
    from sightline.distributed.ranks import init_ranks
    from sightline.io.run_files import CONFIG
    from sightline.runs import console, outputs
    from sightline.training import train as train_run
    from sightline.training.tracking import check_trackers

    given = command_line_settings() | ({} if data is None else {"data": data})
    asked, folder, opened = run_config.training_request(given, how)
    machine.set_threads(how.threads)
    with init_ranks(how.device) as ranks, progress.Bars() as bars:
        opened.progress = bars.move
        where = machine.resolve_device(how.device if ranks.size == 1 else str(ranks.device))
        inputs = outputs.Inputs(models=[asked.init_from], data=[asked.data], files=[how.config])
        place = outputs.RunFolder(folder, inputs, how.resume, how.overwrite)
        check_trackers(how.track)
        if ranks.is_main:
            place.check()
        setup = run_config.set_up_training(asked, folder, opened, how, where, ranks.size, bars)
        if how.dry_run:
            found = dry_run.dry_run(setup, where, ranks.size, console.warn)
            return dry_run.print_dry_run(found, as_json=how.json) if ranks.is_main else None
        words = ("train", "--config", folder / CONFIG, "--out", folder, "--resume")
        name, before = f"training {setup.config.encoding}", profiled_at(folder)
        with signals.resume_hint(run_config.again(*words, device=how.device, threads=how.threads)):
            done = train_run(
                setup.config, folder, setup=setup, device=how.device, trackers=how.track, profile=how.profile,
                observe=partial(run_config.show_step, bars, name), on_tested=partial(bars.move, "testing"),
                warn=console.warn, lock=lambda: place.claimed(console.warn), ranks=ranks,
            )  # fmt: skip
            bars.say_left_out(setup.source)
    if ranks.is_main:
        # A profile of an earlier sitting is not that of this one.
        profiled = how.profile and profiled_at(folder) not in (None, before)
        run_config.print_trained(done, where, as_json=how.json, profiled=profiled)
