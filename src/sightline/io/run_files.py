"""What the files in the folder of a run, and in its checkpoints, are called."""

from __future__ import annotations

import re
from pathlib import Path

CONFIG = "config.yaml"
LOG = "log.jsonl"
VALIDATION = "validation.jsonl"
RESULTS = "results.jsonl"
PREDICTIONS = "predictions.csv"
DENSE_PREDICTIONS = "predictions"
"""The folder of what a dense task said of each image, as files for other tools."""
LOCK = ".lock"
"""Held by the process that is at work in the folder, which it names."""
PROGRESS = "progress.json"
"""How far a training is, for whoever looks from elsewhere."""
PICTURES = "pictures"
"""The folder of what is drawn of answers."""
LOGITS = "logits"
"""The folder of what was said of each image of each measurement, where that is kept in the run's own."""
PROFILE = "profile"
"""The folder of where the time went."""
TENSORBOARD = "tensorboard"
"""The folder of its event files."""
WANDB = "wandb"
"""The folder of what Weights & Biases keeps."""
WANDB_RUN = "wandb.json"
"""Which of its runs this is."""
INSIDE = "analysis"
"""The folder of what was found inside its model."""
PAGE = "report.html"
OTHER_PAGES = ("search.html",)
"""Of the other data sets that a demonstration is measured on, in their order."""
COMPARISON = "comparison.jsonl"
"""The rows of a comparison of many runs, in the folder that holds theirs."""
TABLES = ("tables.csv", "tables.tex")
"""The tables of its page."""
TRANSFER = "transfer.jsonl"
"""What a model reached on other data sets, in the folder that holds the sweeps on them."""
SWEEP, QUEUE, CELLS = "sweep.yaml", "sweep.journal", "cells"
"""The copy of a sweep's file, what is asked and answered of it, and the folder of its runs, in its own folder."""
RUN_FILES = (CONFIG, LOG, VALIDATION, RESULTS, PREDICTIONS, PROGRESS, WANDB_RUN)
"""What a run keeps in its folder; a page it may write anew."""

CHECKPOINTS = "checkpoints"
"""The folder of a run's checkpoints, each of which is called after its step and never replaced."""
CHECKPOINT = "checkpoint"
"""A link to the last one."""
BEST = "checkpoint.best"
"""A link to the best one by validation."""
LINKS = (CHECKPOINT, BEST)
_STEP = re.compile(r"step-\d{8,}")

WEIGHTS = "model.safetensors"
MODEL = "config.json"
CHECKSUMS = "checksums.json"
TOKENIZER = "tokenizer.json"
"""Of a model that reads texts."""
TRAINING = "training"
"""The folder of what the next step of a training needs, beside the model in the checkpoint of a run."""
LISTING = "data.listing"
"""What names what a run was trained on, so that a difference can be named."""
LEFT_OUT = "left_out.jsonl"
"""The images that were left out, a line each: the record of a model is bounded, and these may be many."""
CHECKPOINT_FILES = (WEIGHTS, MODEL, CHECKSUMS, TRAINING, LISTING, LEFT_OUT, LOG, VALIDATION, RESULTS, PREDICTIONS)
"""What may stand in a checkpoint."""


def step_folder(run: Path, step: int) -> Path:
    """Where a run keeps its checkpoint of a step; these names sort as the steps do."""
    return run / CHECKPOINTS / f"step-{step:08d}"


def is_step_folder(place: Path) -> bool:
    """Whether a path is named as `step_folder` names them."""
    return place.parent.name == CHECKPOINTS and _STEP.fullmatch(place.name) is not None


def checkpoints(run: Path) -> list[Path]:
    """The checkpoints of a run, the newest first; whole or not."""
    found = (place for place in (run / CHECKPOINTS).glob("step-*") if is_step_folder(place) and place.is_dir())
    return sorted(found, key=lambda place: int(place.name.removeprefix("step-")), reverse=True)


def last_checkpoint(run: Path) -> Path:
    """The newest checkpoint of a run, also where a system has no links."""
    return next(iter(checkpoints(run)), run / CHECKPOINT)


def run_of_checkpoint(model: Path) -> Path | None:
    """The folder of the run that a checkpoint belongs to, by its name or where that leads; None of another folder."""
    for place in (model, model.resolve()):
        if place.name in LINKS:
            return place.parent
        if is_step_folder(place):
            return place.parent.parent
    return None
