"""What a forward pass or a training step will take in memory, said before it is tried.

Counted from shapes in whole numbers, so no size is too large to be told; nothing is run. Measured and estimated figures
stand side by side in tests/analysis/test_memory.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from sightline.analysis.memory_estimate import MemoryEstimate
from sightline.analysis.memory_stages import UncountableError, kept_of_stages, parameters_of, plain_stage
from sightline.attention.cpu import cpu_form
from sightline.attention.pattern import DirectedBias
from sightline.attention.sdpa import BIAS_BYTES, CPU_BIAS_BYTES
from sightline.distributed import machine
from sightline.errors import require_known
from sightline.io.config import Count, check_value
from sightline.io.read import format_bytes
from sightline.models import ViTConfig, make_model
from sightline.models.create import architecture_class
from sightline.models.embedder import embedder_class
from sightline.models.head import make_head
from sightline.models.model import make_encoding
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout

DTYPES = ("float32", "bfloat16")
# A tile has 16 x 16 queries; their scores, attention and its gradient are there at once (attention/backends/tiles.py).
_TILE_QUERIES, _TILE_BUFFERS = 256, 3
# What fresh processes took beyond the sum of the tensors: fragments of the heap, kernels' buffers.
_OTHER, _OTHER_SHARE = 12 << 20, 16
_FLOAT = 4


def estimate_memory(
    config: ViTConfig,
    image_size: int | tuple[int, int],
    *,
    batch: int = 1,
    dtype: str = "float32",
    training: bool = False,
    ema: bool = False,
    saves: bool = False,
    sharers: int = 1,
    device: str | torch.device = "cpu",
) -> MemoryEstimate:
    """What a model takes at a size, computed in closed form; the libraries themselves are not counted.

    Args:
        image_size: (height, width) or one side in pixels of the images; any whole numbers.
        batch: images of a pass.
        dtype: of the matrix products: `float32`, or `bfloat16` by autocast beside float32 parameters.
        training: forward, backward and the optimizer's step, else a forward without gradients.
        ema: a running mean of the weights is kept too, beside the two moments of AdamW.
        saves: checkpoints are written while the training goes on.
        sharers: processes that each hold a part of the model, its gradients and moments (FSDP2), beside the whole of
            what is computed just now.
        device: decides which back end computes attention.

    Raises:
        InputError: an unknown encoding or dtype, a batch below 1, a size that the patch does not divide
            while `fit` is `exact`, or a model whose parameters torch cannot count.
    """
    require_known("dtype", dtype, DTYPES)
    check_value("batch", batch, Count)
    check_value("sharers", sharers, Count)
    one = _pass_of(config, batch, dtype, training, ema, saves, sharers, device)
    return one.at(Grid.checked(image_size, "image_size"))


def _count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


class PlainPass:
    """A pass, or a training step, whatever the size of its images.

    Attributes:
        low: matrix products are in bfloat16, beside float32 parameters.
        element: bytes of a number that a matrix product gives.
        moments: copies of the parameters that the optimizer and the running mean keep; saves: there is a copy of all
            of them.
        parameters: how many, of the model and its encoding.
        bias: that the encoding adds to scores, "none", "directed", "learned" or "content" (each image has
            its own).
        looked_up, outputs: its terms that add to scores what tokens hold, and those that add to the outputs.
        angles: how many a token has in a layer.
    """

    def __init__(
        self,
        config: ViTConfig,
        batch: int,
        dtype: str,
        training: bool,
        ema: bool,
        saves: bool,
        sharers: int,
        device: str | torch.device,
    ) -> None:
        self.config, self.batch, self.training, self.saves = config, batch, training, saves
        self.sharers = sharers
        self.moments = 2 + ema
        self.low = dtype == "bfloat16"
        self.element = 2 if self.low else _FLOAT
        self.on_cpu = torch.device(device).type == "cpu"
        try:
            # Of one block, not of all: a thousand layers are counted as fast as one.
            block: dict[str, Any] = {"depth": 1, "encoding": "none", "encoding_options": {}}
            if not config.has_classifier:
                # A head of all tokens may read other layers than the first.
                block |= {"head": "linear", "head_options": {}, "num_classes": 0, "class_names": None, "pool": "mean"}
                norm = "before_pool" if config.final_norm in ("before_pool", "both") else "none"
                block |= {"class_token": config.has_class_token, "final_norm": norm}
            with torch.device("meta"):
                trunk = make_model(config.replace(**block))
                ones = Grid(*(1,) * len(config.train_grid))
                encoding = make_encoding(config, ones)
                self.parameters = _count(trunk) + (config.depth - 1) * _count(trunk.blocks[0])
                self.parameters += 0 if config.has_classifier else _count(make_head(config))
                self.parameters += _count(make_encoding(config, config.train_grid))
                # Of the block that is computed, and of the rest of the model.
                self.gathered = self.parameters - (config.depth - 1) * _count(trunk.blocks[0])
            cell = TokenLayout.uniform(ones, 1, num_prefix_tokens=config.num_prefix_tokens, device="meta")
            with torch.device("meta"):
                pattern, rotation = encoding.pattern(0, cell), encoding.rotation(0, cell)
        # What torch raises for a size beyond its own whole numbers.
        except (RuntimeError, OverflowError, TypeError):
            said = f"model with encoding {config.encoding}: its parameters cannot be counted"
            raise UncountableError(said) from None
        self.bias, self.looked_up, self.outputs, self.pattern = "none", 0, 0, pattern
        if pattern is not None:
            self.bias = "directed" if all(isinstance(term, DirectedBias) for term in pattern.terms) else "learned"
            self.bias = "content" if pattern.terms_of("queries", "keys", "attention") else self.bias
            self.looked_up = len(pattern.terms_of("queries", "keys"))
            self.outputs = len(pattern.terms_of("attention"))
        self.angles = 0 if rotation is None else rotation.angles.shape[1] * rotation.angles.shape[3]
        self.learned_angles = rotation is not None and rotation.angles.requires_grad

    def at(self, size: Grid) -> MemoryEstimate:
        """What it takes at a size in pixels."""
        config, batch, grid = self.config, self.batch, self.config.grid_of((size.rows, size.cols))
        tokens = grid.cells + config.num_prefix_tokens
        # Keys that a query meets: all tokens, or those of its row or column.
        keys = architecture_class(config.architecture).stages(config)[0].keys(grid.cells, grid)
        tiled = len(grid) == 2 and self.form(keys) == "tiles"
        of_patch, of_pass = embedder_class(config.embedder).held(config, self.training)
        moment = (batch * grid.cells * of_patch + of_pass) * _FLOAT + self.moment(batch * tokens)
        kept = self.kept(grid.cells, tokens, keys, tiled) if self.training else 0
        stored = 0 if self.bias in ("none", "content") else config.depth * config.heads * tokens * keys * _FLOAT
        return self.sum(size, tokens, moment, kept, self.workspace(tokens, keys, tiled), stored)

    def form(self, keys: int) -> str | None:
        """The form of attention on a CPU for so many keys; else None."""
        if not self.on_cpu:
            return None
        return cpu_form(self.pattern, keys, torch.bfloat16 if self.low else torch.float32, training=self.training)

    def sum(self, size: Grid, tokens: int, moment: int, kept: int, attention: int, stored: int) -> MemoryEstimate:
        """Everything together, of bytes that are there for a moment, kept, taken by attention, and not kept at all."""
        config = self.config
        grid, parameters = config.grid_of((size.rows, size.cols)), -(-self.held // self.sharers)
        gradients = parameters if self.training else 0
        moments = parameters * self.moments if self.training else 0
        of_patches = grid.cells * config.patchifier.patch_dim // config.channels
        pixels = (config.clip_frames or 1) * size[0] * size[1]
        activations = self.batch * config.channels * _FLOAT * (pixels + of_patches) + moment
        if self.sharers > 1:
            # With its gradient.
            activations += 2 * self.gathered * _FLOAT
        if self.training:
            # Autocast's copies of the weights are kept for the backward pass.
            activations += (parameters // 2 if self.low else 0) + kept
        return MemoryEstimate(
            tokens=tokens,
            parameters=parameters,
            gradients=gradients,
            optimizer=moments,
            activations=activations,
            attention=attention,
            other=_OTHER + (parameters + gradients + moments + activations + attention) // _OTHER_SHARE,
            stored_bias=stored,
            saved=parameters + moments if self.saves and self.on_cpu else 0,
            built=self.held,
        )

    @property
    def held(self) -> int:
        """Bytes of all parameters."""
        return self.parameters * _FLOAT

    def workspace(self, tokens: int, keys: int, tiled: bool) -> int:
        """Bytes that the attention of one layer takes for a moment beside q, k, v and its output."""
        config = self.config
        if self.bias == "none":
            return 0
        if tiled:
            # A thread has a head to itself, with its keys and values in float32.
            heads = min(torch.get_num_threads(), self.batch * config.heads)
            a_token = _TILE_QUERIES * _TILE_BUFFERS + 2 * (config.attention_width // config.heads)
            return heads * tokens * _FLOAT * a_token
        if self.bias == "content":
            # As a bias of all images together, made again for the backward pass where it is large.
            added = min(self.batch * config.heads * tokens * keys * self.element, BIAS_BYTES)
            forward = (3 + 4 * bool(self.outputs)) * (1 + self.training) * added
            if self.training and keys > 4 * config.attention_width // config.heads:
                # Made again, each layer's products leave holes between what the layers keep: a third of each, in the
                # middle of what fresh processes took beyond the sum (none of it in some, two thirds in others).
                forward += config.depth * (self.looked_up + self.outputs) * added // 3
            return forward + 8 * keys**2
        most = max(CPU_BIAS_BYTES, min(keys**2 * self.element, BIAS_BYTES)) if self.on_cpu else BIAS_BYTES  # a head
        bias = min(config.heads * keys**2 * self.element, most)
        if self.bias == "learned" and self.training:
            # No fused kernel gives a bias its gradient: the scores of all images, and the gradients on the way back.
            return 6 * self.batch * min(config.heads * tokens * keys * self.element, BIAS_BYTES)
        # The bias by displacement becomes one by pairs, and that one a copy with the prefix slots' rows and columns.
        return 2 * bias

    def kept(self, cells: int, tokens: int, keys: int, tiled: bool) -> int:
        """Bytes that all layers keep for the backward pass."""
        config, batch = self.config, self.batch
        # Sine and cosine of each angle, for q and for k.
        angles = self.angles * _FLOAT * (4 + self.learned_angles)
        kept = tokens * config.depth * (batch * self._kept_of_a_token() + angles)
        if not tiled:
            kept += config.depth * self._kept_by_form(tokens, keys)
        if self.bias == "content" and keys <= 4 * config.attention_width // config.heads:
            # No fused kernel gives what is added its gradient: the softmax of all scores; and what it became in the
            # precision of the values, which are what terms of it are made of.
            kept += config.depth * (1 + bool(self.outputs)) * batch * config.heads * tokens * keys * _FLOAT
        if config.patch_norm:
            # What both norms of the patch embedding gave.
            kept += batch * cells * (config.patchifier.patch_dim + config.dim) * _FLOAT
        # The residual stream before the first block and after the last norm.
        return kept + 2 * batch * tokens * config.dim * _FLOAT

    def _kept_of_a_token(self) -> int:
        """Bytes a token that one block keeps for the backward pass, without its angles."""
        config, element = self.config, self.element
        dim, width = config.dim, config.attention_width
        # How many times the MLP's hidden width: before and after the GELU; gate and value, the gate's SiLU and their
        # product; and its own norm's output.
        hidden = ((4 if config.mlp == "swiglu" else 2) + config.mlp_norm) * config.mlp_hidden
        # The residual stream before either branch; then both norms' outputs, q, k, v, attention's output, the MLP's.
        kept = 2 * dim * _FLOAT + element * (2 * dim + 4 * width + hidden + width * config.attn_norm)
        return kept + 2 * self._kept_again() + 2 * dim * element * (config.layer_scale is not None)

    def _kept_again(self) -> int:
        """Bytes a token of a second q, or k; under autocast rotation and the norms of q and k also keep it in float32.
        Factors of each head keep what they multiply too."""
        again = self.config.attention_width * (self.element + (_FLOAT if self.low else 0))
        norms = bool(self.config.qk_norm) + (self.config.qk_norm == "heads")
        return again * (norms + bool(self.angles))

    def _kept_by_form(self, tokens: int, keys: int) -> int:
        """Bytes that attention keeps of one layer for the backward pass beside what SDPA's own form does."""
        head_dim = self.config.attention_width // self.config.heads
        if self.form(keys) == "products" and keys <= 4 * head_dim:
            return self.batch * self.config.heads * tokens * keys * _FLOAT
        return 0

    def moment(self, tokens: int) -> int:
        """Bytes that so many tokens take for a moment: the larger of attention's and the MLP's own."""
        config, element, width = self.config, self.element, self.config.attention_width
        # The residual stream, the norm's output, and under autocast its copy.
        before = 2 * config.dim * _FLOAT + (config.dim * element if self.low else 0)
        attention = element * 4 * width
        if self.angles:
            # Both turned, and one while it is being turned, in float32.
            attention += element * 2 * width + 2 * width * _FLOAT
        pooling = 4 * width * element if config.has_probe else 0
        mlp = tokens * element * (4 if config.mlp == "swiglu" else 2) * config.mlp_hidden
        return tokens * before + max(tokens * max(attention, pooling), mlp)


class _StagedPass(PlainPass):
    """A pass of a trunk of stages."""

    def __init__(self, config: ViTConfig, *given: Any) -> None:
        stages = architecture_class(config.architecture).stages(config)
        self.stages = [(one, PlainPass(plain_stage(one), *given)) for one in stages]
        super().__init__(self.stages[0][1].config, *given)
        self.config, self.parameters = config, parameters_of(config)
        # No more than the last stage at once.
        self.gathered = self.stages[-1][1].gathered

    def at(self, size: Grid) -> MemoryEstimate:
        kept, moment, attention, stored = kept_of_stages(self.config, self.stages, size)
        tokens = self.config.grid_of((size.rows, size.cols)).cells
        return self.sum(size, tokens, moment, kept if self.training else 0, attention, stored)


def _pass_of(config: ViTConfig, *given: Any) -> PlainPass:
    alike = architecture_class(config.architecture).stages(config)[0].config == config
    return (PlainPass if alike else _StagedPass)(config, *given)


def side_of(patches: int, patch_size: int) -> int:
    """The side in pixels of the square image of at least so many patches: what a pass takes hangs on their number."""
    return (math.isqrt(patches - 1) + 1) * patch_size


def warn_of_memory(
    config: ViTConfig,
    image_size: int | tuple[int, int],
    warn: Callable[[str], None],
    *,
    what: str,
    batch: int = 1,
    dtype: str = "float32",
    training: bool = False,
    ema: bool = False,
    device: str | torch.device = "cpu",
    sharers: int = 1,
) -> None:
    """Warn in one line of a pass on a CPU that takes more memory than is free, where the system may end the process
    without a word.

    Args:
        what: the model, for the line, as "vit_base_patch16"; the rest as `estimate_memory`. Of a forward pass the
            parameters are in memory already.
    """
    available = machine.available_memory()
    if available is None or torch.device(device).type != "cpu":
        return
    size = Grid.checked(image_size, "image_size")
    try:
        # Who trains saves.
        found = _pass_of(config, batch, dtype, training, ema, training, sharers, device).at(size)
    except UncountableError:
        return
    needed = found.total - (0 if training else found.parameters)
    if needed > available:
        kind, images = "training step" if training else "forward", f" with a batch of {batch}" if batch > 1 else ""
        warn(
            f"a {kind} of {what} at {size.rows}x{size.cols} px{images} needs about {format_bytes(needed)}, "
            f"{format_bytes(available)} are free: the system may end the process"
        )
