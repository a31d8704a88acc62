"""What a model is made of, in one record of parts: `config.json` keeps them apart, code reads them by flat names."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Any, Literal, get_args

import torch
from pydantic import Field

from sightline.errors import InputError
from sightline.io.config import Fraction, NonNegative, Number, Positive, build_config, config_dataclass
from sightline.models.embedder import embedder_class
from sightline.models.head import POOLED_HEADS, ScoreLink, head_class
from sightline.tokens.grid import Grid
from sightline.tokens.patchify import Fit, Patchifier, check_multiples

Gelu = Literal["exact", "tanh", "quick"]
Pool = Literal["cls", "mean", "attention", "query", "first", "cls_mean", "prefix"]
_OF_CLASS_TOKEN: tuple[Pool, ...] = ("cls", "cls_mean", "prefix")

# What is read from outside is bounded: far beyond every model that was ever published, and small enough that asking
# for its shapes takes no time.
LIMITS: dict[str, int] = {
    "patch_size": 4_096, "dim": 65_536, "depth": 512, "heads": 4_096, "head_dim": 65_536, "channels": 65_536,
    "mlp_ratio": 1_000, "head_hidden": 1_000_000, "pool_heads": 4_096, "pool_mlp_ratio": 1_000,
    "num_classes": 10_000_000, "num_registers": 4_096, "image_size": 1_000_000, "clip_frames": 1_000_000, "crop": 1,
}  # fmt: skip
PatchSide = Annotated[int, Field(ge=1, le=LIMITS["patch_size"])]
Width = Annotated[int, Field(ge=1, le=LIMITS["dim"])]
Heads = Annotated[int, Field(ge=1, le=LIMITS["heads"])]
Side = Annotated[int, Field(ge=1, le=LIMITS["image_size"])]
Layers = Annotated[int, Field(ge=1, le=LIMITS["depth"])]
Hidden = Annotated[int, Field(ge=1, le=LIMITS["head_hidden"])]
Ratio = Annotated[float, Field(gt=0, le=LIMITS["mlp_ratio"])]


@config_dataclass
class ViTConfig:
    """Configuration of a `Model`: its architecture, its head, how images are prepared, and what outputs are called.

    Attributes:
        architecture, architecture_options: a registered architecture, and its own configuration.
        embedder, embedder_options: a registered embedder, and its configuration.
        patch_size: side of a patch in pixels.
        dim, depth, heads: width, layers and attention heads of the trunk.
        head_dim: width of a head; None takes dim / heads.
        mlp_ratio: hidden width of the MLPs over `dim`.
        num_classes: outputs of the head; 0 leaves the pooled features.
        table_grid: (rows, cols), or (frames, rows, cols) in tubelets, that the position encoding was made for, where it
            was trained on another size since; None is that of `image_size`.
        channels: of the images.
        encoding: a registered position encoding, or some joined by "+".
        encoding_options: its configuration.
        pool: `cls`, `mean` over patches, `attention` by a learned probe with an MLP after it (MAP), `query`: the
            probe attends as a token of a block would, without an MLP (vit-pytorch's NaViT), `first`: the first
            patch, that of cell (0, 0) where none was dropped, `cls_mean`: the CLS token beside the mean over patches
            (DINOv2's classifier), or `prefix`: all prefix tokens side by side.
        mask_token: keep the token of masked pre-training (DINOv3); nothing computes with it.
        pool_prefix: prefix tokens are pooled too.
        pool_heads, pool_mlp_ratio: of the probe's attention and MLP; None takes the trunk's.
        class_token: None has one where `pool` is `cls`, `cls_mean` or `prefix`.
        num_registers: register tokens beside the CLS token.
        patch_bias, patch_norm: of the patch embedding: its bias, and norms before and after it (Dual PatchNorm), or
            `after` alone (Swin).
        qkv_bias: biases of q, k and v; `qv` has none for k (BEiT, EVA).
        block_bias: biases of everything else in blocks and pooling; `mlp` has them in the MLPs alone (ViT-22B).
        qk_norm: q and k are normalised in each head; `heads` has factors for each head, and scores that are not
            divided by sqrt(head_dim) (vit-pytorch's NaViT).
        attn_norm, mlp_norm: norms of the heads' outputs, and of the MLP's hidden channels (EVA-02).
        norm, norm_eps: kind of every norm, and its epsilon: `layer`, `layer_no_bias`, or `rms` (ViT-22B's "without
            bias and centering").
        norm_pre: a norm of the embedded tokens before the first block (CLIP).
        final_norm: before or after pooling, both, or none.
        mlp: `gelu`, or `swiglu` (gated by a SiLU).
        gelu: `exact`, the `tanh` approximation (big_vision), or `quick` (OpenAI's CLIP).
        layer_scale: initial factor of the residual branches, or None for no LayerScale.
        drop_path: rate at which an image skips a residual branch in training, the same in all layers, or (first, last)
            for rates that rise evenly from the first layer to the last (timm's `drop_path_rate` r is (0, r)).
        dropout: rate at which channels are set to zero in training after every dense layer of a block but q, k and v,
            and after the positions (ViT appendix B.1).
        head: `linear`, or `mlp` with a tanh (`head_hidden` wide; None takes `dim`); `distilled`: the mean of two
            layers, one on the CLS token and one on a register (DeiT; `pool` is `prefix`); `cosine` to a vector of each
            class, after a projection to `head_hidden` where that is given; `contrastive` beside a text tower; or a
            `TokenHead` by its name.
        head_options: configuration of a `TokenHead`, or of `contrastive`.
        task: what the head was made for, as a file of `tasks/` is called.
        head_std: deviation of the last layer's weights before training; 0 begins with 0 (ViT's fine-tuning, LookHere).
        head_bias: logit of every class before training, None for 0, or False for a head without a bias.
        fit: what happens to sizes that the patch does not divide.
        image_size: (height, width) or one side in pixels of the images that the model was trained on last, and that are
            prepared for it; any size runs.
        clip_frames: frames of the clips that it was trained on, where its embedder cuts clips; None for images.
        mean, std: normalisation of [0, 1] values, one a channel; of a model of one channel those of RGB are averaged.
        interpolation: the filter of the resize.
        crop, crop_mode: what is shown of an image in evaluation, as timm's `crop_pct` and `crop_mode`: the centre of an
            image whose shorter side is scaled to the size / `crop` (`center`), that is scaled so whatever its aspect
            (`squash`), or that fits inside, beside the mean colour (`border`).
        class_names: of the outputs, or None where they are not known.
        score_link: how logits are read as scores: `softmax`, or `sigmoid` of each class where a binary cross entropy
            trained it.
        origin: of imported weights: the foreign project, and its configuration.
    """

    architecture: str = "vit"
    architecture_options: dict[str, Any] = field(default_factory=dict)
    embedder: str = "patches"
    embedder_options: dict[str, Any] = field(default_factory=dict)
    patch_size: PatchSide = 16
    dim: Width = 768
    depth: Layers = 12
    heads: Heads = 12
    head_dim: Width | None = None
    mlp_ratio: Ratio = 4.0
    num_classes: Annotated[int, Field(ge=0, le=LIMITS["num_classes"])] = 1000
    table_grid: tuple[Side, ...] | None = None
    channels: Width = 3
    encoding: str = "learned_1d"
    encoding_options: dict[str, Any] = field(default_factory=dict)
    pool: Pool = "cls"
    class_token: bool | None = None
    num_registers: Annotated[int, Field(ge=0, le=LIMITS["num_registers"])] = 0
    mask_token: bool = False
    pool_prefix: bool = False
    pool_heads: Heads | None = None
    pool_mlp_ratio: Ratio | None = None
    patch_bias: bool = True
    patch_norm: bool | Literal["after"] = False
    qkv_bias: bool | Literal["qv"] = True
    block_bias: bool | Literal["mlp"] = True
    qk_norm: bool | Literal["heads"] = False
    attn_norm: bool = False
    mlp_norm: bool = False
    mlp: Literal["gelu", "swiglu"] = "gelu"
    layer_scale: Number | None = None
    drop_path: Fraction | tuple[Fraction, Fraction] = 0.0
    dropout: Fraction = 0.0
    norm: Literal["layer", "layer_no_bias", "rms"] = "layer"
    norm_eps: Positive = 1e-6
    norm_pre: bool = False
    gelu: Gelu = "exact"
    final_norm: Literal["before_pool", "after_pool", "both", "none"] = "before_pool"
    head: str = "linear"
    head_options: dict[str, Any] = field(default_factory=dict)
    task: str = "classification"
    head_hidden: Hidden | None = None
    head_std: NonNegative = 0.02
    head_bias: Number | Literal[False] | None = None
    fit: Fit = "exact"
    image_size: Side | tuple[Side, Side] = 224
    clip_frames: Side | None = None
    mean: tuple[Number, ...] = (0.5, 0.5, 0.5)
    std: tuple[Positive, ...] = (0.5, 0.5, 0.5)
    interpolation: Literal["bicubic", "bilinear", "lanczos"] = "bicubic"
    crop: Annotated[float, Field(gt=0, le=1)] = 1.0
    crop_mode: Literal["center", "squash", "border"] = "center"
    class_names: tuple[str, ...] | None = None
    score_link: ScoreLink = "softmax"
    origin: dict[str, Any] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.head_dim is None and self.dim % self.heads:
            raise InputError(f"dim {self.dim}: must be divisible by heads {self.heads}")
        if self.mlp_hidden < 1:
            raise InputError(f"mlp_ratio {self.mlp_ratio}: leaves no hidden channel of dim {self.dim}")
        for key in ("name", "depth", "heads", "dim", "head_dim", "train_grid", "num_prefix_tokens"):
            if key in self.encoding_options:
                raise InputError(f"encoding_options.{key}: is decided by the model")
        if not self.has_classifier:
            head_class(self.head)
        if self.head == "contrastive" and self.task == "classification":
            object.__setattr__(self, "task", "contrastive")
        if self.pool in _OF_CLASS_TOKEN and self.class_token is False:
            others = " or ".join(repr(pool) for pool in get_args(Pool) if pool not in _OF_CLASS_TOKEN)
            raise InputError(f"class_token false: pool {self.pool!r} needs a CLS token (expected pool {others})")
        if self.head == "distilled" and (self.pool, self.num_prefix_tokens) != ("prefix", 2):
            found = f"pool {self.pool!r} and {self.num_prefix_tokens} prefix tokens"
            raise InputError(f"head 'distilled': {found} (expected pool 'prefix', a CLS token and one register)")
        if self.pool_heads is not None and self.head_dim is None and self.dim % self.pool_heads:
            raise InputError(f"dim {self.dim}: must be divisible by pool_heads {self.pool_heads}")
        if self.pool_hidden < 1 and self.pool != "query":
            raise InputError(f"pool_mlp_ratio {self.pool_mlp_ratio}: leaves no hidden channel of dim {self.dim}")
        kinds = {} if self.origin is None else {key: type(self.origin.get(key)) for key in ("project", "config")}
        if kinds and kinds != {"project": str, "config": dict}:
            raise InputError(f"origin {self.origin!r}: expected the project, and its configuration")
        for name in ("mean", "std"):
            values = getattr(self, name)
            if len(values) not in (3, self.channels):
                said = f"{name} {values!r}: expected three numbers, or one a channel"
                raise InputError(said, field=name, value=values)
            if self.channels == 1 and len(values) == 3:
                object.__setattr__(self, name, (sum(values) / 3,))
        if self.crop_mode == "border" and self.task != "classification":
            raise InputError(f"crop_mode 'border': not for {self.task} (expected center or squash)")
        if self.class_names is not None and len(self.class_names) != self.num_classes:
            raise InputError(f"class_names: {len(self.class_names)} names for {self.num_classes} classes")
        if self.table_grid is not None:
            Grid.checked(self.table_grid, "table_grid", self.patchifier.axes)
        if self.clip_frames is not None and self.patchifier.axes < 3:
            raise InputError(
                f"clip_frames {self.clip_frames}: embedder {self.embedder!r} cuts images alone (expected 'tubelets')"
            )
        if self.fit == "exact":
            check_multiples("image_size {}", Grid.checked(self.image_size), self.patch_size)

    @property
    def train_grid(self) -> Grid:
        """The grid that the position encoding was made for."""
        return self.grid_of(self.image_size) if self.table_grid is None else Grid(*self.table_grid)

    @property
    def table_size(self) -> int | tuple[int, int]:
        """(height, width) or one side in pixels of an image of `train_grid`."""
        height, width = (side * self.patch_size for side in self.train_grid[-2:])
        if Grid.checked(self.image_size) == (height, width):
            return self.image_size
        return height if height == width else (height, width)

    def grid_of(self, image_size: int | tuple[int, int], frames: int | None = None) -> Grid:
        """The grid that the model makes of an image of this size under its `fit`, as its embedder cuts it.

        Args:
            image_size: (height, width) or one side in pixels.
            frames: of a clip, where the embedder cuts clips: None for those that it was trained on, an image being one.

        Raises:
            InputError: as `fit_to_patches`.
        """
        clip = {"frames": frames or self.clip_frames or 1} if self.takes_clips else {}
        return self.patchifier.grid_of(*Grid.checked(image_size, "image_size"), **clip)

    @property
    def takes_clips(self) -> bool:
        """Whether the embedder cuts clips, of which an image is one; else images alone."""
        return self.patchifier.axes == 3

    @property
    def tubelet(self) -> int | None:
        """Frames of a patch, where the embedder cuts clips; None where it cuts images."""
        return getattr(self.patchifier, "tubelet", 1) if self.takes_clips else None

    @property
    def patchifier(self) -> Patchifier:
        """The half of the embedder that has no weights."""
        return embedder_class(self.embedder).patchifier_of(self)

    def drop_path_of(self, layer: int) -> float:
        """The rate of a layer's residual branches."""
        if not isinstance(self.drop_path, tuple):
            return self.drop_path
        # On the CPU whatever the default device: a model without memory has rates too.
        return torch.linspace(*self.drop_path, self.depth, device="cpu")[layer].item()

    @property
    def has_class_token(self) -> bool:
        return self.pool in _OF_CLASS_TOKEN if self.class_token is None else self.class_token

    @property
    def has_classifier(self) -> bool:
        """The head is one of the pooled vector, as classifiers are."""
        return self.head in POOLED_HEADS

    @property
    def has_probe(self) -> bool:
        """A learned probe pools."""
        return self.pool in ("attention", "query")

    @property
    def pooled_dim(self) -> int:
        """Channels of the pooled vector."""
        return self.dim * {"cls_mean": 2, "prefix": self.num_prefix_tokens}.get(self.pool, 1)

    @property
    def num_prefix_tokens(self) -> int:
        return int(self.has_class_token) + self.num_registers

    @property
    def attention_width(self) -> int:
        """Channels of all heads together."""
        return self.dim if self.head_dim is None else self.heads * self.head_dim

    @property
    def probe_width(self) -> int:
        """Channels of all heads of a probe's attention together."""
        return self.dim if self.head_dim is None else (self.pool_heads or self.heads) * self.head_dim

    @property
    def mlp_hidden(self) -> int:
        return round(self.dim * self.mlp_ratio)

    @property
    def pool_hidden(self) -> int:
        """Hidden width of the probe's MLP, which `query` does not have."""
        if self.pool == "query":
            return 0
        return round(self.dim * (self.mlp_ratio if self.pool_mlp_ratio is None else self.pool_mlp_ratio))

    def plain(self) -> ViTConfig:
        """The same without a `table_grid` that `image_size` says already."""
        return self.replace(table_grid=None) if self.table_grid == self.grid_of(self.image_size) else self

    def replace(self, **changes: Any) -> ViTConfig:
        """A copy with fields changed, checked anew.

        Raises:
            InputError: an unknown field (names the nearest), or a value out of range.
        """
        return build_config(type(self), {**vars(self), **changes}, "model")
