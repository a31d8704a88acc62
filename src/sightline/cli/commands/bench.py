"""`sightline bench memory`, `bench attention`, `bench model`."""

from __future__ import annotations

import argparse
import contextlib
import json as json_module
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

import sightline
from sightline.errors import InputError

# Where a checkout keeps the benchmarks that compute something; an installed package has none.
BENCHMARKS = Path(sightline.__file__).resolve().parents[2] / "benchmarks"
# Ctrl-C goes to the whole group of processes: by its default it ends this one without a traceback.
_RUN_QUIETLY = (
    "import os, runpy, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); del sys.argv[0]; "
    "sys.path[0] = os.path.dirname(sys.argv[0]); runpy.run_path(sys.argv[0], run_name='__main__')"
)
_PARTS = ("parameters", "gradients", "optimizer", "activations", "attention", "other")

bench = App(name="bench", help="What models cost here: memory before it is tried, and measured time.")


@bench.command
def memory(
    *unexpected: Annotated[str, Parameter(show=False)],
    model: str,
    resolution: str,
    encoding: str = "learned_1d",
    batch: int = 1,
    dtype: Literal["float32", "bfloat16"] = "float32",
    out: Path | None = None,
    json: bool = False,
    device: str = "auto",
) -> None:
    """Say what a forward and a training step will take, before they are tried.

    Computed from shapes; nothing is run. Where not even a forward fits here, the figures are printed all the same, and
    the last line refuses with the exit code 2.

    Args:
        model: A registered model (see `sightline models`).
        resolution: Side of the images in pixels, or height x width, as 1024 or 384x512.
        encoding: A position encoding (see `sightline encodings`), or some joined by +.
        batch: Images of a pass.
        dtype: Of the matrix products: float32, or bfloat16 beside float32 parameters.
        out: A file for the figures in bytes, a JSON object a line; it is replaced if it exists.
        json: Print those instead of a table.
        device: auto, cpu, cuda, cuda:1, mps: whose memory it is.
    """
    import torch

    from sightline.analysis.memory import estimate_memory, format_bytes
    from sightline.cli.next_step import say_next
    from sightline.distributed import machine
    from sightline.io.atomic import write_out
    from sightline.models import model_config
    from sightline.reports.tables import print_table
    from sightline.runs.outputs import claim_rows
    from sightline.runs.sizes import parse_size

    if unexpected:
        raise InputError(
            f"bench memory {unexpected[0]}: expected options alone (--out {unexpected[0]} writes the figures into a "
            "file; --json prints them)"
        )
    size = parse_size(resolution)
    if out is not None:
        claim_rows(out)
    where = machine.resolve_device(device)
    config = model_config(model, encoding=encoding)
    asked: dict[str, Any] = {"batch": batch, "dtype": dtype, "device": where}
    forward, step = (estimate_memory(config, size, training=training, **asked) for training in (False, True))
    estimates = {"forward": forward, "training step": step}
    # A part a line: so the table fits 80 columns.
    lines = [
        (part, *(format_bytes(getattr(one, part)) if getattr(one, part) else None for one in estimates.values()))
        for part in (*_PARTS, "total")
    ]
    said = {"benchmark": "memory", "model": model, "encoding": encoding, "resolution": list(size)}
    about = {"hardware": machine.hardware_name(where), "torch": str(torch.__version__), "commit": machine.git_commit()}
    asked_of = {"tokens": forward.tokens, "batch": batch, "dtype": dtype}
    rows = ""
    for name, one in estimates.items():
        sizes = {f"{part}_bytes": getattr(one, part) for part in (*_PARTS, "total")}
        row = {**said, **asked_of, "pass": name, **sizes, "device": str(where), **about}
        rows += json_module.dumps(row) + "\n"
    available = machine.available_memory(where)
    if json:
        print(rows, end="", flush=True)
    else:
        sides = "x".join(map(str, size))
        print(f"{model}, {encoding}, {sides} px ({forward.tokens:,} tokens), batch {batch}, {dtype}, {where}")
        print_table(("memory", *estimates), lines)
        print(f"Available here: {'not known' if available is None else format_bytes(available)}.")
    if out is not None:
        write_out(out, rows)
    if json:
        return
    for name, one in estimates.items():
        if available is not None and one.total > available:
            print(f"A {name} does not fit here.")
    if (BENCHMARKS / "model.py").is_file():
        say_next("bench", "model", "--quick")


def _passed_on(name: str, what: str) -> Callable[..., int]:
    """A benchmark of the checkout, run with this interpreter; gives its exit code, 128 + the signal that ended it."""

    def run(*arguments: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> int:
        from sightline.runs.outputs import claim_rows

        script = BENCHMARKS / f"{name}.py"
        if not script.is_file():
            raise InputError(f"bench {name}: needs a checkout of Sightline with its benchmarks; {script} is not there")
        # Refused as `bench memory` does, and parsed as the benchmark does.
        parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
        parser.add_argument("--out", type=Path)
        # The benchmark itself says what is wrong with its arguments.
        with contextlib.suppress(argparse.ArgumentError):
            given = parser.parse_known_args(arguments)[0].out
            if given is not None:
                claim_rows(given)
        sys.stdout.flush()
        code = subprocess.call([sys.executable, "-c", _RUN_QUIETLY, str(script), *arguments])
        return code if code >= 0 else 128 - code

    run.__doc__ = f"""Measure {what}: runs benchmarks/{name}.py of a checkout.

    Args:
        arguments: Passed on as they are: --quick (some minutes), --out FILE (replaces it; else rows are added to
            benchmarks/results), --threads N, --device cpu or cuda.
    """
    return run


bench.command(_passed_on("attention", "attention's back ends side by side"), name="attention")
bench.command(_passed_on("model", "whole models, forward and training step"), name="model")
