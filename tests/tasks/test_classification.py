"""Classification: its losses and its confidence, by hand and beside torch's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from sightline.models import ViTConfig
from sightline.tasks.base import make_task
from sightline.tasks.classification import classification_loss
from sightline.tokens.layout import TokenLayout
from tests.batches import labelled

LAYOUT = TokenLayout.packed([])


def task(link="softmax", classes=3, names=None, **options) -> Any:
    config = ViTConfig(num_classes=classes, class_names=names, score_link=link)
    return make_task("classification", config, options)


def test_losses_in_numbers():
    logits = torch.tensor([[2.0, -1.0, 0.5], [0.0, 0.0, 3.0]])
    labels = torch.tensor([0, 1])
    target = torch.tensor([[1.0, 0, 0], [0, 1, 0]])
    for loss, smoothing in (("ce", 0.0), ("bce", 0.0), ("ce", 0.3), ("bce", 0.3)):
        smooth = target * (1 - smoothing) + smoothing / 3
        if loss == "ce":
            each = -(logits.log_softmax(1) * smooth).sum(1)
        else:
            each = -(smooth * logits.sigmoid().log() + (1 - smooth) * (-logits).sigmoid().log()).sum(1)
        torch.testing.assert_close(classification_loss(logits, loss, smoothing, labels), each.sum())
        # Each image counts alike: the sum, and over how many.
        total, units = task(loss=loss, label_smoothing=smoothing).loss(logits, {"labels": labels}, LAYOUT)
        torch.testing.assert_close(total / units, each.mean())
        assert units == 2
    assert classification_loss(logits.bfloat16(), "bce", 0.0, labels).dtype == torch.float32


def test_confidence_of_extreme_logits_is_finite():
    logits = torch.tensor([[3e4, 0.0], [-3e4, -3e4]])
    assert task("sigmoid", 2).confidence(logits, labelled([0, 1]))[1].tolist() == [1, 0]
    assert task("softmax", 2).confidence(logits, labelled([0, 1]))[1].tolist() == [1, 0.5]


def test_labels_are_the_model_s_by_name():
    """Also those that images are mixed with."""
    data: Any = SimpleNamespace(name="two", classes=("bee", "ant"), groups={"insects": (0, 1)})
    given: Any = [SimpleNamespace(target=SimpleNamespace(label=0, other=1, share=0.25))]
    named = task(names=("ant", "bee", "cat")).bind(data, "two")
    targets = named.targets(given)
    assert {name: value.tolist() for name, value in targets.items()} == {"labels": [1], "others": [0], "shares": [0.25]}
    assert sorted(named.groups["insects"]) == [0, 1]
    plain = task().bind(data, "two")
    assert plain.targets(given)["labels"].tolist() == [0]
    assert plain.names == ["bee", "ant", "2"]
