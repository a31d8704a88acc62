"""The trunk of a vision transformer: images of any sizes to normed tokens that know where they stand."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sightline.attention import asked_backend, preferred_tile, use_backend
from sightline.encodings import create_encoding
from sightline.errors import InputError
from sightline.heap import pass_of_size
from sightline.layout import TokenLayout
from sightline.models.block import Block
from sightline.models.config import ViTConfig
from sightline.models.model import Images, Model
from sightline.models.norm import make_norm
from sightline.models.patch_embed import PatchEmbed
from sightline.patchify import fit_to_patches, patchify


class Trunk(Model):
    """Patch embedding, prefix tokens, position encoding, blocks and final norm.

    Images are a normalised tensor [batch, channels, height, width] or a list of [channels, height, width] of any
    sizes; both become flat patches [rows, patches, channels * patch**2] and a `TokenLayout`.
    """

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.config = config
        dim, prefix = config.dim, config.num_prefix_tokens
        self.num_features = self.head_hidden_size = self.embed_dim = dim
        self.num_prefix_tokens = prefix
        self.num_reg_tokens = config.num_registers
        self.has_class_token = config.has_class_token
        self.grad_checkpointing = False

        pixels = config.channels * config.patch_size**2
        self.patch_embed = PatchEmbed(
            config.patch_size,
            config.channels,
            dim,
            config.train_grid,
            bias=config.patch_bias,
            norms=(self._make_norm(pixels), self._make_norm()) if config.patch_norm else None,
        )
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim)) if config.has_class_token else None
        self.reg_token = nn.Parameter(torch.zeros(1, config.num_registers, dim)) if config.num_registers else None
        self.mask_token = nn.Buffer(torch.zeros(1, dim)) if config.mask_token else None
        self.encoding = create_encoding(
            config.encoding,
            depth=config.depth,
            heads=config.heads,
            dim=dim,
            head_dim=config.head_dim,
            train_grid=config.train_grid,
            num_prefix_tokens=prefix,
            **config.encoding_options,
        )
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.depth))
        self.norm = self._make_norm() if config.final_norm in ("before_pool", "both") else nn.Identity()

    def extra_repr(self) -> str:
        config = self.config
        return f"dim={config.dim}, depth={config.depth}, heads={config.heads}, patch_size={config.patch_size}"

    @property
    def anchor(self) -> Tensor:
        """A weight that says where the model computes and in which precision."""
        weight = self.patch_embed.proj.weight
        # A layer that was quantised holds whole numbers, or no tensor at all.
        usable = isinstance(weight, Tensor) and weight.is_floating_point()
        return weight if usable else next(one for one in self.parameters() if one.is_floating_point())

    def _make_norm(self, width: int | None = None) -> nn.Module:
        return make_norm(self.config.norm, width or self.config.dim, self.config.norm_eps)

    def prepare(self, images: Images) -> tuple[Tensor, TokenLayout]:
        """Images to flat patches and where they stand.

        Args:
            images: [batch, channels, height, width], or a list of [channels, height, width].

        Returns:
            [rows, patches, channels * patch_size**2] and the layout.

        Raises:
            InputError: wrong dimensions or channels, an empty image, a size that the patch does not divide while
                `fit` is `exact`, or another precision or device than the model's.
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
        device = self.anchor.device
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
        self._check_kind(image, what)

    def _check_kind(self, values: Tensor, what: str) -> None:
        """Refuse another precision than that of the weights, except under autocast, and values elsewhere."""
        anchor = self.anchor
        # Weights whose values are brought when they are needed stand on the meta device.
        if not anchor.is_meta and values.device.type != anchor.device.type:
            said = "the meta device, and has no values" if values.is_meta else str(values.device)
            raise InputError(f"{what}: is on {said} (expected {anchor.device}, as the model)")
        if values.dtype == anchor.dtype or anchor.dtype.itemsize < 2:
            return
        if torch.is_autocast_enabled(values.device.type) and values.dtype != torch.float64:
            return
        ours = str(anchor.dtype).removeprefix("torch.")
        raise InputError(f"{what}: is {values.dtype}, expected torch.{ours} as the model's weights (.to(torch.{ours}))")

    def _laid_out(self, patches: Images, layout: TokenLayout) -> Tensor:
        """Flat patches that someone else laid out, checked."""
        config = self.config
        there = sum(segment.patches for segment in layout.segments)
        expected = (layout.rows, there + layout.padding, config.channels * config.patch_size**2)
        if not isinstance(patches, Tensor) or patches.shape != expected:
            got = list(patches.shape) if isinstance(patches, Tensor) else type(patches).__name__
            raise InputError(f"patches: expected {list(expected)} for {layout}, got {got}")
        self._check_kind(patches, "patches")
        return patches

    def _embed(self, patches: Tensor, layout: TokenLayout) -> Tensor:
        """Patches to tokens, with the prefix tokens in their slots."""
        if layout.num_prefix_tokens != self.num_prefix_tokens:
            raise InputError(
                f"layout: {layout.num_prefix_tokens} prefix tokens, expected the model's {self.num_prefix_tokens}"
            )
        if not layout.segments:
            return patches.new_zeros(patches.shape[0], layout.slots, self.embed_dim)
        if layout.padding:
            # What stands there is never read, since a mask does not stop a NaN: `join` makes these slots zero.
            patches = patches[:, : -layout.padding]
        # The residual stream keeps the parameters' precision, also under autocast.
        tokens = self.patch_embed(patches).to(self.anchor.dtype)
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
        if not torch.compiler.is_compiling() and type(patches) is Tensor and patches.device.type == "cpu":
            pass_of_size((layout.rows, layout.slots))
        return self.norm(tokens)
