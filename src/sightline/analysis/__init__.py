"""Computes what heads do; draws nothing.

Every measure of `analysis/measures/` has a function of its file's name here: `from sightline.analysis import
attention_distance`. None is imported before it is used (PEP 562), and `import sightline.analysis` loads nothing heavy.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

# Beside the measures: where each stands.
_HOMES = {
    "Analysis": "sightline.analysis.found",
    "analysed_together": "sightline.analysis.analyse",
    "visible_from": "sightline.analysis.views",
}
# What is no measure among their files.
_NO_MEASURES = ("__init__", "base")


def _homes() -> dict[str, str]:
    """Where each public name stands."""
    files = sorted(path.stem for path in (Path(__file__).parent / "measures").glob("*.py"))
    return {name: f"{__name__}.measures.{name}" for name in files if name not in _NO_MEASURES} | _HOMES


def __getattr__(name: str) -> Any:
    homes = _homes()
    if name not in homes:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(homes[name]), name)
    # Kept, so that the next use does not come back here.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_homes()})
