"""What a model takes in memory at a size, as rows."""

from __future__ import annotations

from typing import Any

import torch

from sightline.analysis.memory import estimate_memory
from sightline.distributed import machine
from sightline.models import model_config

MEMORY_PARTS = ("parameters", "gradients", "optimizer", "activations", "attention", "other")


def memory_rows(
    model: str,
    size: int | tuple[int, int],
    *,
    encoding: str = "learned_1d",
    batch: int = 1,
    dtype: str = "float32",
    device: str | torch.device = "cpu",
) -> list[dict[str, Any]]:
    """Bytes that a forward and a training step take, by part and in all: a row each (`sightline bench memory`).

    Args:
        model: a registered model; `encoding` joins some by "+".
        size: side of the images in pixels, or (height, width).
        batch: images of a pass.
        dtype: of the matrix products, "float32" or "bfloat16".
        device: whose memory it is.

    Raises:
        InputError: the model, the encoding or the size is not known or not possible.
    """
    config, where = model_config(model, encoding=encoding), machine.resolve_device(str(device))
    sides = [size, size] if isinstance(size, int) else list(size)
    said = {"benchmark": "memory", "model": model, "encoding": encoding, "resolution": sides}
    about = {"hardware": machine.hardware_name(where), "torch": str(torch.__version__), "commit": machine.git_commit()}
    rows = []
    for name in ("forward", "training step"):
        one = estimate_memory(config, size, training=name != "forward", batch=batch, dtype=dtype, device=where)
        parts = {f"{part}_bytes": getattr(one, part) for part in (*MEMORY_PARTS, "total")}
        row = {**said, "tokens": one.tokens, "batch": batch, "dtype": dtype, "pass": name, **parts}
        rows.append({**row, "device": str(where), **about})
    return rows
