"""Tracing a model and writing the program, with what must be known to run it."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import errno
import io
import json
import logging
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.export import Dim, ExportedProgram

from sightline import __version__
from sightline.errors import InputError, StorageError
from sightline.export.checks import OPSET, check_exportable, check_sizes, only_size
from sightline.io.atomic import write_out
from sightline.io.read import check_file
from sightline.models import Model
from sightline.models.patch_size import freeze_patch_size
from sightline.tokens.grid import Grid

METADATA = "sightline.json"
"""The file in a .pt2 that says how to prepare images; an ONNX file has the same keys in its own metadata."""
# Not square, and unlike the usual grids: no side may be taken for another.
_EXAMPLE_ROWS, _EXAMPLE_COLS = 6, 9
# What is told of the configuration as it stands there.
_DESCRIBED = (
    "encoding", "class_names", "score_link", "channels", "patch_size", "mean", "std", "interpolation", "crop",
    "crop_mode", "fit",
)  # fmt: skip


@dataclass(frozen=True)
class ExportRecord:
    """What was written.

    Attributes:
        file, bytes, seconds: its path and size, and how long it took.
        to: `onnx` or `torch`; opset: ONNX's version of operators, None for torch.
        output: the name of the output, `logits` or, of a model without classes, `features`.
        int8: the weights of matrix products are 8-bit whole numbers.
        example_size: (height, width) in pixels that torch traced; `every_size` says whether it serves others too.
    """

    file: str
    to: str
    encoding: str
    output: str
    patch_size: int
    opset: int | None
    int8: bool
    example_size: tuple[int, int]
    every_size: bool
    bytes: int
    seconds: float


def export_model(
    model: Model,
    path: str | Path,
    *,
    to: str = "onnx",
    opset: int = OPSET,
    int8: bool = False,
    example_size: tuple[int, int] | None = None,
    moved: Callable[[int, int], None] | None = None,
) -> ExportRecord:
    """Write a model as one file, whole or not at all; a file that is there is replaced. The model is not changed.

    It is exported in evaluation mode and float32, with its knob as it is set, for any batch, height and width (ONNX of
    BEiT's rule for the training size alone). Beside the program the file holds how to prepare images (`describe`).

    Args:
        to: `onnx` or `torch` (a .pt2 for `torch.export.load`).
        opset: of ONNX, 18 to 23.
        int8: weights of matrix products in 8 bits, activations quantised as they come (ONNX only).
        example_size: (height, width) in pixels of the images that are traced; no result depends on it.
        moved: called with (steps done, steps in all): to trace the model, to write the program, with int8 to round.

    Raises:
        InputError: `check_exportable` or `check_sizes` refuses it, or torch cannot write this encoding as ONNX.
        StorageError: the file cannot be written; what was there is untouched.
    """
    path = Path(path)
    check_exportable(model, to, opset=opset, int8=int8)
    # A file holds one patch size: that in use.
    model = freeze_patch_size(model)
    patch, only = model.config.patch_size, only_size(model, to)
    size = example_size or only or (_EXAMPLE_ROWS * patch, _EXAMPLE_COLS * patch)
    check_sizes(model, [size], to)
    _check_writable(path)
    started, metadata = time.monotonic(), describe(model)
    report, steps = moved or (lambda done, total: None), 2 + int8
    report(0, steps)
    with quiet():
        program = _trace(model, size, every_size=only is None)
        report(1, steps)
        if to == "torch":
            buffer = io.BytesIO()
            torch.export.save(program, buffer, extra_files={METADATA: json.dumps(metadata)})
            content = buffer.getvalue()
        else:
            content = _onnx_bytes(program, metadata, opset, model.config.encoding, every_size=only is None)
        if int8:
            report(2, steps)
            content = _quantised(content)
    # A link stays one; its file is replaced.
    write_out(Path(os.path.realpath(path)), content)
    report(steps, steps)
    return ExportRecord(
        file=str(path),
        to=to,
        encoding=model.config.encoding,
        output=metadata["output"],
        patch_size=patch,
        opset=opset if to == "onnx" else None,
        int8=int8,
        example_size=size,
        every_size=only is None,
        bytes=len(content),
        seconds=time.monotonic() - started,
    )


def describe(model: Model) -> dict[str, Any]:
    """What a program that runs the file must know, as JSON has it; the keys are those of docs/how-to/export.md."""
    config, knob = model.config, model.knob
    return {
        "sightline": __version__,
        "knob": None if knob is None else {"name": knob.name, "value": knob.value},
        "output": "logits" if model.num_classes else "features",
        "num_classes": model.num_classes,
        "train_size": Grid.checked(config.image_size),
        **{name: getattr(config, name) for name in _DESCRIBED},
    }


def frozen_copy(model: Model) -> Model:
    """A copy as it is exported: the user's own keeps its mode, precision and device."""
    return copy.deepcopy(model).to("cpu", torch.float32).eval().requires_grad_(False)


def cause(error: BaseException) -> str:
    """The first line of an error of torch's or ONNX Runtime's; the name of its class where it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what the exporters say to their own developers: the terminal stays the user's."""
    root, disabled = logging.getLogger(), logging.root.manager.disable
    handlers = list(root.handlers)
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(disabled)
        # ONNX Runtime speaks to the root logger, which then gets a handler that nobody asked for.
        root.handlers[:] = handlers


def _trace(model: Model, size: tuple[int, int], *, every_size: bool = True) -> ExportedProgram:
    patch, frozen = model.config.patch_size, frozen_copy(model)
    free = {0: Dim("batch")} | ({2: patch * Dim("rows"), 3: patch * Dim("cols")} if every_size else {})
    example = torch.zeros(2, model.config.channels, *size)
    if not frozen.patch_embed.supports_token_dropping:
        # Nothing is fitted at the sizes that are promised, and torch takes minutes over a stem's arithmetic of others.
        frozen.patch_embed.patchifier = dataclasses.replace(frozen.patch_embed.patchifier, fit="exact")
    with torch.no_grad():
        program = torch.export.export(frozen, (example,), dynamic_shapes=(free,))
    # Where a line of our source stood on this machine is nobody's business.
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)
    return program


def _onnx_bytes(
    program: ExportedProgram, metadata: dict[str, Any], opset: int, encoding: str, *, every_size: bool
) -> bytes:
    try:
        converted = torch.onnx.export(
            program,
            input_names=["images"],
            output_names=[metadata["output"]],
            dynamic_shapes=({0: "batch"} | ({2: "height", 3: "width"} if every_size else {}),),
            opset_version=opset,
            verbose=False,
        )
    except torch.onnx.errors.OnnxExporterError as error:
        # The conversion's own text is a page; its cause names the operator.
        said = cause(error.__cause__ or error)
        raise InputError(f"export --to onnx: encoding {encoding}: torch cannot write its program ({said})") from error
    assert converted is not None
    for key, value in metadata.items():
        converted.model.metadata_props[key] = value if isinstance(value, str) else json.dumps(value)
    return converted.model_proto.SerializeToString()


def _quantised(content: bytes) -> bytes:
    """Dynamic int8: weights a scale a column, activations a scale a product as they come."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load_from_string(content)
    # The quantiser turns weights round, and then takes the shapes that were noted for an error.
    del model.graph.value_info[:]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "int8.onnx"
        quantize_dynamic(
            model, file, op_types_to_quantize=["MatMul", "Gemm"], per_channel=True, weight_type=QuantType.QInt8
        )
        return file.read_bytes()


def _check_writable(path: Path) -> None:
    if path.exists():
        check_file(path)
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir():
        raise StorageError(f"{path}: cannot be written ({above} is no folder)")
    if not os.access(above, os.W_OK):
        reason = errno.EROFS if os.statvfs(above).f_flag & os.ST_RDONLY else errno.EACCES
        raise StorageError(f"{path}: cannot be written ({above}: {os.strerror(reason)})")
