"""The learning rate of each step."""

from __future__ import annotations

import math

from sightline.training.config import OptimizerConfig


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
