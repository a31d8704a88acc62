"""A trained run, or a model alone, and all that can be asked of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from sightline.convert import import_weights
from sightline.convert.foreign_folder import is_foreign_folder
from sightline.convert.timm import Timm
from sightline.convert.weights import read_weights
from sightline.data.image_file import MAX_PIXELS
from sightline.distributed import machine
from sightline.distributed.machine import preserve_rng_state
from sightline.distributed.ranks import SINGLE_RANK, Ranks
from sightline.errors import InputError
from sightline.evaluation.parts import weights_digest
from sightline.hub.load import load_model, resolve_source
from sightline.io.config import Count, check_value
from sightline.io.run_files import PAGE
from sightline.models import Model
from sightline.models.patch_size import set_patch_size
from sightline.runs.options import AnalyseOptions, CascadeOptions, EvaluateOptions, OpenOptions, PredictOptions, changed
from sightline.runs.outputs import Inputs, home_of
from sightline.runs.progress import Progress
from sightline.training.run import OpenedRun, open_run

if TYPE_CHECKING:
    from sightline.runs.analyse import Inside
    from sightline.runs.cascade import Cascade
    from sightline.runs.evaluate import Evaluation
    from sightline.runs.report import WrittenReport

# With which weights that nobody trained are drawn: the same each time, so that what was stopped goes on.
_SEED = 0


@dataclass
class Run(OpenedRun):
    """A trained run, a model's folder, `hf-hub:OWNER/NAME` or `timm:NAME`, with the data that it is measured on.

    >>> run = sightline.Run.open("runs/digits")
    >>> run.evaluate(resolutions=[20, 32, 64]).frame()
    """

    opening: OpenOptions = field(default_factory=OpenOptions)
    ranks: Ranks = SINGLE_RANK
    asked_data: str | None = None

    @classmethod
    def open(
        cls,
        path: str | Path,
        data: str | None = None,
        *,
        device: str = "auto",
        options: OpenOptions | None = None,
        ranks: Ranks = SINGLE_RANK,
        **changes: Any,
    ) -> Run:
        """Open a model for measuring; what is left out is as it was in its training.

        Args:
            path: what `load_model` takes, or the folder of a run.
            data: the data set that is measured.
            device: `auto`, `cpu`, `cuda`, `cuda:1` or `mps`.
            options: the rest, changed by keywords: `patch_size`, `weights`, `max_pixels`, ...
            ranks: the processes that measure together.

        Raises:
            InputError: there is no such model, or an option does not fit it.
        """
        opening = changed(options or OpenOptions(), changes)
        where = machine.resolve_device(device if ranks.size == 1 else str(ranks.device))
        name = str(path)
        kind, _, rest = name.partition(":")
        is_timm = kind == "timm" and bool(rest)
        if not is_timm:
            refuse_timm_options(opening, name)
        folder = Path() if is_timm else resolve_source(name)
        is_open_clip = kind == "open_clip" and bool(rest)
        if is_timm or is_open_clip or is_foreign_folder(folder):
            model = timm_model(rest, opening) if is_timm else load_model(name)
            named = name if kind == "hf-hub" or is_timm or is_open_clip else folder.resolve().name
            if is_timm and (opening.weights is not None or opening.no_pretrained):
                named += ", random weights" if opening.weights is None else f", {opening.weights.name}"
            skip, pixels = opening.skip_unreadable or 0, opening.max_pixels or MAX_PIXELS
            run = cls(Path(path), {}, {}, "", model.to(where), data or "", skip, pixels, named=named)
        else:
            opened = open_run(
                path, data, device=where, skip_unreadable=opening.skip_unreadable, max_pixels=opening.max_pixels
            )
            run = cls(**vars(opened))
            if kind == "hf-hub":
                run.named = name
        run.opening, run.ranks, run.asked_data = opening, ranks, data
        side = opening.patch_size
        if side is not None and run.model.patch_embed.patch_size != (side, side):
            try:
                set_patch_size(run.model, side)
            except InputError as error:
                raise InputError(f"{name}: {error}") from None
            run.patch_size = side
        return run

    @property
    def inputs(self) -> Inputs:
        """All that it reads, which nothing that is written may replace."""
        return Inputs(models=[self.path], data=[self.data] if self.data else [], files=[self.opening.weights])

    @property
    def weights(self) -> str:
        """Tells its checkpoint, or the weights of what no checkpoint holds, from every other."""
        written = hashlib.sha256(self.written.encode()).hexdigest()[:12]
        return written if self.written else weights_digest(self.model)

    @property
    def is_timm(self) -> bool:
        """Whether timm builds it by a name: there is no folder that could keep anything."""
        return str(self.path).startswith("timm:")

    def evaluate(
        self, options: EvaluateOptions | None = None, *, progress: Progress | None = None, **changes: Any
    ) -> Evaluation:
        """Measure the model, as `sightline evaluate` does, and write the rows into the folder of the run, or to `out`.

        Args:
            options: changed by keywords: `resolutions=[20, 32, "native"]`, `suite=["imagenet:/data"]`, `tune=True`, ...
            progress: told how far it is.

        Raises:
            InputError: something does not fit; no image was read.
        """
        from sightline.runs.evaluate import evaluate

        return evaluate(self, changed(options or EvaluateOptions(), changes), progress or Progress())

    def predict(
        self, images: Iterable[str | Path] | str | Path, options: PredictOptions | None = None, **changes: Any
    ) -> Iterator[dict[str, Any]]:
        """Say what is in images of any size and shape: for each, in order, what `sightline predict --json` prints.

        Args:
            images: files, folders, patterns and data sets of files.
            options: changed by keywords: `resolution="max:4096"`, `topk=1`, `out="pictures"` for what the task draws,
                `predictions="answers.jsonl"` for a file, with which a call that was stopped goes on, ...
        """
        from sightline.runs.predict import answers

        return answers(self, images, changed(options or PredictOptions(), changes), Progress())

    def analyse(
        self,
        *others: Run,
        options: AnalyseOptions | None = None,
        progress: Progress | None = None,
        **changes: Any,
    ) -> Inside:
        """Look inside the model, and others beside it, on the data that this one was opened with.

        Args:
            options: changed by keywords, the fields of `AnalyseOptions`: `measures=["entropy"]`,
                `resolutions=[32, "96x192"]`, `images=8`, `out="analysis"`, `data`, `split`, `options` of measures,
                `workers`, `overwrite=True`.
            progress: told how far it is.
        """
        from sightline.runs.analyse import analyse

        asked = changed(options or AnalyseOptions(), changes)
        return analyse([self, *others], asked, progress or Progress())

    def cascade(
        self, options: CascadeOptions | None = None, *, progress: Progress | None = None, **changes: Any
    ) -> Cascade:
        """Measure accuracy against tokens and time, of budgets alone and of a cascade of two.

        Args:
            options: changed by keywords: `tokens=[16, 36, 64]`, `out="cascade"`, ...
        """
        from sightline.runs.cascade import cascade

        return cascade(self, changed(options or CascadeOptions(), changes), progress or Progress())

    def report(self, *others: Run | str | Path, out: str | Path | None = None, **options: Any) -> WrittenReport:
        """Write the page of this run, beside others; `report.html` in its folder unless `out` is given.

        Args:
            others: or folders, as of `evaluate(out=...)`; of such folders alone `runs.report.report` writes a page.
            options: as `runs.report.report`: `data`, `papers`, `title`, `overwrite`.
        """
        from sightline.runs.report import report

        out = home_of(self.path) / PAGE if out is None else out
        return report([self.path, *(one.path if isinstance(one, Run) else one for one in others)], out, **options)


def refuse_timm_options(opening: OpenOptions, names: str) -> None:
    """Refuse what goes with `timm:NAME` alone."""
    for option, given in (
        ("--no-pretrained", opening.no_pretrained),
        ("--num-classes", opening.num_classes is not None),
        ("--weights", opening.weights is not None),
    ):
        if given:
            raise InputError(f"{option}: goes with timm:NAME alone (got {names})")


def timm_model(name: str, opening: OpenOptions) -> Model:
    """What timm builds by a name, in evaluation mode; random weights are the same each time."""
    if opening.num_classes is not None:
        check_value("--num-classes", opening.num_classes, Count)
    if opening.weights is None:
        with preserve_rng_state():
            torch.manual_seed(_SEED)
            pretrained = not opening.no_pretrained
            return load_model(f"timm:{name}", pretrained=pretrained, num_classes=opening.num_classes).eval()
    if opening.no_pretrained:
        raise InputError("--no-pretrained and --weights: expected one of them")
    state, _ = read_weights(opening.weights)
    classes = opening.num_classes
    if classes is None and (head := state.get("head.weight", state.get("head.fc.weight"))) is not None:
        classes = len(head)
    given: dict[str, Any] = {"model": name} if classes is None else {"model": name, "num_classes": classes}
    return import_weights(Timm.name, state, given).eval()


def set_unique_names(runs: Iterable[Run]) -> None:
    """Give runs that are called alike the names by which they were opened."""
    runs = list(runs)
    names = [run.identity.run for run in runs]
    for run, name in zip(runs, names, strict=True):
        if names.count(name) > 1:
            run.named = str(run.path)
