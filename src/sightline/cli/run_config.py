"""What `sightline train` was asked for by a file and the command line, and what is said of a training."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from sightline.attention.cpu import chosen_precision
from sightline.cli import next_step
from sightline.cli.profile_table import print_profile
from sightline.cli.progress import Bars
from sightline.errors import InputError
from sightline.hub.fine_tune import describe_init
from sightline.hub.load import load_model
from sightline.io.config import errors_of_file, merge
from sightline.io.read import format_bytes
from sightline.io.run_files import CHECKPOINT, CONFIG
from sightline.io.yaml import read_yaml
from sightline.recipes.config import TrainingData, config_with_recipe
from sightline.reports.results_tables import print_accuracy
from sightline.reports.seen import training_sizes
from sightline.reports.words import quantity
from sightline.results.rows import dump_rows
from sightline.runs.console import command_line, warn
from sightline.training.checkpointer import last_whole
from sightline.training.config import BUDGETS, TrainConfig
from sightline.training.loop import TrainProgress
from sightline.training.run import TrainResult
from sightline.training.setup import TrainSetup, set_up

if TYPE_CHECKING:
    from sightline.cli.commands.train import RunOptions


def training_request(given: Mapping[str, Any], how: RunOptions) -> tuple[TrainConfig, Path, TrainingData]:
    """What `sightline train` was asked for, checked; the folder of the run; and its data, opened where that was needed.

    Raises:
        InputError: as `training_config`.
    """
    if how.accept_changed_data and not how.resume:
        raise InputError("--accept-changed-data: goes with --resume")

    def folder_of(wanted: TrainConfig) -> Path:
        name = how.recipe or wanted.data.replace(":", "_").replace("/", "_")
        return how.out or Path("runs") / f"{name}_{wanted.encoding}"

    began = (lambda wanted: folder_of(wanted) / CONFIG) if how.resume else None
    # What takes no time is not worth a line: more may yet be refused.
    with Bars(late=0.5) as bars:
        data = TrainingData(bars.move)
        config = training_config(how.config, given, how.recipe, data=data, began=began)
    return config, folder_of(config), data


def training_config(
    file: Path | None,
    given: Mapping[str, Any],
    recipe: str | None = None,
    *,
    data: TrainingData,
    began: Callable[[TrainConfig], Path] | None = None,
) -> TrainConfig:
    """What `sightline train` was asked for, checked.

    Args:
        file: a YAML file of `TrainConfig`'s fields.
        given: what goes before the file, nested as YAML has it.
        recipe, data, began: as `config_with_recipe`.

    Raises:
        InputError: see `build_config`.
    """
    asked = merge(read_yaml(file) if file else {}, given)
    config = config_with_recipe(asked, data, file=file, recipe=recipe, began=began)
    if config.packing is not None and "batch_size" in given:
        said = f"batch_size {given['batch_size']}: not with packing (expected packing.tokens, of a step)"
        raise InputError(said, field="batch_size", value=given["batch_size"])
    return config


def set_up_training(
    asked: TrainConfig,
    folder: Path,
    data: TrainingData,
    how: RunOptions,
    device: torch.device,
    processes: int,
    bars: Bars,
) -> TrainSetup:
    """Open the data, and check and build the run, which with --resume goes on from the last checkpoint of its folder.

    Raises:
        InputError, UnreadableDataError: as `set_up`.
    """
    with errors_of_file(how.config):
        source = data.open(asked)
    setup = set_up(
        asked, source, device=device, last=last_whole(folder, warn) if how.resume else None, test=True,
        accept_changed_data=how.accept_changed_data, processes=processes, file=how.config or Path("train"),
        warn=warn, progress=bars.move,
    )  # fmt: skip
    say_set_up(asked, data, setup, bars, set(), fresh=not how.resume)
    return setup


def say_set_up(
    asked: TrainConfig, data: TrainingData, setup: TrainSetup, bars: Bars, said: set[str], *, fresh: bool
) -> None:
    """Say on stderr which images are left out, what was chosen by what was measured of the data, if that was not `said`
    already, and what a model keeps of the one that it begins with."""
    bars.say_left_out(setup.source)
    if (found := data.summary) is not None:
        mean, std = (", ".join(f"{value:g}" for value in values) for values in (found.mean, found.std))
        # None is the model's own.
        size = "" if asked.resolution is None else f" at {asked.resolution} px"
        line = (
            f"{asked.data}: {found.images:,} images of about {found.side:.0f} px: task {asked.task}, "
            f"{asked.model}{size}; mean {mean} and deviation {std} of {found.sampled} of them"
        )
        made, budgets = setup.config, ((name, getattr(asked, name)) for name in BUDGETS)
        name, length = next((one for one in budgets if one[1] is not None), ("images", made.images or 0))
        step = f"{made.packing.tokens:,} tokens" if made.packing else f"{made.batch_size} images"
        loss = f", loss {made.loss}, label smoothing {made.label_smoothing:g}" if made.loss else ""
        # Where the recipe chose the length.
        chosen = fresh and length != getattr(asked, name)
        shorter = " (shorter: --epochs 5)" if chosen and name == "epochs" and length > 5 else ""
        line += f"\ntraining: {length:,.6g} {name}{shorter}, {step} a step{loss}"
        if line not in said:
            print(line, file=sys.stderr)
            said.add(line)
    lacking = max((getattr(one, "unused_directions", 0) for one in setup.model.modules()), default=0)
    way = "12 heads have all; --model-options.heads sets those of a ViT"
    line = f"encoding {asked.encoding}: {lacking} of its directions have no head ({way})"
    if lacking and fresh and line not in said:
        warn(line)
        said.add(line)
    if asked.init_from is not None:
        began = str(setup.last or asked.init_from)
        print(describe_init(load_model(began), setup.model, began), file=sys.stderr)


def show_step(bars: Bars, name: str, at: TrainProgress) -> None:
    """Move the bar of a training; behind it stands the most wanted first."""
    notes = ["no image could be read" if at.loss is None else f"loss {at.loss:.3f}"]
    if at.validated is not None:
        notes.append(f"validation {quantity(at.validated.value, at.validated.unit)}")
    if at.pace.images_per_second is not None:
        notes += [f"{at.pace.images_per_second:,.0f} img/s", f"{at.pace.tokens_per_second:,.0f} tok/s"]
    if at.pace.peak_share is not None:
        notes.append(f"{100 * at.pace.peak_share:.0f} % of peak")
    bars.move(name, at.images, at.total, *notes, format_bytes(at.pace.memory))


def again(*words: object, device: str, threads: int | None) -> str:
    """As `command_line`, with the device and the threads of this command."""
    rest = [*(("--threads", threads) if threads else ()), *(("--device", device) if device != "auto" else ())]
    return command_line(*words, *rest)


def print_trained(done: TrainResult, device: torch.device, *, as_json: bool, profiled: bool) -> None:
    """Print what a training came to, with its profile where there is one, and what to type next."""
    if as_json:
        print(dump_rows(done.rows), end="")
        return
    if profiled:
        print_profile(done.folder)
    if done.last is None:
        print(f"{done.folder}: was finished before; nothing was trained now")
    if done.measured is None:
        print(f"trained; {done.folder}/checkpoint (the data has no split to test on)")
        next_step.say_export(done.folder)
        return
    seen = training_sizes(asdict(done.config), done.model.config.patch_size)
    print_accuracy(done.rows, seen={done.rows[0].run: seen})
    for view in done.measured.views:
        print(f"{view.name}: aspect kept, {'about' if view.kind == 'tokens' else 'at most'} {view.patches} patches")
    if (last := done.last) is not None:
        print(
            f"shown: {last.images:,} images, {last.tokens:,} tokens, {last.flops:.3g} operations; "
            f"{last.images / last.seconds:,.0f} images and {last.tokens / last.seconds:,.0f} tokens a second"
        )
        if done.config.packing is not None:
            unused = 1 - last.tokens / (last.step * done.config.packing.tokens)
            print(f"packed: {last.images / last.step:.1f} images a step, {100 * unused:.2f} % of its room unused")
    print(f"checkpoint: {done.folder / CHECKPOINT}")
    print(f"tested in {chosen_precision(done.measured.precision, device)}")
    next_step.say_next("evaluate", done.folder)
