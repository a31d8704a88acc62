"""Images as a measure of a model's inside is shown them: at each of some sizes, batch after batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sightline.data.batch import Batch, collate_packed, collate_uniform
from sightline.data.crops import apply_crop
from sightline.data.image_file import read_image, rgb_pixels
from sightline.data.preprocessing import preprocessing
from sightline.errors import InputError
from sightline.models import Model
from sightline.tokens.grid import Grid

Size = tuple[int, int]
"""(height, width) in pixels; (0, 0) is each image's own size (`NATIVE`)."""
NATIVE: Size = (0, 0)
OneImage = str | Path | np.ndarray | Image.Image | Tensor
Images = Tensor | Sequence[OneImage] | Mapping[Size, Iterable[Batch]]
Sizes = int | Size | str | Sequence[int | Size | str] | None

TOKENS_A_BATCH = 4096


class Normalised(Batch):
    """Images whose `inputs` are normalised already, float32."""


def sizes_of(model: Model, sizes: Sizes) -> list[Size]:
    """What `sizes` means, each once and in order.

    Args:
        sizes: a side or (height, width) in pixels, `native`, or some of these; None is the training size.

    Raises:
        InputError: one is none of these.
    """
    if sizes is None:
        sizes = model.config.image_size
    # Two whole numbers in a tuple are (height, width); sizes stand in a list.
    alone = isinstance(sizes, int | str) or (isinstance(sizes, tuple) and all(isinstance(side, int) for side in sizes))
    many: Sequence[Any] = [sizes] if alone else list(sizes)  # pyright: ignore[reportArgumentType]
    found = []
    for one in many:
        if isinstance(one, str):
            if one != "native":
                raise InputError(f"size {one!r}: expected 'native', a side or (height, width) in pixels")
            found.append(NATIVE)
        else:
            found.append(tuple(Grid.checked(one, "size")))
    if not found:
        raise InputError("sizes: none are given (expected one or more)")
    return list(dict.fromkeys(found))


def batches_by_size(model: Model, images: Images, sizes: Sizes = None) -> dict[Size, Iterable[Batch]]:
    """Batches of images by size, made as they are asked for.

    Args:
        images: paths, Pillow images or uint8 arrays [height, width, 3], which are prepared as `predict` prepares them
            (resized and cut to a size, or at their own); normalised float tensors [channels, height, width], or a batch
            of them, which are shown as they are (`sizes` must then be None); or batches by size, of which those of
            `sizes` are taken.
        sizes: as `sizes_of`; None is the training size, of tensors and batches all that there are.

    Raises:
        InputError: no image, one of another kind, or tensors with sizes.
        UnreadableDataError: a file cannot be read, when its batch is asked for.
    """
    if isinstance(images, Mapping):
        chosen = list(images) if sizes is None else sizes_of(model, sizes)
        missing = [size for size in chosen if size not in images]
        if missing:
            raise InputError(f"size {missing[0]}: there are no batches of it")
        return {size: images[size] for size in chosen}
    if images is None or not len(images):
        raise InputError("images: none are given (expected one or more)")
    if isinstance(images, Tensor) or all(isinstance(one, Tensor) for one in images):
        if sizes is not None:
            raise InputError(f"sizes {sizes!r}: normalised tensors are shown as they are (expected None)")
        rows, layout = model.cut(images)  # pyright: ignore[reportArgumentType]
        names = [f"image {number}" for number in range(len(images))]
        batch = Normalised(rows, layout, {}, torch.arange(len(images)), names, [{}] * len(images))
        size = (images.shape[-2], images.shape[-1]) if isinstance(images, Tensor) else NATIVE
        return {size: [batch]}
    return {size: _Prepared(model, images, size) for size in sizes_of(model, sizes)}  # pyright: ignore


@dataclass(frozen=True, eq=False)
class _Prepared:
    """Images at one size, read anew each time that they are gone through."""

    model: Model
    images: Sequence[OneImage]
    size: Size

    def __iter__(self) -> Iterator[Batch]:
        prepare, model, native = preprocessing(self.model), self.model, self.size == NATIVE
        pack: list[tuple[str, Tensor, Grid, int]] = []
        for number, image in enumerate(self.images):
            pixels, name = _pixels(image, number)
            crop = prepare.crop_of((pixels.shape[0], pixels.shape[1]), "native" if native else self.size)
            rows, grid = model.image_rows(apply_crop(pixels, crop, prepare.interpolation))
            if pack and sum(len(one[1]) for one in pack) + len(rows) > TOKENS_A_BATCH:
                yield self._batch(pack)
                pack = []
            pack.append((name, rows, grid, number))
        if pack:
            yield self._batch(pack)

    def _batch(self, pack: Sequence[tuple[str, Tensor, Grid, int]]) -> Batch:
        names, rows, grids, numbers = zip(*pack, strict=True)
        arrange: Any = collate_uniform if len(set(grids)) == 1 else collate_packed
        inputs, layout = arrange(rows, grids, [None] * len(rows), self.model.num_prefix_tokens)
        return Batch(inputs, layout, {}, torch.tensor(numbers), list(names), [{}] * len(names))


def _pixels(image: OneImage, number: int) -> tuple[np.ndarray, str]:
    """uint8 [height, width, 3], and what the image is called."""
    if isinstance(image, str | Path):
        return read_image(image), str(image)
    if isinstance(image, Image.Image):
        image = rgb_pixels(image)
    if isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] == 3:
        return image, f"image {number}"
    got = f"{image.dtype} {list(image.shape)}" if isinstance(image, np.ndarray | Tensor) else type(image).__name__
    raise InputError(f"image {number}: expected a file, a Pillow image or uint8 [height, width, 3], got {got}")
