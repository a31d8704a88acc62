"""`sightline bench memory`, `bench attention`, `bench model`."""

from __future__ import annotations

import itertools
import json as json_module
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

import sightline
from sightline.errors import InputError
from sightline.runs.options import Device, Json

# Where a checkout keeps the benchmarks that compute something; an installed package has none.
BENCHMARKS = Path(sightline.__file__).resolve().parents[2] / "benchmarks"
# Ctrl-C goes to the whole group of processes: by its default it ends this one without a traceback.
_RUN_QUIETLY = (
    "import os, runpy, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); del sys.argv[0]; "
    "sys.path[0] = os.path.dirname(sys.argv[0]); runpy.run_path(sys.argv[0], run_name='__main__')"
)

bench = App(name="bench", help="Estimate the memory of a model, and measure the speed of models on this machine.")


@bench.command
def memory(
    *,
    model: str,
    resolution: str,
    encoding: str = "learned_1d",
    batch: int = 1,
    dtype: Literal["float32", "bfloat16"] = "float32",
    device: Device = "auto",
    out: Path | None = None,
    json: Json = False,
) -> None:
    """Estimate the memory of a forward and a training step from shapes; nothing is run.

    Args:
        model: A registered model (see `sightline models`).
        resolution: Side of the images in pixels, or height x width, for example 1024 or 384x512.
        encoding: A position encoding (see `sightline encodings`), or several joined by +.
        batch: Images of a pass.
        dtype: Precision of the matrix products: float32, or bfloat16 with float32 parameters.
        out: A file for the numbers in bytes, one JSON object per line; existing rows are replaced.
    """
    from sightline.cli.next_step import say_next
    from sightline.distributed.machine import available_memory, resolve_device
    from sightline.io.atomic import write_out
    from sightline.io.read import format_bytes
    from sightline.reports.tables import print_table
    from sightline.runs.memory import MEMORY_PARTS, memory_rows
    from sightline.runs.outputs import claim_rows
    from sightline.runs.sizes import parse_size

    if out is not None:
        claim_rows(out)
    where = resolve_device(device)
    rows = memory_rows(model, parse_size(resolution), encoding=encoding, batch=batch, dtype=dtype, device=where)
    text = "".join(f"{json_module.dumps(row)}\n" for row in rows)
    if out is not None:
        write_out(out, text)
    if json:
        print(text, end="", flush=True)
        return
    sides = "x".join(map(str, rows[0]["resolution"]))
    print(f"{model}, {encoding}, {sides} px ({rows[0]['tokens']:,} tokens), batch {batch}, {dtype}, {where}")
    cells = {part: [row[f"{part}_bytes"] for row in rows] for part in (*MEMORY_PARTS, "total")}
    # A part a line: so the table fits 80 columns.
    lines = [(part, *(format_bytes(one) if one else None for one in some)) for part, some in cells.items()]
    print_table(("memory", *(row["pass"] for row in rows)), lines)
    available = available_memory(where)
    print(f"Available here: {'not known' if available is None else format_bytes(available)}.")
    for row in rows:
        if available is not None and row["total_bytes"] > available:
            print(f"A {row['pass']} does not fit here.")
    if (BENCHMARKS / "model.py").is_file():
        say_next("bench", "model", "--quick")


def _passed_on(name: str, what: str) -> Callable[..., int]:
    """A benchmark of the checkout, run with this interpreter; gives its exit code, 128 + the signal that ended it."""

    def run(*arguments: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> int:
        from sightline.runs.outputs import claim_rows

        script = BENCHMARKS / f"{name}.py"
        if not script.is_file():
            raise InputError(f"bench {name}: needs a checkout of Sightline with its benchmarks; {script} is not there")
        for option, word in itertools.pairwise((*arguments, "")):
            if option.partition("=")[0] == "--out" and (place := option.partition("=")[2] or word):
                claim_rows(Path(place))
        sys.stdout.flush()
        code = subprocess.call([sys.executable, "-c", _RUN_QUIETLY, str(script), *arguments])
        return code if code >= 0 else 128 - code

    run.__doc__ = f"""Measure {what} (benchmarks/{name}.py of a checkout).

    Args:
        arguments: Options of the benchmark: --quick (some minutes), --out FILE (replaced; without it, rows are added to
            benchmarks/results), --threads N, --device cpu or cuda.
    """
    return run


bench.command(_passed_on("attention", "the back ends of attention"), name="attention")
bench.command(_passed_on("model", "forward and training step of whole models"), name="model")
