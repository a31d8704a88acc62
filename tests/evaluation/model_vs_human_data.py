"""Some sets of model-vs-human in their published layout, what people made of them, and models that answer at random."""

from __future__ import annotations

import csv
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from sightline.metrics.model_vs_human import published
from sightline.tasks.classification import Classification
from tests.evaluation.suite_data import picture

CLASSES = (
    "airplane", "bear", "bicycle", "bird", "boat", "bottle", "car", "cat", "chair", "clock", "dog", "elephant",
    "keyboard", "knife", "oven", "truck",
)  # fmt: skip
# As they stand in the published names of files.
LEVELS = {
    "contrast": ("con", ("c100", "c50", "c30", "c05", "c03")),
    "uniform-noise": ("nse", ("0.00", "0.10", "0.35", "0.60")),
    "false-colour": ("fc", ("true", "false")),
    "sketch": ("ske", ("0",)),
}
SYNSET = "n02951358"


def stimuli(root: Path, sets: Sequence[str] = (*LEVELS, "edge", "cue-conflict"), each: int = 2) -> Path:
    """So many images of some classes in each set and level; of cue-conflict the cues of some are of one class."""
    for name in sets:
        number = 0
        for level in LEVELS.get(name, ("", ("",)))[1]:
            for kind in CLASSES[:4]:
                for copy in range(each):
                    number += 1
                    if name in LEVELS:
                        last = f"{kind}-{number:04d}-sketch-3.png" if name == "sketch" else f"{SYNSET}_{number}.png"
                        file = f"{name}/dnn/session-1/{number:04d}_{LEVELS[name][0]}_dnn_{level}_{kind}_10_{last}"
                    else:
                        texture = CLASSES[(CLASSES.index(kind) + copy) % 5]
                        file = f"{name}/{kind}/{kind}{copy + 1}{f'-{texture}2' * (name == 'cue-conflict')}.png"
                    picture(root / file, (8, 8), number)
    return root


def answers_of(folder: Path, root: Path, name: str, people: Mapping[str, float], na: Sequence[str] = ()) -> None:
    """A CSV a person, in another order than the images: of so many a share is right; `na` says nothing to the rest."""
    images = sorted((root / name).rglob("*.png"), reverse=True)
    for who, share in people.items():
        lines = []
        rng = np.random.default_rng([len(who), ord(who[-1])])
        for trial, file in enumerate(images):
            words = file.name.split("_")
            kind, level = (words[4], words[3]) if name in LEVELS else (file.parent.name, "NaN")
            said = kind if rng.random() < share else "na" if who in na else CLASSES[rng.integers(16)]
            shown = file.name.replace("_dnn_", f"_s{who[-2:]}_")
            lines.append((who, 1, trial, "NaN", said, kind, level, shown))
        place = folder / name / f"{name}_{who}_session_1.csv"
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("w", newline="") as stream:
            head = ("subj", "Session", "trial", "rt", "object_response", "category", "condition", "imagename")
            csv.writer(stream).writerows([head, *lines])


def logits_of(name: str, seed: int) -> np.ndarray:
    """Of an image by its file's name: float32 [1000], near to right every second time or so."""
    rng = np.random.default_rng([seed, zlib.crc32(Path(name).name.encode())])
    logits = rng.normal(0, 2, 1000)
    logits[[number for one in CLASSES for number in published()["classes"][one]]] += 2
    words = Path(name).name.split("_")
    kind = words[4] if len(words) > 5 else Path(name).parent.name
    logits[published()["classes"][kind]] += rng.choice([0, 3, 6])
    return logits.astype(np.float32)


def answering_at_random(monkeypatch, seed: int = 0, order: Sequence[str] = ()) -> None:
    """Every classifier of 1,000 classes answers by `logits_of`, one that names them in its own order of these names."""

    def outputs(self, model, batch, precision="float32"):
        logits = np.stack([logits_of(name, seed) for name in batch.names])
        own = self.config.class_names
        return torch.from_numpy(logits if own is None else logits[:, [order.index(name) for name in own]])

    monkeypatch.setattr(Classification, "outputs", outputs)
