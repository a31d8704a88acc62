"""The vision transformer: a function on a set of tokens that know where they stand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sightline.attention import asked_backend, preferred_tile, use_backend
from sightline.encodings import Knob, create_encoding
from sightline.errors import InputError
from sightline.grid import Grid
from sightline.layout import Segment, TokenLayout
from sightline.models.block import Block
from sightline.models.config import ViTConfig
from sightline.models.head import make_head
from sightline.models.initialise import initialise_head, initialise_trunk
from sightline.models.mlp import Mlp
from sightline.models.norm import make_norm
from sightline.models.patch_embed import PatchEmbed
from sightline.models.pooling import AttentionPooling, ClsPooling, MeanPooling, Pool, Pooling
from sightline.patchify import fit_to_patches, patchify

Images = Tensor | Sequence[Tensor]
Features = Tensor | list[Tensor]


class VisionTransformer(nn.Module):
    """A plain ViT at any resolution and aspect ratio, with timm's surface.

    `model(images)` takes a normalised tensor [batch, channels, height, width] or a list of [channels, height, width]
    of any sizes. Both only make `model(patches, layout=...)`: flat patches [rows, patches, channels * patch**2] and
    the `TokenLayout` that says where they stand.
    """

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.config = config
        dim, prefix = config.dim, config.num_prefix_tokens
        self.num_classes = config.num_classes
        self.num_features = self.head_hidden_size = self.embed_dim = dim
        self.num_prefix_tokens = prefix
        self.num_reg_tokens = config.num_registers
        self.has_class_token = config.has_class_token
        self.grad_checkpointing = False

        self.patch_embed = PatchEmbed(
            config.patch_size, config.channels, dim, config.train_grid, bias=config.patch_bias
        )
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim)) if config.has_class_token else None
        self.reg_token = nn.Parameter(torch.zeros(1, config.num_registers, dim)) if config.num_registers else None
        self.encoding = create_encoding(
            config.encoding,
            depth=config.depth,
            heads=config.heads,
            dim=dim,
            train_grid=config.train_grid,
            num_prefix_tokens=prefix,
            **config.encoding_options,
        )
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.depth))
        self.norm = self._make_norm() if config.final_norm == "before_pool" else nn.Identity()
        self.attn_pool = self._make_pooling(config.pool)
        self.fc_norm = self._make_norm() if config.final_norm == "after_pool" else nn.Identity()
        initialise_trunk(self)
        self.head = self._make_head()
        self.feature_info = [
            {"module": f"blocks.{layer}", "num_chs": dim, "reduction": config.patch_size}
            for layer in range(config.depth)
        ]

    def _make_norm(self) -> nn.Module:
        return make_norm(self.config.norm, self.config.dim, self.config.norm_eps)

    def _make_pooling(self, pool: Pool) -> Pooling:
        config = self.config
        if pool == "attention":
            mlp = Mlp(config.dim, config.pool_hidden, gelu=config.gelu)
            heads = config.pool_heads or config.heads
            return AttentionPooling(config.dim, heads, norm=self._make_norm(), mlp=mlp, prefix=config.pool_prefix)
        return ClsPooling() if pool == "cls" else MeanPooling(prefix=config.pool_prefix)

    def _make_head(self) -> nn.Module:
        config = self.config
        head = make_head(config.head, config.dim, config.head_hidden or config.dim, self.num_classes)
        initialise_head(head, config.head_bias)
        return head

    # One path: images become patches and a layout, and these become everything else.

    def prepare(self, images: Images) -> tuple[Tensor, TokenLayout]:
        """Images to flat patches and where they stand.

        Args:
            images: [batch, channels, height, width], or a list of [channels, height, width].

        Returns:
            [rows, patches, channels * patch_size**2] and the layout.

        Raises:
            InputError: wrong dimensions or channels, an empty image, or a size that the patch does not divide while
                `fit` is `exact`.
        """
        config = self.config
        if isinstance(images, Tensor):
            self._check(images, 4, "images")
            images, grid = fit_to_patches(images, config.patch_size, config.fit)
            layout = TokenLayout.uniform(
                grid, images.shape[0], num_prefix_tokens=self.num_prefix_tokens, device=images.device
            )
            return self._in_order(patchify(images, config.patch_size), layout)
        if not isinstance(images, Sequence):
            raise InputError(f"images: expected a tensor or a list of tensors, got {type(images).__name__}")
        pieces, grids = [], []
        for number, image in enumerate(images):
            self._check(image, 3, f"image {number}")
            fitted, grid = fit_to_patches(image.unsqueeze(0), config.patch_size, config.fit)
            pieces.append(patchify(fitted, config.patch_size))
            grids.append(grid)
        device = self.patch_embed.proj.weight.device
        layout = TokenLayout.packed(grids, num_prefix_tokens=self.num_prefix_tokens, device=device)
        if not pieces:
            return torch.zeros(1, 0, config.channels * config.patch_size**2, device=device), layout
        return self._in_order(torch.cat(pieces, dim=1), layout)

    def _in_order(self, patches: Tensor, layout: TokenLayout) -> tuple[Tensor, TokenLayout]:
        """Row-major patches in the order that attention wants: chosen here once, for all layers."""
        tile = preferred_tile(self.encoding.pattern(0, layout), layout)
        if tile is None:
            return patches, layout
        layout = layout.tiled(tile)
        return layout.lay(patches), layout

    def _check(self, image: Tensor, dims: int, what: str) -> None:
        if not isinstance(image, Tensor) or image.dim() != dims or image.shape[-3] != self.config.channels:
            got = list(image.shape) if isinstance(image, Tensor) else type(image).__name__
            axes = "batch, channels, height, width" if dims == 4 else "channels, height, width"
            raise InputError(f"{what}: expected [{axes}] with {self.config.channels} channels, got {got}")
        if not image.is_floating_point():
            raise InputError(f"{what}: expected normalised floating point values, got {image.dtype}")

    def _laid_out(self, patches: Images, layout: TokenLayout) -> Tensor:
        """Flat patches that someone else laid out, checked."""
        config = self.config
        there = sum(segment.patches for segment in layout.segments)
        expected = (layout.rows, there, config.channels * config.patch_size**2)
        if not isinstance(patches, Tensor) or patches.shape != expected:
            got = list(patches.shape) if isinstance(patches, Tensor) else type(patches).__name__
            raise InputError(f"patches: expected {list(expected)} for {layout}, got {got}")
        return patches

    def _embed(self, patches: Tensor, layout: TokenLayout) -> Tensor:
        """Patches to tokens, with the prefix tokens in their slots."""
        if layout.num_prefix_tokens != self.num_prefix_tokens:
            raise InputError(
                f"layout: {layout.num_prefix_tokens} prefix tokens, expected the model's {self.num_prefix_tokens}"
            )
        if not layout.segments:
            return patches.new_zeros(patches.shape[0], 0, self.embed_dim)
        # The residual stream keeps the parameters' precision, also under autocast.
        tokens = self.patch_embed(patches).to(self.patch_embed.proj.weight.dtype)
        prefix = [token[0] for token in (self.cls_token, self.reg_token) if token is not None]
        return layout.join(tokens, torch.cat(prefix) if prefix else None)

    def _run_block(self, tokens: Tensor, layer: int, layout: TokenLayout) -> Tensor:
        if not layout.segments:
            return tokens
        block = self.blocks[layer]
        if self.grad_checkpointing and torch.is_grad_enabled():
            # What is computed again is computed by the same back end.
            again = partial(use_backend, asked_backend())
            return checkpoint(  # type: ignore[return-value]
                block,
                tokens,
                layer,
                layout,
                self.encoding,
                use_reentrant=False,
                context_fn=lambda: (nullcontext(), again()),
            )
        return block(tokens, layer, layout, self.encoding)

    def _encode(self, patches: Tensor, layout: TokenLayout) -> Tensor:
        """Flat patches to normed tokens [rows, slots, dim]."""
        tokens = self._embed(patches, layout)
        for layer in range(len(self.blocks)):
            tokens = self._run_block(tokens, layer, layout)
        return self.norm(tokens)

    def _classify(self, tokens: Tensor, layout: TokenLayout, pre_logits: bool = False) -> Tensor:
        pooled = self.attn_pool(tokens, layout) if layout.segments else tokens.new_zeros(0, self.embed_dim)
        pooled = self.fc_norm(pooled)
        return pooled if pre_logits else self.head(pooled)

    def forward(self, images: Images, layout: TokenLayout | None = None) -> Tensor:
        """Logits [images, num_classes]; with `layout`, `images` are flat patches.

        A list gives its images' logits in its order; an image gives the same logits in a list, a batch or a pack.
        """
        patches, layout = self.prepare(images) if layout is None else (self._laid_out(images, layout), layout)
        return self._classify(self._encode(patches, layout), layout)

    def forward_features(self, images: Images, layout: TokenLayout | None = None) -> Features:
        """Normed tokens: [batch, tokens, dim] for a tensor, a list of [tokens, dim] for a list, and [rows, slots,
        dim] as laid out for patches with a layout. Prefix tokens stand first."""
        if layout is not None:
            return self._encode(self._laid_out(images, layout), layout)
        patches, layout = self.prepare(images)
        tokens = layout.row_major(self._encode(patches, layout))
        return tokens if isinstance(images, Tensor) else [image[0] for image in layout.split(tokens)]

    def forward_head(self, features: Features, pre_logits: bool = False, layout: TokenLayout | None = None) -> Tensor:
        """Pool and classify what `forward_features` gave: [images, num_classes], or the pooled [images, dim]."""
        if layout is None:
            layout = self._layout_of(features)
        if not isinstance(features, Tensor):
            none = self.patch_embed.proj.weight.new_zeros(0, self.embed_dim)
            features = torch.cat([none, *features]).unsqueeze(0)
        return self._classify(features, layout, pre_logits)

    def _layout_of(self, features: Features) -> TokenLayout:
        """A layout with the right number of slots: pooling does not look at where tokens stand."""
        images = [features] if isinstance(features, Tensor) else [feature.unsqueeze(0) for feature in features]
        segments = []
        for image in images:
            patches = image.shape[1] - self.num_prefix_tokens
            segments.append(Segment(Grid(1, patches), image.new_zeros(1, patches, 2, dtype=torch.int64), False))
        rows = images[0].shape[0] if images else 1
        return TokenLayout(segments, rows=rows, num_prefix_tokens=self.num_prefix_tokens)

    # Feature extraction, as timm's.

    def forward_intermediates(
        self,
        images: Images,
        indices: int | Sequence[int] | None = None,
        return_prefix_tokens: bool = False,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> Any:
        """Outputs of chosen blocks.

        Args:
            indices: layers, negative ones from the end; a number takes that many last ones; None takes all.
            return_prefix_tokens: give (map, prefix tokens) pairs.
            norm: apply the final norm to each.
            stop_early: do not run the layers after the last one asked for.
            output_fmt: `NCHW` maps [batch, dim, rows, cols] or `NLC` tokens [batch, rows * cols, dim]; for a list of
                images each is a list without the batch dimension.
            intermediates_only: leave out the final features.

        Returns:
            The intermediates, or (final features as `forward_features`, intermediates).
        """
        if output_fmt not in ("NCHW", "NLC"):
            raise InputError(f"output_fmt {output_fmt!r}: expected NCHW or NLC")
        depth = len(self.blocks)
        wanted = range(depth) if indices is None else indices
        if isinstance(wanted, int):
            if not 0 <= wanted <= depth:
                raise InputError(f"indices {indices!r}: expected 0 to {depth} last layers")
            wanted = range(depth - wanted, depth)
        if any(not -depth <= index < depth for index in wanted):
            raise InputError(f"indices {indices!r}: expected layers from {-depth} to {depth - 1}")
        wanted = [index % depth for index in wanted]
        patches, layout = self.prepare(images)
        tokens = self._embed(patches, layout)
        taken: dict[int, Any] = {}
        for layer in range(max(wanted, default=-1) + 1 if stop_early else depth):
            tokens = self._run_block(tokens, layer, layout)
            if layer in wanted:
                taken[layer] = self._unlay(self.norm(tokens) if norm else tokens, layout, images, output_fmt)
        maps = [taken[layer] if return_prefix_tokens else _without_prefix(taken[layer]) for layer in wanted]
        if intermediates_only:
            return maps
        final = layout.row_major(self.norm(tokens))
        return (final if isinstance(images, Tensor) else [image[0] for image in layout.split(final)]), maps

    def _unlay(self, tokens: Tensor, layout: TokenLayout, images: Images, output_fmt: str) -> Any:
        """(patch map, prefix tokens) in image order: a pair for a tensor, a list of pairs for a list."""
        pairs = []
        for image, segment in zip(layout.split(layout.row_major(tokens)), layout.segments, strict=True):
            prefix, patches = image[:, : self.num_prefix_tokens], image[:, self.num_prefix_tokens :]
            if output_fmt == "NCHW":
                patches = patches.transpose(1, 2).unflatten(2, (segment.grid.rows, segment.grid.cols))
            pairs.append((patches, prefix))
        return pairs[0] if isinstance(images, Tensor) else [(patches[0], prefix[0]) for patches, prefix in pairs]

    def get_intermediate_layers(
        self,
        images: Images,
        n: int | Sequence[int] = 1,
        reshape: bool = False,
        return_prefix_tokens: bool = False,
        norm: bool = False,
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
        )

    # The position encoding's knob.

    @property
    def knob(self) -> Knob | None:
        """The encoding's extrapolation parameter, or None."""
        return self.encoding.knob

    def set_knob(self, value: float) -> None:
        """Set the encoding's extrapolation parameter; raises InputError where there is none or it is out of range."""
        self.encoding.set_knob(value)

    # The rest of timm's surface.

    def get_classifier(self) -> nn.Module:
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: Pool | None = None) -> None:
        """A new head, and another pooling where `global_pool` is given."""
        device, dtype = self.patch_embed.proj.weight.device, self.patch_embed.proj.weight.dtype
        pool = self.config.pool if global_pool is None else global_pool
        # The prefix tokens stay as they are: the encoding was made for them.
        self.config = self.config.replace(
            num_classes=num_classes, pool=pool, class_token=self.has_class_token, class_names=None
        )
        if global_pool is not None:
            self.attn_pool = self._make_pooling(pool).to(device, dtype)
            initialise_trunk(self.attn_pool)
        self.num_classes = num_classes
        self.head = self._make_head().to(device, dtype)

    def no_weight_decay(self) -> set[str]:
        """Parameters that weight decay leaves alone: tokens, the probe, and the encoding's (rotary frequencies)."""
        own = {f"encoding.{name}" for name in self.encoding.no_weight_decay()}
        named = {name for name, _ in self.named_parameters()}
        return own | (named & {"cls_token", "reg_token", "attn_pool.latent"})

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Regular expressions that sort parameters into layers, for layer-wise learning rates."""
        return {
            "stem": r"^cls_token|^reg_token|^encoding|^patch_embed",
            "blocks": [(r"^blocks\.(\d+)", None), (r"^norm|^fc_norm|^attn_pool", (99999,))],
        }

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute the blocks' activations in the backward pass instead of keeping them."""
        self.grad_checkpointing = enable

    def set_input_size(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to do: any size runs as it is."""

    @property
    def pretrained_cfg(self) -> dict[str, Any]:
        """How to prepare images, with timm's keys."""
        config = self.config
        height, width = Grid.checked(config.image_size)
        return {
            "architecture": re.sub(r"\W", "_", f"sightline_vit_patch{config.patch_size}"),
            "input_size": (config.channels, height, width),
            "fixed_input_size": False,
            "num_classes": self.num_classes,
            "mean": config.mean,
            "std": config.std,
            "interpolation": config.interpolation,
            "crop_pct": config.crop,
            "first_conv": "patch_embed.proj",
            "classifier": "head.fc2" if config.head == "mlp" else "head",
        }

    @property
    def default_cfg(self) -> dict[str, Any]:
        return self.pretrained_cfg


def _without_prefix(taken: Any) -> Any:
    return [patches for patches, _ in taken] if isinstance(taken, list) else taken[0]
