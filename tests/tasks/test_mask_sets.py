"""Sets of masks: their loss written out, what has no class, what is drawn, and the map that they are read as."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sightline import create_model
from sightline.data.targets import IGNORE, Crop
from sightline.tasks.base import make_task
from sightline.tasks.mask_sets import MaskSetReader
from sightline.tokens.layout import TokenLayout

LAYOUT = TokenLayout.uniform((2, 3), 2)


def outputs_of(rows: int = 2, earlier: int = 0, size: tuple[int, int] = (4, 6)) -> dict[str, Tensor]:
    draws = torch.Generator().manual_seed(0)
    found = {
        "masks": torch.randn(rows, 4, *size, generator=draws) * 2,
        "classes": torch.randn(rows, 4, 6, generator=draws),
    }
    if earlier:
        found["earlier_masks"] = torch.randn(rows, earlier, 4, *size, generator=draws)
        found["earlier_classes"] = torch.randn(rows, earlier, 4, 6, generator=draws)
    return found


def labels_of(*sizes: tuple[int, int]) -> list[Tensor]:
    draws = torch.Generator().manual_seed(1)
    labels = [torch.randint(0, 3, size, generator=draws, dtype=torch.uint8) for size in sizes]
    for one in labels:
        one[:2, :3] = IGNORE
    return labels


def by_hand(masks: Tensor, classes: Tensor, label: Tensor) -> float:
    """Of one image and one block: every assignment is tried."""
    large = F.interpolate(masks[None], size=tuple(label.shape), mode="bilinear", align_corners=False)[0]
    there = label != IGNORE
    present = label[there].unique().tolist()
    chances, logs = classes.softmax(-1), classes.log_softmax(-1)

    def of_mask(query: int, which: int) -> float:
        x, true = large[query][there], (label == which)[there].float()
        sure = x.sigmoid()
        cross = -(true * sure.log() + (1 - true) * (1 - sure).log()).mean()
        return float(5 * cross + 5 * (1 - (2 * (sure * true).sum() + 1) / (sure.sum() + true.sum() + 1)))

    best = min(
        itertools.permutations(range(len(masks)), len(present)),
        key=lambda queries: sum(
            of_mask(query, which) - 2 * float(chances[query, which])
            for query, which in zip(queries, present, strict=True)
        ),
    )
    paired = dict(zip(best, present, strict=True))
    weights = [1.0 if query in paired else 0.1 for query in range(len(masks))]
    crosses = [-float(logs[query, paired.get(query, classes.shape[1] - 1)]) for query in range(len(masks))]
    classed = np.dot(weights, crosses) / sum(weights)
    return 2 * classed + sum(of_mask(query, which) for query, which in paired.items()) / len(present)


def test_the_loss_is_what_is_written() -> None:
    found, labels = outputs_of(earlier=2), labels_of((7, 11), (8, 12))
    total, units = MaskSetReader().loss([found], labels, LAYOUT)
    expected = 0.0
    for row, label in enumerate(labels):
        expected += by_hand(found["masks"][row], found["classes"][row], label)
        for block in range(2):
            expected += by_hand(found["earlier_masks"][row, block], found["earlier_classes"][row, block], label)
    assert units == 2
    assert float(total) == pytest.approx(expected, rel=1e-5)


def test_a_pack_has_the_loss_of_its_images() -> None:
    one, other = outputs_of(1), outputs_of(1, size=(6, 4))
    labels = labels_of((8, 12), (12, 8))
    both, units = MaskSetReader().loss([one, other], labels, TokenLayout.packed([(2, 3), (3, 2)]))
    first, _ = MaskSetReader().loss([one], labels[:1], TokenLayout.packed([(2, 3)]))
    second, _ = MaskSetReader().loss([other], labels[1:], TokenLayout.packed([(3, 2)]))
    assert units == 2
    assert float(both) == pytest.approx(float(first + second), rel=1e-6)
    assert float(first) != pytest.approx(float(second), rel=1e-3)


def test_gradients_are_those_of_finite_differences() -> None:
    found = {name: one.double().requires_grad_() for name, one in outputs_of(earlier=1).items()}
    labels = labels_of((7, 11), (8, 12))
    total = MaskSetReader().loss([found], labels, LAYOUT)[0]
    gradients = torch.autograd.grad(total, list(found.values()))
    for (name, value), gradient in zip(found.items(), gradients, strict=True):
        direction = torch.randn(value.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
        above, below = (
            MaskSetReader().loss([{**found, name: value + sign * 1e-6 * direction}], labels, LAYOUT)[0]
            for sign in (1, -1)
        )
        assert float((gradient * direction).sum()) == pytest.approx(float((above - below).detach()) / 2e-6, rel=1e-4)


def test_masks_are_read_as_a_map() -> None:
    (one, _) = MaskSetReader().each([outputs_of()])
    scores = MaskSetReader().scores(one, (9, 13))
    large = F.interpolate(one["masks"][None], size=(9, 13), mode="bilinear", align_corners=False)[0].sigmoid()
    sure = one["classes"].softmax(-1)
    for which, y, x in ((0, 0, 0), (4, 8, 12), (2, 3, 7)):
        expected = sum(float(large[query, y, x] * sure[query, which]) for query in range(4))
        assert float(scores[which, y, x]) == pytest.approx(expected, rel=1e-5)
    assert torch.allclose(MaskSetReader().probabilities(scores).sum(0), torch.ones(9, 13))
    assert (MaskSetReader().argmax_map(one, (9, 13)) == scores.argmax(0).numpy()).all()


def test_the_task_reads_masks() -> None:
    """Also of an image that was padded."""
    model = create_model(
        "vit_micro_patch4", depth=2, dim=24, heads=3, head="eomt", head_options={"queries": 6}, num_classes=5,
        task="segmentation", image_size=16, fit="pad",
    ).eval()  # fmt: skip
    task, image = make_task("segmentation", model.config), torch.randn(3, 10, 15)
    outputs = model([image])
    layout = TokenLayout.packed([(3, 4)], num_prefix_tokens=1)
    (one,) = task.split_outputs(outputs, layout)
    decoded = task.decode(one, Crop((0, 0, 20, 30), (10, 15))).labels
    padded = F.interpolate(one["masks"][None], size=(12, 16), mode="bilinear", align_corners=False)
    cut = F.interpolate(padded[..., :10, :15], size=(20, 30), mode="bilinear", align_corners=False)[0]
    expected = torch.einsum("qhw,qc->chw", cut.sigmoid(), one["classes"].softmax(-1)[:, :-1]).argmax(0)
    assert (decoded == expected.numpy()).all()
    total, units = task.loss(outputs, {"pixels": [torch.ones(20, 30, dtype=torch.uint8)]}, layout)
    assert units == 1
    assert float(total.detach()) > 0
