"""How the weights of a run are changed: the optimizer, its rate over the run, and what is decayed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sightline.errors import InputError
from sightline.io.checks import STRICT, require, require_bool, require_effect, require_number

Optimizers = Literal["adamw", "adam", "sgd", "lamb"]
Schedule = Literal["cosine", "linear", "rsqrt", "constant"]
_MOMENTS = ("name", ("adamw", "adam", "lamb"))
_DEPENDS = {"betas": _MOMENTS, "eps": _MOMENTS, "momentum": ("name", ("sgd",)), "timescale": ("schedule", ("rsqrt",))}
_DEFAULTS = {"betas": (0.9, 0.99), "eps": 1e-8, "momentum": 0.9, "timescale": 10_000.0}


@dataclass(frozen=True)
class OptimizerConfig:
    """An optimizer, with decay on matrices only, warm-up and a schedule.

    Attributes:
        lr: the highest learning rate.
        name: `adamw` (decoupled decay), `adam` (decay as a part of the gradient), `sgd` or `lamb` (timm's).
        betas: of the moments, (0.9, 0.99) unless given; eps: beside the root of the second, 1e-8. Not of `sgd`.
        momentum: of `sgd` alone, 0.9 unless given.
        weight_decay: on weights with two dimensions or more that the model does not except.
        head_decay: the same of the head's weights (NaViT appendix B.1); None takes `weight_decay`.
        layer_decay: factor of the rate from each layer to the one before it (BEiT); None leaves all at `lr`.
        schedule: after the warm-up: half a `cosine`, `linear`, `rsqrt` (peak / sqrt(1 + steps / `timescale`), Zhai et
            al. 2022) or `constant`.
        warmup: over which the rate rises from 0: a fraction of the run below 1, or a whole number of steps.
        cooldown: over which the rate falls linearly to `final_lr` at the end, said as `warmup`.
        timescale: of `rsqrt` alone, in steps, 10,000 unless given.
        final_lr: what `cosine`, `linear` and a cool-down end at.
        clip: highest norm of the gradient; None does not clip.
        ema: decay of the running mean of the weights, which is then what is saved and tested; None keeps none.
        ema_warmup: the decay is at most (1 + step) / (10 + step), as TensorFlow's `ExponentialMovingAverage`, so that
            the mean of a short run is not one of its first weights. None in runs without `ema`.
    """

    __pydantic_config__ = STRICT

    lr: float = 1.5e-3
    name: Optimizers = "adamw"
    betas: tuple[float, float] | None = None
    eps: float | None = None
    momentum: float | None = None
    weight_decay: float = 0.05
    head_decay: float | None = None
    layer_decay: float | None = None
    schedule: Schedule = "cosine"
    warmup: float | int = 0.1
    cooldown: float | int = 0.0
    timescale: float | None = None
    final_lr: float = 0.0
    clip: float | None = 1.0
    ema: float | None = None
    ema_warmup: bool | None = True

    def __post_init__(self) -> None:
        if isinstance(self.betas, list):
            object.__setattr__(self, "betas", tuple(self.betas))
        require("optimizer.name", self.name, ("adamw", "adam", "sgd", "lamb"))
        require("optimizer.schedule", self.schedule, ("cosine", "linear", "rsqrt", "constant"))
        for name in require_effect("optimizer", self, _DEPENDS):
            if getattr(self, name) is None:
                object.__setattr__(self, name, _DEFAULTS[name])
        for name in ("lr", "eps", "timescale"):
            if getattr(self, name) is not None:
                require_number(f"optimizer.{name}", getattr(self, name), above=True)
        for name in ("weight_decay", "final_lr"):
            require_number(f"optimizer.{name}", getattr(self, name))
        for name, value in (("momentum", self.momentum), *(("betas", beta) for beta in self.betas or ())):
            if value is not None:
                require_number(f"optimizer.{name}", value)
            if value is not None and value >= 1:
                raise InputError(f"optimizer.{name} {value}: expected 0 to less than 1")
        for name in ("warmup", "cooldown"):
            value = getattr(self, name)
            require_number(f"optimizer.{name}", value)
            # 1.0 may mean all of the run or one step: it is neither.
            if value >= 1 and (value != int(value) or (isinstance(value, float) and value == 1)):
                raise InputError(f"optimizer.{name} {value}: expected 0 to less than 1, or a whole number of steps")
            object.__setattr__(self, name, int(value) if value >= 1 else float(value))
        if self.final_lr and self.schedule in ("constant", "rsqrt") and not self.cooldown:
            raise InputError(
                f"optimizer.final_lr {self.final_lr}: has no effect with {self.schedule} (expected a cooldown)"
            )
        if self.clip is not None:
            require_number("optimizer.clip", self.clip, above=True)
        if self.ema_warmup is not None:
            require_bool("optimizer.ema_warmup", self.ema_warmup)
        if self.head_decay is not None:
            require_number("optimizer.head_decay", self.head_decay)
        for name in ("ema", "layer_decay"):
            value = getattr(self, name)
            if value is not None:
                require_number(f"optimizer.{name}", value, above=True)
                if value >= 1:
                    raise InputError(f"optimizer.{name} {value}: expected more than 0 and less than 1")
