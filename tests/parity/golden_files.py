"""The committed reference tensors: see golden/README.md for who made them and how."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

FOLDER = Path(__file__).parent / "golden"


@lru_cache(maxsize=8)
def golden(name: str) -> dict[str, Tensor]:
    """All tensors of one file."""
    return load_file(FOLDER / f"{name}.safetensors")


def keys(name: str, prefix: str = "") -> list[str]:
    """The names of the tensors in one file that start with `prefix`, without reading them."""
    with safe_open(FOLDER / f"{name}.safetensors", "pt") as file:
        return sorted(key for key in file.keys() if key.startswith(prefix))  # noqa: SIM118


def weights(name: str) -> dict[str, Tensor]:
    """The foreign project's state dict."""
    return {key.removeprefix("sd."): value for key, value in golden(name).items() if key.startswith("sd.")}


def grid_of(text: str) -> tuple[int, int]:
    """ "3x5" -> (3, 5)."""
    rows, cols = text.split("x")
    return int(rows), int(cols)
