"""A run, or a model alone, opened once to be measured or shown: what its folder says, its model and its data."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from sightline.data.config import SkipUnreadable
from sightline.data.image_file import MAX_PIXELS
from sightline.data.open import open_source, parse_spec
from sightline.data.source import Source
from sightline.distributed import machine, signals
from sightline.distributed.machine import preserve_rng_state
from sightline.distributed.ranks import SINGLE_RANK, Ranks
from sightline.errors import InputError
from sightline.evaluation.drawn import write_pictures
from sightline.evaluation.logits import StoredLogits
from sightline.evaluation.measure import EvaluateConfig, RunInfo, count_images, default_image_count, evaluate
from sightline.evaluation.predict import training_views
from sightline.hub.load import checksum, load_model, read_config_record
from sightline.io.atomic import delete
from sightline.io.config import Count, check_value, dump_config
from sightline.io.run_files import BEST, PREDICTIONS, RESULTS, last_checkpoint, run_of_checkpoint
from sightline.io.run_lock import RunLock
from sightline.models import Model
from sightline.results.predictions import Prediction, update_predictions
from sightline.results.rows import ResultRow, merge_rows, update_rows
from sightline.training.checkpointer import checkpoint_to_resume, has_checkpoint
from sightline.training.clips import clip_view
from sightline.training.config import TrainConfig
from sightline.training.log import unheard
from sightline.training.loop import TrainProgress, train_loop
from sightline.training.plan import as_trained_on
from sightline.training.resume_checks import save_config, training_record
from sightline.training.setup import TrainSetup, open_training_data, set_up, tested_splits
from sightline.training.tracking import check_trackers, tracking


@dataclass
class OpenedRun:
    """What was trained, and the data that it is measured on.

    Attributes:
        path: as it was named.
        training: the record of its training, {} of a model alone; config: the configuration in it, with the names of
            today.
        written: tells its weights from those that replace them.
        data: the data set that is measured; "" where nothing names one.
        skip_unreadable: images of a split of it that may be left out; max_pixels: of the largest that is read.
        opened: the data set, once it was opened.
        named: what its rows call it; its folder's name unless given.
        patch_size: of its model as it is measured, where that is not its own.
    """

    path: Path
    training: dict[str, Any]
    config: dict[str, Any]
    written: str
    model: Model
    data: str
    skip_unreadable: SkipUnreadable
    max_pixels: int
    opened: Source | None = None
    named: str | None = None
    patch_size: int | None = None

    @property
    def source(self) -> Source:
        """The data set, of which nothing but the names of its files is read when it is opened; of clips as many frames
        are shown as in training.

        Raises:
            InputError: it is not known, cannot be opened, or is of clips, and the model takes images.
        """
        if not self.data:
            raise InputError(f"{self.path}: does not say what it was trained on; give the data (--data)")
        if self.opened is None:
            source, config = self._open_data().with_view(max_pixels=self.max_pixels), self.config
            frames, packed = config.get("frames") if source.is_video else None, config.get("packing") is not None
            self.opened = clip_view(
                self.model.config, source, self.data, frames=frames, stride=config.get("frame_stride"), packed=packed
            )
        return self.opened

    def _open_data(self) -> Source:
        try:
            return open_source(self.data)
        except InputError as error:
            # What a relative path of the training is, depends on where this was started.
            kind, argument, _ = parse_spec(self.data)
            folder = Path(argument.partition(",")[0])
            if self.data != self.config.get("data") or kind == "hf" or folder.is_absolute() or folder.exists():
                raise
            said = f"{self.path}: was trained on {self.data}, and {Path.cwd()} has no {folder}"
            expected = f"start where it was trained, or give the data: --data {kind}:DIR"
            raise InputError(f"{said} ({expected})", field="data", value=self.data) from error

    @property
    def side(self) -> int:
        """Of the training images in pixels."""
        side = self.config.get("resolution") or self.model.config.image_size
        return side if isinstance(side, int) else min(side)

    @property
    def identity(self) -> RunInfo:
        """What its rows say of it: its name is that of its folder."""
        run, place = run_of_checkpoint(self.path), self.path.resolve()
        if self.path.name == BEST:
            name = BEST
        elif run is not None and place == last_checkpoint(run).resolve():
            name = run.resolve().name
        else:
            name = place.name
        return RunInfo(self.named or name, self.data, self.side, self.config.get("seed", 0), self.patch_size)


def open_run(
    path: str | Path,
    data: str | None = None,
    *,
    device: str | torch.device = "cpu",
    skip_unreadable: SkipUnreadable | None = None,
    max_pixels: int | None = None,
    source: Source | None = None,
) -> OpenedRun:
    """Open what `load_model` takes; what is None is as it was in its training.

    Args:
        data: the data set to measure.
        source: it, where it is open already.

    Raises:
        InputError: there is no such model.
    """
    path, written = Path(path), checksum(path)
    training = read_config_record(path)["training"]
    config = training.get("config", {})
    named = config.get("data")
    data = data or (named if isinstance(named, str) else "")
    skip = config.get("skip_unreadable", 0) if skip_unreadable is None else skip_unreadable
    pixels = config.get("max_pixels", MAX_PIXELS) if max_pixels is None else max_pixels
    check_value("--max-pixels", pixels, Count)
    return OpenedRun(path, training, config, written, load_model(path).to(device), data, skip, pixels, source)


@dataclass(frozen=True)
class TrainResult:
    """What came of a training.

    Attributes:
        folder: of the run; config: resolved.
        model: in evaluation mode: the mean of the weights where there is one.
        last: where the training ended, None where it was complete before.
        rows: what was measured, none where it was not tested; measured: how, None where it was not.
    """

    folder: Path
    config: TrainConfig
    model: Model
    last: TrainProgress | None
    rows: list[ResultRow] = field(default_factory=list)
    measured: EvaluateConfig | None = None


def train(
    config: TrainConfig,
    out: str | Path,
    *,
    source: Source | None = None,
    setup: TrainSetup | None = None,
    test: EvaluateConfig | bool = True,
    device: str = "auto",
    resume: bool = False,
    accept_changed_data: bool = False,
    trackers: Sequence[str] = (),
    profile: bool = False,
    observe: Callable[[TrainProgress], None] = lambda at: None,
    on_tested: Callable[[int, int], None] = lambda done, total: None,
    stop: Callable[[], bool] = lambda: False,
    warn: Callable[[str], None] = unheard,
    lock: Callable[[], contextlib.AbstractContextManager[RunLock]] | None = None,
    ranks: Ranks = SINGLE_RANK,
) -> TrainResult:
    """Train a model, test it, and leave all in a folder, as `sightline train` does: checkpoints, `config.yaml`,
    `log.jsonl`, `validation.jsonl`, `results.jsonl` and `predictions.csv`.

    Ctrl-C and SIGTERM let the step end, and save the run.

    Args:
        config: of the run; what it leaves open is decided by the data and the model.
        out: the folder of the run; `resume` continues from its last checkpoint, if it has one.
        source: the data set, where the caller has it open; setup: the run, where the caller has set it up.
        test: how it is tested; True at the size of training on the test split, False not at all.
        device: `auto`, `cpu`, `cuda`, `cuda:1` or `mps`.
        accept_changed_data: resume also where the data is not what it was.
        trackers: names of programs that draw its curves; profile: leave in `profile` where the time of ten steps goes.
        observe: called after each step (on a GPU one step late), on the first rank.
        on_tested: called with how many images of how many are tested.
        stop: asked after each step; where it says so, the run is saved and ends.
        warn: called with lines for the user.
        lock: gives the context manager that holds the folder, in place of `RunLock(out)`.
        ranks: that train it together, each of which calls this; the first alone tests.

    Raises:
        InputError: the configuration, or what is in `out`, is wrong, or another run is at work there.
        SightlineError: as `train_loop`.
        KeyboardInterrupt: a signal came in the last step; the run is complete, and not tested.
    """
    where, out = machine.resolve_device(device if ranks.size == 1 else str(ranks.device)), Path(out)
    warn = warn if ranks.is_main else unheard
    with preserve_rng_state(), contextlib.ExitStack() as stack:
        check_trackers(trackers)
        held = stack.enter_context(RunLock(out, warn) if lock is None else lock()) if ranks.is_main else None
        if setup is None:
            last = checkpoint_to_resume(out, resume, warn)
            source = _training_data(config, source)
            setup = set_up(
                config, source, device=where, last=last, test=test, accept_changed_data=accept_changed_data,
                processes=ranks.size, warn=warn,
            )  # fmt: skip
        config, last = setup.config, None
        if held is not None:
            stack.enter_context(_clean_if_refused(out))
            save_config(config, out)
        saved = 0 if setup.last is None else training_record(setup.last)["step"]
        named = trackers if ranks.is_main else ()
        track = stack.enter_context(tracking(named, out, dump_config(config), saved, warn))

        def show(at: TrainProgress) -> None:
            nonlocal last
            last = at
            track(at)
            observe(at)

        # Told in the last step, it is not tested: what was trained is whole.
        with signals.defer_interrupts() as told:
            model = train_loop(
                setup, out, device=where, lock=held, ranks=ranks, stop=lambda: stop() or told.is_set(), observe=show,
                warn=warn, profile=profile,
            )  # fmt: skip
        trained = TrainResult(out, config, model, last)
        return trained if held is None else _test(trained, setup.source, test, where, held, on_tested)


def _training_data(config: TrainConfig, source: Source | None) -> Source:
    if not isinstance(config, TrainConfig):
        said = f"config is a {type(config).__name__} (expected a TrainConfig: sightline.training.TrainConfig(**...))"
        raise InputError(said, field="config", value=config)
    return open_training_data(config) if source is None else as_trained_on(source, config)


@contextlib.contextmanager
def _clean_if_refused(folder: Path) -> Iterator[None]:
    """A run that is refused before it has a checkpoint, as by a plug-in in its first step, leaves nothing new."""
    before = set(folder.iterdir())
    try:
        yield
    except InputError:
        if not has_checkpoint(folder):
            for entry in set(folder.iterdir()) - before:
                delete(entry)
        raise


def _test(
    trained: TrainResult,
    source: Source,
    test: EvaluateConfig | bool,
    device: torch.device,
    lock: RunLock,
    on_tested: Callable[[int, int], None],
) -> TrainResult:
    """Measure a run as it was saved, where that is wanted, and write what was measured."""
    lock.check()
    splits, out = tested_splits(test, source), trained.folder
    if not splits:
        return trained
    run = open_run(out, device=device, source=source)
    measured = _as_trained(trained.config, run, splits[0]) if isinstance(test, bool) else test
    rows, answers, pictures = measure_runs([(run, measured)], on_tested)
    lock.check()
    # What was measured before is of other weights, unless the run was complete already.
    anew = trained.last is not None
    update_predictions(out / PREDICTIONS, answers, anew=anew)
    update_rows(out / RESULTS, rows, anew=anew)
    write_pictures(rows, pictures, out)
    return replace(trained, model=run.model, rows=rows, measured=measured)


def measure_runs(
    wanted: Sequence[tuple[OpenedRun, EvaluateConfig]],
    on_tested: Callable[[int, int], None],
    keep: Callable[[str, StoredLogits], None] | None = None,
) -> tuple[list[ResultRow], list[Prediction], dict[str, Any]]:
    """Measure runs, one way after the other: their rows, what the first way said of each image, and pictures by the
    names that rows have for them.

    Args:
        on_tested: called with how many images of how many are tested.
        keep: as `evaluate`.
    """
    done, total = 0, sum(count_images(run.source, run.model, config, run.side) for run, config in wanted)

    def advance(count: int) -> None:
        nonlocal done
        done += count
        on_tested(done, total)

    rows: list[ResultRow] = []
    answers: list[Prediction] = []
    pictures: dict[str, Any] = {}
    for number, (run, config) in enumerate(wanted):
        said = None if number else answers
        fresh = evaluate(
            run.model, run.source, config, run.identity, advance=advance, answers=said, pictures=pictures, keep=keep
        )
        rows = merge_rows(rows, fresh)
    return rows, answers, pictures


def _as_trained(config: TrainConfig, run: OpenedRun, split: str) -> EvaluateConfig:
    """A test at the size of the training; of a packed run at native aspect on images at their own aspect too."""
    assert config.resolution is not None
    source, patch = run.source, run.model.config.patch_size
    own = training_views(config.packing, config.resolution, patch, source, split)
    return EvaluateConfig((config.resolution, *own[:1]), (split,), images=default_image_count(source))
