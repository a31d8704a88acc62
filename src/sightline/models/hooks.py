"""Whether anybody looks at what a module is given and gives."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.modules import module as modules

# What is put around a module's call, of it alone and of all modules.
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def is_bare(module: nn.Module) -> bool:
    """Whether a call of the module is that of its class's `forward` and nothing else."""
    if "forward" in module.__dict__ or module._compiled_call_impl is not None:  # pyright: ignore[reportPrivateUsage]
        return False
    return not any(getattr(module, name) or getattr(modules, f"_global{name}", None) for name in _HOOKS)


def is_bare_inside(module: nn.Module, *others: nn.Module) -> bool:
    """Whether that is so of a module with all of its parts and of these others, none has a method of its class
    replaced, and its weights are plain ones."""
    parts = [*module.modules(), *others]
    replaced = any(callable(value) and hasattr(type(one), name) for one in parts for name, value in vars(one).items())
    plain = all(type(one) in (Tensor, nn.Parameter) for one in module.parameters())
    return plain and not replaced and all(map(is_bare, parts))
