"""What each layer of the trunk says about an image: tokens, and dense maps in image order at any size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sightline.attention.transforms import transforming
from sightline.errors import InputError
from sightline.layout import TokenLayout
from sightline.models.model import Images
from sightline.models.trunk import Trunk

Features = Tensor | list[Tensor]


class PackedTokens(Tensor):
    """Tokens [rows, slots, dim] of several images a row, as they were laid out.

    Attributes:
        token_layout: where they stand; what is computed of them is of this class too, and has none.
    """

    token_layout: TokenLayout | None = None


class FeatureTrunk(Trunk):
    """A trunk with timm's functions for features; a list of images gives lists of what a tensor gives."""

    def forward_features(self, images: Images, layout: TokenLayout | None = None) -> Features:
        """Normed tokens: [batch, tokens, dim] for a tensor, a list of [tokens, dim] for a list, and [rows, slots,
        dim] as laid out for patches with a layout (`PackedTokens` of a pack). Prefix tokens stand first."""
        if layout is not None:
            return _marked(self._encode(self._laid_out(images, layout), layout), layout)
        patches, layout = self.prepare(images)
        return _images_of(self._encode(patches, layout), layout, images)

    def forward_intermediates(
        self,
        images: Images,
        indices: int | Sequence[int] | None = None,
        return_prefix_tokens: bool = False,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
        output_dict: bool = False,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Any:
        """Outputs of chosen blocks, in the order of the layers, each once (as timm).

        Args:
            indices: layers, negative ones from the end; a number takes that many last ones; None takes all.
            return_prefix_tokens: give (map, prefix tokens) pairs, where the model has prefix tokens.
            norm: apply the final norm to each.
            stop_early: do not run the layers after the last one asked for.
            output_fmt: `NCHW` maps [batch, dim, rows, cols] or `NLC` tokens [batch, rows * cols, dim]; for a list of
                images each is a list without the batch dimension.
            intermediates_only: leave out the final features.
            output_dict: give a dictionary of `image_features`, `image_intermediates` and
                `image_intermediates_prefix`.
            attn_mask, is_causal: accepted as None and False alone.

        Returns:
            The intermediates, or (final features as `forward_features`, intermediates), or the dictionary.

        Raises:
            InputError: no layer, one that is not there, another format, or a mask.
        """
        if output_fmt not in ("NCHW", "NLC"):
            raise InputError(f"output_fmt {output_fmt!r}: expected NCHW or NLC")
        _refuse_masks(attn_mask, is_causal)
        wanted = self._layers_taken(indices)
        patches, layout = self.prepare(images)
        tokens = self._embed(patches, layout)
        maps, prefixes = [], []
        for layer in range(wanted[-1] + 1 if stop_early else len(self.blocks)):
            tokens = self._run_block(tokens, layer, layout)
            if layer in wanted:
                patch_map, prefix = self._unlay(self.norm(tokens) if norm else tokens, layout, images, output_fmt)
                maps.append(patch_map)
                prefixes.append(prefix)
        with_prefix = return_prefix_tokens and self.num_prefix_tokens > 0
        if output_dict:
            found: dict[str, Any] = {"image_intermediates": maps}
            if with_prefix:
                found["image_intermediates_prefix"] = prefixes
            if not intermediates_only:
                found["image_features"] = _images_of(self.norm(tokens), layout, images)
            return found
        if with_prefix and isinstance(images, Tensor):
            maps = list(zip(maps, prefixes, strict=True))
        elif with_prefix:
            maps = [list(zip(*layer, strict=True)) for layer in zip(maps, prefixes, strict=True)]
        return maps if intermediates_only else (_images_of(self.norm(tokens), layout, images), maps)

    def _layers_taken(self, indices: int | Sequence[int] | None) -> list[int]:
        """The layers that `indices` mean, counted from 0, in order, each once."""
        depth = len(self.blocks)
        if isinstance(indices, int):
            if not 0 < indices <= depth:
                raise InputError(f"indices {indices!r}: expected 1 to {depth} last layers")
            return list(range(depth - indices, depth))
        asked = range(depth) if indices is None else indices
        if not asked or any(not -depth <= index < depth for index in asked):
            raise InputError(f"indices {indices!r}: expected one or more layers from {-depth} to {depth - 1}")
        return sorted({index % depth for index in asked})

    def _unlay(self, tokens: Tensor, layout: TokenLayout, images: Images, output_fmt: str) -> tuple[Any, Any]:
        """(patch map, prefix tokens) in image order: tensors for a tensor, lists of them for a list."""
        maps, prefixes = [], []
        for image, segment in zip(layout.split(layout.row_major(tokens)), layout.segments, strict=True):
            prefix, patches = image[:, : self.num_prefix_tokens], image[:, self.num_prefix_tokens :]
            if output_fmt == "NCHW":
                patches = patches.transpose(1, 2).unflatten(2, (segment.grid.rows, segment.grid.cols))
            maps.append(patches)
            prefixes.append(prefix)
        if isinstance(images, Tensor):
            return maps[0], prefixes[0]
        return [one[0] for one in maps], [one[0] for one in prefixes]

    def get_intermediate_layers(
        self,
        images: Images,
        n: int | Sequence[int] = 1,
        reshape: bool = False,
        return_prefix_tokens: bool = False,
        norm: bool = False,
        attn_mask: Tensor | None = None,
    ) -> Any:
        """Outputs of the last `n` blocks, or of those listed; `norm` says whether the final norm is applied."""
        return self.forward_intermediates(
            images,
            indices=n,
            return_prefix_tokens=return_prefix_tokens,
            norm=norm,
            stop_early=True,
            output_fmt="NCHW" if reshape else "NLC",
            intermediates_only=True,
            attn_mask=attn_mask,
        )


def _marked(tokens: Tensor, layout: TokenLayout) -> Tensor:
    """Tokens that cannot be taken for those of one image a row, where they are not."""
    if (len(layout.segments) == 1 and not layout.padding) or torch.compiler.is_compiling() or transforming():
        return tokens
    packed = tokens.as_subclass(PackedTokens)
    packed.token_layout = layout
    return packed


def plain(tokens: Tensor) -> Tensor:
    """Tokens as any tensor."""
    return tokens.as_subclass(Tensor) if isinstance(tokens, PackedTokens) else tokens


def _images_of(tokens: Tensor, layout: TokenLayout, images: Images) -> Features:
    """Tokens in image order: a tensor for a tensor, a list for a list."""
    tokens = layout.row_major(tokens)
    return tokens if isinstance(images, Tensor) else [image[0] for image in layout.split(tokens)]


def _refuse_masks(attn_mask: Tensor | None, is_causal: bool) -> None:
    """timm's arguments, for which there is no place here."""
    if attn_mask is not None or is_causal:
        name = "is_causal" if attn_mask is None else "attn_mask"
        raise InputError(f"{name}: the layout says which tokens meet (expected images alone, or a list of images)")
