"""What can be exported, and at which sizes: said in one line before any work."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from sightline.encodings.create import components
from sightline.encodings.pattern.rpe_learned import RpeLearned
from sightline.errors import InputError, require_known
from sightline.models import Model, ViTConfig
from sightline.models.create import architecture_class
from sightline.models.head import TokenHead

SUFFIXES = {"onnx": ".onnx", "torch": ".pt2"}
"""What a model is exported to, and how such files' names end."""
OPSETS = range(18, 24)
# The first with GELU is 20; older ones spell it out.
OPSET = 20
# A protobuf message, which an ONNX file is, ends here.
_ONNX_BYTES = 2**31
_ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
_LARGEST_CHECKED = 16


def check_target(to: str, *, opset: int = OPSET, int8: bool = False) -> None:
    """Refuse what is asked for and can be had of no model.

    Raises:
        InputError: `to` or `opset` is unknown (names the nearest), int8 is asked of torch, or packages are missing
            (says what to install).
    """
    require_known("export --to", to, SUFFIXES)
    if to == "torch" and int8:
        raise InputError("export --int8: is made by ONNX Runtime, expected --to onnx")
    if to == "onnx" and opset not in OPSETS:
        raise InputError(f"export: opset {opset}: expected {OPSETS[0]} to {OPSETS[-1]}")
    missing = [name for name in _ONNX_PACKAGES if importlib.util.find_spec(name) is None]
    if to == "onnx" and missing:
        raise InputError(f"export --to onnx: needs {', '.join(missing)}; install: pip install '.[onnx]'")


def never_exported(config: ViTConfig) -> str:
    """Why no model of a configuration is exported, whatever its head and weights; "" where one may be."""
    kind = architecture_class(config.architecture)
    if kind.export_refusal:
        return f"architecture {kind.name}: {kind.export_refusal}"
    clips = "a model of clips; programs are made for sizes of images alone (expected one of images)"
    return clips if len(config.train_grid) != 2 else ""


def check_exportable(model: Model, to: str, *, opset: int = OPSET, int8: bool = False) -> None:
    """Refuse what cannot be exported, before any work.

    Raises:
        InputError: `check_target` refuses it; it is no `Model`; its head is not exported; ONNX cannot hold it (2 GiB).
    """
    check_target(to, opset=opset, int8=int8)
    if not isinstance(model, Model):
        raise InputError(f"export: expected a VisionTransformer, got {type(model).__name__}")
    if isinstance(model.head, TokenHead) and model.head.export_refusal:
        raise InputError(f"export: head {model.head.name}: {model.head.export_refusal}")
    if refused := never_exported(model.config):
        raise InputError(f"export: {refused}")
    held = sum(parameter.numel() for parameter in model.parameters()) * 4
    if to == "onnx" and held >= _ONNX_BYTES:
        raise InputError(f"export --to onnx: {held / 2**30:.1f} GiB of weights, one ONNX file holds 2; use --to torch")


def only_size(model: Model, to: str) -> tuple[int, int] | None:
    """The one size (height, width) in pixels that the program of a model has, that of its training; None for all.

    BEiT's rule makes a table for another grid by a search for a geometric progression, of which torch writes no ONNX.
    """
    tables = [part.config for part in components(model.encoding) if isinstance(part, RpeLearned)]
    fixed = to == "onnx" and any(config.interpolation == "beit" for config in tables)
    own = model.config.train_grid
    return (own.rows * model.config.patch_size, own.cols * model.config.patch_size) if fixed else None


def check_sizes(model: Model, sizes: Sequence[tuple[int, int]], to: str = "torch") -> None:
    """Refuse sizes in pixels that an exported program does not promise, whatever the model's `fit`.

    Raises:
        InputError: the patch does not divide a side, or the grid has one row or column (names the nearest size); or
            the program has one size (`only_size`), which is another.
    """
    patch, only = model.config.patch_size, only_size(model, to)
    for height, width in sizes:
        if only not in (None, (height, width)):
            raise InputError(
                f"export --to onnx: encoding {model.config.encoding}: size {height}x{width}: torch writes no ONNX for "
                f"BEiT's geometric progression (expected {only[0]}x{only[1]}, where none is needed; --to torch has all)"
            )
        # torch traces a side of 1 apart.
        if height % patch or width % patch or min(height, width) < 2 * patch:
            near = "x".join(str(max(2, round(side / patch)) * patch) for side in (height, width))
            found = f"{height // patch}x{width // patch} patches"
            said = f"{found}; expected two or more a side, in multiples of the patch size {patch}"
            raise InputError(f"export: size {height}x{width}: {said} (nearest: {near})")


def default_sizes(model: Model, to: str = "torch") -> list[tuple[int, int]]:
    """Three sizes in pixels to check, never traced: a square, a wide and a tall one, about as large as in training; or
    the only one that the program has."""
    if (only := only_size(model, to)) is not None:
        return [only]
    rows, cols = (min(side, _LARGEST_CHECKED) for side in model.config.train_grid)
    # Rows that are odd: those of the traced images are not.
    grids = (rows + 1, rows + 1), (max(3, rows // 2 | 1), cols + 3), (2 * rows + 1, max(2, 3 * cols // 4))
    patch = model.config.patch_size
    return [(rows * patch, cols * patch) for rows, cols in grids]
