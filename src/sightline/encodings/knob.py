"""What can be turned of an encoding once it is trained: its knob, and the rule by which its tables are made anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

KNOB_STATE = "_extra_state"
"""How the name of a knob's value ends in a state dict."""


class KnobSpec(NamedTuple):
    """What `Knob` says of every encoding of a kind."""

    name: str
    low: float
    high: float
    candidates: tuple[float, ...]


@dataclass(frozen=True)
class Knob:
    """An encoding's own parameter of extrapolation, which is searched at a new resolution.

    Attributes:
        name: Name of the field in the encoding's configuration.
        value: Present value.
        default: Configured value, used in training.
        low: Lowest accepted value.
        high: Highest accepted value.
        candidates: Values that a search tries.
    """

    name: str
    value: float
    default: float
    low: float
    high: float
    candidates: tuple[float, ...]


@dataclass(frozen=True)
class ResizeRule:
    """How an encoding makes its tables for another grid than that of training.

    Attributes:
        name: the configuration key.
        value: as it is now; default: as it was configured.
        candidates: all that there are.
    """

    name: str
    value: str
    default: str
    candidates: tuple[str, ...]


def without_knobs(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state dict's weights alone."""
    return {name: tensor for name, tensor in state.items() if not name.endswith(KNOB_STATE)}
