"""Where a run is, from the files in its folder alone: nothing is claimed, and nothing written."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from sightline.errors import InputError
from sightline.io.config import is_finite_number
from sightline.io.read import read_json
from sightline.io.run_files import CHECKPOINTS, CHECKSUMS, CONFIG, LOG, MODEL, PROGRESS, last_checkpoint
from sightline.io.run_lock import lock_holder
from sightline.results.rows import MetricValue
from sightline.training.log import read_curve, read_log

_PLACE = ("step", "steps", "images", "total", "loss", "lr")
_PACES = ("images_per_second", "tokens_per_second", "peak_share", "memory")


@dataclass(frozen=True)
class RunStatus:
    """Where a run is; None is what its files do not say.

    Attributes:
        state: `training`, `testing` (trained, and a process is at work), `finished`, `stopped` (begun, and none is).
        owner: which process is at work, on which host since when.
        step, steps, images, total: done and expected in all; loss and lr: of the last step known.
        images_per_second, tokens_per_second: in the last minute; left: seconds until the end at that speed, while it
            trains.
        peak_share: of what a matrix product reaches there in operations a second; memory: the most held so far, in
            bytes.
        validated: what was measured last while training; validated_at: after how many images.
        checkpoint_age: seconds since the last checkpoint; checkpoint_step: its step.
    """

    run: str
    state: Literal["training", "testing", "finished", "stopped"]
    owner: str | None = None
    step: int = 0
    steps: int | None = None
    images: int = 0
    total: int | None = None
    loss: float | None = None
    lr: float | None = None
    images_per_second: float | None = None
    tokens_per_second: float | None = None
    peak_share: float | None = None
    memory: int | None = None
    left: float | None = None
    validated: MetricValue | None = None
    validated_at: int | None = None
    checkpoint_age: float | None = None
    checkpoint_step: int | None = None

    def as_record(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def run_status(folder: Path) -> RunStatus:
    """Where a run is.

    Raises:
        InputError: the folder is that of no run, or a file in it is damaged.
    """
    owner = lock_holder(folder)
    if owner is None and not any((folder / name).exists() for name in (CONFIG, LOG, CHECKPOINTS)):
        raise InputError(f"{folder}: is the folder of no run (expected {CONFIG}, {LOG} or {CHECKPOINTS})")
    log = read_log(folder / LOG) if (folder / LOG).exists() else []
    model, checksums = (last_checkpoint(folder) / name for name in (MODEL, CHECKSUMS))
    training = (read_json(model, "the record of a model") if model.exists() else {}).get("training") or {}
    saved, total, steps = log[-1] if log else {}, training.get("config", {}).get("images"), None
    if total is not None and saved.get("images"):
        steps = saved["step"] if saved["images"] >= total else round(saved["step"] * total / saved["images"])
    now = {"step": 0, "images": 0, "loss": None, "lr": None, **saved, "total": total, "steps": steps}
    if (path := folder / PROGRESS).exists():
        told = read_json(path, "how far a run is")
        if not isinstance(told, dict) or not all(is_finite_number(told.get(key)) for key in _PLACE[:4]):
            raise InputError(f"{path}: does not say how far the run is")
        # A checkpoint of a moment ago is newer, and says neither how fast it is nor where it ends.
        rest = {key: told.get(key) for key in ("steps", "total", *_PACES)}
        now = {"loss": None, "lr": None, **told} if told["step"] >= now["step"] else {**now, **rest}
    complete = bool(log) and now["steps"] is not None and log[-1]["step"] >= now["steps"]
    state = ("finished" if complete else "stopped") if owner is None else "testing" if complete else "training"
    pace: dict[str, Any] = {name: now.get(name) if state == "training" else None for name in _PACES}
    rate, missing = pace["images_per_second"], (now["total"] or 0) - now["images"]
    at, validated = (read_curve(folder) or [({}, None)])[-1]
    return RunStatus(
        run=folder.resolve().name,
        state=state,
        owner=owner,
        **{name: now[name] for name in _PLACE},
        **pace,
        left=missing / rate if rate and missing >= 0 else None,
        validated=validated,
        validated_at=at.get("images"),
        checkpoint_age=max(time.time() - checksums.stat().st_mtime, 0.0) if checksums.exists() else None,
        checkpoint_step=training.get("step"),
    )


def describe_unfinished(folder: Path) -> str:
    """How far a run is whose training has not ended; "" of one that has, and of what is no run."""
    try:
        at = run_status(folder) if (folder / CHECKPOINTS).is_dir() else None
    except InputError:
        return ""
    if at is None or at.total is None or at.state not in ("training", "stopped"):
        return ""
    return f"{at.run}: not fully trained: {at.images:,} of {at.total:,} images"
