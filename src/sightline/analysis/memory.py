"""What a forward pass or a training step takes in memory: a quick estimate, before it is tried.

Parameters are counted exactly; what blocks keep and compute is counted by the widths of their layers, in whole numbers
of any size. Measured and estimated figures stand side by side in tests/analysis/test_memory.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from sightline.attention.sdpa import BIAS_BYTES
from sightline.distributed import machine
from sightline.errors import InputError, require_known
from sightline.io.config import Count, check_value
from sightline.io.read import format_bytes
from sightline.models import ViTConfig, make_model
from sightline.models.create import architecture_class
from sightline.models.embedder import embedder_class
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout

DTYPES = ("float32", "bfloat16")
# What fresh processes took beyond the sum of the tensors: fragments of the heap, kernels' buffers.
_OTHER, _OTHER_SHARE = 12 << 20, 16
_FLOAT = 4


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes that a pass takes at its peak, of each kind; the libraries themselves are not counted.

    Attributes:
        tokens: of one image, prefix tokens included.
        parameters: float32, as the model holds them; gradients, optimizer: 0 for a forward; the optimizer's moments,
            and the running mean of the weights.
        activations: images, patches, and what the blocks keep or use for a moment; under bfloat16 also the weights'
            copies in it.
        attention: scores and biases.
        other: what the libraries' buffers and the allocator hold beside.
        saved: the copy that a checkpoint is written from while the steps go on; 0 on a GPU, whose memory it is not in.
        built: the whole model, which each process builds before it keeps its part; no part of the sum.
    """

    tokens: int
    parameters: int
    gradients: int
    optimizer: int
    activations: int
    attention: int
    other: int
    saved: int
    built: int

    @property
    def total(self) -> int:
        """The peak: in training the last step's gradients are still there while the next forward keeps its own."""
        held = self.parameters + self.gradients + self.optimizer + self.saved
        return max(self.built, held + self.activations + self.attention + self.other)


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
    """What a model takes at a size.

    Args:
        image_size: (height, width) or one side in pixels of the images; any whole numbers.
        batch: images of a pass.
        dtype: of the matrix products: `float32`, or `bfloat16` by autocast beside float32 parameters.
        training: forward, backward and the optimizer's step, else a forward without gradients.
        ema: a running mean of the weights is kept too, beside the two moments of AdamW.
        saves: checkpoints are written while the training goes on.
        sharers: processes that each hold a part of the model, its gradients and moments (FSDP2), beside the whole of
            what is computed just now.
        device: whose memory it is.

    Raises:
        InputError: an unknown encoding or dtype, a batch below 1, a size that the patch does not divide
            while `fit` is `exact`, or a model whose parameters torch cannot count.
    """
    require_known("dtype", dtype, DTYPES)
    check_value("batch", batch, Count)
    check_value("sharers", sharers, Count)
    size = Grid.checked(image_size, "image_size")
    grid, low = config.grid_of((size.rows, size.cols)), dtype == "bfloat16"
    whole, gathered, pattern, turns = _model_of(config)
    kept = moment = scores = 0
    for stage in architecture_class(config.architecture).stages(config):
        one, tokens = stage.config, batch * stage.tokens(grid.cells, grid)
        a_token, a_moment = _bytes_of_a_token(one, 2 if low else _FLOAT, turns)
        keys = stage.keys(grid.cells, grid)
        kept += one.depth * tokens * a_token
        moment = max(moment, tokens * a_moment)
        if pattern is not None:
            # A bias is made a layer at a time, and again for the backward pass; one that is learned has gradients, and
            # one of the content is another for each image.
            contents = len(pattern.terms_of("queries", "keys", "attention"))
            images = batch if contents or (training and not pattern.directed) else 1
            bias = min(images * one.heads * tokens // batch * keys * _FLOAT, BIAS_BYTES)
            scores = max(scores, bias * (2 + 3 * training * (not pattern.directed) + contents))
            if training and contents:
                kept += one.depth * bias * contents // 2
    of_patch, of_pass = embedder_class(config.embedder).held(config, training)
    pixels = (config.clip_frames or 1) * size.rows * size.cols
    moment += _FLOAT * (batch * (grid.cells * of_patch + 2 * config.channels * pixels) + of_pass)
    parameters = -(-whole // sharers)
    optimizer = parameters * (2 + ema) * training
    # Of the block that is computed now, with its gradient; and autocast's copies of the weights.
    activations = moment + 2 * gathered * (sharers > 1) + (kept + low * parameters // 2) * training
    known = parameters * (1 + training) + optimizer + activations + scores
    return MemoryEstimate(
        tokens=grid.cells + config.num_prefix_tokens,
        parameters=parameters,
        gradients=parameters * training,
        optimizer=optimizer,
        activations=activations,
        attention=scores,
        other=_OTHER + known // _OTHER_SHARE,
        saved=parameters + optimizer if saves and torch.device(device).type == "cpu" else 0,
        built=whole,
    )


def _model_of(config: ViTConfig) -> tuple[int, int, Any, bool]:
    """Bytes of all parameters and of all but the other blocks, what the encoding adds to scores, and whether it turns
    queries and keys."""
    try:
        with torch.device("meta"):
            model = make_model(config)
            ones = Grid(*(1,) * len(config.train_grid))
            cell = TokenLayout.uniform(ones, 1, num_prefix_tokens=config.num_prefix_tokens)
            pattern, rotation = model.encoding.pattern(0, cell), model.encoding.rotation(0, cell)
    # What torch raises for a size beyond its own whole numbers, or where an encoding needs values.
    except (RuntimeError, OverflowError, TypeError):
        raise InputError(f"model with encoding {config.encoding}: its parameters cannot be counted") from None
    whole, *blocks = (sum(one.numel() for one in part.parameters()) for part in (model, *model.blocks))
    return _FLOAT * whole, _FLOAT * (whole - sum(blocks) + max(blocks)), pattern, rotation is not None


def _bytes_of_a_token(config: ViTConfig, element: int, turns: bool) -> tuple[int, int]:
    """What a token takes in one block: kept for the backward pass, and for a moment in a forward pass."""
    dim, width, hidden = config.dim, config.attention_width, config.mlp_hidden * (2 if config.mlp == "swiglu" else 1)
    # A second q and k; under autocast also in float32.
    again = 2 * width * (element + (_FLOAT if element < _FLOAT else 0)) * (bool(config.qk_norm) + turns)
    # The residual stream before either branch; both norms' outputs, q, k, v, attention's output, the MLP's.
    kept = 2 * dim * _FLOAT + element * (2 * dim + 4 * width + 2 * hidden) + again
    return kept, 2 * dim * _FLOAT + max(element * 4 * width + again, element * 2 * hidden)


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
    training: bool = False,
    device: str | torch.device = "cpu",
    **options: Any,
) -> None:
    """Warn in one line of a pass on a CPU that takes more memory than is free, where the system may end the process
    without a word.

    Args:
        what: the model, for the line, as "vit_base_patch16"; the rest, and the options, as `estimate_memory`. Of a
            forward pass the parameters are in memory already.
    """
    available = machine.available_memory()
    if available is None or torch.device(device).type != "cpu":
        return
    try:
        # Who trains saves.
        found = estimate_memory(config, image_size, batch=batch, training=training, saves=training, **options)
    except InputError:
        return
    needed = found.total - (0 if training else found.parameters)
    if needed > available:
        kind, images = "training step" if training else "forward", f" with a batch of {batch}" if batch > 1 else ""
        size = Grid.checked(image_size, "image_size")
        warn(
            f"a {kind} of {what} at {size.rows}x{size.cols} px{images} needs about {format_bytes(needed)}, "
            f"{format_bytes(available)} are free: the system may end the process"
        )
