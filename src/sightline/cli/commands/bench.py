"""`sightline bench memory`, `bench calibrate`, `bench attention`, `bench model`."""

from __future__ import annotations

import argparse
import contextlib
import json as json_module
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

import sightline
from sightline.errors import InputError, StorageError

if TYPE_CHECKING:
    from sightline.attention.costs import Costs

# Where a checkout keeps the benchmarks that compute something; an installed package has none.
BENCHMARKS = Path(sightline.__file__).resolve().parents[2] / "benchmarks"
# Ctrl-C goes to the whole group of processes: by its default it ends this one without a traceback.
_RUN_QUIETLY = (
    "import os, runpy, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); del sys.argv[0]; "
    "sys.path[0] = os.path.dirname(sys.argv[0]); runpy.run_path(sys.argv[0], run_name='__main__')"
)
_PARTS = ("parameters", "gradients", "optimizer", "activations", "attention", "other")

bench = App(help="What models cost here: memory before it is tried, and measured time.")


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

    from sightline import runtime
    from sightline.analysis.memory import estimate_memory, in_words, refuse_what_cannot_fit
    from sightline.cli.next_step import say_next
    from sightline.cli.output import claim_rows
    from sightline.cli.resolutions import parse_size
    from sightline.models import model_config
    from sightline.replacing import write_out
    from sightline.reports.tables import print_table

    if unexpected:
        raise InputError(
            f"bench memory {unexpected[0]}: expected options alone (--out {unexpected[0]} writes the figures into a "
            "file; --json prints them)"
        )
    size = parse_size(resolution)
    if out is not None:
        claim_rows(out)
    where = runtime.resolve_device(device)
    config = model_config(model, encoding=encoding)
    asked: dict[str, Any] = {"batch": batch, "dtype": dtype, "device": where}
    forward, step = (estimate_memory(config, size, training=training, **asked) for training in (False, True))
    estimates = {"forward": forward, "training step": step}
    # A part a line: so the table fits 80 columns.
    lines = [
        (part, *(in_words(getattr(one, part)) if getattr(one, part) else None for one in estimates.values()))
        for part in (*_PARTS, "total")
    ]
    said = {"benchmark": "memory", "model": model, "encoding": encoding, "resolution": list(size)}
    machine = {"hardware": runtime.hardware(where), "torch": str(torch.__version__), "commit": runtime.commit()}
    asked_of = {"tokens": forward.tokens, "batch": batch, "dtype": dtype}
    rows = ""
    for name, one in estimates.items():
        sizes = {f"{part}_bytes": getattr(one, part) for part in (*_PARTS, "total", "stored_bias")}
        row = {**said, **asked_of, "pass": name, **sizes, "device": str(where), **machine}
        rows += json_module.dumps(row) + "\n"
    available = runtime.available_memory(where)
    if json:
        print(rows, end="", flush=True)
    else:
        sides = "x".join(map(str, size))
        print(f"{model}, {encoding}, {sides} px ({forward.tokens:,} tokens), batch {batch}, {dtype}, {where}")
        print_table(("memory", *estimates), lines)
        if forward.stored_bias:
            stored = in_words(forward.stored_bias)
            print(f"A bias stored for all {config.depth} layers, the public LookHere way, would take {stored}.")
        # Flushed, so that a refusal comes last where both go to one file.
        print(f"Available here: {'not known' if available is None else in_words(available)}.", flush=True)
    refuse_what_cannot_fit(config, size, what=model, training=False, margin=1.0, **asked)
    if out is not None:
        write_out(out, rows)
    if json:
        return
    if available is not None and step.total > available:
        print("A training step does not fit here.")
    if (BENCHMARKS / "model.py").is_file():
        say_next("bench", "model", "--quick")


@bench.command
def calibrate(
    *unexpected: Annotated[str, Parameter(show=False)],
    show: bool = False,
    threads: int | None = None,
    json: bool = False,
) -> None:
    """Measure what each form of attention costs on this processor, or show what is known of it.

    The fastest form is chosen by these numbers. Of a processor that is not known a long training, and a long evaluate
    at resolutions in pixels, measure by themselves what they need; nothing else does. Here all of it is measured anew,
    in about half a minute, and kept for the commands that follow. A run that began goes on with the numbers that it
    began with.

    Args:
        show: Measure nothing: show the numbers that choose here.
        threads: That torch computes with; as many as there are cores unless given. Numbers are kept for each.
        json: Print them as one JSON object instead of a table.
    """
    from sightline import runtime
    from sightline.attention import costs as costs_of
    from sightline.attention.calibrate import ALL_GROUPS, calibrated
    from sightline.cli.next_step import warn
    from sightline.cli.progress import Bars

    if unexpected:
        raise InputError(f"bench calibrate {unexpected[0]}: expected options alone")
    count = runtime.set_threads(threads)
    lost = None
    if show:
        costs, kept = costs_of.current(), costs_of.kept_file(count)
        there = costs_of.kept(count) is not None
        where = f"kept in {kept}" if there else "shipped for this processor" if costs.points else None
        if kept is not None and kept.exists() and not there:
            warn(f"{kept}: damaged, or of another version, and not read; sightline bench calibrate writes it anew")
    else:
        with Bars() as bars:
            advance = bars.counter("measuring", len(ALL_GROUPS))
            costs = calibrated(ALL_GROUPS, lambda _: advance(1))
        place = costs_of.keep(costs)
        lost = None if place else costs_of.kept_file(count)
        where = f"kept in {place}" if place else "not kept: nothing is (SIGHTLINE_CACHE is empty)"
    if json:
        print(json_module.dumps(costs.as_record()))
    else:
        _say_costs(costs, count, None if lost else where)
    if lost is not None:
        raise StorageError(f"{lost}: cannot be written; what was measured chooses in no other command")


def _say_costs(costs: Costs, count: int, where: str | None) -> None:
    """The table of `bench calibrate` and what it stands for; `where` is said last."""
    import torch

    from sightline.attention import costs as costs_of
    from sightline.attention.precision import default_precision
    from sightline.reports.tables import print_table

    print(f"{costs.processor}, torch {costs.torch}, {costs.threads} {'thread' if costs.threads == 1 else 'threads'}")
    if costs.points and costs.threads != count:
        print(f"Nothing was measured with {count} threads: these numbers choose until it is.")
    if not costs.points:
        print("Nothing is known of this processor: SDPA computes until `sightline bench calibrate` has measured it.")
        return
    lines = []
    for group in sorted(costs.points):
        dtype, sizes = getattr(torch, group.dtype), {one.tokens for of in costs.points[group].values() for one in of}
        for tokens in sorted(sizes):
            forms = costs_of.all_forms(dtype, tokens)
            # Of a batch, and of fields of view that show as much as the measured ones.
            images, asked = (
                costs_of.images_of_batch(tokens),
                {"training": group.work == "training", "head_dim": group.head_dim},
            )
            form = costs.fastest(forms, dtype, tokens=tokens, images=images, shown=costs.shown, **asked)
            known = costs.points[group]
            took = [
                f"{costs.predicted(group, one, tokens, images, costs.shown):.2f}" if one in known else None
                for one in (form, "sdpa")
            ]
            lines.append((*group, tokens, form, *took))
    print("The fastest form with a directed pattern, and nanoseconds for a pair of tokens:")
    print_table(("dtype", "pass", "head", "tokens", "fastest", "ns", "SDPA ns"), lines)
    ratios = {
        "In float32 oneDNN multiplies matrices {:.2f} times as fast as torch's own product.": costs.onednn,
        "Matrices of bfloat16 are multiplied {:.2f} times as fast in float32.": costs.wide,
    }
    # Numbers of before have not all of them.
    for said, ratio in ratios.items():
        if ratio:
            print(said.format(ratio))
    print(f"The precision 'auto' is {default_precision('cpu')} here, by what ships.")
    if where is not None:
        print(f"{where}.")


def _passed_on(name: str, what: str) -> Callable[..., int]:
    """A benchmark of the checkout, run with this interpreter; gives its exit code, 128 + the signal that ended it."""

    def run(*arguments: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> int:
        from sightline.cli.output import claim_rows

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
