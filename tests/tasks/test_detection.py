"""Detection: from what is said of an image to patches and back, which prediction answers for which object, losses."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sightline.data.source import Example
from sightline.data.targets import Crop, Objects
from sightline.models import ViTConfig
from sightline.models.box_head import BoxOutputs
from sightline.models.boxes import giou
from sightline.tasks.base import make_task
from sightline.tasks.detection import Detection, Detections
from sightline.tasks.matching import fcos_assign, hungarian_match, side_distance
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from sightline.tokens.segment import grid_coords

NAMES = ("disc", "square", "star")


def task(head: str = "fcos", **options: Any) -> Detection:
    model = {name: options.pop(name) for name in ("fit", "image_size") if name in options}
    config = ViTConfig(
        dim=16, heads=2, depth=1, num_classes=3, class_names=NAMES, head=head, task="detection", patch_size=4,
        **{"image_size": 32, **model},
    )  # fmt: skip
    made = make_task("detection", config, {"head": head, **options})
    assert isinstance(made, Detection)
    return made


def objects(boxes: Any, labels: Any, size: tuple[int, int], **more: Any) -> Objects:
    boxes = np.array(boxes, np.float64).reshape(-1, 4)
    crowd = more.pop("crowd", np.zeros(len(boxes), bool))
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
    return Objects(boxes, np.array(labels, np.int64), size, np.array(crowd), areas, **more)


def example(said: Objects, seen: tuple[int, int] | None = None) -> Example:
    return Example(np.zeros((*(seen or said.size), 3), np.uint8), said)


def test_an_object_at_twice_the_size_has_twice_the_patches() -> None:
    box, one = [4.0, 6, 16, 20], task()
    small = one.targets([example(objects([box], [1], (24, 40)))])["boxes"][0]
    large = one.targets([example(objects([[2 * side for side in box]], [1], (48, 80)))])["boxes"][0]
    assert small.tolist() == [[1.0, 1.5, 4.0, 5.0]]
    assert torch.equal(large, 2 * small)
    # Where answers are measured, objects are said of the stored image, and patches are those that are seen.
    measured = one.targets([example(objects([box], [1], (24, 40)), (48, 80))])["boxes"][0]
    assert torch.equal(measured, large)


@pytest.mark.parametrize(
    ("fit", "sides"), [("exact", (24, 40)), ("pad", (22, 37)), ("resize", (22, 37)), ("crop", (22, 37))]
)
@pytest.mark.parametrize("mirrored", [False, True])
def test_boxes_go_to_patches_and_back(fit: str, sides: tuple[int, int], mirrored: bool) -> None:
    """What is said of the stored image, seen through a crop, in patches, and decoded again is the same box."""
    one, crop = task(fit=fit), Crop((10.0, 30.0, 90.0, 150.0), sides, mirrored)
    truth = np.array([[20.0, 41, 60, 90], [35, 50, 80, 138]])
    said = objects(truth, [2, 0], (120, 200)).transform(crop)
    targets = one.targets([example(said)])
    grid = one.config.grid_of(sides)
    assert (targets["boxes"][0] <= torch.tensor([*grid, *grid])).all()
    logits = torch.full((2, 3), -9.0)
    logits[0, 2], logits[1, 0] = 3.0, 5.0
    found = one.decode({"logits": logits, "boxes": targets["boxes"][0]}, crop)
    assert found.labels.tolist() == [0, 2]
    assert np.abs(found.boxes - truth[::-1]).max() < 1e-3
    assert found.scores.tolist() == pytest.approx([1 / (1 + np.exp(-5)), 1 / (1 + np.exp(-3))])


def test_targets_leave_out_what_is_not_seen_and_keep_crowds_apart() -> None:
    boxes = [[0, 0, 8, 8], [5, 5, 5, 9], [8, 8, 16, 20], [np.nan, 0, 4, 4]]
    said = objects(boxes, [0, 1, 2, 1], (24, 40), crowd=[False, False, True, False])
    targets = task().targets([example(said), example(objects([], [], (24, 40)))])
    assert targets["boxes"][0].tolist() == [[0, 0, 2, 2]]
    assert targets["things"][0].tolist() == [0]
    assert targets["crowds"][0].tolist() == [[2, 2, 4, 5]]
    assert targets["boxes"][1].shape == (0, 4)
    assert targets["seen"] == [(24, 40), (24, 40)]


def test_of_which_classes_all_is_known() -> None:
    """LVIS: classes that are there or known to be absent, but for those of which not every object is said."""
    one, box = task(), [[0, 0, 8, 8]]
    known = [
        one.targets([example(objects(box, [0], (24, 40), **more))])["known"][0].tolist()
        for more in (
            {},
            {"negative_classes": ()},
            {"negative_classes": (2,)},
            {"negative_classes": (2,), "non_exhaustive_classes": (0,)},
        )
    ]
    assert known == [[True] * 3, [True, False, False], [True, False, True], [False, False, True]]


def places(grid: tuple[int, int], stride: float = 1.0) -> Tensor:
    middle = (grid_coords(Grid(*grid), torch.device("cpu")) + 0.5) * stride
    return torch.nn.functional.pad(middle, (0, 1), value=stride)


def test_every_object_gets_a_place() -> None:
    """One between the middles of patches the nearest, of two the smaller, before larger ones that could have it."""
    boxes = torch.tensor([[[0.0, 0, 3, 4], [1.6, 2.6, 1.8, 2.9], [1.6, 0.6, 1.7, 0.9], [9, 9, 9, 9]]])
    there = torch.tensor([[True, True, True, False]])
    whose = fcos_assign(places((3, 4))[None], boxes, there, 1.5)[0].view(3, 4)
    assert whose[1, 2] == 1
    assert whose[1, 0] == 2
    assert (whose == 0).sum() > 3
    assert 3 not in whose
    # Of patches that were dropped no other takes the place.
    rest = places((3, 4))[:4]
    far = fcos_assign(rest[None], torch.tensor([[[2.1, 0.1, 2.9, 0.9]]]), torch.ones(1, 1, dtype=torch.bool), 1.5)
    assert (far == -1).all()
    nothing = fcos_assign(places((3, 4))[None], torch.zeros(1, 0, 4), torch.zeros(1, 0, dtype=torch.bool), 1.5)
    assert (nothing == -1).all()


def test_the_pairs_of_sets_cost_the_least() -> None:
    draws = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 3, generator=draws)
    low = torch.rand(9, 2, generator=draws) * 6
    boxes = torch.cat((low, low + 1 + torch.rand(9, 2, generator=draws) * 3), dim=1)
    wanted, labels = boxes[5:8], torch.tensor([0, 2, 2])
    # Of the image there are five predictions and three objects; the rest is padding.
    there = [torch.arange(count) < least for count, least in ((9, 5), (4, 3))]
    logits = torch.nn.functional.pad(logits, (0, 0, 0, 4))
    padding = [torch.nn.functional.pad(labels, (0, 1)), torch.nn.functional.pad(wanted, (0, 0, 0, 1))]
    given = (logits, boxes, there[0], *padding, there[1])
    image, mine, its = hungarian_match(*(one[None] for one in given), classes=1.0, sides=2.0, overlap=3.0)
    assert image.tolist() == [0, 0, 0]

    def cost(prediction: int, number: int) -> float:
        score = logits[prediction].sigmoid()[labels[number]]
        classes = 0.25 * (1 - score) ** 2 * -score.log() - 0.75 * score**2 * -(1 - score).log()
        box, true = boxes[prediction], wanted[number]
        side = ((true[2] - true[0]) * (true[3] - true[1])).sqrt().clamp_min(1)
        return float(classes + 2 * (box - true).abs().mean() / side + 3 * -giou(box, true))

    least = min(permutations(range(5), 3), key=lambda some: sum(cost(one, number) for number, one in enumerate(some)))
    assert dict(zip(its.tolist(), mine.tolist(), strict=True)) == dict(enumerate(least))
    assert side_distance(boxes[0], boxes[0]) == 0


@pytest.mark.parametrize("head", ["fcos", "owlvit"])
def test_the_loss_of_a_batch_is_that_of_its_images_and_padding_changes_nothing(head: str) -> None:
    one = task(head)
    several = [random_case(head, seed, count) for seed, count in enumerate((2, 0, 3))]
    layout = TokenLayout.packed([(3, 4)] * 3, num_prefix_tokens=0)
    each = [one.loss([found], one.targets([said]), layout) for found, said in several]
    together = one.loss([found for found, _ in several], one.targets([said for _, said in several]), layout)
    batch = {key: torch.cat([found[key] for found, _ in several]) for key in several[0][0]}
    as_rows = one.loss([batch], one.targets([said for _, said in several]), layout)
    total, units = sum(float(value) for value, _ in each), sum(count for _, count in each)
    for value, count in (together, as_rows):
        assert float(value) == pytest.approx(total, rel=1e-5)
        assert count == units


def random_case(head: str, seed: int, count: int, dtype: torch.dtype = torch.float32) -> tuple[BoxOutputs, Example]:
    draws = torch.Generator().manual_seed(seed)
    middle = torch.rand(1, 12, 2, generator=draws) * torch.tensor([3.0, 4.0])
    half = 0.3 + torch.rand(1, 12, 2, generator=draws)
    found = {"logits": torch.randn(1, 12, 3, generator=draws), "boxes": torch.cat((middle - half, middle + half), -1)}
    if head == "fcos":
        found |= {"quality": torch.randn(1, 12, generator=draws), "places": places((3, 4))[None]}
    random = np.random.default_rng(seed)
    low = random.uniform(0, 6, (count, 2))
    boxes = np.concatenate([low, low + random.uniform(2, 6, (count, 2))], axis=1)
    said = objects(boxes, random.integers(0, 3, count), (12, 16))
    return {key: value.to(dtype) for key, value in found.items()}, example(said)


@pytest.mark.parametrize("head", ["fcos", "owlvit"])
def test_gradients_of_losses_are_those_of_finite_differences(head: str) -> None:
    found, said = random_case(head, 3, 2, torch.float64)
    one, layout = task(head), TokenLayout.uniform((3, 4), 1, num_prefix_tokens=0)
    targets = one.targets([said])
    for key in ("logits", "boxes", "quality"):
        if key not in found:
            continue
        values = found[key].requires_grad_()
        total, _ = one.loss([found], targets, layout)
        (gradient,) = torch.autograd.grad(total, values)
        direction = torch.randn(values.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        if key == "boxes" and head == "fcos":
            # The IoU that quality is taught is a constant to its loss: its own gradient is left out.
            quality = found["quality"].detach()
            found = found | {"quality": torch.zeros_like(quality)}
            total, _ = one.loss([found], targets, layout)
            (gradient,) = torch.autograd.grad(total, values)
        step, sides = 1e-6, []
        for sign in (1, -1):
            moved = found | {key: values.detach() + sign * step * direction}
            sides.append(float(one.loss([moved], targets, layout)[0]))
        assert float((gradient * direction).sum()) == pytest.approx((sides[0] - sides[1]) / (2 * step), rel=1e-4), key
        assert float(gradient.abs().sum()) > 0.01
        found = {name: value.detach() for name, value in found.items()}


@pytest.mark.parametrize("head", ["fcos", "simple_pyramid", "owlvit", "detr_queries"])
def test_losses_without_objects_are_finite_and_reach_every_output(head: str) -> None:
    one, layout = task(head), TokenLayout.uniform((3, 4), 1, num_prefix_tokens=0)
    kind = "fcos" if one.matching == "places" else "owlvit"
    found = {key: value.requires_grad_(key != "places") for key, value in random_case(kind, 0, 0)[0].items()}
    empty = one.targets([example(objects([], [], (12, 16)))])
    gone = one.targets([example(objects([[3, 3, 3, 5], [np.nan] * 4], [0, 1], (12, 16)))])
    for targets in (empty, gone):
        total, units = one.loss([found], targets, layout)
        assert total.isfinite()
        assert units == 0
        wanted = [value for value in found.values() if value.requires_grad]
        gradients = torch.autograd.grad(total, wanted, retain_graph=True)
        assert all(gradient.isfinite().all() for gradient in gradients)
    # A prediction that is not finite is not hidden by its having no object.
    broken = {key: value.detach().clone() for key, value in found.items()}
    broken["boxes"][0, 3] = torch.nan
    assert not one.loss([broken], empty, layout)[0].isfinite()
    assert one.loss([], {"boxes": [], "things": [], "crowds": [], "known": []}, layout)[1] == 0


def test_no_place_in_a_crowd_and_no_unknown_class_is_wrong() -> None:
    one, layout = task(), TokenLayout.uniform((3, 4), 1, num_prefix_tokens=0)
    found, _ = random_case("fcos", 0, 0)

    def gradient(said: Objects) -> Tensor:
        logits = found["logits"].clone().requires_grad_()
        total, _ = one.loss([found | {"logits": logits}], one.targets([example(said)]), layout)
        return torch.autograd.grad(total, logits)[0][0]

    whole = gradient(objects([], [], (12, 16)))
    assert (whole != 0).all()
    crowd = gradient(objects([[0, 0, 8, 8]], [0], (12, 16), crowd=[True]))
    assert (crowd == 0).all(dim=1).view(3, 4).tolist() == [[True, True, False, False]] * 2 + [[False] * 4]
    unknown = gradient(objects([], [], (12, 16), negative_classes=(1,)))
    assert (unknown == 0).all(dim=0).tolist() == [True, False, True]


def test_an_answer_as_json_words_coco_and_a_picture() -> None:
    one = task(shown=0.5)
    boxes = np.array([[2, 3, 12, 9], [0, 0, 5, 20], [1, 1, 3, 3]], np.float32)
    found = Detections(boxes, np.array([2, 0, 1]), np.array([0.9, 0.6, 0.3], np.float32))
    said = one.to_json(found, (20, 30), 1)
    assert [(it["class"], it["box"]) for it in said["objects"]] == [("star", [3, 2, 6, 10]), ("disc", [0, 0, 20, 5])]
    assert one.describe(said) == "star 0.90 at y 2-12, x 3-9; disc 0.60 at y 0-5, x 0-20"
    assert one.describe({"objects": []}) == "no object"
    coco = found.as_coco(7, [10, 20, 30])[0]
    assert coco == {"image_id": 7, "category_id": 30, "bbox": [3, 2, 6, 10], "score": pytest.approx(0.9)}
    assert found.as_coco("a")[1]["category_id"] == 1
    picture = np.asarray(one.pictures(found, np.full((20, 30, 3), 128, np.uint8))["overlay"])
    drawn = (picture != 128).any(axis=2)
    assert drawn[2, 3:9].all()
    assert drawn[11, 3:9].all()
    assert drawn[2:12, 8].all()
    # The last pixel of a box is drawn, and none beyond it but the words.
    assert not drawn[14:, :].any()
