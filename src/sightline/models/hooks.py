"""Whether anybody looks at what a module is given and gives."""

from __future__ import annotations

from torch import nn
from torch.nn.modules import module as modules

# What is put around a module's call, of it alone and of all modules.
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def is_bare(module: nn.Module) -> bool:
    """Whether a call of the module is that of its class's `forward` and nothing else."""
    if "forward" in module.__dict__ or module._compiled_call_impl is not None:  # pyright: ignore[reportPrivateUsage]
        return False
    return not any(getattr(module, name) or getattr(modules, f"_global{name}", None) for name in _HOOKS)
