"""The names and layouts of flax's vision transformers (google-research): kernels (in, out), attention split by head."""

from __future__ import annotations

from typing import Any

from sightline.convert.base import Arguments, State
from sightline.convert.maps import TensorMap, concat, copy, transform
from sightline.errors import InputError
from sightline.io.config import Pair, check_value
from sightline.models import ViTConfig
from sightline.models.embedder import embedder_class


def image_fields(
    project: str, given: Arguments, state: State, patch: Any, table: str, prefix: int = 0, stride: int = 1
) -> dict[str, Any]:
    """The fields of the images and of patches (a side, or both), partly by what the weights tell.

    The training size in pixels is the one that is given (no argument there), else a square of as many patches as the
    table has, which alone knows their number, beside rows of `prefix` tokens. Patches are of cells of `stride` pixels a
    side.

    Raises:
        InputError: a patch, or the table, is no square.
    """
    rows, cols = check_value(f"{project}: patches", patch, Pair)
    if rows != cols:
        raise InputError(f"{project}: patches of {patch!r}: expected a square")
    pixels, found = rows * stride, state.get(table)
    count = 0 if found is None or found.dim() != 3 else found.shape[1] - prefix
    side = round(max(count, 0) ** 0.5) or 224 // pixels
    if given["image_size"] is None and count and side * side != count:
        raise InputError(f"{project}: {table} has {count} patches, no square; give image_size (height, width)")
    image = given["image_size"] or side * pixels
    return {"patch_size": pixels, "image_size": image, "channels": channels_of(state)}


def channels_of(state: State) -> int:
    """Channels of the images, by the first kernel HWIO; 3 where there is none."""
    kernel = state.get("conv_root/kernel", state.get("embedding/kernel"))
    return 3 if kernel is None or kernel.dim() != 4 else kernel.shape[2]


def embedding(config: ViTConfig) -> list[TensorMap]:
    """The patch embedding, a convolution with kernel HWIO."""
    kernel = embedder_class(config.embedder).kernel_of(config)
    weight = transform(
        "embedding/kernel",
        "patch_embed.proj.weight",
        lambda x: x.permute(3, 2, 0, 1).flatten(1),
        lambda x: x.reshape(kernel).permute(2, 3, 1, 0),
    )
    return [weight, copy("embedding/bias", "patch_embed.proj.bias")]


def trunk(config: ViTConfig, *, norms: tuple[int, int], attention: int, block: int) -> list[TensorMap]:
    """The patch embedding, all blocks and the norm after them.

    A block's modules are numbered by their kind (big_vision) or among all of a block (vision_transformer).
    """
    entries = [*embedding(config), *norm("Transformer/encoder_norm", "norm")]
    for layer in range(config.depth):
        parts = f"MultiHeadDotProductAttention_{attention}", f"MlpBlock_{block}"
        entries += one_block(f"Transformer/encoderblock_{layer}", f"blocks.{layer}", norms, *parts, config)
    return entries


def one_block(
    theirs: str, ours: str, norms: tuple[int, int], attention: str, block: str, config: ViTConfig
) -> list[TensorMap]:
    """A pre-norm block: two norms, by the number in their names, attention and an MLP, by their names."""
    return [
        *(one for number in (0, 1) for one in norm(f"{theirs}/LayerNorm_{norms[number]}", f"{ours}.norm{number + 1}")),
        *projections(f"{theirs}/{attention}", ("query", "key", "value"), f"{ours}.attn.qkv", config),
        *out(f"{theirs}/{attention}", f"{ours}.attn.proj", config),
        *mlp(f"{theirs}/{block}", f"{ours}.mlp"),
    ]


def norm(theirs: str, ours: str) -> list[TensorMap]:
    """Scale and bias of a LayerNorm."""
    return [copy(f"{theirs}/scale", f"{ours}.weight"), copy(f"{theirs}/bias", f"{ours}.bias")]


def dense(theirs: str, ours: str) -> list[TensorMap]:
    """A layer whose kernel is (in, out)."""
    weight = transform(f"{theirs}/kernel", f"{ours}.weight", lambda x: x.T, lambda x: x.T)
    return [weight, copy(f"{theirs}/bias", f"{ours}.bias")]


def head(theirs: str, config: ViTConfig) -> list[TensorMap]:
    """The classifier, with the tanh layer before it where there is one; nothing without classes."""
    if config.head == "mlp":
        return [*dense("pre_logits", "head.fc1"), *dense(theirs, "head.fc2")]
    return dense(theirs, "head") if config.num_classes else []


def mlp(theirs: str, ours: str) -> list[TensorMap]:
    """Both layers of an MLP block."""
    return [one for number in (0, 1) for one in dense(f"{theirs}/Dense_{number}", f"{ours}.fc{number + 1}")]


def projections(theirs: str, which: tuple[str, ...], ours: str, config: ViTConfig) -> list[TensorMap]:
    """Kernels (dim, heads, head_dim) and biases (heads, head_dim), which we hold one below the other."""
    split = (config.heads, config.dim // config.heads)
    kernels, biases = ([f"{theirs}/{one}/{part}" for one in which] for part in ("kernel", "bias"))
    return [
        concat(kernels, f"{ours}.weight", lambda x: x.flatten(1).T, lambda x: x.T.unflatten(1, split)),
        concat(biases, f"{ours}.bias", lambda x: x.flatten(), lambda x: x.unflatten(0, split)),
    ]


def out(theirs: str, ours: str, config: ViTConfig) -> list[TensorMap]:
    """The projection of the heads' outputs, kernel (heads, head_dim, dim)."""
    split = (config.heads, config.dim // config.heads)
    weight = transform(
        f"{theirs}/out/kernel", f"{ours}.weight", lambda x: x.flatten(0, 1).T, lambda x: x.T.unflatten(0, split)
    )
    return [weight, copy(f"{theirs}/out/bias", f"{ours}.bias")]
