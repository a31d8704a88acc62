"""ONNX Runtime's time of our exported ViT beside that of timm's of the same weights.

    python benchmarks/onnx_time.py [--quick] [--models vit_tiny_patch16] [--batches 1 8] [--rounds 21] [--out OUT]

Ours is what `sightline export` writes: one file for any batch, height and width. timm's is `torch.onnx.export` of its
model, of the same opset: `fixed` for this batch and size alone, `batch` for any batch of images of 224 px, which is all
that its model takes. Both run in ONNX Runtime with its own optimisations and as many threads; their logits must agree
before anything is timed. A ratio is timm's time over ours: .952 or more is wanted (1.05 times as long). `nodes` and
`baseline_nodes` count the operators of the files as they are written.
"""

from __future__ import annotations

import importlib
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import Parser, clock, counted, interleave, print_table, row, threads
from torch import nn

from sightline import export_weights
from sightline.distributed.machine import import_timm
from sightline.export import export_model
from sightline.export.checks import OPSET
from sightline.export.program import quiet
from sightline.models import Model, create_model

_SIDE, _WANTED = 224, 0.952
_MODELS = {"vit_tiny_patch16": "vit_tiny_patch16_224", "vit_small_patch16": "vit_small_patch16_224"}
_COLUMNS = (
    "model", "batch", "shape", "ratio", "interval", "wanted", "subject_ms", "baseline_ms", "nodes", "baseline_nodes",
)  # fmt: skip


def runtime_of() -> Any:
    """ONNX Runtime, or None where it is missing."""
    try:
        importlib.import_module("onnx")
        importlib.import_module("onnxscript")
        return importlib.import_module("onnxruntime")
    except ImportError:
        return None


def pair(name: str) -> tuple[Model, nn.Module]:
    """Our model, and timm's of the same weights."""
    options = {"interpolation": "bicubic_antialias"}
    model = create_model(name, encoding="learned_1d", encoding_options=options, num_classes=1000).eval()
    other = import_timm().create_model(_MODELS[name], num_classes=1000)
    other.load_state_dict(export_weights(model, "timm")[0])
    return model, other.eval()


def export_timm(model: nn.Module, batch: int, shape: str, path: Path) -> None:
    """timm's model as torch writes it, for a batch of a size or for any batch."""
    # A batch of one would be taken for a constant.
    example = torch.zeros(batch if shape == "fixed" else max(batch, 2), 3, _SIDE, _SIDE)
    free: Any = None if shape == "fixed" else ({0: torch.export.Dim("batch")},)
    with quiet(), torch.no_grad():
        program = torch.onnx.export(
            model, (example,), dynamo=True, opset_version=OPSET, input_names=["images"], dynamic_shapes=free,
            verbose=False,
        )  # fmt: skip
    assert program is not None
    program.save(str(path))


def nodes_of(path: Path) -> int:
    """How many operators a file has, constants not among them."""
    graph = importlib.import_module("onnx").load(str(path)).graph
    return sum(count for kind, count in Counter(node.op_type for node in graph.node).items() if kind != "Constant")


def session(ort: Any, path: Path) -> Any:
    """A file that is ready to run, with as many threads as torch has."""
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = torch.get_num_threads(), 1
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def run(one: Any, images: np.ndarray, times: int = 1) -> np.ndarray:
    """The logits of so many runs' last."""
    return [one.run(None, {"images": images})[0] for _ in range(times)][-1]


def main() -> None:
    parser = Parser(__doc__)
    parser.usual("onnx_time", "the small model and few rounds: half a minute")
    parser.add_argument("--models", nargs="+", choices=[*_MODELS], default=None)
    parser.add_argument("--batches", nargs="+", type=threads, default=[1, 8])
    parser.add_argument("--rounds", type=threads, help="runs of each; at least 6 give an interval")
    chosen = parser.begin()
    ort = runtime_of()
    if ort is None:
        parser.error("onnx_time: needs onnx, onnxscript and onnxruntime (pip install '.[onnx]')")
    models = chosen.models or (["vit_tiny_patch16"] if chosen.quick else [*_MODELS])
    rounds = chosen.rounds or (7 if chosen.quick else 21)
    cases = [(name, batch, shape) for name in models for batch in chosen.batches for shape in ("fixed", "batch")]
    rows, made = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for (name, batch, shape), said in counted(cases):
            print(f"{said} {name}, batch {batch}, {shape}", flush=True)
            ours, theirs = Path(folder) / f"{name}.onnx", Path(folder) / f"{name}-{batch}-{shape}.onnx"
            if name not in made:
                made[name] = pair(name)
                export_model(made[name][0], ours)
            export_timm(made[name][1], batch, shape, theirs)
            images = np.random.default_rng(0).standard_normal((batch, 3, _SIDE, _SIDE), dtype=np.float32)
            sessions = {"sightline": session(ort, ours), "timm": session(ort, theirs)}
            mine, their = (run(one, images) for one in sessions.values())
            difference = float(np.abs(mine - their).max())
            if difference > 1e-3 * np.abs(their).max():
                raise RuntimeError(f"{name}: other logits, by {difference}")
            started = time.perf_counter()
            run(sessions["timm"], images)
            # A timed work lasts a tenth of a second at least.
            often = max(1, round(0.1 / (time.perf_counter() - started)))
            works: Any = {key: partial(run, one, images, often) for key, one in sessions.items()}
            times = {key: [one / often for one in each] for key, each in interleave(works, rounds, by=clock()).items()}
            about = {"model": name, "batch": batch, "shape": shape, "wanted": _WANTED, "opset": OPSET}
            counts = {"nodes": nodes_of(ours), "baseline_nodes": nodes_of(theirs), "difference": difference}
            about |= {"onnxruntime": ort.__version__}
            rows.append(row("onnx_time", "sightline", "timm", times, {}, **about, **counts))
            print_table(_COLUMNS, rows[-1:])
    parser.save(rows)
    print(f"rows: {parser.path}")


if __name__ == "__main__":
    main()
