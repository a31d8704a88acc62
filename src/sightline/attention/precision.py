"""In which precision matrix products are computed where nobody said it."""

from __future__ import annotations

from typing import Literal

import torch

from sightline.attention.costs import GAINS, shipped
from sightline.distributed import machine
from sightline.io.config import Precision, check_value


def default_precision(device: str | torch.device) -> Literal["bfloat16", "float32"]:
    """The precision that is faster on this device; the same answer every time, because nothing is timed.

    On a GPU it is bfloat16 where that is native. On a CPU it is bfloat16 where AMX tiles or AVX512-BF16 compute it,
    unless what ships of this processor (`attention.costs`) says that float32 is the faster one all the same.
    """
    kind = torch.device(device).type
    known = shipped(1)
    slow = known is not None and known.wide > GAINS
    native = (
        kind == "cpu" and (machine.has_cpu_feature("amx_tile") or machine.has_cpu_feature("avx512_bf16")) and not slow
    )
    if kind == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    return "bfloat16" if native else "float32"


def chosen_precision(asked: str, device: str | torch.device) -> Precision:
    """The precision of the matrix products that was asked for; for `auto` the `default_precision` of the device."""
    return default_precision(device) if asked == "auto" else check_value("precision", asked, Precision)
