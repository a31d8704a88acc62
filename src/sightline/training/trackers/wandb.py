"""Weights & Biases; WANDB_MODE=offline needs no network, and its own variables say the project."""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from sightline.errors import InputError
from sightline.io.atomic import write_file
from sightline.io.read import read_json
from sightline.io.run_files import WANDB_RUN
from sightline.training.tracking import Tracker


class WeightsAndBiases(Tracker):
    """One of its runs for a run: its name is kept in the folder, by which a continuation goes on with it."""

    name: ClassVar[str] = "wandb"
    needs: ClassVar[str] = "wandb"

    def __init__(self, folder: Path, config: Mapping[str, Any], step: int) -> None:
        wandb: Any = importlib.import_module(self.needs)
        kept = None
        if step:
            with contextlib.suppress(InputError, OSError, KeyError, TypeError):
                kept = str(read_json(folder / WANDB_RUN, "the name of a run of wandb")["id"])
        self._run: Any = wandb.init(
            project="sightline", name=folder.resolve().name, dir=str(folder), config=dict(config), id=kept,
            resume="allow",
        )  # fmt: skip
        write_file(folder / WANDB_RUN, json.dumps({"id": self._run.id}) + "\n")

    def note(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()
