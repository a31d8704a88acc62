"""The optimizer, how fast each of its parameters learns at each step, and the running mean of the weights."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from sightline.distributed.machine import import_timm
from sightline.io.tensors import full_tensor, local_tensor
from sightline.models import Model
from sightline.training.config import OptimizerConfig

# The parts of a model that learn where its trunk is frozen.
_LEARNT = ("head", "attn_pool", "fc_norm")


def freeze_trunk(model: Model) -> None:
    """Let the head alone learn, and the pooling of a classifier: all else has no gradient, and computes as where it is
    measured (no path is dropped, norms keep their statistics)."""
    for name, part in model.named_children():
        part.train(name in _LEARNT)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.partition(".")[0] in _LEARNT)


def parameter_groups(model: Model, config: OptimizerConfig) -> list[dict[str, Any]]:
    """What has a gradient, by its decay and its part of the learning rate (`lr_scale`).

    Matrices alone are decayed: not biases, norms, tokens or encodings. With `layer_decay` d a weight of block i of n
    has d^(n - i) of the rate, what embeds d^(n + 1), the head, the last norm, and what an encoding has for all layers
    (`PositionEncoding.layer_of`) all of it (Bao et al. 2022, BEiT).
    """
    excepted = model.no_weight_decay()
    groups: dict[tuple[float, float, bool], list[nn.Parameter]] = {}
    for decays in (True, False):
        for name, parameter in model.named_parameters():
            matrix = parameter.dim() >= 2 and name not in excepted
            if not parameter.requires_grad or matrix is not decays:
                continue
            in_head = name.partition(".")[0] == "head" and config.head_decay is not None
            decay = (config.head_decay if in_head else config.weight_decay) if decays else 0.0
            scale = 1.0 if config.layer_decay is None else config.layer_decay ** _below_the_head(name, model)
            # Single numbers are whole where ranks hold parts of all else, and no kernel takes both.
            groups.setdefault((decay or 0.0, scale, parameter.dim() == 0), []).append(parameter)
    return [{"params": some, "weight_decay": decay, "lr_scale": scale} for (decay, scale, _), some in groups.items()]


def _below_the_head(name: str, model: Model) -> int:
    """How many layers lie above a parameter: none above the head and what is between it and the trunk."""
    layer: int | None = -1
    match name.split("."):
        case ["blocks", number, *_]:
            layer = int(number)
        case ["encoding", *inner]:
            layer = model.encoding.layer_of(".".join(inner))
        case [("head" | "norm" | "fc_norm" | "attn_pool"), *_]:
            layer = None
    return 0 if layer is None else len(model.blocks) - layer


def make_optimizer(model: Model, config: OptimizerConfig) -> torch.optim.Optimizer:
    """The optimizer of a configuration: AdamW (Loshchilov and Hutter 2019), Adam (Kingma and Ba 2015, whose decay is
    part of the gradient) and SGD are torch's; LAMB (You et al. 2020) is timm's, whose own clipping is off."""
    groups, moments = parameter_groups(model, config), {"betas": config.betas, "eps": config.eps}
    match config.name:
        case "adamw":
            return torch.optim.AdamW(groups, lr=config.lr, fused=True, **moments)
        case "adam":
            return torch.optim.Adam(groups, lr=config.lr, fused=True, **moments)
        case "sgd":
            return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum or 0.0)
        case _:
            import_timm()
            from timm.optim.lamb import Lamb

            return Lamb(groups, lr=config.lr, max_grad_norm=None, **moments)


def learning_rate(config: OptimizerConfig, number: int, begins: float, ends: float) -> float:
    """Linear warm-up, the schedule, and a cool-down where there is one, of which the lower counts.

    Args:
        number: of the step, from 0.
        begins, ends: how much of the run lies before the step and at its end, from 0 to 1.
    """
    warmup = _share(config.warmup, number, begins)
    if isinstance(config.warmup, int) and number < config.warmup:
        rate = config.lr * (number + 1) / config.warmup
    elif isinstance(config.warmup, float) and begins < warmup:
        rate = config.lr * min(ends / warmup, 1.0)
    else:
        rate = _scheduled(config, number, begins, warmup)
    cooldown = _share(config.cooldown, number, begins)
    if 1 - begins < cooldown:
        rate = config.final_lr + (rate - config.final_lr) * (1 - begins) / cooldown
    return rate


def _share(span: float, number: int, begins: float) -> float:
    """A part of the run that is said as a fraction, or in steps of the length that those had until now."""
    if isinstance(span, float):
        return span
    # Of the first step nobody knows it: it is that of a run of one step a warm-up.
    return min(span * begins / number, 1.0) if number else 0.0


def _scheduled(config: OptimizerConfig, number: int, begins: float, warmup: float) -> float:
    progress = (begins - warmup) / (1 - warmup) if warmup < 1 else 1.0
    match config.schedule:
        case "cosine":
            share = 0.5 * (1 + math.cos(math.pi * progress))
        case "linear":
            share = 1 - progress
        case "rsqrt":
            # Steps since the warm-up: what lies behind a step is so much of the steps that were.
            since = number * (1 - warmup / begins) if begins else 0.0
            assert config.timescale is not None
            return config.lr / math.sqrt(1 + max(since, 0.0) / config.timescale)
        case _:
            return config.lr
    return config.final_lr + (config.lr - config.final_lr) * share


@torch.no_grad()
def clip_gradients(parameters: Iterable[Tensor], limit: float | None, scale: Tensor | None = None) -> Tensor:
    """Scale gradients, then down to a norm of at most `limit` (None: of any); gives their norm before that.

    Args:
        scale: a number on their device, None for 1.
    """
    found = [one for one in parameters if one.grad is not None]
    if scale is not None:
        for one in found:
            assert one.grad is not None
            local_tensor(one.grad).mul_(scale)
    # Those that ranks hold parts of, and those that are whole on each.
    by_kind: dict[type, list[Tensor]] = {}
    for one in found:
        by_kind.setdefault(type(one), []).append(one)
    grads = [[one.grad for one in some if one.grad is not None] for some in by_kind.values()]
    norms = [full_tensor(torch.nn.utils.get_total_norm(some)) for some in grads]
    norm = norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms))
    if limit is not None:
        for some in by_kind.values():
            torch.nn.utils.clip_grads_with_norm_(some, limit, norm)
    return norm


class Ema:
    """mean <- d * mean + (1 - d) * weight after each step, over parameters; d is `decay`, or with warm-up
    min(decay, (1 + step) / (10 + step)), so that a short run is no mean of its first weights."""

    def __init__(self, model: nn.Module, decay: float, warmup: bool = True) -> None:
        self.decay, self.warmup = decay, warmup
        self.mean = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """`step` is how many updates came before."""
        decay = min(self.decay, (1 + step) / (10 + step)) if self.warmup else self.decay
        for name, weight in model.named_parameters():
            self.mean[name].lerp_(weight, 1 - decay)

    @torch.no_grad()
    def swap(self, model: nn.Module) -> None:
        """Swap the mean and the model's weights; twice is nothing."""
        for name, weight in model.named_parameters():
            kept = weight.detach().clone()
            weight.copy_(self.mean[name])
            self.mean[name].copy_(kept)
