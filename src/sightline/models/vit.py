"""The vision transformer: a function on a set of tokens that know where they stand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Proxy

from sightline.errors import InputError
from sightline.grid import Grid
from sightline.layout import Segment, TokenLayout
from sightline.models.config import ViTConfig
from sightline.models.features import Features, FeatureTrunk, PackedTokens, plain
from sightline.models.head import make_head
from sightline.models.initialise import initialise_head, initialise_trunk
from sightline.models.mlp import Mlp
from sightline.models.model import Images
from sightline.models.norm import make_qk_norms
from sightline.models.pooling import AttentionPooling, ClsPooling, MeanPooling, Pool, Pooling, QueryPooling
from sightline.models.timm_surface import TIMM_POOLS, timm_cfg
from sightline.models.tracing import as_leaf


class VisionTransformer(FeatureTrunk):
    """A plain ViT at any resolution and aspect ratio, with timm's surface.

    `model(images)` takes a normalised tensor [batch, channels, height, width] or a list of [channels, height, width]
    of any sizes. Both only make `model(patches, layout=...)`: flat patches [rows, patches, channels * patch**2] and
    the `TokenLayout` that says where they stand.

    Attributes:
        attn_pool: tokens to one vector, or None where nothing is pooled (`reset_classifier(0, "")`, as timm).
    """

    attn_pool: Pooling | None
    # What timm's registry says of the weights, in place of our own.
    _registered_cfg: dict[str, Any] | None = None
    # For timm: a linear layer over patches is no convolution whose channels may be added up or repeated.
    _traits: dict[str, Any] = {"first_conv": None}  # noqa: RUF012

    def __init__(self, config: ViTConfig) -> None:
        super().__init__(config)
        self.num_classes = config.num_classes
        self.attn_pool = self._make_pooling(config.pool)
        self.fc_norm = self._make_norm() if config.final_norm in ("after_pool", "both") else nn.Identity()
        initialise_trunk(self)
        self.head = self._make_head()
        self.feature_info = [
            {"module": f"blocks.{layer}", "num_chs": config.dim, "reduction": config.patch_size}
            for layer in range(config.depth)
        ]

    def _make_pooling(self, pool: Pool) -> Pooling:
        config = self.config
        dim, heads = config.dim, config.pool_heads or config.heads
        head_dim = config.probe_width // heads
        probe: dict[str, Any] = {"bias": config.block_bias is True, "prefix": config.pool_prefix}
        if pool == "attention":
            mlp = Mlp(dim, config.pool_hidden, gelu=config.gelu, bias=config.block_bias is not False)
            return AttentionPooling(dim, heads, head_dim, norm=self._make_norm(), mlp=mlp, **probe)
        if pool == "query":
            norms = make_qk_norms(config.qk_norm, config.norm, heads, head_dim, config.norm_eps)
            return QueryPooling(dim, heads, head_dim, norm=self._make_norm(), qk_norms=norms, **probe)
        return ClsPooling() if pool == "cls" else MeanPooling(prefix=config.pool_prefix)

    def _make_head(self) -> nn.Module:
        config = self.config
        bias = config.head_bias is not False
        head = make_head(config.head, config.dim, config.head_hidden or config.dim, self.num_classes, bias=bias)
        initialise_head(head, config.head_bias if bias else None)
        return head

    # One path: images become patches and a layout, and these become everything else.

    def forward(self, images: Images, layout: TokenLayout | None = None) -> Tensor:
        """Logits [images, num_classes]; with `layout`, `images` are flat patches.

        A list gives its images' logits in its order; an image gives the same logits in a list, a batch or a pack.
        Where nothing is pooled, what `forward_features` gives goes through the head, token by token.
        """
        if isinstance(images, Proxy):
            return as_leaf(self, images)
        if self.attn_pool is None:
            return self.forward_head(self.forward_features(images, layout), layout=layout)
        patches, layout = self.prepare(images) if layout is None else (self._laid_out(images, layout), layout)
        return self._classify(self._encode(patches, layout), layout)

    def _classify(self, tokens: Tensor, layout: TokenLayout, pre_logits: bool = False) -> Tensor:
        assert self.attn_pool is not None
        pooled = self.attn_pool(tokens, layout) if layout.segments else tokens.new_zeros(0, self.embed_dim)
        return self._logits(pooled, pre_logits)

    def _logits(self, pooled: Tensor, pre_logits: bool) -> Tensor:
        pooled = self.fc_norm(pooled)
        return pooled if pre_logits else self.head(pooled)

    def forward_head(self, features: Features, pre_logits: bool = False, layout: TokenLayout | None = None) -> Any:
        """Pool and classify what `forward_features` gave: [images, num_classes], or the pooled [images, dim].

        What was taken out of torch's hands (numpy, `as_subclass`) says nothing of its images any more: a pack's tokens
        are then taken as one image a row, unless `layout` is given.

        Raises:
            InputError: `features` were computed of a pack's, and no `layout` says which tokens are whose; or there are
                no patches among them.
        """
        if isinstance(features, PackedTokens) and self.attn_pool is not None:
            layout = layout or features.token_layout
            if layout is None:
                raise InputError(
                    f"features: computed of {list(features.shape)} tokens of a pack, which are not one image (expected "
                    "forward_head(features, layout=layout), or a list of the images' tokens)"
                )
        features = plain(features) if isinstance(features, Tensor) else [plain(image) for image in features]
        if self.attn_pool is None:
            if isinstance(features, Tensor):
                return self._logits(features, pre_logits)
            return [self._logits(image, pre_logits) for image in features]
        if layout is None:
            layout = self._layout_of(features)
        if not isinstance(features, Tensor):
            none = self.anchor.new_zeros(0, self.embed_dim)
            features = torch.cat([none, *features]).unsqueeze(0)
        return self._classify(features, layout, pre_logits)

    def _layout_of(self, features: Features) -> TokenLayout:
        """A layout with the right number of slots: pooling does not look at where tokens stand."""
        images = [features] if isinstance(features, Tensor) else [feature.unsqueeze(0) for feature in features]
        segments = []
        for image in images:
            patches = image.shape[1] - self.num_prefix_tokens
            if patches < 1:
                raise InputError(
                    f"features: {image.shape[1]} tokens an image, expected {self.num_prefix_tokens} prefix tokens and "
                    "one patch or more"
                )
            segments.append(Segment(Grid(1, patches), image.new_zeros(1, patches, 2, dtype=torch.int64), False))
        rows = images[0].shape[0] if images else 1
        return TokenLayout(segments, rows=rows, num_prefix_tokens=self.num_prefix_tokens)

    # The rest of timm's surface.

    @property
    def in_chans(self) -> int:
        """Channels of the images."""
        return self.config.channels

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
        """A new head, and another pooling where `global_pool` is given.

        Args:
            num_classes: outputs; 0 leaves the pooled features.
            global_pool: ours (`cls`, `mean`, `attention`, `query`) or timm's name (`token`, `avg`, `map`); "" pools
                nothing, and the model then gives an output for each token (the configuration keeps a pooling
                without weights, with which a saved model comes back).

        Raises:
            InputError: an unknown pooling, or `cls` without a CLS token; the model is as it was.
        """
        device, dtype = self.anchor.device, self.anchor.dtype
        config = self.config
        pool: Any = config.pool if global_pool is None else TIMM_POOLS.get(global_pool, global_pool)
        if pool == "":
            pool = "mean" if config.has_probe else config.pool
        # The prefix tokens stay as they are: the encoding was made for them.
        self.config = config.replace(
            num_classes=num_classes, pool=pool, class_token=self.has_class_token, class_names=None
        )
        if global_pool == "":
            self.attn_pool = None
        elif global_pool is not None and (self.attn_pool is None or pool != config.pool):
            self.attn_pool = self._make_pooling(pool).to(device, dtype).train(self.training)
            initialise_trunk(self.attn_pool)
        self.num_classes = num_classes
        self.head = self._make_head().to(device, dtype).train(self.training)

    def prune_intermediate_layers(
        self, indices: int | Sequence[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Drop what the chosen intermediates do not need (timm's `features_only`).

        The encoding stays whole, since it was made for the whole depth; a pruned model gives features, and cannot be
        saved as a folder.

        Args:
            indices: as in `forward_intermediates`.
            prune_norm: drop the final norm.
            prune_head: drop the pooling, the norm after it and the head.

        Returns:
            The layers asked for, counted from 0, in order.
        """
        taken = self._layers_taken(indices)
        self.blocks = self.blocks[: taken[-1] + 1]
        if prune_norm:
            self.norm = nn.Identity()
        if prune_head:
            self.fc_norm = nn.Identity()
            self.reset_classifier(0, "")
        return taken

    def no_weight_decay(self) -> set[str]:
        """Parameters that weight decay leaves alone: tokens, the probe, and the encoding's (rotary frequencies)."""
        named = {name for name, _ in self.named_parameters()}
        return super().no_weight_decay() | (named & {"cls_token", "reg_token", "attn_pool.latent"})

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Regular expressions that sort parameters into layers, for layer-wise learning rates."""
        return {
            # The first block's `norm_pre` stands before it, and belongs to the embedding.
            "stem": r"^cls_token|^reg_token|^encoding|^patch_embed|^blocks\.0\.norm_pre",
            "blocks": [(r"^blocks\.(\d+)\.(?!norm_pre)", None), (r"^norm|^fc_norm|^attn_pool", (99999,))],
        }

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute the blocks' activations in the backward pass instead of keeping them."""
        self.grad_checkpointing = enable

    def set_input_size(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to do: any size runs as it is."""

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
