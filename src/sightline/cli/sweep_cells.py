"""The cells of a sweep as trainings: all are checked before the first one begins, and each is run as `train` does."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from sightline.cli import guard, output, run_config
from sightline.cli.config import named_after
from sightline.cli.progress import Bars
from sightline.cli.sweep_file import Sweep
from sightline.cli.train_run import TrainRequest, carry_out
from sightline.data.source import Source
from sightline.errors import InputError, unknown_name_error
from sightline.evaluation.measure import check_sizes
from sightline.io.config import dump_config
from sightline.io.run_files import CONFIG
from sightline.sweeps.queue import Claim
from sightline.sweeps.scores import CellScore, score_of
from sightline.sweeps.space import SweepCell, sample_cells, training_fields
from sightline.sweeps.worker import CellResult
from sightline.training.config import TrainConfig
from sightline.training.prepare import resolve_config
from sightline.training.validation import VALIDATION_SPLIT

# What of a training decides its model, and so whether that can be built.
_OF_MODEL = (
    "data", "model", "init_from", "frozen", "model_options", "encoding", "encoding_options", "resolution", "packing",
    "task", "task_options", "loss", "label_smoothing", "batch_size", "precision",
)  # fmt: skip


@dataclass
class Cells:
    """The trainings of a sweep, on one device."""

    sweep: Sweep
    device: str
    where: torch.device
    _sources: run_config.TrainingSources = field(default_factory=run_config.TrainingSources)

    def check(self) -> None:
        """Refuse a sweep of which a cell would be refused; nothing is written.

        Raises:
            InputError: names the file, the cell, and what is wrong with it.
        """
        built: set[str] = set()
        cells = list(sample_cells(self.sweep.config))
        with Bars(late=0.5) as bars:
            for number, cell in enumerate(cells, start=1):
                file = self._named(cell)
                asked = self._config(cell, self._sources, file)
                guard.guard_folder(self.sweep.out, self._inputs(asked), "out", deletes=False)
                source = self._sources.open(asked)
                self._check_measured(asked, source, file)
                with named_after(file):
                    decided = resolve_config(asked, source, self.where)
                plain = dump_config(decided)
                said = json.dumps({name: plain[name] for name in _OF_MODEL})
                if said not in built:
                    built.add(said)
                    model = run_config.built_model(decided, source, file, self.where)
                    if (measured := self.sweep.evaluate) is not None:
                        with named_after(file):
                            check_sizes(model, measured)
                bars.move("checking cells", number, len(cells))

    def run(self, claim: Claim) -> CellResult:
        """Train and measure a cell in its folder, going on from its last checkpoint where it was begun before."""
        cell, file = claim.cell, self._named(claim.cell)
        folder = self.sweep.folder(cell)
        # Its own: what is left out of the data is counted in it.
        sources = run_config.TrainingSources()
        asked = self._config(cell, sources, file, folder)
        place = output.RunFolder(folder, self._inputs(asked), resume=True, overwrite=False)
        test = self.sweep.evaluate or False
        with Bars() as bars:
            done = carry_out(
                TrainRequest(asked, sources, place, self.where, self.device, file, resume=True, test=test),
                bars,
            )
        found = score_of(folder, self.sweep.wanted)
        scored = CellScore(cell.name, {"encoding": done.config.encoding, **cell.fields}, found.measured)
        return CellResult(scored.as_record(), found.measured.value, found.measured.better)

    def _inputs(self, asked: TrainConfig) -> guard.Inputs:
        return guard.Inputs(models=[asked.init_from], data=[asked.data], files=[self.sweep.file])

    def _named(self, cell: SweepCell) -> Path:
        """What a refusal begins with."""
        return Path(f"{self.sweep.file}, cell {cell.name}")

    def _config(
        self, cell: SweepCell, sources: run_config.TrainingSources, file: Path, folder: Path | None = None
    ) -> TrainConfig:
        with named_after(self.sweep.file):
            fields: dict[str, Any] = training_fields(self.sweep.config, cell)
        recipe = fields.pop("recipe", None)
        if recipe is not None and not isinstance(recipe, str):
            raise InputError(f"{self.sweep.file}: base.recipe {recipe!r}: expected the name of one")
        began = None if folder is None else lambda _: folder / CONFIG
        return run_config.config_of(fields, file, recipe, summarise=sources.summary, began=began)

    def _check_measured(self, asked: TrainConfig, source: Source, file: Path) -> None:
        """Refuse a cell that would be trained, and then could not be compared."""
        measured = self.sweep.config.evaluate
        if measured is not None:
            if measured.split not in source.splits:
                raise unknown_name_error(f"{file}: evaluate.split", measured.split, source.splits)
            return
        if asked.validation is None or VALIDATION_SPLIT not in source.splits:
            why = "validation is null" if asked.validation is None else f"{asked.data} has no split {VALIDATION_SPLIT}"
            raise InputError(f"{file}: {why}, so that no cell is measured (expected evaluate: {{split, resolutions}})")
