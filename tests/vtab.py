"""Stand-ins for tasks of VTAB-1k, in their published layout, and a model to transfer to them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

import sightline
from tests.tiny import MODEL


def write_task(root: Path, classes: int = 10, train: int = 50, test: int = 12) -> Path:
    """A task of squares of 8 px, of which those of a class are of one grey; the last fifth of train is val200."""
    draws = np.random.default_rng(0)
    (root / "images").mkdir(parents=True)
    for number in range(train + test):
        grey = 255 * (number % classes) // classes
        pixels = np.clip(grey + draws.integers(-8, 9, (8, 8, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(root / "images" / f"{number}.png")
    last = train - train // 5
    lists = {
        "train800": (0, last),
        "val200": (last, train),
        "train800val200": (0, train),
        "test": (train, train + test),
    }
    for name, ends in lists.items():
        lines = [f"images/{number}.png {number % classes}\n" for number in range(*ends)]
        (root / f"{name}.txt").write_text("".join(lines))
    return root


def save_tiny(folder: Path) -> Path:
    """A small model of 16 px with random weights."""
    model = sightline.create_model("vit_micro_patch4", num_classes=3, image_size=16, encoding="lookhere_90", **MODEL)
    sightline.save_model(model, folder)
    return folder
