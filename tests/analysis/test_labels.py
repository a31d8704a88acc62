"""What a data set says, in a model's numbers; which pixel lies in which patch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sightline.analysis.images import NATIVE
from sightline.analysis.labels import OTHER, UNSAID, in_patches, required, split_batches
from sightline.data.open import open_source
from sightline.data.sizes import View
from sightline.errors import InputError
from sightline.evaluation.imagenet import synsets
from sightline.evaluation.predict import plan_split, read_split
from sightline.evaluation.suites.base import open_suite
from sightline.models import create_model
from sightline.tasks.classification import Classification, ClassificationOptions
from tests.analysis.saying import batch_of, random_masks, some_images, tiny
from tests.evaluation.suite_data import imagenet_s

GLYPHS = open_source("scenes").classes


def of_glyphs(names=GLYPHS, **options):
    settings = {"image_size": 16, "depth": 1, "dim": 24, "heads": 2, "class_names": names, "num_classes": len(names)}
    return create_model("vit_micro_patch4", **settings | options)


def test_scenes_in_the_models_own_numbers():
    """By name: a model that has its classes in another order, and one more."""
    names = ("nothing of this", *reversed(GLYPHS))
    source = open_source("scenes")
    (batch,) = split_batches(of_glyphs(names), source, "test", [3, 0, 5], (12, 20))
    assert batch.indices.tolist() == [3, 0, 5]
    assert tuple(batch.layout.segments[0].grid) == (3, 5)
    for place, index in enumerate((3, 0, 5)):
        example = source.example("test", index, (12, 20))
        label = names.index(GLYPHS[example.target.label])
        assert batch.targets["label"][place] == label
        pixels = batch.targets["pixels"][place].numpy()
        assert (pixels == np.where(example.target.pixels > 0, label, OTHER)).all()
        assert {OTHER, label} == set(np.unique(pixels).tolist())
    assert batch.targets["pixel_classes"].tolist() == list(range(1, 25))


@pytest.mark.parametrize(
    ("data", "model", "what", "why"),
    [
        ("scenes:pairs", {"class_names": None}, "label", "data scenes:pairs: has 24 classes, the model's head 5"),
        ("digits", {}, "label", "data digits: its class '0' is none of the model's 5 ('a', ...)"),
        ("digits", {}, "pixels", "data digits: has no masks (the class of each pixel)"),
        ("scenes:many", {"num_classes": 5, "class_names": None}, "pixels", "which is no class of the model"),
        ("scenes", {}, "pixels", "data scenes: its masks show 'b', which is no class of the model"),
    ],
)
def test_what_cannot_be_mapped_is_refused_by_whoever_needs_it(data, model, what, why):
    model = of_glyphs(tuple("aeiou"), **model)
    (batch,) = split_batches(model, open_source(data), "test", [0], (8, 8), data=data)
    assert what not in batch.targets
    with pytest.raises(InputError) as refused:
        required(batch, what, "a_measure")
    assert str(refused.value).startswith("a_measure: data ")
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("view", [16, View("native"), View("tokens", 12)])
def test_images_are_those_that_evaluate_shows(view):
    model, source, indices = of_glyphs(), open_source("scenes"), list(range(9))
    task = Classification(model.config, ClassificationOptions()).bind(source, "scenes")
    planned = plan_split(model, source, "test", indices, view)
    expected = list(read_split(model, task, source, "test", planned, view))
    size = (view, view) if isinstance(view, int) else NATIVE if view == View("native") else view
    batches = split_batches(model, source, "test", indices, size)
    found = list(batches)
    assert [one.indices.tolist() for one in found] == [one.indices.tolist() for one in expected]
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.inputs, other.inputs)
        assert torch.equal(one.targets["label"], other.targets["labels"])
    again = list(batches)
    assert torch.equal(again[0].inputs, found[0].inputs)


def counted(entries) -> dict[tuple[int, int], int]:
    return dict(zip(zip(entries.patches.tolist(), entries.classes.tolist(), strict=True), entries.counts, strict=True))


def written_out(labels, grid, seen, patch, kept=None):
    """Pixel by pixel: the patch in which its centre lies, in the picture that was seen."""
    found: dict[tuple[int, int], int] = {}
    height, width = labels.shape
    for y in range(height):
        for x in range(width):
            row = int((y + 0.5) * seen[0] / height / patch[0])
            col = int((x + 0.5) * seen[1] / width / patch[1])
            if row >= grid[0] or col >= grid[1] or labels[y, x] == UNSAID:
                continue
            cell = row * grid[1] + col
            if kept is not None:
                if cell not in kept:
                    continue
                cell = kept.index(cell)
            key = cell, int(labels[y, x])
            found[key] = found.get(key, 0) + 1
    return found


@pytest.mark.parametrize("times", [1.0, 0.5, 2.25])
def test_pixels_lie_in_the_patch_of_their_centre(times):
    """Masks have a size of their own; images of a pack their grids."""
    model, images = tiny(), some_images((12, 20), (8, 4))
    masks = random_masks(images, times=times)
    found = in_patches(batch_of(model, images, [0, 1], masks), model.config)
    for one, mask, grid, image in zip(found, masks, ((3, 5), (2, 1)), images, strict=True):
        assert counted(one) == written_out(mask, grid, image.shape[-2:], (4, 4))
    assert len(set(found[0].classes.tolist())) > 2


def test_masks_of_imagenet_s(tmp_path):
    """Classes that masks number otherwise than ImageNet does, and a pixel of which nothing is said; a model that knows
    no names numbers classes as ImageNet does."""
    named = [synsets()[one] for one in (700, 10)]
    root = imagenet_s(tmp_path / "root", [(named[0], 30), (named[1], 50)])
    source = open_suite(f"imagenet-s:{root}").parts[0].source
    model = create_model("vit_micro_patch4", image_size=16, depth=1, dim=24, heads=2, num_classes=1000, crop=0.8)
    batch = next(iter(split_batches(model, source, "test", [0, 1], (16, 8))))
    for place, (label, count) in enumerate(sorted([(700, 30), (10, 50)])):
        expected = np.full(100, OTHER)
        expected[:count], expected[-1] = label, UNSAID
        assert batch.targets["label"][place] == label
        crop = source.prepared("bicubic", 0.8).transform.measured((10, 10), (16, 8))
        assert (batch.targets["pixels"][place].numpy() == expected.reshape(10, 10)[crop.region]).all()
    assert batch.targets["pixel_classes"].tolist() == [10, 700]
    assert tuple(batch.targets["pixels"][0].shape) != (10, 10)
    assert batch.targets["seen"] == [(16, 8)] * 2
