"""A model: an embedder, prefix tokens, a position encoding, a trunk, and a head."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.fx import Proxy

from sightline.attention import AttentionSpec, preferred_tile
from sightline.encodings import Knob, create_encoding
from sightline.encodings.base import PositionEncoding
from sightline.errors import InputError
from sightline.models.block import Block
from sightline.models.config import Pool, ViTConfig
from sightline.models.embedder import embedder_class
from sightline.models.head import TokenHead, make_head
from sightline.models.init import init_weights
from sightline.models.norm import make_norm
from sightline.models.pooling import Pooling, make_pooling
from sightline.models.stage import StageSpec
from sightline.models.trunk import Trunk
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from sightline.tokens.patchify import ImagePatchifier

Images = Tensor | Sequence[Tensor]


class Model(nn.Module):
    """A vision transformer: tokens with positions in, logits or features out. Its architecture, a file of
    `models/architectures/` or a plug-in, makes the trunk.

    `model(images)` takes a normalised tensor [batch, channels, height, width] or a list of [channels, height, width] of
    any sizes. Both become `model(rows, layout=...)`: the embedder's flat rows [rows, patches, values] (of patches:
    channels * patch**2 values) and the `TokenLayout` with their positions.

    Attributes:
        name: Name of the architecture in `create_model(architecture=)` and `config.json`.
        supports_token_dropping: Whether patches may be dropped.
        export_refusal: Why the model cannot be exported for every size; "" if it can.
        patch_embed: The embedder's module.
        encoding: The position encoding.
        blocks: The trunk.
        num_features: Width of the trunk's output tokens; `config.pooled_dim` is that of the pooled vector.
        num_prefix_tokens: Tokens of each image before its patches.
        attn_pool: Pools tokens to one vector; None if the head takes all tokens, or nothing is pooled
            (`reset_classifier(0, "")`, as timm).
        head: Head of the pooled vector, or a `TokenHead`.
        num_classes: Outputs of a classifier, 0 for features.
        reinitialized: Names of weights that were not taken from `create_model(init_from=)`.
    """

    name: ClassVar[str]
    export_refusal: ClassVar[str] = ""
    supports_token_dropping: ClassVar[bool] = True
    encoding: PositionEncoding
    attn_pool: Pooling | None
    reinitialized: tuple[str, ...] = ()

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.config = config
        dim = config.dim
        self.embed_dim, self.num_features = dim, self.last_stage(config).dim
        self.num_prefix_tokens = config.num_prefix_tokens
        self.num_classes = config.num_classes
        self.patch_embed = embedder_class(config.embedder)(config)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim)) if config.has_class_token else None
        self.reg_token = nn.Parameter(torch.zeros(1, config.num_registers, dim)) if config.num_registers else None
        self.mask_token = nn.Buffer(torch.zeros(1, dim)) if config.mask_token else None
        self.encoding = self.make_positions(config)
        self.blocks = self.make_trunk(config)
        self.norm = self._final_norm("before_pool")
        self.attn_pool = make_pooling(self.last_stage(config)) if config.has_classifier else None
        self.fc_norm = self._final_norm("after_pool")
        init_weights(self)
        self.head = make_head(self.last_stage(config))

    @abstractmethod
    def make_trunk(self, config: ViTConfig) -> Trunk:
        """The blocks, which are called with tokens and what `Trunk.layer_inputs` gives."""

    def make_positions(self, config: ViTConfig) -> PositionEncoding:
        """The encoding whose hooks the blocks call."""
        return make_encoding(config, config.train_grid)

    @classmethod
    def options_of(cls, config: ViTConfig) -> dict[str, Any]:
        """`config.architecture_options` with its defaults written out, equal where models are."""
        return dict(config.architecture_options)

    @classmethod
    def last_stage(cls, config: ViTConfig) -> ViTConfig:
        """The configuration by which norm, pooling and head are made: of another width, where the trunk widens."""
        return config

    @classmethod
    def stages(cls, config: ViTConfig) -> tuple[StageSpec, ...]:
        """The layers in parts that are alike, by which operations and memory are counted; one where all are."""
        return (StageSpec(config, config.train_grid),)

    def _final_norm(self, where: str) -> nn.Module:
        """The norm before or after pooling; what is not pooled has none after it."""
        config, last = self.config, self.last_stage(self.config)
        there = config.final_norm in (where, "both") and (config.has_classifier or where == "before_pool")
        return make_norm(config, last.dim if where == "before_pool" else last.pooled_dim, there=there)

    def extra_repr(self) -> str:
        config = self.config
        return f"dim={config.dim}, depth={config.depth}, heads={config.heads}, patch_size={config.patch_size}"

    @property
    def anchor(self) -> Tensor:
        """A weight that says where the model computes and in which precision."""
        weight = getattr(getattr(self.patch_embed, "proj", None), "weight", None)
        # A layer that was quantised holds whole numbers, or no tensor at all.
        if isinstance(weight, Tensor) and weight.is_floating_point():
            return weight
        return next(one for one in self.parameters() if one.is_floating_point())

    # One path: images become rows and a layout, and these become everything else.

    def forward(self, images: Images, layout: TokenLayout | None = None, texts: Any = None) -> Any:
        """What the head gives; of a classifier, logits [images, num_classes]. With `layout`, `images` are flat rows.
        With `texts`, as `encode_text` takes them, a pair of tensors: the vectors of images and those of texts.

        A list gives its images' logits in its order; an image gives the same logits in a list, a batch or a pack.
        """
        if isinstance(images, Proxy):
            return _as_leaf(self, images)
        if layout is None:
            rows, layout = self.prepare(images)
        else:
            rows = self._laid_out(images, layout)
            if not isinstance(self.head, TokenHead):
                # Whoever laid tokens out is given no token back, in whatever order.
                rows, layout = self.in_attention_order(rows, layout)
        if isinstance(self.head, TokenHead):
            return self.head.predict(self, rows, layout)
        outputs = self.head(self.pool(self.encode(rows, layout), self.encoded_layout(layout)))
        return outputs if texts is None else (outputs, self.encode_text(texts))

    def encode_text(self, texts: Any) -> Tensor:
        """Texts to unit vectors, which stand in one space with those that `model(images)` gives.

        Args:
            texts: a list of texts; or token ids, int64 [texts, tokens] or a list for each.

        Returns:
            [texts, embed_dim], float32 at least.

        Raises:
            InputError: the model has no text tower, or no tokenizer.
        """
        encode: Any = getattr(self.head, "encode_text", None)
        if encode is None:
            raise InputError(f"head {self.config.head}: reads no texts (expected a model with head contrastive)")
        return encode(texts)

    @property
    def image_rows(self) -> ImagePatchifier:
        """What workers make of an image of this model's."""
        return ImagePatchifier(self.patch_embed.patchifier, self.config.mean)

    def prepare(self, images: Images) -> tuple[Tensor, TokenLayout]:
        """Images to flat rows [rows, patches, values] and where they stand.

        Args:
            images: [batch, channels, height, width], or a list of [channels, height, width]; where the embedder cuts
                clips, frames may stand after the channels, and a list holds clips and images, which are of one frame.

        Raises:
            InputError: wrong dimensions or channels, an empty image, a size that the patch does not divide while
                `fit` is `exact`, or another precision or device than the model's.
        """
        return self.in_attention_order(*self.cut(images))

    def cut(self, images: Images) -> tuple[Tensor, TokenLayout]:
        """As `prepare`, with the patches of every image in row-major order."""
        patchifier = self.patch_embed.patchifier
        prefix = self.num_prefix_tokens
        if isinstance(images, Tensor):
            rows, grid = patchifier(self._checked(images, "images", "batch, channels, height, width"))
            where: Any = {"device": images.device, "pixels": patchifier.valid_size(*images.shape[-2:])}
            return rows, TokenLayout.uniform(grid, images.shape[0], num_prefix_tokens=prefix, **where)
        if not isinstance(images, Sequence):
            raise InputError(f"images: expected a tensor or a list of tensors, got {type(images).__name__}")
        cut = [
            patchifier(self._checked(image, f"image {number}", "channels, height, width").unsqueeze(0))
            for number, image in enumerate(images)
        ]
        # Weights that are brought when they are needed do not say where images are.
        grids, device = [grid for _, grid in cut], cut[0][0].device if cut else self.anchor.device
        pixels = [patchifier.valid_size(*image.shape[-2:]) for image in images]
        layout = TokenLayout.packed(grids, num_prefix_tokens=prefix, device=device, pixels=pixels)
        if not cut:
            return torch.zeros(1, 0, patchifier.patch_dim, device=device), layout
        return torch.cat([rows for rows, _ in cut], dim=1), layout

    def _checked(self, image: object, what: str, axes: str) -> Tensor:
        """Refuse what is no normalised image, or batch of them, for this model."""
        channels, dims = self.config.channels, len(axes.split())
        clips = self.patch_embed.patchifier.axes == 3
        # Of a clip the channels stand before its frames.
        shape = list(image.shape) if isinstance(image, Tensor) else []
        if not isinstance(image, Tensor) or len(shape) - dims not in range(1 + clips) or shape[dims - 3] != channels:
            got = shape if isinstance(image, Tensor) else type(image).__name__
            longer = f" or [{axes.replace('channels,', 'channels, frames,')}]" if clips else ""
            raise InputError(f"{what}: expected [{axes}]{longer} with {channels} channels, got {got}")
        if not image.is_floating_point():
            raise InputError(f"{what}: expected normalised floating point values, got {image.dtype}")
        _check_kind(image, self.anchor, what)
        return image

    def in_attention_order(self, rows: Tensor, layout: TokenLayout) -> tuple[Tensor, TokenLayout]:
        """Row-major patches in the order that attention wants: chosen here once, for all layers."""
        if not (self.blocks.takes_tiles and layout.segments) or any(one.tile is not None for one in layout.segments):
            return rows, layout
        block = self.blocks[0]
        if not isinstance(block, Block):
            return rows, layout
        tokens = rows.new_empty(0, dtype=self.anchor.dtype)
        spec = AttentionSpec.of(tokens, block.attn.num_heads, block.attn.head_dim)
        tile = preferred_tile(self.encoding.hooks.pattern(0, layout), layout, spec)
        if tile is None:
            return rows, layout
        layout = layout.tiled(tile)
        return layout.to_layout_order(rows), layout

    def _laid_out(self, rows: Images, layout: TokenLayout) -> Tensor:
        """Flat rows that someone else laid out, checked."""
        there = sum(segment.patches for segment in layout.segments)
        if not isinstance(rows, Tensor):
            raise InputError(f"patches: expected a tensor of flat rows for {layout}, got a {type(rows).__name__}")
        # An embedder may take patches of more than one size.
        expected = (layout.rows, there + layout.padding, self.patch_embed.values_of(rows))
        if rows.shape != expected:
            raise InputError(f"patches: expected {list(expected)} for {layout}, got {list(rows.shape)}")
        _check_kind(rows, self.anchor, "patches")
        return rows

    def embed(self, rows: Tensor, layout: TokenLayout) -> Tensor:
        """Flat rows to tokens [rows, slots, dim], with the prefix tokens in their slots."""
        if (prefix := layout.num_prefix_tokens) != self.num_prefix_tokens:
            raise InputError(f"layout: {prefix} prefix tokens, expected the model's {self.num_prefix_tokens}")
        if not layout.segments:
            return rows.new_zeros(rows.shape[0], layout.slots, self.embed_dim)
        if layout.padding:
            # What stands there is never read, since a mask does not stop a NaN: `join` makes these slots zero.
            rows = rows[:, : -layout.padding]
        # The residual stream keeps the parameters' precision, also under autocast.
        tokens = self.patch_embed(rows, layout).to(self.anchor.dtype)
        first = [token[0] for token in (self.cls_token, self.reg_token) if token is not None]
        return layout.join(tokens, torch.cat(first) if first else None)

    def encode(self, rows: Tensor, layout: TokenLayout) -> Tensor:
        """Flat rows to normed tokens [rows, slots, num_features], which stand as `encoded_layout` says."""
        return self.through(self.embed(rows, layout), layout)

    def through(self, tokens: Tensor, layout: TokenLayout) -> Tensor:
        """Embedded tokens [rows, slots, dim], as `embed` gives them, to normed ones: the blocks and the last norm."""
        return self.norm(self.blocks(tokens, layout, self.encoding.hooks))

    def encoded_layout(self, layout: TokenLayout) -> TokenLayout:
        """Where the tokens stand that `encode` gives of images that are laid out so."""
        return self.blocks.layout_after(len(self.blocks) - 1, layout)

    def pool(self, tokens: Tensor, layout: TokenLayout) -> Tensor:
        """Normed tokens, as `encode` gives them, and where they stand to what the classifier reads: [images,
        pooled_dim]."""
        assert self.attn_pool is not None
        if not layout.segments:
            return self.fc_norm(tokens.new_zeros(0, self.last_stage(self.config).pooled_dim))
        return self.fc_norm(self.attn_pool(tokens, layout))

    def reset_head(
        self, head: str | None = None, *, num_classes: int | None = None, pool: Pool | None = None, **options: Any
    ) -> None:
        """A new head, with new weights; the trunk stays as it is, and so does the pooling unless another is given.

        Args:
            head: `linear` or `mlp` for a classifier of the pooled vector, or the name of a `TokenHead`, which takes
                `options`; None for the kind that the model has.
            num_classes: outputs of a classifier, 0 for the pooled features; None for as many as now.

        Raises:
            InputError: an unknown head or pooling, or `cls` without a CLS token; the model is as it was.
        """
        before = self.config
        config = before.replace(
            head=before.head if head is None else head,
            head_options=before.head_options if head is None and not options else options,
            num_classes=before.num_classes if num_classes is None else num_classes,
            pool=before.pool if pool is None else pool,
            # The prefix tokens stay as they are: the encoding was made for them.
            class_token=before.has_class_token,
            class_names=None,
        )
        switched, parts = config.has_classifier != before.has_classifier, nn.ModuleDict()
        if switched and config.has_classifier:
            # The task was that of the head that is gone.
            config = config.replace(task="classification")
        if config.has_classifier and (switched or pool not in (None, before.pool if self.attn_pool else None)):
            parts["attn_pool"] = make_pooling(self.last_stage(config))
            init_weights(parts["attn_pool"])
        parts["head"] = make_head(self.last_stage(config))
        self.config, self.num_classes = config, config.num_classes
        if switched:
            parts["fc_norm"] = self._final_norm("after_pool")
        parts.to(self.anchor.device, self.anchor.dtype).train(self.training)
        if not config.has_classifier:
            self.attn_pool = None
        for name, part in parts.items():
            setattr(self, name, part)

    @property
    def knob(self) -> Knob | None:
        """The encoding's extrapolation parameter, or None."""
        return self.encoding.knob

    def set_knob(self, value: float) -> None:
        """Set the encoding's extrapolation parameter; raises InputError where there is none or it is out of range."""
        self.encoding.set_knob(value)

    def no_weight_decay(self) -> set[str]:
        """Parameters that weight decay leaves alone: tokens (classes of Segmenter), the probe, and the encoding's."""
        tokens = {"cls_token", "reg_token", "attn_pool.latent", "head.cls_emb"}
        own = {f"encoding.{name}" for name in self.encoding.no_weight_decay()}
        of_head: Any = getattr(self.head, "no_weight_decay", set)
        own |= {f"head.{name}" for name in of_head()}
        return own | {name for name, _ in self.named_parameters() if name in tokens}


def make_encoding(config: ViTConfig, grid: Grid) -> PositionEncoding:
    """The position encoding of a model, made for a grid."""
    return create_encoding(
        config.encoding,
        depth=config.depth,
        heads=config.heads,
        dim=config.dim,
        head_dim=config.head_dim,
        train_grid=grid,
        num_prefix_tokens=config.num_prefix_tokens,
        **config.encoding_options,
    )


@contextlib.contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Every module of `model` in evaluation mode; afterwards each is as it was, also where only some were training.

    What measures a model does not trust its caller: one that drops paths gives other numbers every time.
    """
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _check_kind(values: Tensor, anchor: Tensor, what: str) -> None:
    """Refuse another precision than that of the weights, except under autocast, and values elsewhere."""
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


def _as_leaf(model: nn.Module, images: Proxy) -> Any:
    """The model as one step of torch.fx's graph of a module that holds it, as torch.nn's own layers are.

    Raises:
        InputError: the model itself is traced; says what gives features, and what gives a graph.
    """
    place = images.tracer.path_of_module(model)  # type: ignore[attr-defined]
    if not place:
        raise InputError(
            "torch.fx cannot trace this model: its steps hang on the images' sizes (expected forward_intermediates for "
            "features, torch.export or torch.compile for a graph; inside another module it is traced as one step)"
        )
    return images.tracer.create_proxy("call_module", place, (images,), {})
