"""What heads look at: how far, how widely, and how unlike each other."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from sightline.analysis.attention_blocks import AttentionBlock
from sightline.analysis.measures.base import Measure, MeasuredQuantity, PerImage
from sightline.data.batch import Batch
from sightline.models import Model

_PATCHES = "of what patches see, not of what prefix tokens do"
_ALL = "rows: patches; columns: all tokens, prefix tokens too"
_APART = f"{_ALL}; fields of view that differ make heads differ"
_HEADS, _LAYERS = ("image", "layer", "head"), ("image", "layer")


class _OverQueries(Measure):
    """Sums over the patches that ask, `summed`, of each image and layer, and head where it is `by_head`."""

    supports_windows: ClassVar[bool] = True
    by_head: ClassVar[bool] = True
    summed: ClassVar[tuple[str, ...]]

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        config = model.config
        shape = (config.depth, config.heads) if self.by_head else (config.depth,)
        self.total = {name: PerImage(*shape) for name in (*self.summed, "asking")}

    def begin(self, batch: Batch) -> None:
        for one in self.total.values():
            one.begin(batch.layout.images)

    def attention(self, block: AttentionBlock) -> None:
        if block.layer is not None:
            sums = self.of_block(block)
            asking = torch.full_like(sums[0], block.attention.shape[2] - block.prefix_queries)
            for name, values in zip(self.total, (*sums, asking), strict=True):
                self.total[name].add(block.images, block.layer, values)

    @abstractmethod
    def of_block(self, block: AttentionBlock) -> tuple[Tensor, ...]:
        """Sums over the patches that ask in a block: [rows, heads] each, or [rows]."""

    def mean(self, name: str) -> np.ndarray:
        """Over the patches that asked: float64 [images, layers, heads], or [images, layers]."""
        return self.total[name].values / self.total["asking"].values


class AttentionDistance(_OverQueries):
    """The distance from a patch to the patches that it looks at, weighted by attention and averaged over queries (ViT
    D.7 and figure 11, RoPE-ViT figure 2).

    Under a mask it is of what is visible: what a head cannot see has no weight.
    """

    name: ClassVar[str] = "attention_distance"
    summed: ClassVar[tuple[str, ...]] = ("distance", "summed", "patches")
    quantities: ClassVar[Mapping[str, MeasuredQuantity]] = {
        "distance": MeasuredQuantity(
            _HEADS, "cells", f"{_PATCHES}: the attention to patches is scaled to sum to 1", "layers"
        ),
        "distance_of_grid": MeasuredQuantity(
            _HEADS,
            "fraction",
            "as distance, over the mean distance of two cells of the grid (100 %: it looks everywhere alike); "
            f"{_PATCHES}",
            "layers",
        ),
        "distance_pixels": MeasuredQuantity(_HEADS, "px", "as distance, times the patch size"),
        "weighted_sum": MeasuredQuantity(
            _HEADS,
            "cells",
            f"the distances' sum weighted by attention as it is, which counts attention to prefix tokens as 0 "
            f"(LookHere figure 16); {_PATCHES}",
        ),
        "to_prefix": MeasuredQuantity(
            _HEADS, "fraction", f"the attention that patches give to prefix tokens; {_PATCHES}"
        ),
    }

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._scale: list[float] = []

    def begin(self, batch: Batch) -> None:
        super().begin(batch)
        self._scale += [mean_distance(tuple(one.grid)) for one in batch.layout.segments] * batch.layout.rows

    def of_block(self, block: AttentionBlock) -> tuple[Tensor, ...]:
        weights = block.of_patches
        summed, to_patches = (weights * block.distance.unsqueeze(1)).sum(-1), weights.sum(-1)
        # What a query gives to patches may round to nothing; it then looks at none.
        distance = torch.where(to_patches > 0, summed / to_patches, 0)
        return distance.sum(-1), summed.sum(-1), to_patches.sum(-1)

    def arrays(self) -> dict[str, np.ndarray]:
        distance, scale = self.mean("distance"), np.array(self._scale).reshape(-1, 1, 1)
        return {
            "distance": distance,
            "distance_of_grid": np.divide(distance, scale, out=np.zeros_like(distance), where=scale > 0),
            "distance_pixels": distance * self.model.config.patch_size,
            "weighted_sum": self.mean("summed"),
            "to_prefix": 1 - self.mean("patches"),
        }


def mean_distance(grid: tuple[int, ...]) -> float:
    """The mean Euclidean distance of two cells of a grid, drawn with replacement, in cells: what attention that is the
    same everywhere spans."""
    axes = [np.arange(1 - side, side) for side in grid]
    shifts = np.meshgrid(*axes, indexing="ij")
    # Of a displacement there are as many pairs as cells that stay inside.
    pairs = np.prod([side - np.abs(shift) for side, shift in zip(grid, shifts, strict=True)], axis=0)
    return float((np.sqrt(sum(shift.astype(float) ** 2 for shift in shifts)) * pairs).sum() / pairs.sum())


class Entropy(_OverQueries):
    """H = -sum_k p_k log p_k of what each patch attends to, averaged over patches (Zhai et al. 2023, attention entropy
    collapse).

    What a mask hides has no weight and adds nothing; `of_visible` takes each query's entropy against the log of the
    number of tokens that it may see, so that a field of view alone makes no head look narrow.
    """

    name: ClassVar[str] = "entropy"
    summed: ClassVar[tuple[str, ...]] = ("entropy", "fraction", "choosing")
    quantities: ClassVar[Mapping[str, MeasuredQuantity]] = {
        "entropy": MeasuredQuantity(_HEADS, "nats", _ALL, "layers"),
        "of_visible": MeasuredQuantity(
            _HEADS,
            "fraction",
            f"of each query over the log of how many tokens it may see (1: all that it sees alike), averaged over "
            f"those that see more than one; {_ALL}",
            "layers",
        ),
    }

    def of_block(self, block: AttentionBlock) -> tuple[Tensor, ...]:
        entropy = block.entropy[..., block.prefix_queries :]
        visible = block.visible[..., block.prefix_queries :].expand_as(entropy)
        chooses = visible > 1
        fraction = torch.where(chooses, entropy / visible.clamp(min=2).log(), 0)
        return entropy.sum(-1), fraction.sum(-1), chooses.float().sum(-1)

    def arrays(self) -> dict[str, np.ndarray]:
        # Where nobody has a choice there is no width: 0.
        of_visible = self.total["fraction"].values / np.maximum(self.total["choosing"].values, 1)
        return {"entropy": self.mean("entropy"), "of_visible": of_visible}


class HeadDistance(_OverQueries):
    """The mean over queries and pairs of heads of |p_g - p_h| and of the Euclidean norm of p_g - p_h (LookHere figure
    15).

    L1 is from 0 to 2, L2 from 0 to the root of 2. A measure apart from `HeadDiversity`: there are 66 pairs of 12 heads.
    A model of one head has no pair, and 0.
    """

    name: ClassVar[str] = "head_distance"
    summed: ClassVar[tuple[str, ...]] = ("l1", "l2")
    by_head: ClassVar[bool] = False
    quantities: ClassVar[Mapping[str, MeasuredQuantity]] = {
        "l1": MeasuredQuantity(
            _LAYERS, "", f"sum of absolute differences; averaged over pairs of heads; {_APART}", "layers"
        ),
        "l2": MeasuredQuantity(
            _LAYERS, "", f"Euclidean norm of the differences; averaged over pairs of heads; {_APART}", "layers"
        ),
    }

    def of_block(self, block: AttentionBlock) -> tuple[Tensor, ...]:
        heads = block.attention[:, :, block.prefix_queries :].unbind(1)
        l1, l2 = (torch.zeros(heads[0].shape[:2], device=heads[0].device) for _ in range(2))
        buffer = torch.empty_like(heads[0])
        for one, other in itertools.combinations(heads, 2):
            torch.sub(one, other, out=buffer)
            l2 += buffer.square().sum(-1).sqrt()
            l1 += buffer.abs_().sum(-1)
        pairs = max(1, len(heads) * (len(heads) - 1) // 2)
        return l1.sum(-1) / pairs, l2.sum(-1) / pairs

    def arrays(self) -> dict[str, np.ndarray]:
        return {"l1": self.mean("l1"), "l2": self.mean("l2")}


class HeadDiversity(_OverQueries):
    """The generalised Jensen-Shannon divergence of the heads' attention (Lin 1991, equation 5.1, equal weights),
    averaged over queries (LookHere figures 4, 15 and 16):

        JSD = H(mean_h p_h) - mean_h H(p_h)

    0 where all heads look alike, log(heads) where no two look at one token. What a mask hides has no weight.
    """

    name: ClassVar[str] = "head_diversity"
    summed: ClassVar[tuple[str, ...]] = ("jsd",)
    by_head: ClassVar[bool] = False
    quantities: ClassVar[Mapping[str, MeasuredQuantity]] = {
        "jsd": MeasuredQuantity(_LAYERS, "nats", f"Jensen-Shannon divergence of the heads; {_APART}", "layers"),
    }

    def of_block(self, block: AttentionBlock) -> tuple[Tensor, ...]:
        mean = block.mean[:, block.prefix_queries :]
        # What nobody looks at is 0 log 0, which is 0.
        together = -mean.clamp(min=torch.finfo(mean.dtype).tiny).log_().mul_(mean).sum(-1)
        each = block.entropy[..., block.prefix_queries :].mean(1)
        return ((together - each).sum(-1),)

    def arrays(self) -> dict[str, np.ndarray]:
        return {"jsd": self.mean("jsd")}
