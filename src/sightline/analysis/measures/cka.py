"""How alike layers of two models see the same images: linear centred kernel alignment (Kornblith et al. 2019)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sightline.analysis.analyse import analysed, analysis_of, run_pass
from sightline.analysis.found import Analysis, size_name
from sightline.analysis.images import NATIVE, Images, Size, Sizes, batches_by_size
from sightline.analysis.measures.base import Measure, MeasuredQuantity
from sightline.data.batch import Batch
from sightline.errors import InputError, require_known
from sightline.io.config import check_value, whole
from sightline.models import Model
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout

Of = Literal["images", "patches"]
TOGETHER = 256
"""Examples of a mini-batch."""
LEAST = 4
"""Examples, at least: the unbiased estimator divides by n - 3."""


class Alignment:
    """CKA of all pairs of layers, of examples that come one after the other.

    CKA = HSIC(K, L) / sqrt(HSIC(K, K) HSIC(L, L)), K and L the products of all pairs of examples (linear kernels), each
    HSIC the mean of its unbiased estimates of mini-batches (Song et al. 2012; Nguyen et al. 2021, equations 2 and 3).
    Mini-batches are of `together` examples in the order in which they come, whatever batches they came in; what is left
    at the end, of less than 4 more, belongs to the last, and each estimate counts by its examples. Of no more examples
    than `together` the order means nothing; of more it does, a little. Orthogonal turns, scales and shifts of features
    change nothing.
    """

    def __init__(self, together: int = TOGETHER) -> None:
        check_value("together", together, whole(LEAST))
        self.together = together
        self._waiting: list[tuple[Tensor, Tensor]] = []
        self._sums: list[Tensor] | None = None

    def add(self, one: Tensor, other: Tensor) -> None:
        """Features of the same examples: [examples, layers, dim], layers and dim each model's own."""
        if len(one) != len(other):
            raise InputError(f"cka: {len(one)} examples of one model and {len(other)} of the other (expected alike)")
        self._waiting.append((one, other))
        while sum(len(part) for part, _ in self._waiting) >= self.together + LEAST:
            ones, others = self._all()
            self._waiting = [(ones[self.together :], others[self.together :])]
            self._count(ones[: self.together], others[: self.together])

    def _all(self) -> tuple[Tensor, Tensor]:
        ones, others = zip(*self._waiting, strict=True)
        return torch.cat(ones), torch.cat(others)

    def _count(self, one: Tensor, other: Tensor) -> None:
        count = len(one)
        ours, theirs = _centred(one), _centred(other)
        # U-centred, n (n - 3) times the estimate is one sum over pairs (Szekely & Rizzo 2014); it weighs n.
        found = [part / (count - 3) for part in (ours @ theirs.T, ours.square().sum(1), theirs.square().sum(1))]
        self._sums = found if self._sums is None else [a + b for a, b in zip(self._sums, found, strict=True)]

    def result(self) -> Tensor | None:
        """float64 [layers, layers of the other]; NaN where the features of all examples are one, None of less than 4
        examples. Nothing can be added afterwards."""
        if sum(len(part) for part, _ in self._waiting) >= LEAST:
            self._count(*self._all())
            self._waiting = []
        if self._sums is None:
            return None
        both, one, other = self._sums
        return both / (one.clamp(min=0).sqrt().unsqueeze(1) * other.clamp(min=0).sqrt())


def _centred(features: Tensor) -> Tensor:
    """Products of all pairs of examples, U-centred: [layers, examples x examples] of [examples, layers, dim]."""
    x = features.double().transpose(0, 1)
    # Changes nothing but rounding: what all examples share is no small part of their products.
    x = x - x.mean(1, keepdim=True)
    count = x.shape[1]
    products = x @ x.transpose(1, 2)
    diagonal = products.diagonal(dim1=1, dim2=2)
    diagonal.zero_()
    sums = products.sum(-1) / (count - 2)
    total = sums.sum(-1)[:, None, None] / (count - 1)
    products = products - sums.unsqueeze(1) - sums.unsqueeze(2) + total
    products.diagonal(dim1=1, dim2=2).zero_()
    return products.flatten(1)


class Cka(Measure):
    """CKA of a model's layers with each other (Kornblith et al. 2019, figure 2); `cka` compares two models.

    An example is the mean of an image's patches (`images`), or each patch (`patches`); prefix tokens are none, nor
    patches that were dropped. See `Alignment` for mini-batches.
    """

    name: ClassVar[str] = "cka"
    quantities: ClassVar[Mapping[str, MeasuredQuantity]] = {
        "cka": MeasuredQuantity(
            ("layer", "other_layer"),
            "",
            "1: alike but for a turn and a scale; from what enters the first layer (“in”) to the last one's output, of "
            "patches, averaged over each image unless all were asked for, without prefix tokens; none of fewer than 4",
            "maps",
        )
    }

    def __init__(self, model: Model, *, of: Of = "images", together: int = TOGETHER) -> None:
        super().__init__(model)
        require_known("of", of, ("images", "patches"))
        self.of = of
        self.alignment: Alignment | None = Alignment(together)
        self.features: list[Tensor] = []

    def begin(self, batch: Batch) -> None:
        self.features = []

    def tokens(self, layer: int, tokens: Tensor, layout: TokenLayout) -> None:
        first, images = layout.num_prefix_tokens, layout.split(tokens)
        if self.of == "images":
            found = torch.stack([image[:, first:].double().mean(1) for image in images], dim=1).flatten(0, 1)
        else:
            # Row by row, as images are numbered.
            found = torch.cat([image[row, first:] for row in range(layout.rows) for image in images])
        self.features.append(found)

    def end(self, tokens: Tensor, layout: TokenLayout) -> None:
        if self.alignment is not None:
            seen = torch.stack(self.features, dim=1)
            self.alignment.add(seen, seen)

    def arrays(self) -> dict[str, np.ndarray]:
        found, layers = self.alignment and self.alignment.result(), self.model.config.depth + 1
        return {"cka": np.full((layers, layers), np.nan) if found is None else found.cpu().numpy()}


def cka(
    model: Model,
    other: Model | None,
    images: Images,
    sizes: Sizes = None,
    *,
    of: Of = "images",
    together: int = TOGETHER,
    called: str = "",
    others: Mapping[Size, Iterable[Batch]] | None = None,
    other_called: str = "",
    advance: Callable[[int], None] | None = None,
) -> Analysis:
    """Linear CKA between all layers of two models on the same images, at each size; see `Cka` and `Alignment`.

    Both models are shown each image as each prepares it, in the same order, and at most a mini-batch's features of all
    layers are kept. Of a model with itself the diagonal is 1.

    Args:
        other: of any grid, depth and dimension; None for the layers of `model` among each other.
        images: as `images.batches_by_size`; batches must be such as both models read (one patch size).
        sizes: as `images.batches_by_size`.
        of: `images`: an example is the mean of an image's patches; `patches`: each patch, and both models must make the
            same grid of each image. Patches of a mini-batch are of few images then, and tell these less apart.
        together: examples of a mini-batch, at least 4; its products of all pairs are kept, float64, of every layer.
        called: what the model is called; its encoding unless given.
        other_called: the same of the other one.
        others: where `images` are batches, the same images as `other` reads them, by their `Batch.indices`; unless
            given both models are shown the same batches.
        advance: called with the number of images that are through.

    Returns:
        `cka`: float64 [1 + layers, 1 + layers of the other].

    Raises:
        InputError: less than 4 examples at a size, other grids for `patches`, batches that are not for both, images
            that only one is shown, or as `images.batches_by_size`.
    """
    if other is None:
        found = analysed(model, Cka, images, sizes, called=called, advance=advance, of=of, together=together)
        for size in found.sizes:
            if np.isnan(found.arrays[size]["cka"]).all():
                raise _too_few(size)
        return found
    batched = isinstance(images, Mapping)
    if others is not None and not batched:
        raise InputError("cka: others are batches (expected images that are batches too)")
    ours, theirs = batches_by_size(model, images, sizes), others
    if theirs is None and not batched:
        # The sizes of `model` where none are given, but for tensors, which have their own.
        own = isinstance(images, Tensor) or isinstance(images[0], Tensor)
        theirs = batches_by_size(other, images, sizes if own else ["native" if one == NATIVE else one for one in ours])
    arrays: dict[Size, dict[str, np.ndarray]] = {}
    names: dict[Size, tuple[str, ...]] = {}
    for size, batches in ours.items():
        # Perhaps they can be gone through only once.
        first, again = itertools.tee(batches)
        second = (_as_read_by(other, model, batch) for batch in again) if theirs is None else theirs[size]
        alignment, seen = Alignment(together), list[str]()
        for one, two in _matched(_each(model, first, of), _each(other, second, of), size):
            if of == "patches" and one.grid != two.grid:
                both = " and ".join("x".join(map(str, grid)) for grid in (one.grid, two.grid))
                raise InputError(f"cka of patches: grids {both} of {one.name} (expected one, or of 'images')")
            alignment.add(one.features, two.features.to(one.features.device))
            seen.append(one.name)
            if advance is not None:
                advance(1)
        aligned = alignment.result()
        if aligned is None:
            raise _too_few(size)
        arrays[size], names[size] = {"cka": aligned.cpu().numpy()}, tuple(seen)
    config = other.config
    about = {"of": of, "other": other_called or config.encoding, "other_encoding": config.encoding}
    return analysis_of(model, "cka", names, arrays, called=called, **about, other_depth=config.depth)


class _Image(NamedTuple):
    """Of one image its features: [examples, 1 + layers, dim]."""

    number: int
    name: str
    grid: Grid
    features: Tensor


def _each(model: Model, batches: Iterable[Batch], of: Of) -> Iterator[_Image]:
    """The images of batches one by one."""
    for batch in batches:
        if len(batch):
            measure = Cka(model, of=of)
            # What layers of two models are is compared by whoever takes the features.
            measure.alignment = None
            run_pass(model, batch, [measure])
            segments = list(batch.layout.segments) * batch.layout.rows
            parts = torch.stack(measure.features, dim=1).split(
                [1 if of == "images" else one.patches for one in segments]
            )
            yield from map(_Image, batch.indices.tolist(), batch.names, [one.grid for one in segments], parts)


def _matched(ours: Iterable[_Image], theirs: Iterable[_Image], size: Size) -> Iterator[tuple[_Image, _Image]]:
    """The same images side by side, whatever order each model is shown them in: those of several sizes come by their
    grids, which are each model's own."""
    waiting: tuple[dict[int, _Image], dict[int, _Image]] = {}, {}
    for both in itertools.zip_longest(ours, theirs):
        for side, image in enumerate(both):
            if image is None:
                continue
            if (there := waiting[1 - side].pop(image.number, None)) is None:
                waiting[side][image.number] = image
            else:
                yield (there, image) if side else (image, there)
    for alone in (*waiting[0].values(), *waiting[1].values()):
        raise InputError(f"cka at {size_name(size)}: {alone.name} is shown to one model alone (expected to both)")


def _as_read_by(other: Model, model: Model, batch: Batch) -> Batch:
    """A batch of `model` as another one reads it."""
    for name in ("patch_size", "channels", "embedder"):
        ours, theirs = getattr(model.config, name), getattr(other.config, name)
        if ours != theirs:
            raise InputError(f"cka: batches of {name} {ours} for a model of {name} {theirs} (expected one, or images)")
    return replace(batch, layout=batch.layout.with_prefix(other.num_prefix_tokens - batch.layout.num_prefix_tokens))


def _too_few(size: Size) -> InputError:
    return InputError(f"cka at {size_name(size)}: less than {LEAST} examples (expected {LEAST} or more)")
