"""The logit lens: what a classifier says of each token by itself, layer by layer (LookHere 4.2, figures 5 and 12), and
how well that segments an image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from sightline.analysis.labels import InPatches, in_patches, required
from sightline.analysis.measures.base import Measure, MeasuredQuantity
from sightline.attention.dispatch import record_attention
from sightline.data.batch import Batch
from sightline.errors import InputError
from sightline.io.config import Entries, check_value, whole
from sightline.metrics.base import bootstrap_weights, percentile_interval
from sightline.metrics.iou import ConfusionCounts, class_ious, confusion_pairs
from sightline.models import Model
from sightline.models.head import patch_tokens
from sightline.models.pooling import ProbePooling
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout

_WORDS = "patches in rows and columns, no prefix token; images of several grids have no maps (sides of 0)"
_RULE = (
    "a pixel is said to be what its patch says: the highest logit, of the classes that masks may show; pixels of no "
    "class (the background) and those of which nothing is said are left out; prefix tokens are no patches"
)


def lens(model: Model, tokens: Tensor, layout: TokenLayout) -> Tensor:
    """Logits of every token by itself: through the final norm, the norm after pooling and the head, as they stand
    (LookHere 4.2; Vilas et al. 2023, section 3).

    Where the CLS token, a mean or both are what the head reads, a token stands in their place. Where a probe pools,
    each token goes through the pool alone, as the pool of a set of one: the probe gives it all its attention.

    Args:
        model: a classifier, in evaluation mode.
        tokens: what a layer gives, before the final norm: [rows, slots, dim], prefix tokens among them.
        layout: of the tokens; what it says changes no logit, padding slots mean nothing.

    Returns:
        float32 [rows, slots, classes].

    Raises:
        InputError: the model is no classifier.
    """
    check_classifier(model, "logit_lens")
    tokens = model.norm(tokens)
    rows, slots, dim = tokens.shape
    if isinstance(model.attn_pool, ProbePooling) and tokens.numel():
        alone = TokenLayout.uniform(Grid(1, 1), rows * slots, num_prefix_tokens=0, device=tokens.device)
        # That a token is given all attention is nothing that the model does, and shown to nobody.
        with record_attention(None):
            tokens = model.attn_pool(tokens.reshape(rows * slots, 1, dim), alone).reshape(rows, slots, -1)
    tokens = tokens.repeat(1, 1, model.config.pooled_dim // model.config.dim)
    return model.head(model.fc_norm(tokens)).float()


def pooled_logits(model: Model, tokens: Tensor, layout: TokenLayout) -> Tensor:
    """Logits of what the model pools of a layer's tokens, as if that layer were the last: the CLS token's where it is
    read, else of the mean or of the probe's answer.

    Args:
        model, tokens: as `lens`; layout: of the tokens.

    Returns:
        float32 [images, classes], in the order of the batch.
    """
    check_classifier(model, "logit_lens")
    with record_attention(None):
        return model.head(model.pool(model.norm(tokens), layout)).float()


def check_classifier(model: Model, measure: str) -> None:
    """Refuse a model that gives no scores of classes.

    Raises:
        InputError: says which head it has.
    """
    if not model.config.has_classifier or model.attn_pool is None or not model.num_classes:
        head = model.config.head if not model.config.has_classifier else "none"
        raise InputError(f"{measure}: the model has no classifier (head: {head}; expected linear or mlp with classes)")


def of_images(patches: Sequence[Tensor]) -> list[Tensor]:
    """What segments have, each [rows, patches, ...], image by image in the order of `TokenLayout.image_ids`."""
    return [segment[row] for row in range(len(patches[0]) if patches else 0) for segment in patches]


def probabilities(model: Model, logits: Tensor) -> Tensor:
    """Logits [..., classes] as the model's own link reads them: a softmax over classes, or a sigmoid of each."""
    return logits.sigmoid() if model.config.score_link == "sigmoid" else logits.softmax(dim=-1)


class OfClassifier(Measure):
    """A measure of what a classifier says of tokens; other models are refused."""

    @classmethod
    def check(cls, model: Model) -> None:
        check_classifier(model, cls.name)


class LogitLens(OfClassifier):
    """The class that each patch says by itself, and how surely; see `lens`.

    A patch of which nothing is known by itself says what it has heard of others: nothing is masked here but what the
    model's own attention masks.
    """

    name: ClassVar[str] = "logit_lens"
    quantities: ClassVar[Mapping[str, MeasuredQuantity]] = {
        "layers": MeasuredQuantity(("chosen",), "", "the layers of which there are maps, from 0"),
        "top_class": MeasuredQuantity(
            ("image", "chosen", "row", "col"), "", f"the class of the highest logit, the first of equal ones; {_WORDS}"
        ),
        "probability": MeasuredQuantity(
            ("image", "chosen", "row", "col"),
            "fraction",
            f"of the class that the patch holds most likely, by the model's own link (softmax, or sigmoid); {_WORDS}",
            "maps",
        ),
    }

    def __init__(self, model: Model, layers: Sequence[int] | None = None) -> None:
        """Args: layers: of which there are maps, from 0, -1 the last (else InputError); the last where None."""
        super().__init__(model)
        depth, chosen = model.config.depth, (-1,) if layers is None else layers
        check_value("logit_lens: layers", chosen, Entries)
        for layer in chosen:
            check_value("logit_lens: layer", layer, whole(-depth, depth - 1))
        self.layers = list(dict.fromkeys(layer % depth for layer in chosen))
        self.grids: list[Grid] = []
        self.seen: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {layer: [] for layer in self.layers}

    def begin(self, batch: Batch) -> None:
        self.grids += [segment.grid for segment in batch.layout.segments] * batch.layout.rows

    def tokens(self, layer: int, tokens: Tensor, layout: TokenLayout) -> None:
        if layer not in self.seen:
            return
        logits = lens(self.model, tokens, layout)
        # Of logits: probabilities that are near 1 may be equal.
        which = logits.argmax(-1)
        surest = probabilities(self.model, logits).gather(-1, which.unsqueeze(-1)).squeeze(-1)
        both = zip(*(of_images(patch_tokens(one, layout)) for one in (which, surest)), strict=True)
        self.seen[layer] += [(one.cpu().numpy(), sure.cpu().numpy()) for one, sure in both]

    def arrays(self) -> dict[str, np.ndarray]:
        maps: dict[str, Any] = {"layers": np.array(self.layers)}
        grid = self.grids[0] if len(set(self.grids)) == 1 else Grid(0, 0)
        whole = grid.cells and all(len(one) == grid.cells for one, _ in self.seen[self.layers[0]])
        shape = (len(self.grids), len(self.layers), *(grid if whole else (0, 0)))
        for place, (name, kind) in enumerate((("top_class", np.int64), ("probability", np.float64))):
            maps[name] = np.zeros(shape, kind)
            for number, layer in enumerate(self.layers if whole else []):
                maps[name][:, number] = np.stack([one[place] for one in self.seen[layer]]).reshape(-1, *grid)
        return maps


class LensMiou(OfClassifier):
    """Mean IoU of what the logit lens says of each patch, at the labels' own pixels (nearest).

    IoU is of the pixels that have a class: those rightly called so over those called so or that are so. The mean is
    over the classes that are there; where a class is called so that is nowhere, those whose pixels it takes lose them.
    A classifier has no class for the background, and none is made up for it by a threshold.
    """

    name: ClassVar[str] = "lens_miou"
    needs: ClassVar[tuple[str, ...]] = ("pixels",)
    quantities: ClassVar[Mapping[str, MeasuredQuantity]] = {
        "image_miou": MeasuredQuantity(
            ("image", "layer"), "fraction", f"of each image, NaN where no pixel has a class; {_RULE}", "layers"
        ),
        "miou": MeasuredQuantity(("layer",), "fraction", f"of the pixels of all images together; {_RULE}", "layers"),
        "miou_low": MeasuredQuantity(("layer",), "fraction", "where miou's 95 % begin: images resampled, 1000 draws"),
        "miou_high": MeasuredQuantity(("layer",), "fraction", "where they end"),
        "pixel_accuracy": MeasuredQuantity(
            ("layer",), "fraction", f"pixels rightly called, of all images together; {_RULE}"
        ),
        "pixels": MeasuredQuantity(("image",), "px", "that have a class, in patches that are there"),
    }

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.pairs: list[ConfusionCounts] | None = None
        self.seen: list[int] = []
        # Of the batch at hand: which classes masks may show, and what lies in which patch.
        self.classes: Tensor | None = None
        self.masks: list[InPatches] = []

    def begin(self, batch: Batch) -> None:
        required(batch, "pixels", self.name)
        self.classes = classes = batch.targets["pixel_classes"]
        numbers = classes.cpu().numpy()
        if self.pairs is None:
            self.pairs = [ConfusionCounts(len(numbers), len(numbers)) for _ in range(self.model.config.depth)]
        self.masks = []
        for patches, said, counts in in_patches(batch, self.model.config):
            there = said >= 0
            # Classes by their place among those of masks.
            self.masks.append(InPatches(patches[there], np.searchsorted(numbers, said[there]), counts[there]))
            self.seen.append(int(counts[there].sum()))

    def tokens(self, layer: int, tokens: Tensor, layout: TokenLayout) -> None:
        if layer < 0:
            return
        assert self.pairs is not None
        assert self.classes is not None
        said = lens(self.model, tokens, layout).index_select(-1, self.classes).argmax(-1)
        for one, mask in zip(of_images(patch_tokens(said, layout)), self.masks, strict=True):
            pairs = self.pairs[layer]
            predicted = one.cpu().numpy()[mask.patches]
            pairs.images.append(confusion_pairs(mask.classes, predicted, times=mask.counts, ignored=pairs.ignored))

    def arrays(self) -> dict[str, np.ndarray]:
        images, depth = len(self.seen), self.model.config.depth
        found: dict[str, np.ndarray] = {
            name: np.full(depth, np.nan) for name in ("miou", "miou_low", "miou_high", "pixel_accuracy")
        }
        found["image_miou"], found["pixels"] = np.full((images, depth), np.nan), np.array(self.seen, np.int64)
        weights = bootstrap_weights(max(images, 1))[:, :images]
        # An image at a time: of a thousand classes those of all are many.
        alone = np.ones((1, 1), np.int64)
        for layer, pairs in enumerate(self.pairs or ()):
            right, said, true = pairs.sums(weights)
            values = present_mean(class_ious(right, said, true), true)
            if np.isfinite(values[0]):
                found["miou"][layer] = values[0]
                found["miou_low"][layer], found["miou_high"][layer] = percentile_interval(values)
                found["pixel_accuracy"][layer] = right[0].sum() / true[0].sum()
            for image, one in enumerate(pairs.images):
                right, said, true = ConfusionCounts(pairs.classes, pairs.ignored, [one]).sums(alone)
                found["image_miou"][image, layer] = present_mean(class_ious(right, said, true), true)[0]
        return found


def present_mean(ious: np.ndarray, true: np.ndarray) -> np.ndarray:
    """The mean over the classes that have a pixel, [weights]; nan where none has.

    Args:
        ious, true: of each class, [weights, classes].
    """
    there = true > 0
    count = there.sum(axis=1)
    summed = np.where(there, ious, 0).sum(axis=1)
    return np.divide(summed, count, out=np.full(len(ious), np.nan), where=count > 0)
