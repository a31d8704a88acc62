"""AdamW, which parameters it decays and at what rate it learns, and the running mean of the weights."""

from __future__ import annotations

import math
from collections.abc import Collection

import torch
from torch import Tensor, nn

from sightline.models import Model
from sightline.training.config import OptimizerConfig

# The parts of a model that learn where its trunk is frozen.
_LEARNT = ("head", "attn_pool", "fc_norm")


def learning_rate(begins: float, ends: float, highest: float, warmup: float) -> float:
    """Linear warm-up over the first `warmup` of a run, then half a cosine that reaches 0 at its end.

    Args:
        begins, ends: how much of the run lies before a step and at its end, from 0 to 1.
    """
    if begins < warmup:
        return highest * min(ends / warmup, 1.0)
    return highest * 0.5 * (1 + math.cos(math.pi * (begins - warmup) / (1 - warmup)))


def freeze_trunk(model: Model) -> None:
    """Let the head alone learn, and the pooling of a classifier: all else has no gradient, and computes as where it is
    measured (no path is dropped, norms keep their statistics)."""
    for name, part in model.named_children():
        part.train(name in _LEARNT)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.partition(".")[0] in _LEARNT)


def make_optimizer(model: Model, config: OptimizerConfig) -> torch.optim.AdamW:
    """AdamW (Loshchilov and Hutter, 2019) with decay on matrices alone: not on biases, norms, tokens or encodings; of
    what has a gradient."""
    excepted = model.no_weight_decay()
    decayed, free = [], []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        (decayed if parameter.dim() >= 2 and name not in excepted else free).append(parameter)
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": free, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, fused=True)


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimizer's state by parameter name: "exp_avg/blocks.0.norm1.weight" -> tensor."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    return {f"{kind}/{names[one]}": value for one, state in optimizer.state.items() for kind, value in state.items()}


def expected_tensors(model: nn.Module, found: Collection[str]) -> dict[str, Tensor]:
    """Names, shapes and dtypes of `optimizer_tensors` after a step, the values aside.

    Args:
        found: names that there are: of a parameter that no gradient reached there is none.
    """
    expected, stepped = {}, {key.partition("/")[2] for key in found}
    for name, parameter in model.named_parameters():
        if name in stepped:
            expected |= {f"step/{name}": torch.zeros(()), f"exp_avg/{name}": parameter, f"exp_avg_sq/{name}": parameter}
    return expected


def load_optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """The inverse of `optimizer_tensors`; a parameter without state is one that has not taken a step."""
    parameters = dict(model.named_parameters())
    for key, value in tensors.items():
        kind, _, name = key.partition("/")
        parameter = parameters[name]
        optimizer.state[parameter][kind] = value if kind == "step" else value.to(parameter)


class Ema:
    """mean <- decay * mean + (1 - decay) * weight after each step, over parameters."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.mean = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        for name, weight in model.named_parameters():
            self.mean[name].lerp_(weight, 1 - self.decay)

    @torch.no_grad()
    def exchange(self, model: nn.Module) -> None:
        """Swap the mean and the model's weights; twice is nothing."""
        for name, weight in model.named_parameters():
            kept = weight.detach().clone()
            weight.copy_(self.mean[name])
            self.mean[name].copy_(kept)
