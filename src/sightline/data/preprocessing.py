"""Images prepared for a model: its size, its filter, its normalisation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import numpy as np
from PIL import Image

from sightline.data.augmentations import Augmentations, apply_augmentations, make_augmentations
from sightline.data.crops import CropMode, Parts, Picture, RandomResizedCrop, apply_crop, eval_crop, size_of, whole_crop
from sightline.data.image_file import read_picture, rgb_pixels
from sightline.data.sizes import budget_grid, native_grid
from sightline.data.source import Source
from sightline.data.targets import Crop
from sightline.errors import InputError, did_you_mean
from sightline.tokens.grid import Grid

if TYPE_CHECKING:
    import torch

SourceType = TypeVar("SourceType", bound=Source)
Resolution = int | tuple[int, int] | Literal["native", "tokens"]
"""A square side or (height, width) in pixels to resize and crop to, each image's own size, or a number of patches."""
ImageLike = str | Path | np.ndarray | Image.Image
"""A file, uint8 [height, width, 3], or a PIL image."""


@dataclass(frozen=True)
class Preprocessing:
    """From an image to the tensor that a model takes: what `predict`, `evaluate`, suites and exports read.

    Attributes:
        resolution: the training images' (height, width) in pixels.
        patch_size: of the model.
        mean, std: of values in [0, 1], one a channel.
        channels: 3 for RGB, 1 for grey.
        interpolation: the filter of the resize.
        crop, crop_mode: as `eval_crop`.
    """

    resolution: tuple[int, int]
    patch_size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    interpolation: str
    crop: float
    crop_mode: CropMode = "center"
    channels: int = 3

    @classmethod
    def from_cfg(cls, cfg: Mapping[str, Any], patch_size: int) -> Self:
        """From what timm calls `pretrained_cfg`; raises InputError where the model takes neither grey images nor
        RGB."""
        from sightline.tokens.patchify import check_channels

        channels, *size = cfg["input_size"]
        check_channels(channels)
        mean, std = (tuple(cfg[name]) for name in ("mean", "std"))
        if channels == 1:
            # timm keeps the values of RGB for a model that takes grey images.
            mean, std = (sum(mean) / len(mean),), (sum(std) / len(std),)
        mode = cfg.get("crop_mode") or "center"
        return cls((size[0], size[1]), patch_size, mean, std, cfg["interpolation"], cfg["crop_pct"], mode, channels)

    @property
    def fill(self) -> tuple[int, ...]:
        """The colour beside an image that does not fill what is shown: the mean."""
        return tuple(round(255 * value) for value in self.mean * (3 // len(self.mean)))

    def prepared(self, source: SourceType, *, whole: bool = False) -> SourceType:
        """A data set with this preparation in evaluation; `whole` cuts nothing off."""
        return source.prepared(self.interpolation, None if whole else self.crop, self.crop_mode, self.fill)

    def crop_of(
        self, size: tuple[int, int], resolution: Resolution | None = None, max_tokens: int | None = None
    ) -> Crop:
        """The part of an image of (height, width) pixels that the model is given; raises InputError where the
        resolution or `max_tokens` is none of these.

        Args:
            resolution: a square side or (height, width) to resize and crop to: multiples of the patch, or any where the
                model has another `fit` than "exact"; `native` keeps the aspect ratio and goes to the nearest multiples
                of the patch, `max_tokens` patches at most; `tokens` keeps it too and goes, up or down, as near to so
                many as it allows (NaViT appendix D); None is the training size.
        """
        if resolution == "tokens" and max_tokens is None:
            raise InputError("resolution 'tokens': expected max_tokens, the number of patches")
        if resolution in ("native", "tokens"):
            rule: Any = native_grid if resolution == "native" else budget_grid
            rows, cols = rule(size, self.patch_size, max_tokens)
            return whole_crop(size, (rows * self.patch_size, cols * self.patch_size))
        if isinstance(resolution, str):
            expected = "'native', 'tokens', a side or (height, width) in pixels"
            hint = did_you_mean(resolution, ["native", "tokens"])
            raise InputError(f"resolution {resolution!r}: expected {expected}{hint}")
        height, width = self.resolution if resolution is None else Grid.checked(resolution, "resolution")
        return eval_crop(size, (height, width), self.crop, self.crop_mode, self.fill)

    def view(self, image: ImageLike, resolution: Resolution | None = None, max_tokens: int | None = None) -> np.ndarray:
        """The pixels that the model is given, uint8 [height, width, 3]; arguments and errors as `__call__`."""
        picture = _picture(image)
        return apply_crop(picture, self.crop_of(size_of(picture), resolution, max_tokens), self.interpolation)

    def normalise(self, pixels: np.ndarray) -> torch.Tensor:
        """uint8 [height, width, 3] to normalised float32 [channels, height, width]."""
        import torch

        from sightline.tokens.patchify import to_channels

        pixels = to_channels(pixels, self.channels)
        mean, std = (np.asarray(values, np.float32) for values in (self.mean, self.std))
        values = (pixels.astype(np.float32) / 255 - mean) / std
        return torch.from_numpy(np.ascontiguousarray(values.transpose(2, 0, 1)))

    def __call__(
        self, image: ImageLike, resolution: Resolution | None = None, max_tokens: int | None = None, **draw: Any
    ) -> torch.Tensor:
        """A file, a PIL image or uint8 [height, width, 3] to float32 [channels, height, width]; arguments as `crop_of`
        and, in training, `TrainingPreprocessing.view`. Raises InputError for what is no such image, or as `crop_of`,
        UnreadableDataError for a file that cannot be read."""
        return self.normalise(self.view(image, resolution, max_tokens, **draw))


@dataclass(frozen=True)
class TrainingPreprocessing(Preprocessing):
    """The same of a training image as in `sightline train`: one of its `parts`, perhaps mirrored, augmented."""

    parts: RandomResizedCrop = field(default_factory=RandomResizedCrop)
    augment: Augmentations = ()

    def view(
        self,
        image: ImageLike,
        resolution: Resolution | None = None,
        max_tokens: int | None = None,
        *,
        seed: int = 0,
        epoch: int = 0,
        index: int | None = None,
    ) -> np.ndarray:
        """The pixels that the model is given, uint8 [height, width, 3].

        Args:
            resolution: as `crop_of`; `native` and `tokens` show a part at the image's aspect.
            max_tokens: as `crop_of`.
            seed: with epoch and index it decides the draws, which are those of `sightline train`.
            epoch: the pass over the data.
            index: the image in its split; None draws anew each time, from torch's global generator.
        """
        if index is None:
            import torch

            # Torch seeds its generator for each worker of a loader.
            index = int(torch.randint(2**63 - 1, ()))
        parts, draw = self.parts, {"seed": seed, "epoch": epoch, "index": index}
        if isinstance(resolution, str):
            picture, parts = _picture(image), replace(parts, aspect=(1.0, 1.0))
            size = self.crop_of(size_of(picture), resolution, max_tokens).image_size
        else:
            size = self.crop_of((1, 1), resolution).image_size
            picture = _picture(image, (parts.most_enlarged * size[0], parts.most_enlarged * size[1]))
        pixels = parts.cut(picture, parts.train_crop(size_of(picture), size, **draw))
        return apply_augmentations(pixels, self.augment, **draw)


def _picture(image: ImageLike, least: tuple[int, int] | None = None) -> Picture:
    """`least`: (height, width) down to which a large file may be decoded at a fraction of its size."""
    if isinstance(image, str | Path):
        return read_picture(image, least=least)
    if isinstance(image, Image.Image):
        return rgb_pixels(image)
    found = f"{image.dtype} {list(image.shape)}" if isinstance(image, np.ndarray) else type(image).__name__
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise InputError(f"image: expected uint8 [height, width, 3], a Pillow image or a file, got {found}")
    return image


def preprocessing(
    model: Any,
    training: bool = False,
    *,
    parts: Parts = 0.35,
    flip: float = 0.5,
    augment: Mapping[str, Mapping[str, Any]] | None = None,
) -> Preprocessing:
    """How to prepare images for a model, from its `pretrained_cfg` (ours or timm's): a function of an image, so that
    `model(preprocessing(model)(path)[None])` gives logits.

    Args:
        training: as images of a folder are shown in training, for a loop of one's own; else as they are tested.
        parts: of training, as in `TrainConfig`.
        flip: of training, as in `TrainConfig`.
        augment: of training, as in `TrainConfig`.

    Raises:
        InputError: the model takes neither grey images nor RGB, or a value is not allowed.
    """
    prepare = Preprocessing.from_cfg(model.pretrained_cfg, model.patch_embed.patch_size[0])
    if not training:
        return prepare
    crop = RandomResizedCrop(interpolation=prepare.interpolation).changed(parts, flip=flip)
    return TrainingPreprocessing(**vars(prepare), parts=crop, augment=make_augmentations(augment or {}))
