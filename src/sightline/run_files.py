"""What the files in the folder of a run, and in its checkpoints, are called."""

from __future__ import annotations

CONFIG = "config.yaml"
LOG = "log.jsonl"
VALIDATION = "validation.jsonl"
RESULTS = "results.jsonl"
PREDICTIONS = "predictions.csv"
OWNER = "owner.json"
PROGRESS = "progress.json"
"""How far a training is, for whoever looks from elsewhere."""
PICTURES = "pictures"
"""The folder of what is drawn of answers."""
PAGE = "report.html"
OTHER_PAGES = ("search.html",)
"""Of the other data sets that a demonstration is measured on, in their order."""
RUN_FILES = (CONFIG, LOG, VALIDATION, RESULTS, PREDICTIONS, OWNER, PROGRESS)
"""What a run keeps in its folder; a page it may write anew."""

CHECKPOINT = "checkpoint"
BEST = f"{CHECKPOINT}.best"
PREVIOUS = f"{CHECKPOINT}.previous"
CHECKPOINTS = (CHECKPOINT, PREVIOUS, BEST)

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
