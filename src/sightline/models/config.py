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
    """Configuration of a `Model`: its architecture, its head, the preparation of images, and the names of outputs.

    Attributes:
        architecture: A registered architecture.
        architecture_options: Options of the architecture.
        embedder: A registered embedder (patch embedding).
        embedder_options: Options of the embedder.
        patch_size: Side of a patch in pixels.
        dim: Width of the trunk.
        depth: Layers of the trunk.
        heads: Attention heads of a layer.
        head_dim: Width of an attention head; None takes dim / heads.
        mlp_ratio: Hidden width of the MLPs, divided by `dim`.
        num_classes: Outputs of the head; 0 returns the pooled features.
        table_grid: Grid that the encoding's tables were made for: (rows, cols), or (frames, rows, cols) in tubelets, if
            the model was later trained at another size; None takes that of `image_size`.
        channels: Channels of the images.
        encoding: A registered position encoding, or several joined by "+".
        encoding_options: Options of the encoding.
        pool: Pooling: `cls`; `mean` over patches; `attention` by a learned probe with an MLP after it (MAP); `query`,
            the same without an MLP, where the probe attends as a token of a block does (vit-pytorch's NaViT); `first`,
            the first patch (that of cell (0, 0) unless it was dropped); `cls_mean`, the CLS token and the mean over
            patches side by side (DINOv2's classifier); or `prefix`, all prefix tokens side by side.
        mask_token: Keep the mask token of pre-training (DINOv3); it is not used.
        pool_prefix: Pool prefix tokens too.
        pool_heads: Attention heads of the probe; None takes `heads`.
        pool_mlp_ratio: `mlp_ratio` of the probe's MLP; None takes that of the trunk.
        class_token: Whether there is a CLS token; None: only if `pool` is `cls`, `cls_mean` or `prefix`.
        num_registers: Number of register tokens.
        patch_bias: A bias in the patch embedding.
        patch_norm: Norms before and after the patch embedding (Dual PatchNorm), or only `after` it (Swin).
        qkv_bias: Biases of q, k and v; `qv` has none for k (BEiT, EVA).
        block_bias: All other biases of blocks and pooling; `mlp`: only those of the MLPs (ViT-22B).
        qk_norm: Normalise q and k in each head. `heads`: with factors for each head, and scores that are not divided by
            sqrt(head_dim) (vit-pytorch's NaViT).
        attn_norm: A norm of the attention's output before its projection (EVA-02).
        mlp_norm: A norm of the MLP's hidden channels (EVA-02).
        norm: Kind of every norm: `layer`, `layer_no_bias`, or `rms` (ViT-22B's "without bias and centering").
        norm_eps: Epsilon of every norm.
        norm_pre: A norm of the embedded tokens before the first block (CLIP).
        final_norm: Place of the last norm: before pooling, after it, both, or none.
        mlp: `gelu`, or `swiglu` (gated by a SiLU).
        gelu: `exact`, `tanh` (the approximation, as big_vision) or `quick` (OpenAI's CLIP).
        layer_scale: Initial factor of the residual branches (LayerScale); None: no LayerScale.
        drop_path: Drop path rate (stochastic depth), the same in all layers; or (first, last) for rates that rise
            evenly from the first layer to the last (timm's `drop_path_rate` r is (0, r)).
        dropout: Dropout rate after the positions and after every linear layer of a block except q, k and v (ViT
            appendix B.1).
        head: `linear`; `mlp` (`head_hidden` wide, with a tanh); `distilled`, the mean of two linear layers, one on the
            CLS token and one on a register (DeiT; `pool` is `prefix`); `cosine`, the similarity with a vector of each
            class, after a projection to `head_hidden` if that is given; `contrastive`, with a text tower; or the name
            of a `TokenHead`.
        head_options: Options of a `TokenHead`, or of `contrastive`.
        task: Task that the head was made for: the name of a file in `tasks/`.
        head_hidden: Hidden width of the head; for `mlp` None takes `dim`.
        head_std: Initial standard deviation of the last layer's weights; 0 starts at zero (ViT's fine-tuning,
            LookHere).
        head_bias: Initial logit of every class; None starts at 0, False is a head without a bias.
        fit: How images are shown if the patch does not divide their size: `exact` refuses them.
        image_size: Training size of the model, in pixels: (height, width) or one side. Images are prepared for it; any
            size runs.
        clip_frames: Frames of the training clips, if the embedder takes clips; None for images.
        mean: Mean of [0, 1] values for normalisation, one for each channel; a model with one channel averages those of
            RGB.
        std: Standard deviation of [0, 1] values for normalisation, as `mean`.
        interpolation: Filter that resizes images.
        crop: Share of the resized image that is shown in evaluation, as timm's `crop_pct`.
        crop_mode: How, as timm's `crop_mode`: the shorter side is resized to size / `crop` and the centre cut out
            (`center`), the same with the image resized to a square first (`squash`), or the longer side is resized and
            the rest filled with the mean colour (`border`).
        class_names: Names of the outputs; None if not known.
        score_link: How logits become scores: `softmax`, or `sigmoid` of each class if a binary cross entropy trained
            it.
        origin: For imported weights: the original project and its configuration.
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
