"""A classifier whose tokens say classes outright, and batches that say what is on their images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from sightline.analysis.analyse import run_pass
from sightline.analysis.images import Normalised, batches_by_size
from sightline.analysis.measures.base import Measure
from sightline.models import create_model
from tests.contract.randomise import randomise_parameters

CLASSES = 6
POOLS = [
    {"pool": "cls"},
    {"pool": "mean", "final_norm": "after_pool"},
    {"pool": "mean", "final_norm": "both", "num_registers": 2},
    {"pool": "attention"},
    {"pool": "query", "class_token": True, "num_registers": 1},
    {"pool": "cls", "head": "mlp", "num_registers": 3},
]


def tiny(encoding="rope_axial", **options):
    """A small classifier with random weights."""
    settings = {"image_size": 16, "depth": 2, "dim": 24, "heads": 2, "num_classes": CLASSES} | options
    return randomise_parameters(create_model("vit_micro_patch4", encoding=encoding, **settings)).eval()


def outright(**options):
    """A classifier whose logits are the first numbers of a token."""
    model = tiny(final_norm="none", **options)
    with torch.no_grad():
        model.head.weight.copy_(torch.eye(CLASSES, model.config.dim))
        model.head.bias.zero_()
    return model


def tokens_saying(classes: Sequence[int], dim: int = 24) -> torch.Tensor:
    """Tokens [1, slots, dim] of which each says a class, as `outright` hears it."""
    return torch.eye(dim)[list(classes)][None]


def some_images(*sizes: tuple[int, int]) -> list[torch.Tensor]:
    return [torch.randn(3, *size, generator=torch.Generator().manual_seed(number)) for number, size in enumerate(sizes)]


def batch_of(model, images, labels: Sequence[int], masks: Sequence[np.ndarray] = ()):
    """Images as a batch, with the class of each and masks in the model's numbers."""
    rows, layout = model.cut(images)
    targets = {
        "label": torch.tensor(labels),
        "pixels": [torch.from_numpy(np.asarray(one, np.int32)) for one in masks],
        "pixel_classes": torch.arange(CLASSES),
        "seen": [tuple(image.shape[-2:]) for image in images],
    }
    names = [f"image {number}" for number in range(len(images))]
    return Normalised(rows, layout, targets, torch.arange(len(images)), names, [{}] * len(images))


def random_masks(images, seed: int = 0, times: float = 1.0, least: int = -2) -> list[np.ndarray]:
    """Of each image [height, width] times so much: patches of classes, backgrounds and unsaid pixels."""
    draws = np.random.default_rng(seed)
    sizes = [[round(side * times) for side in image.shape[-2:]] for image in images]
    return [
        draws.integers(least, CLASSES, (h // 3 + 1, w // 3 + 1)).repeat(3, 0).repeat(3, 1)[:h, :w] for h, w in sizes
    ]


class Layers(Measure):
    """Keeps what is shown."""

    name, quantities = "kept", {}

    def __init__(self, model):
        super().__init__(model)
        self.kept = {}

    def tokens(self, layer, tokens, layout):
        self.kept[layer] = tokens, layout

    def arrays(self):
        return {}


def layers_of(model, images):
    """What each layer gives for images, and how it is laid out."""
    (batch,) = next(iter(batches_by_size(model, images).values()))
    kept = Layers(model)
    run_pass(model, batch, [kept])
    return kept.kept
