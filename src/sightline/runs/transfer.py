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
from sightline.io.config import Fraction, check_value, merge, whole
from sightline.io.run_files import RESULTS, SWEEP, TRANSFER
from sightline.recipes.transfer import TransferData, open_transfer_data, transfer_fields
from sightline.results.rows import dump_rows, read_rows, to_frame, update_file
from sightline.results.statistics import student_interval
from sightline.results.transfer import TransferRow, with_means
from sightline.runs import outputs
from sightline.runs.console import warn as warn_user
from sightline.runs.options import changed
from sightline.runs.sizes import parse_numbers
from sightline.runs.training_options import TransferOptions
from sightline.sweeps.run import Sweep, SweepResult, read_sweep, sweep
from sightline.sweeps.scores import best_of
from sightline.sweeps.space import SweepConfig, SweepEvaluation, flat, record_of

GRID, FINAL = "grid", "final"
"""The folders of the two sweeps on a data set."""
_LR = "optimizer.lr"
# Decided by other options -> which.
_DECIDED = {
    "recipe": "", "data": "DATA", "init_from": "MODEL", "model": "MODEL", "task": "", "resolution": "--resolution",
    "images": "--steps", "epochs": "--steps", "tokens": "--steps", "flops": "--steps", "batch_size": "--batch-size",
    "packing": "", "seed": "--seed", _LR: "--lrs",
}  # fmt: skip
Watch = Callable[[str, int], AbstractContextManager[Mapping[str, Any]]]


@dataclass(frozen=True)
class TransferResult:
    """What a model reached: `rows` of all data sets in the file `path`, those of earlier calls too; titles of the tasks
    of VTAB-1k that are `missing`."""

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
        begin: called with the data sets, and the titles of tasks that are missing.
        watch: called with the name of a sweep and its number of cells, gives the callbacks of `sweep`.

    Raises:
        InputError: the model or a data set cannot be opened, or `out` is of another model or other options.
        SweepError: a training on all of train failed twice, or all of a grid did.
    """
    asked = cast("TransferOptions", changed(options or TransferOptions(), changes))
    model, out = str(model), Path(out)
    lrs = _check(asked)
    sets, missing = open_transfer_data([data] if isinstance(data, str) else data)
    outputs.guard_folder(out, outputs.Inputs(models=[model], data=[one.spec for one in sets]), "--out", deletes=False)
    rows = _rows_in(out / TRANSFER, model, asked)
    begin(sets, missing)

    def run(one: TransferData, part: str, config: dict[str, Any]) -> SweepResult:
        where = out / one.name / part
        made = Sweep(where, SweepConfig(out=str(where), **config), where)
        _refuse_other(made)
        with watch(f"{one.title} ({sets.index(one) + 1} of {len(sets)}), {part}", made.config.count) as callbacks:
            found = sweep(made, device=device, **{"warn": warn_user, **callbacks})
        for number, fault in sorted(found.state.failed.items()):
            said = f"{made.folder(found.state.cells[number])}: failed twice: {fault}"
            if part == FINAL or not found.scores:
                raise SweepError(said)
            # A rate may be too high; others are there.
            warn_user(said)
        return found

    if (held := asked.held_out) is not None:
        sets = [dataclasses.replace(one, setting=dataclasses.replace(one.setting, held_out=held)) for one in sets]
    for one in sets:
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
    for name in flat(asked.training or {}):
        if (option := _DECIDED.get(name)) is not None:
            expected = f"is decided by {option}" if option else "is the protocol's"
            raise InputError(f"--training.{name}: {expected}", field=f"training.{name}")
    rates = parse_numbers("--lrs", asked.lrs, float, "learning rates, as 0.001,0.003")
    for rate in rates:
        if not 0 < rate < float("inf"):
            raise InputError(f"--lrs {rate:g}: expected more than 0", field="--lrs", value=rate)
    return tuple(sorted(set(rates)))


def _refuse_other(asked: Sweep) -> None:
    """Refuse a sweep that was begun with other options."""
    if (asked.out / SWEEP).is_file():
        before, now = (record_of(one.config) for one in (read_sweep(asked.out), asked))
        for name in (name for name in now if before.get(name) != now[name]):
            was = f"was begun with {name.removeprefix('base.')} {before.get(name)}, not {now[name]}"
            raise InputError(f"{asked.out}: {was} (expected the same options, or another --out)", field=name)


def _rows_in(path: Path, model: str, asked: TransferOptions) -> list[TransferRow]:
    """What is there, all of it of this model and trained alike, as means over tasks are."""
    rows = read_rows(path, TransferRow) if path.exists() else []
    for row in rows:
        before, now = (row.model, row.resolution, row.batch_size), (model, asked.resolution, asked.batch_size)
        if before != now:
            said = "{} at {} px, batch {}".format(*before)
            raise InputError(f"{path}: is of {said} (expected the same, or another --out)", field="--out")
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
        train_images=done.sweep.config.base["images"], **fields,
    )  # fmt: skip


def _write(path: Path, made: TransferRow) -> list[TransferRow]:
    """Put a row into the file, and the means of what is there then."""
    rows: list[TransferRow] = []

    def merged(before: list[TransferRow]) -> str:
        others = [row for row in before if row.data != made.data]
        rows[:] = with_means([*others, made], {task.title: task.group for task in TASKS.values()})
        return dump_rows(rows)

    update_file(path, lambda place: read_rows(place, TransferRow), merged, anew=False)
    return rows
