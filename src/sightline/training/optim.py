"""AdamW, and which parameters it decays."""

from __future__ import annotations

import torch

from sightline.models import Model
from sightline.training.config import OptimizerConfig


def make_optimizer(model: Model, config: OptimizerConfig) -> torch.optim.AdamW:
    """AdamW (Loshchilov and Hutter, 2019) with decay on matrices alone: not on biases, norms, tokens or encodings."""
    excepted = model.no_weight_decay()
    decayed, free = [], []
    for name, parameter in model.named_parameters():
        (decayed if parameter.dim() >= 2 and name not in excepted else free).append(parameter)
    groups = [
        {"params": decayed, "weight_decay": config.weight_decay},
        {"params": free, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, fused=True)


def optimizer_tensors(optimizer: torch.optim.Optimizer, names: dict[int, str]) -> dict[str, torch.Tensor]:
    """The optimizer's state by parameter name: "exp_avg/blocks.0.norm1.weight" -> tensor."""
    return {
        f"{kind}/{names[id(parameter)]}": value
        for parameter, state in optimizer.state.items()
        for kind, value in state.items()
    }


def expected_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Names, shapes and dtypes of `optimizer_tensors` after a step, the values aside."""
    expected = {}
    for name, parameter in model.named_parameters():
        expected |= {f"step/{name}": torch.zeros(()), f"exp_avg/{name}": parameter, f"exp_avg_sq/{name}": parameter}
    return expected


def load_optimizer_tensors(
    optimizer: torch.optim.Optimizer, names: dict[int, str], tensors: dict[str, torch.Tensor]
) -> None:
    """The inverse of `optimizer_tensors`; a parameter without state is one that has not taken a step."""
    kinds = {key.partition("/")[0] for key in tensors}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            found = {kind: tensors[f"{kind}/{names[id(parameter)]}"] for kind in kinds}
            optimizer.state[parameter] = {
                kind: value if kind == "step" else value.to(parameter) for kind, value in found.items()
            }
