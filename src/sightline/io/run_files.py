"""What the files in the folder of a run, and in its checkpoints, are called."""

from __future__ import annotations

import re
from pathlib import Path

CONFIG = "config.yaml"
LOG = "log.jsonl"
VALIDATION = "validation.jsonl"
RESULTS = "results.jsonl"
PREDICTIONS = "predictions.csv"
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
SWEEP, QUEUE, CELLS = "sweep.yaml", "sweep.db", "cells"
"""The copy of a sweep's file, what is asked and answered of it, and the folder of its runs, in its own folder."""
RUN_FILES = (CONFIG, LOG, VALIDATION, RESULTS, PREDICTIONS, PROGRESS, WANDB_RUN)
"""What a run keeps in its folder; a page it may write anew."""

CHECKPOINT = "checkpoint"
BEST = f"{CHECKPOINT}.best"
PREVIOUS = f"{CHECKPOINT}.previous"
CHECKPOINTS = (CHECKPOINT, PREVIOUS, BEST)
_OLDER = re.compile(rf"{CHECKPOINT}\.step-(\d{{8,}})")

WEIGHTS = "model.safetensors"
MODEL = "config.json"
CHECKSUMS = "checksums.json"
TRAINING = "training.safetensors"
"""The state of a training, beside the model in the checkpoint of a run."""
LISTING = "data.listing"
"""What names what a run was trained on, so that a difference can be named."""
LEFT_OUT = "left_out.jsonl"
"""The images that were left out, a line each: the record of a model is bounded, and these may be many."""
CHECKPOINT_FILES = (WEIGHTS, MODEL, CHECKSUMS, TRAINING, LISTING, LEFT_OUT, LOG, VALIDATION, RESULTS, PREDICTIONS)
_PART = re.compile(r"(.+)-\d{5}-of-\d{5}(\.safetensors)")


def whole_of(name: str) -> str:
    """The file whose part this is, where each process wrote its own: "model-00001-of-00002.safetensors" ->
    "model.safetensors"; else the name itself."""
    found = _PART.fullmatch(name)
    return name if found is None else found[1] + found[2]


def is_checkpoint_file(name: str) -> bool:
    """Whether a file of this name may stand in a checkpoint."""
    return whole_of(name) in CHECKPOINT_FILES


def older_checkpoint_name(step: int) -> str:
    """What an older checkpoint that a run keeps is called; these names sort as the steps do."""
    return f"{CHECKPOINT}.step-{step:08d}"


def step_of(name: str) -> int | None:
    """The step in the name of an older checkpoint; None of another name."""
    found = _OLDER.fullmatch(name)
    return None if found is None else int(found[1])


def is_checkpoint(name: str) -> bool:
    """Whether a folder of this name in that of a run is one of its checkpoints."""
    return name in CHECKPOINTS or step_of(name) is not None


def checkpoints_of(folder: Path) -> list[Path]:
    """Where a run may have checkpoints, the last one first, then the one before, the best, and the older ones that are
    there from the newest on."""
    older = [place for place in folder.glob(older_checkpoint_name(0)[:-8] + "*") if step_of(place.name) is not None]
    return [
        *(folder / name for name in CHECKPOINTS),
        *sorted(older, key=lambda place: step_of(place.name) or 0, reverse=True),
    ]
