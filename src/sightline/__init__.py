"""Sightline: plain vision transformers at any resolution and aspect ratio.

`import sightline` loads nothing heavy: each public name is imported when it is first used (PEP 562).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sightline import analysis as analysis
    from sightline import evaluation as evaluation
    from sightline import export as export
    from sightline import models as models
    from sightline import recipes as recipes
    from sightline import results as results
    from sightline import sweeps as sweeps
    from sightline.attention import Pattern as Pattern
    from sightline.convert import export_weights as export_weights
    from sightline.convert import import_weights as import_weights
    from sightline.data.preprocessing import preprocessing as preprocessing
    from sightline.encodings import Knob as Knob
    from sightline.encodings import PositionEncoding as PositionEncoding
    from sightline.encodings import add_encodings as add_encodings
    from sightline.encodings import create_encoding as create_encoding
    from sightline.encodings import list_encodings as list_encodings
    from sightline.export import export_model as export_model
    from sightline.hub.fine_tune import create_model as create_model
    from sightline.hub.load import load_model as load_model
    from sightline.hub.load import save_model as save_model
    from sightline.hub.push import push_to_hub as push_to_hub
    from sightline.models import list_models as list_models
    from sightline.runs.compare import compare as compare
    from sightline.runs.run import Run as Run
    from sightline.runs.transfer import transfer as transfer
    from sightline.tokens.grid import Grid as Grid
    from sightline.tokens.layout import TokenLayout as TokenLayout
    from sightline.training import train as train

__version__ = "0.2.0"

_HOMES = {
    "Grid": "sightline.tokens.grid",
    "Knob": "sightline.encodings",
    "Pattern": "sightline.attention",
    "PositionEncoding": "sightline.encodings",
    "Run": "sightline.runs.run",
    "TokenLayout": "sightline.tokens.layout",
    "add_encodings": "sightline.encodings",
    "compare": "sightline.runs.compare",
    "create_encoding": "sightline.encodings",
    "create_model": "sightline.hub.fine_tune",
    "export_model": "sightline.export",
    "export_weights": "sightline.convert",
    "import_weights": "sightline.convert",
    "list_encodings": "sightline.encodings",
    "list_models": "sightline.models",
    "load_model": "sightline.hub.load",
    "preprocessing": "sightline.data.preprocessing",
    "push_to_hub": "sightline.hub.push",
    "save_model": "sightline.hub.load",
    "train": "sightline.training",
    "transfer": "sightline.runs.transfer",
}

# Reached without an import of their own, as `sightline.analysis.entropy`.
_PARTS = ("analysis", "evaluation", "export", "models", "recipes", "results", "sweeps")

__all__ = ["__version__", *_HOMES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _PARTS:
        return import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    # Kept, so that the next use does not come back here.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
