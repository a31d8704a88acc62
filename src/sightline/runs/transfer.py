"""A model fine-tuned to other data sets by ViT's protocol: a grid of learning rates on a part of train, then trainings
on all of it with the best rate, tested once."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from sightline.data.sources.vtab import TASKS
from sightline.errors import InputError, SweepError
from sightline.hub.load import load_model
from sightline.io.config import Fraction, check_value, merge, whole
from sightline.io.run_files import RESULTS, TRANSFER
from sightline.recipes.transfer import TransferData, open_transfer_data, transfer_fields
from sightline.results.rows import read_rows, to_frame, update_file
from sightline.results.statistics import student_interval
from sightline.results.transfer import TransferRow, with_means
from sightline.runs import outputs
from sightline.runs.console import warn as warn_user
from sightline.runs.options import changed
from sightline.runs.sizes import parse_numbers
from sightline.runs.training_options import TransferOptions
from sightline.sweeps.run import Sweep, SweepResult, sweep
from sightline.sweeps.scores import best_of
from sightline.sweeps.space import SweepConfig, SweepEvaluation

GRID, FINAL = "grid", "final"
"""The folders of the two sweeps on a data set."""
_LR = "optimizer.lr"
Watch = Callable[[str, int], AbstractContextManager[Mapping[str, Any]]]


@dataclass(frozen=True)
class TransferResult:
    """What a model reached: `rows` of all data sets in the file `path`, those of earlier calls too; `missing` tasks of
    VTAB-1k, in words."""

    path: Path
    rows: list[TransferRow]
    missing: list[str]

    def frame(self) -> Any:
        """The rows as a `pandas.DataFrame`."""
        return to_frame(self.rows)


def transfer(
    model: str | Path,
    data: str | Sequence[str],
    out: str | Path = "runs/transfer",
    options: TransferOptions | None = None,
    *,
    device: str = "auto",
    begin: Callable[[list[TransferData], list[str]], None] = lambda data, missing: None,
    watch: Watch = lambda name, count: contextlib.nullcontext({}),
    **changes: Any,
) -> TransferResult:
    """Fine-tune a model to data sets as ViT does (appendix B.1.1), and test it once on each.

    The runs on a data set are the cells of two sweeps, `OUT/NAME/grid` and `OUT/NAME/final`: the same call goes on
    where one was stopped, and several processes share the work.

    Args:
        model: what `load_model` takes.
        data: data sets with classes and splits train and test; `vtab:DIR` is each task of VTAB-1k below DIR.
        out: a folder for the runs and `transfer.jsonl`; of one model.
        options: changed by keywords: `resolution=224, lrs=[0.01, 0.03]`, ...
        begin: called with the data sets, and the tasks that are missing.
        watch: called with the name of a sweep and its number of cells, gives the callbacks of `sweep`.

    Raises:
        InputError: the model or a data set cannot be opened, or `out` is of another model or other options.
        SweepError: a training failed twice.
    """
    asked = cast("TransferOptions", changed(options or TransferOptions(), changes))
    model, out = str(model), Path(out)
    lrs = _check(asked)
    sets, missing = open_transfer_data([data] if isinstance(data, str) else data)
    outputs.guard_folder(out, outputs.Inputs(models=[model], data=[one.spec for one in sets]), "--out", deletes=False)
    rows = _rows_in(out / TRANSFER, model)
    load_model(model)
    begin(sets, missing)

    def run(one: TransferData, part: str, config: dict[str, Any]) -> SweepResult:
        where = out / one.name / part
        made = Sweep(where, SweepConfig(out=str(where), **config), where)
        with watch(f"{one.title}, {part}", made.config.count) as callbacks:
            found = sweep(made, device=device, **{"warn": warn_user, **callbacks})
        for number, fault in sorted(found.state.failed.items()):
            raise SweepError(f"{made.folder(found.state.cells[number])}: failed twice: {fault}")
        return found

    for one in sets:
        if asked.held_out is not None:
            one = dataclasses.replace(one, setting=dataclasses.replace(one.setting, held_out=asked.held_out))
        rates, steps = lrs or one.setting.lrs, asked.steps or one.setting.steps
        fields = {"steps": steps, "resolution": asked.resolution, "batch_size": asked.batch_size}

        def config(split: str, one: TransferData = one, fields: Any = fields) -> dict[str, Any]:
            base = transfer_fields(one, model, final=split == "test", **fields)
            evaluate = SweepEvaluation((asked.resolution,), split)
            return {"base": merge(base, asked.training or {}), "evaluate": evaluate}

        lr, held_out = rates[0], dict[str, float]()
        if len(rates) > 1:
            grid = config("minival")
            grid["base"]["seed"] = asked.seed
            found = run(one, GRID, grid | {"grid": {_LR: list(rates)}})
            # Of equals the lowest rate.
            scores = sorted(found.scores, key=lambda score: score.settings[_LR])
            lr = float(best_of(scores).settings[_LR])
            held_out = {f"{score.settings[_LR]:g}": score.measured.value for score in scores}
        final = config("test")
        final["base"] = merge(final["base"], {"optimizer": {"lr": lr}})
        done = run(one, FINAL, final | {"grid": {"seed": list(range(asked.seed, asked.seed + asked.seeds))}})
        made = _row(one, model, done, lr=lr, held_out=held_out, **fields)
        rows = _write(out / TRANSFER, made)
    return TransferResult(out / TRANSFER, rows, missing)


def _check(asked: TransferOptions) -> tuple[float, ...]:
    """The learning rates that are asked for, after all else was checked."""
    for option in ("resolution", "seeds", "batch_size"):
        check_value(f"--{option.replace('_', '-')}", getattr(asked, option), whole(1))
    for option in ("steps", "held_out"):
        if (value := getattr(asked, option)) is not None:
            check_value(f"--{option.replace('_', '-')}", value, whole(1) if option == "steps" else Fraction)
    rates = parse_numbers("--lrs", asked.lrs, float, "learning rates, as 0.001,0.003")
    for rate in rates:
        if not 0 < rate < float("inf"):
            raise InputError(f"--lrs {rate:g}: expected more than 0", field="--lrs", value=rate)
    return tuple(sorted(set(rates)))


def _rows_in(path: Path, model: str) -> list[TransferRow]:
    rows = read_rows(path, TransferRow) if path.exists() else []
    for row in rows:
        if row.model != model:
            raise InputError(f"{path}: is of {row.model} (expected another --out for {model})", field="--out")
    return rows


def _row(data: TransferData, model: str, done: SweepResult, **fields: Any) -> TransferRow:
    """What the trainings on all of a data set reached."""
    found = []
    for score in done.scores:
        path = done.sweep.folder(next(cell for cell in done.state.cells.values() if cell.name == score.run)) / RESULTS
        found.append(next(row for row in read_rows(path) if row.metric == score.measured.metric and not row.slices))
    seeds, first = [row.seed for row in found], found[0]
    value, interval = student_interval([row.value for row in found])
    return TransferRow(
        model=model, data=data.spec, title=data.title, group=data.group, metric=first.metric, value=value,
        interval=interval, values=tuple(row.value for row in found), seeds=tuple(seeds), count=first.count,
        encoding=first.encoding, commit=first.commit, hardware=first.hardware,
        train_images=fields["steps"] * fields["batch_size"], **fields,
    )  # fmt: skip


def _write(path: Path, made: TransferRow) -> list[TransferRow]:
    """Put a row into the file, and the means of what is there then."""
    rows: list[TransferRow] = []

    def merged(before: list[TransferRow]) -> str:
        from sightline.results.rows import dump_rows

        others = [row for row in before if row.data != made.data]
        rows[:] = with_means([*others, made], {task.title: task.group for task in TASKS.values()})
        return dump_rows(rows)

    update_file(path, lambda place: read_rows(place, TransferRow), merged, anew=False)
    return rows
