"""Whether torch.func is at work."""

from __future__ import annotations

import torch


def transforming() -> bool:
    """Whether grad, vmap or another of torch.func's transforms is under way; a private question, whose safe answer is
    no."""
    asked = getattr(torch._C, "_are_functorch_transforms_active", None)
    return asked is not None and not torch.compiler.is_compiling() and asked()
