"""Computes what heads do; draws nothing.

Every measure of `analysis/measures/`, and of plug-ins, has a function of its name here: `from sightline.analysis import
attention_distance`, `attention_distance(model, images, sizes)`. None is imported before it is used (PEP 562), and
`import sightline.analysis` loads nothing heavy.
"""

from __future__ import annotations

from importlib import import_module
from inspect import cleandoc
from typing import Any

# Beside the measures: where each stands.
_HOMES = {
    "Analysis": "sightline.analysis.found",
    "analysed_together": "sightline.analysis.analyse",
    "cka": "sightline.analysis.measures.cka",
    "visible_from": "sightline.analysis.views",
}
_MEASURES = (
    "attention_distance", "attention_maps", "attention_rollout", "bias_matrices", "class_identifiability",
    "class_patches", "entropy", "fields_of_view", "head_distance", "head_diversity", "knock_out", "lens_miou",
    "logit_lens", "patch_colours", "patch_filters", "patch_similarity", "position_similarity", "rope_fourier",
    "token_norms",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    value = getattr(import_module(_HOMES[name]), name) if name in _HOMES else _measure_function(name)
    # Kept, so that the next use does not come back here.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_MEASURES})


def _measure_function(name: str) -> Any:
    """A measure as a function of a model and images."""
    if not name.startswith("_"):
        from sightline.analysis.analyse import analysed
        from sightline.analysis.measures.base import measure_classes
        from sightline.analysis.of_weights import WeightMeasure, read_from_weights

        if kind := measure_classes().get(name):
            run: Any = read_from_weights if issubclass(kind, WeightMeasure) else analysed

            def measure(model: Any, images: Any = None, sizes: Any = None, **options: Any) -> Any:
                return run(model, kind, images, sizes, **options)

            measure.__name__ = measure.__qualname__ = name
            measure.__doc__ = _explained(kind)
            return measure
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _explained(kind: Any) -> str:
    own = [kind.__init__.__doc__] if "__init__" in vars(kind) and kind.__init__.__doc__ else []
    arrays = [f"    {name} [{', '.join(one.axes)}] {one.unit}: {one.words}" for name, one in kind.quantities.items()]
    return "\n\n".join(
        [
            *map(cleandoc, [kind.__doc__ or "", *own]),
            "Args:\n    model: as `load_model` gives it."
            "\n    images, sizes: as `images.batches_by_size`; none for weights alone."
            "\n    **options: of the measure, and as `analyse.analysed`.",
            "\n".join(["Returns:", "    An `Analysis`, of each size:", *arrays]),
        ]
    )
