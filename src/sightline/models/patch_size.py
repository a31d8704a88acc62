"""Other patches for a model that is there: a kernel that is resized, and positions that see another grid."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sightline.errors import InputError
from sightline.io.config import check_value, whole
from sightline.models.config import LIMITS, ViTConfig
from sightline.models.embedder import embedder_class
from sightline.models.head import TokenHead, make_head
from sightline.models.kernel_resize import KernelRule, resize_kernel
from sightline.tokens.grid import Grid

if TYPE_CHECKING:
    from sightline.models.model import Model

Sides = int | tuple[int, int]


def set_patch_size(model: Model, patch_size: Sides, image_size: Sides | None = None) -> None:
    """Patches of another size: the same image has another grid, to which the encoding goes as to that of another image.

    A flexible embedder keeps its kernel and resizes it when it is used; the kernel of the others is resized once, so
    that an optimizer must be made anew. `image_size` stays as it is unless given. Oblong patches are for images that
    are given to the model itself: its configuration stays that of the square ones, and it cannot be saved.

    Args:
        patch_size: (height, width) or one side in pixels; image_size: the same, of the images prepared for the model.

    Raises:
        InputError: the patch does not divide the images and `fit` is `exact` (names the nearest that do), the embedder
            has patches of one size, or the head has weights for the pixels of a patch; the model is as it was.
    """
    before = after = model.config
    for side in patch_size if isinstance(patch_size, tuple) else (patch_size,):
        check_value("patch_size", side, whole(1, LIMITS["patch_size"]))
    size = Grid.checked(patch_size, "patch_size")
    square = size[0] == size[1]
    if tuple(size) == model.patch_embed.patch_size and image_size is None:
        return
    model.patch_embed.check_other_patches(before)
    if square:
        after = resized_config(before, size[0], image_size)
    elif isinstance(model.head, TokenHead):
        raise InputError(f"patch_size {size!r}: head {before.head} reads square patches")
    head = _head_of(model, after)
    # What it refuses, it refuses before anything is changed.
    model.patch_embed.set_patch_size(tuple(size), after)
    model.config, model.head = after, head
    for info in getattr(model, "feature_info", ()):
        info["reduction"] = size[0] if square else tuple(size)


def resized_config(before: ViTConfig, patch_size: int, image_size: Sides | None = None) -> ViTConfig:
    """A configuration with other patches, whose encoding is that of the grid that it was made for.

    Raises:
        InputError: as `set_patch_size`.
    """
    image = before.image_size if image_size is None else image_size
    if before.fit == "exact":
        sides = Grid.checked(image, "image_size")
        if any(side % patch_size for side in sides):
            allowed = before.embedder_options.get("sizes") or range(1, min(sides) + 1)
            named = sorted(one for one in allowed if not any(side % one for side in sides))
            below, above = [one for one in named if one < patch_size], [one for one in named if one > patch_size]
            near = " or ".join(map(str, below[-1:] + above[:1]))
            raise InputError(
                f"patch_size {patch_size}: does not divide the model's images of {sides[0]}x{sides[1]} pixels "
                f"({near and f'nearest that do: {near}; '}or give another image_size, or fit 'pad' or 'resize')"
            )
    return before.replace(patch_size=patch_size, image_size=image, table_grid=tuple(before.train_grid)).plain()


def _head_of(model: Model, config: ViTConfig) -> torch.nn.Module:
    """The head of a model for other patches, with its weights."""
    if not isinstance(model.head, TokenHead) or config.patch_size == model.config.patch_size:
        return model.head
    # Whoever draws goes on as if no head were made.
    with torch.random.fork_rng(devices=[]):
        head = make_head(config)
    state, new = model.head.state_dict(), head.state_dict()
    if [(name, value.shape) for name, value in state.items()] != [(name, value.shape) for name, value in new.items()]:
        said = f"head {config.head} has weights for patches of {model.config.patch_size} pixels"
        raise InputError(f"patch_size {config.patch_size}: {said}")
    head.load_state_dict(state, assign=True)
    for old, new in zip(model.head.parameters(), head.parameters(), strict=True):
        new.requires_grad_(old.requires_grad)
    return head.train(model.head.training)


def freeze_patch_size(model: Model) -> Model:
    """A copy of a flexible model that has the kernel of the patches in use, and no other; any other model itself."""
    if model.config.embedder != "flexible":
        return model
    config = model.config.replace(embedder="patches", embedder_options={})
    plain, embedder = copy.deepcopy(model), embedder_class("patches")(config)
    weights = plain.patch_embed.state_dict()
    weights["proj.weight"] = resize_patch_kernel(weights["proj.weight"], model.config, config)
    embedder.load_state_dict(weights, assign=True)
    plain.config, plain.patch_embed = config, embedder.train(model.training)
    return plain


def kernel_side(config: ViTConfig) -> int | None:
    """The side in pixels of the kernel that a model's weights hold; None of an embedder that has another one."""
    options = getattr(embedder_class(config.embedder), "Options", None)
    if options is None:
        return None
    return getattr(options(**config.embedder_options), "base", config.patch_size)


def resize_patch_kernel(weight: Tensor, before: ViTConfig, after: ViTConfig) -> Tensor:
    """The kernel [dim, channels * side**2] of one model's weights as another's are, resized in float64 where the sides
    differ: by the rule of the flexible embedder, where one is, and by the new one's where both or none are."""
    old, new = kernel_side(before), kernel_side(after)
    if old is None or new is None or old == new or weight.shape[1] != before.channels * old**2:
        return weight
    flexible = before if before.embedder == "flexible" and after.embedder != "flexible" else after
    rule: KernelRule = flexible.embedder_options.get("rule", "bicubic_antialias")
    square = weight.detach().double().unflatten(1, (before.channels, old, old))
    return resize_kernel(square, (new, new), rule).flatten(1).to(weight.dtype)
