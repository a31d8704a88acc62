"""timm's surface: the names and functions by which its users and tools know a vision transformer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.fx import Proxy

from sightline.errors import InputError
from sightline.models.config import ViTConfig
from sightline.models.head import CLASSIFIERS, TokenHead, patch_tokens
from sightline.models.model import Images, Model
from sightline.models.naflex import naflex_rows
from sightline.models.patch_size import Sides, set_patch_size
from sightline.models.timm_names import TIMM_POOLS, timm_cfg
from sightline.tokens.cache import in_functorch
from sightline.tokens.grid import Grid
from sightline.tokens.layout import Segment, TokenLayout

Features = Tensor | list[Tensor]


class PackedTokens(Tensor):
    """Tokens [rows, slots, dim] of several images a row, as they were laid out.

    Attributes:
        token_layout: where they stand; what is computed of them is of this class too, and has none.
    """

    token_layout: TokenLayout | None = None


class TimmSurface(Model):
    """A model with timm's names; a list of images gives lists of what a tensor gives."""

    # What timm's registry says of the weights, in place of our own.
    _registered_cfg: dict[str, Any] | None = None
    # For timm: a linear layer over patches is no convolution whose channels may be added up or repeated.
    _traits: dict[str, Any] = {"first_conv": None}  # noqa: RUF012

    def __init__(self, config: ViTConfig) -> None:
        super().__init__(config)
        self.head_hidden_size, self.in_chans = self.last_stage(config).pooled_dim, config.channels
        self.num_reg_tokens, self.has_class_token = config.num_registers, config.has_class_token
        self.feature_info = [
            {"module": f"blocks.{layer}", "num_chs": config.dim, "reduction": config.patch_size}
            for layer in range(config.depth)
        ]

    def forward(self, images: Images, layout: TokenLayout | None = None, texts: Any = None) -> Any:
        """As `Model.forward`, also of a batch of timm's NaFlex loader; where nothing is pooled, what `forward_features`
        gives goes through the head, token by token."""
        if isinstance(images, Mapping):
            images, layout = naflex_rows(images, self.in_chans, self.num_prefix_tokens)
        if self.attn_pool is not None or isinstance(images, Proxy) or isinstance(self.head, TokenHead):
            return super().forward(images, layout, texts)
        return self.forward_head(self.forward_features(images, layout), layout=layout)

    def forward_features(self, images: Images, layout: TokenLayout | None = None) -> Features:
        """Normed tokens: [batch, tokens, dim] for a tensor, a list of [tokens, dim] for a list, and [rows, slots,
        dim] as laid out for patches with a layout (`PackedTokens` of a pack). Prefix tokens stand first."""
        if isinstance(images, Mapping):
            images, layout = naflex_rows(images, self.in_chans, self.num_prefix_tokens)
        if layout is not None:
            return _marked(self.encode(self._laid_out(images, layout), layout), self.encoded_layout(layout))
        rows, layout = self.prepare(images)
        return _images_of(self.encode(rows, layout), self.encoded_layout(layout), images)

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
            norm: apply the final norm to each; of a model whose stages have other widths, to the last stage's alone.
            stop_early: do not run the layers after the last one asked for.
            output_fmt: `NCHW` maps [batch, dim, rows, cols] or `NLC` tokens [batch, rows * cols, dim]; for a list of
                images each is a list without the batch dimension.
            intermediates_only: leave out the final features.
            output_dict: give a dictionary of `image_features`, `image_intermediates` and `image_intermediates_prefix`.
            attn_mask: accepted as None alone.
            is_causal: accepted as False alone.

        Returns:
            The intermediates, or (final features as `forward_features`, intermediates), or the dictionary.

        Raises:
            InputError: no layer, one that is not there, another format, a mask, or a norm of another width.
        """
        if output_fmt not in ("NCHW", "NLC"):
            raise InputError(f"output_fmt {output_fmt!r}: expected NCHW or NLC")
        if attn_mask is not None or is_causal:
            name = "is_causal" if attn_mask is None else "attn_mask"
            raise InputError(f"{name}: the layout says which tokens meet (expected images alone, or a list of images)")
        if output_fmt == "NCHW" and len(self.config.train_grid) != 2:
            raise InputError("output_fmt 'NCHW': of clips there are no maps of rows and columns (expected NLC)")
        wanted = [self._ends[number] for number in self._taken(indices)]
        patches, layout = self.prepare(images)
        last = wanted[-1] if stop_early else len(self.blocks) - 1
        outputs = self.blocks.collect(self.embed(patches, layout), {*wanted, last}, layout, self.encoding.hooks)
        tokens, after = outputs[-1], self.blocks.layout_after(last, layout)
        width = self.num_features
        if norm and any(one.shape[-1] != width for one in outputs):
            raise InputError(f"norm: is of {width} channels, which not all of layers {wanted} have")
        if not intermediates_only and (given := tokens.shape[-1]) != width:
            said = f"the last norm is of {width} channels, and layer {last} gives {given}"
            raise InputError(f"stop_early: {said} (expected intermediates_only)")
        taken = [
            self._unlay(self.norm(one) if norm else one, self.blocks.layout_after(layer, layout), images, output_fmt)
            for layer, one in zip(wanted, outputs, strict=False)
        ]
        maps, prefixes = map(list, zip(*taken, strict=True))
        with_prefix = return_prefix_tokens and self.num_prefix_tokens > 0
        features = None if intermediates_only else _images_of(self.norm(tokens), after, images)
        if output_dict:
            found = {"image_intermediates": maps, "image_features": features}
            found["image_intermediates_prefix"] = prefixes if with_prefix else None
            return {name: one for name, one in found.items() if one is not None}
        if with_prefix:
            maps = taken if isinstance(images, Tensor) else [list(zip(*pair, strict=True)) for pair in taken]
        return maps if intermediates_only else (features, maps)

    # What `indices` count.
    _intermediates: ClassVar[str] = "layers"

    @property
    def _ends(self) -> Sequence[int]:
        """The layers whose outputs are intermediates, of those that are left."""
        return range(len(self.blocks))

    @property
    def out_indices(self) -> int | tuple[int, ...]:
        """Which intermediates timm's `features_only` gives unless others are asked for."""
        return min(3, len(self.blocks))

    def _taken(self, indices: int | Sequence[int] | None) -> list[int]:
        """Which intermediates `indices` mean, counted from 0, in order, each once."""
        count, what = len(self._ends), self._intermediates
        if isinstance(indices, int):
            if not 0 < indices <= count:
                raise InputError(f"indices {indices!r}: expected 1 to {count} last {what}")
            return list(range(count - indices, count))
        asked = range(count) if indices is None else indices
        if not asked or any(not -count <= index < count for index in asked):
            raise InputError(f"indices {indices!r}: expected one or more {what} from {-count} to {count - 1}")
        return sorted({index % count for index in asked})

    def _unlay(self, tokens: Tensor, layout: TokenLayout, images: Images, output_fmt: str) -> tuple[Any, Any]:
        """(patch map, prefix tokens) in image order: tensors for a tensor, lists of them for a list."""
        maps = patch_tokens(tokens, layout)
        prefixes = [image[:, : self.num_prefix_tokens] for image in layout.split(tokens)]
        if output_fmt == "NCHW":
            grids = [segment.grid for segment in layout.segments]
            maps = [one.transpose(1, 2).unflatten(2, tuple(grid)) for one, grid in zip(maps, grids, strict=True)]
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

    def forward_head(self, features: Features, pre_logits: bool = False, layout: TokenLayout | None = None) -> Any:
        """Pool and classify what `forward_features` gave: [images, num_classes], or the pooled [images, dim].

        Tokens of a pack that were taken out of torch's hands (numpy, `as_subclass`) count as one image a row, unless
        `layout` is given.

        Raises:
            InputError: no patches, or no `layout` where the head takes all tokens, or `features` were computed of a
                pack's.
        """
        whole = isinstance(self.head, TokenHead)
        if isinstance(features, PackedTokens) and (whole or self.attn_pool is not None):
            layout = layout or features.token_layout
            if layout is None:
                raise InputError(
                    f"features: computed of {list(features.shape)} tokens of a pack, which are not one image (expected "
                    "forward_head(features, layout=layout), or a list of the images' tokens)"
                )
        features = _plain(features) if isinstance(features, Tensor) else [_plain(image) for image in features]
        if self.attn_pool is None and not whole:
            head = nn.Identity() if pre_logits else self.head
            if isinstance(features, Tensor):
                return head(self.fc_norm(features))
            return [head(self.fc_norm(image)) for image in features]
        if layout is None:
            if whole:
                raise InputError(
                    f"head {self.config.head}: takes all tokens (expected forward_head(..., layout=layout))"
                )
            layout = self._layout_of(features)
        if not isinstance(features, Tensor):
            features = torch.cat([self.anchor.new_zeros(0, self.num_features), *features]).unsqueeze(0)
        if whole:
            return features if pre_logits else self.head(features, layout)
        pooled = self.pool(features, layout)
        return pooled if pre_logits else self.head(pooled)

    def _layout_of(self, features: Features) -> TokenLayout:
        """A layout with the right number of slots: pooling does not look at where tokens stand."""
        prefix = self.num_prefix_tokens
        images = [features] if isinstance(features, Tensor) else [feature.unsqueeze(0) for feature in features]
        segments = []
        for image in images:
            tokens = image.shape[1]
            if tokens <= prefix:
                said = f"expected {prefix} prefix tokens and one patch or more"
                raise InputError(f"features: {tokens} tokens an image, {said}")
            coords = image.new_zeros(1, tokens - prefix, 2, dtype=torch.int64)
            segments.append(Segment(Grid(1, tokens - prefix), coords, False))
        return TokenLayout(segments, rows=images[0].shape[0] if images else 1, num_prefix_tokens=prefix)

    @property
    def global_pool(self) -> str:
        """The pooling as timm calls it: `token`, `avg` or `map`, or "" for none; else our own name."""
        if self.attn_pool is None:
            return ""
        # timm has no probe that is a query alone, and no name for it.
        return next((theirs for theirs, ours in TIMM_POOLS.items() if ours == self.config.pool), self.config.pool)

    def get_classifier(self) -> nn.Module:
        """The layer, or layers, that make logits of the pooled vector."""
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """A new classifier of so many outputs (0 leaves the pooled features), and another pooling where one is given.

        Args:
            global_pool: ours (`cls`, `mean`, `attention`, `query`) or timm's name (`token`, `avg`, `map`); "" gives an
                output for each token (the configuration keeps a pooling without weights, with which a saved model
                comes back).

        Raises:
            InputError: an unknown pooling, or `cls` without a CLS token; the model is as it was.
        """
        config = self.config
        pool: Any = None if global_pool is None else TIMM_POOLS.get(global_pool, global_pool)
        if pool == "":
            pool = "mean" if config.has_probe or config.pooled_dim != config.dim else config.pool
        kept = config.head in CLASSIFIERS and (config.head != "distilled" or pool in (None, "prefix"))
        self.reset_head(config.head if kept else "linear", num_classes=num_classes, pool=pool)
        if global_pool == "":
            self.attn_pool = None

    def prune_intermediate_layers(
        self, indices: int | Sequence[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Drop what the chosen intermediates do not need (timm's `features_only`).

        The encoding stays whole, since it was made for the whole depth; a pruned model cannot be saved as a folder.
        Where the stages after the last one were wider, norm and head go with them.

        Args:
            prune_norm: drop the final norm.
            prune_head: drop the pooling, the norm after it and the head.

        Returns:
            The intermediates that `indices` mean, as in `forward_intermediates`, counted from 0, in order.
        """
        taken = self._taken(indices)
        del self.blocks[self._ends[taken[-1]] + 1 :]
        width: int = self.feature_info[taken[-1]]["num_chs"]
        narrower = width != self.num_features
        if prune_norm or narrower:
            self.norm = nn.Identity()
        if prune_head or narrower:
            self.num_features = self.head_hidden_size = width
            self.fc_norm = nn.Identity()
            self.reset_classifier(0, "")
        return taken

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Regular expressions that sort parameters into layers, for layer-wise learning rates; what none takes learns
        as fast as the head."""
        layers = {name: self.encoding.layer_of(name) for name, _ in self.encoding.named_parameters()}
        named = {name: rf"^encoding\.{re.escape(name)}$" for name in layers}
        # The first block's `norm_pre` stands before it, and belongs to the embedding.
        stem = [r"^cls_token|^reg_token|^patch_embed|^blocks\.0\.norm_pre"]
        later = [(named[name], (layer,)) for name, layer in layers.items() if layer is not None and layer >= 0]
        return {
            "stem": "|".join(stem + [named[name] for name, layer in layers.items() if layer == -1]),
            "blocks": [(r"^blocks\.(\d+)\.(?!norm_pre)", None), *later, (r"^norm", (99999,))],
        }

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute the blocks' activations in the backward pass instead of keeping them."""
        self.blocks.activation_checkpointing = enable

    @property
    def grad_checkpointing(self) -> bool:
        """Whether the blocks' activations are computed again."""
        return self.blocks.activation_checkpointing

    def set_patch_size(self, patch_size: Sides, image_size: Sides | None = None) -> None:
        """Other patches from now on; see `models.patch_size.set_patch_size`."""
        set_patch_size(self, patch_size, image_size)

    def set_input_size(self, img_size: Sides | None = None, patch_size: Sides | None = None) -> None:
        """timm's name of `set_patch_size`; without `patch_size` nothing is to do: any size runs as it is."""
        if patch_size is not None:
            self.set_patch_size(patch_size, img_size)

    @property
    def pretrained_cfg(self) -> dict[str, Any]:
        """How to prepare images, with timm's keys; what timm's registry has set goes before our own."""
        if self._registered_cfg is not None:
            return self._registered_cfg
        return {"architecture": f"sightline_vit_patch{self.config.patch_size}", **timm_cfg(self.config)}

    @pretrained_cfg.setter
    def pretrained_cfg(self, value: dict[str, Any]) -> None:
        self._registered_cfg = value

    default_cfg = pretrained_cfg


def _marked(tokens: Tensor, layout: TokenLayout) -> Tensor:
    """Tokens that cannot be taken for those of one image a row, where they are not."""
    if (len(layout.segments) == 1 and not layout.padding) or torch.compiler.is_compiling() or in_functorch():
        return tokens
    packed = tokens.as_subclass(PackedTokens)
    packed.token_layout = layout
    return packed


def _plain(tokens: Tensor) -> Tensor:
    """Tokens as any tensor."""
    return tokens.as_subclass(Tensor) if isinstance(tokens, PackedTokens) else tokens


def _images_of(tokens: Tensor, layout: TokenLayout, images: Images) -> Features:
    """Tokens in image order: a tensor for a tensor, a list for a list."""
    tokens = layout.to_row_major(tokens)
    return tokens if isinstance(images, Tensor) else [image[0] for image in layout.split(tokens)]
