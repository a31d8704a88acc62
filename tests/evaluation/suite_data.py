"""Small data in the true form of each suite, and a model whose answers are known."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from sightline.evaluation.imagenet import synsets
from sightline.hub.load import save_model
from sightline.models import create_model
from sightline.tasks.classification import Classification

OPTIONS = {"image_size": 16, "depth": 1, "dim": 48, "heads": 4, "encoding": "learned_1d"}


def picture(file: Path, size: tuple[int, int] = (9, 12), seed: int = 0) -> Path:
    """A noisy image of (height, width); a PNG, whatever its name says."""
    file.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng([seed, len(file.name)]).integers(0, 256, (*size, 3), dtype=np.uint8)
    with file.open("wb") as stream:
        Image.fromarray(pixels).save(stream, "PNG")
    return file


def model_folder(folder: Path, classes: int = 1000, **options) -> Path:
    """A model with so many classes, which it has no names for."""
    torch.manual_seed(0)
    save_model(create_model("vit_micro_patch4", num_classes=classes, **{**OPTIONS, **options}), folder)
    return folder


def answering(monkeypatch, answers: Mapping[str, Sequence[int]]) -> list[str]:
    """Every classifier answers what is said of an image by a part of its name: numbers of classes, the surest first.

    Returns:
        The names of the images that were shown, as they are shown.
    """
    shown: list[str] = []

    def outputs(self, model, batch, precision="float32"):
        logits = torch.full((len(batch), self.config.num_classes), -10.0)
        for row, name in enumerate(batch.names):
            (best,) = [numbers for part, numbers in answers.items() if part in name]
            logits[row, list(best)] = torch.arange(10.0, 10.0 - len(best), -1)
        shown.extend(batch.names)
        return logits

    monkeypatch.setattr(Classification, "outputs", outputs)
    return shown


def validation(root: Path, numbers: Mapping[int, int], *, flat: bool = False) -> Path:
    """Validation images by their ILSVRC numbers, and the class of each."""
    for number, label in numbers.items():
        place = root if flat else root / synsets()[label]
        picture(place / f"ILSVRC2012_val_{number:08d}.JPEG", seed=number)
    return root


def objectnet(root: Path) -> Path:
    """Three classes: of one ImageNet has two, of one it has one, of one it has none. Images have red frames."""
    maps = root / "objectnet-1.0" / "mappings"
    maps.mkdir(parents=True)
    labels = {"alarm_clock": "Alarm clock", "banana": "Banana", "yoga_mat": "Yoga mat"}
    (maps / "folder_to_objectnet_label.json").write_text(json.dumps(labels))
    words = {"Alarm clock": "analog clock; digital clock", "Banana": "banana"}
    (maps / "objectnet_to_imagenet_1k.json").write_text(json.dumps(words))
    lines = [f"line {number}" for number in range(1000)]
    lines[5], lines[700], lines[900] = "analog clock", "banana", "digital clock"
    (maps / "imagenet_to_label_2012_v2").write_text("\n".join(lines) + "\n")
    numbers = {str(number): (number + 500) % 1000 for number in range(1000)}
    numbers |= {"409": 5, "505": 909, "530": 900, "400": 30, "954": 700, "200": 454}
    (maps / "pytorch_to_imagenet_2012_id.json").write_text(json.dumps(numbers))
    for folder in labels:
        for number in range(2):
            file = picture(root / "objectnet-1.0" / "images" / folder / f"{folder}{number}.png", (20, 28), number)
            pixels = np.asarray(Image.open(file)).copy()
            framed = np.full_like(pixels, (255, 0, 0))
            framed[2:-2, 2:-2] = pixels[2:-2, 2:-2]
            Image.fromarray(framed).save(file)
    return root


def imagenet_s(root: Path, shares: Sequence[tuple[str, int]]) -> Path:
    """Images of 10 x 10 pixels: of each its class, and how many pixels of the 100 are of it."""
    named = sorted({name for name, _ in shares})
    (root / "ImageNetS_categories_im919.txt").parent.mkdir(parents=True, exist_ok=True)
    # As published, in an order of its own.
    (root / "ImageNetS_categories_im919.txt").write_text("\n".join(reversed(named)) + "\n")
    folder = root / "ImageNetS919"
    for number, (name, count) in enumerate(shares):
        picture(folder / "validation" / name / f"ILSVRC2012_val_{number + 1:08d}.JPEG", (10, 10), number)
        classes = np.zeros(100, np.int64)
        classes[:count] = named.index(name) + 1
        # The rest is something else; one pixel is not said, and counts nowhere.
        classes[-1] = 1000
        mask = np.stack((classes % 256, classes // 256, np.zeros_like(classes)), axis=-1).reshape(10, 10, 3)
        place = folder / "validation-segmentation" / name / f"ILSVRC2012_val_{number + 1:08d}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(mask.astype(np.uint8)).save(place)
    return root
