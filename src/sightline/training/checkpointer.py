"""What a training saves and restores, and which of its checkpoints stay.

RUN/checkpoints/step-00001500/        see `sightline.io.checkpoint`; never replaced
RUN/checkpoint, RUN/checkpoint.best   links to the last one and to the best by validation
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sightline.distributed import machine
from sightline.distributed.ranks import SINGLE_RANK
from sightline.errors import InputError
from sightline.hub.load import config_record, model_files, model_tensors
from sightline.io.atomic import remove_temporaries, storage_errors, write_file
from sightline.io.checkpoint import read_tensors, verify_checkpoint, write_checkpoint
from sightline.io.read import read_jsonl
from sightline.io.run_files import (
    BEST,
    CHECKPOINT,
    CHECKPOINTS,
    CHECKSUMS,
    LEFT_OUT,
    LOG,
    PICTURES,
    PREDICTIONS,
    RESULTS,
    RUN_FILES,
    TRAINING,
    VALIDATION,
    checkpoints,
    step_folder,
)
from sightline.io.run_lock import RunLock
from sightline.io.tensors import copy_to_host, full_tensor
from sightline.training.config import TrainConfig
from sightline.training.log import read_lines, text_of, unheard
from sightline.training.plan import DataState, StepSpec, completed_parts
from sightline.training.profiling import phase
from sightline.training.resume_checks import check_same_config, data_record, training_record
from sightline.training.state import RAW_WEIGHTS, TrainState, load_optimizer, optimizer_tensors
from sightline.training.validation import best_line


class Checkpointer(contextlib.AbstractContextManager["Checkpointer"]):
    """Saves a run: what it is at a step is copied to memory, and written by a thread while the next steps are taken.

    Each rank makes one, and calls `save`, but the first alone saves, unless ranks hold parts of the model (`saves`).
    What the thread fails by is raised where the run asks next. Left, it waits for the save under way, but for who
    interrupts.
    """

    def __init__(
        self, state: TrainState, out: Path, lock: RunLock | None, warn: Callable[[str], None] = unheard
    ) -> None:
        """For a run as it begins or goes on; what a killed one left in its folder is deleted.

        Args:
            lock: of the folder `out`, on the first rank.
            warn: called with a line where the best model is gone, and with what a save fails by where an exception ends
                the run before.
        """
        self._state, self._out, self._lock, self._warn = state, out, lock, warn
        self.saves = lock is not None or state.sharded
        self._thread, self._saved = threading.Thread(), Future[None]()
        self._saved.set_result(None)
        # Writing beside the steps, the ranks speak of it beside what they say of the steps.
        self._ranks = state.ranks.cpu_group() if state.sharded else SINGLE_RANK
        if lock is None:
            return
        # Files of these names that stood there before the run began were written by no run, and stay.
        self._foreign = set() if checkpoints(out) else {file for file in _measured(out) if file.exists()}
        # Once: the names of a million files take a second.
        self._data, self._listing = data_record(state.source, state.config)
        with storage_errors(f"{out}: what a killed run left in it cannot be deleted"):
            folder = out / CHECKPOINTS
            for entry in (*folder.glob(".*.tmp-*"), *folder.glob("step-*.old-*")):
                shutil.rmtree(entry)
            for name in RUN_FILES:
                remove_temporaries(out / name)
        best = self._best()
        if best is not None and not best.is_dir():
            warn(f"{out / BEST}: is gone, and cannot be made again of {best.name}; the next better one is kept")
        if _is_foreign(out / BEST):
            warn(f"{out / BEST}: is no checkpoint of this run, and stays; the best one by validation gets no link")
        self._link(step_folder(out, state.step), best)

    @phase("saving")
    def save(self, *, wait: bool = False) -> None:
        """Save the run as it is now, once the save before is done, and raise what that failed by.

        Args:
            wait: until this one is done too.

        Raises:
            StorageError: it cannot be written, or the folder was moved; the checkpoints before it are as they were.
        """
        if not self.saves:
            return
        if self._lock is not None:
            self._lock.check()
        # Before the copy: there is memory for one.
        self.wait()
        self._saved = Future()
        job = (self._saved, self._state.step, self._best(), self._files(), *self._tensors())
        # No executor's: Python waits for those when it ends, also where a second signal is to end it at once.
        self._thread = threading.Thread(target=self._work, args=job, name="saving", daemon=True)
        self._thread.start()
        if wait:
            self.wait()

    def _work(self, saved: Future[None], *job: Any) -> None:
        try:
            self._write(*job)
        except BaseException as error:
            saved.set_exception(error)
        else:
            saved.set_result(None)

    def check(self) -> None:
        """Raise what the last save failed by, if it has ended; nobody waits."""
        if self._saved.done():
            self._saved.result()

    def wait(self) -> None:
        """Wait for the save under way, and raise what it failed by."""
        # A `Thread.join` that KeyboardInterrupt ends takes the thread for one that has ended.
        self._saved.exception()
        if self._thread.ident is not None:
            # What is left of it is to free memory, which must not meet the end of the process.
            self._thread.join()
        self.check()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, KeyboardInterrupt):
            return
        try:
            self.wait()
        except Exception as fault:
            if error is None:
                raise
            if fault is not error:
                self._warn(str(fault))

    def _tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Copies of the model's weights, and of what the next step needs; no later step changes them."""
        state = self._state
        means = {} if state.ema is None else state.ema.mean
        tested, weights = model_tensors(state.model), {}
        for name, value in {**tested, **means}.items():
            # Tensor by tensor, so that no rank but the first ever holds the whole model.
            whole = full_tensor(value.detach())
            if self._ranks.is_main:
                weights[name] = copy_to_host(whole.float() if whole.is_floating_point() else whole)
        # The model's own file holds the mean, which is what is tested; the weights themselves stand beside the moments.
        training = optimizer_tensors(state.optimizer, state.model)
        training |= {f"{RAW_WEIGHTS}/{name}": tested[name] for name in means}
        return weights, {name: copy_to_host(value) for name, value in training.items()}

    def _files(self) -> dict[str, bytes]:
        state = self._state
        if self._lock is None:
            return {}
        record = {
            "config": dataclasses.asdict(state.config),
            "task": state.source.task,
            "step": state.step,
            "course": None if state.position is None else state.position.as_record(),
            "seconds": state.seconds,
            "validated": state.validated,
            "threads": torch.get_num_threads(),
            "ranks": state.ranks.size,
            "hardware": machine.hardware_name(state.model.anchor.device),
            "commit": machine.git_commit(),
            "parameters": sum(parameter.numel() for parameter in state.model.parameters()),
            "data": self._data,
        }
        found = {} if state.source.allowance is None else state.source.allowance.found
        left_out = [json.dumps([split, *image]) for split, images in found.items() for image in images.items()]
        logs = {LOG: text_of(state.log), VALIDATION: text_of(state.validation), **self._listing}
        files = model_files(config_record(state.model, record)) | logs
        return files | ({LEFT_OUT: text_of(left_out)} if left_out else {})

    def _best(self) -> Path | None:
        asked = self._state.config.validation
        best = best_line(self._state.validation, asked.best) if asked is not None else None
        return None if best is None else step_folder(self._out, best["step"])

    def _write(self, step: int, best: Path | None, files: Mapping[str, bytes], *tensors: Mapping[str, Tensor]) -> None:
        if self._lock is not None:
            self._lock.check()
            # What was measured of weights that are about to be replaced.
            for file in _measured(self._out) - self._foreign:
                with storage_errors(f"{file}: cannot be deleted"):
                    file.unlink(missing_ok=True)
        place = step_folder(self._out, step)
        write_checkpoint(place, files, *tensors, ranks=self._ranks)
        if self._lock is not None:
            self._lock.check()
            # One more than the last, so that a damaged one is no loss.
            self._keep(place, best, least=2)
            for name in (VALIDATION, LOG):
                if files[name]:
                    write_file(self._out / name, files[name])
        # For all it is done when the first has done it.
        self._ranks.broadcast(None)

    def _keep(self, last: Path, best: Path | None, least: int) -> None:
        self._link(last, best)
        every = checkpoints(self._out)
        # Beyond the last one are damaged ones, which the run did not go on from.
        older = every[every.index(last) :]
        for place in {*every} - {*older[: max(self._state.config.keep_last, least)], best}:
            shutil.rmtree(place, ignore_errors=True)

    def _link(self, last: Path, best: Path | None) -> None:
        for name, place in ((CHECKPOINT, last), (BEST, best)):
            if place is not None and place.is_dir():
                _point(self._out / name, place)

    def finish(self) -> None:
        """Delete the spare of a run that is complete."""
        if self._lock is not None:
            self._keep(step_folder(self._out, self._state.step), self._best(), least=1)


def _measured(out: Path) -> set[Path]:
    """The files of what was measured of a run."""
    return {out / RESULTS, out / PREDICTIONS, *(out / PICTURES).glob("*.png")}


def _is_foreign(link: Path) -> bool:
    return os.path.lexists(link) and not link.is_symlink() and not (link / CHECKSUMS).exists()


def _point(link: Path, place: Path) -> None:
    """Point a relative link to a folder, at once; where links cannot be made there is none, and nothing needs it."""
    temporary = link.with_name(f".{link.name}.tmp")
    if _is_foreign(link):
        return
    with contextlib.suppress(OSError):
        if link.is_dir() and not link.is_symlink():
            # What copying the folder of the run made of the link.
            shutil.rmtree(link)
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(os.path.relpath(place, link.parent), target_is_directory=True)
        os.replace(temporary, link)
    temporary.unlink(missing_ok=True)


def restore_state(state: TrainState, path: Path, warn: Callable[[str], None]) -> None:
    """Go on from a checkpoint that `last_whole` found; what was left out of the data counts on.

    Args:
        warn: called with a line where it was trained with another number of threads or of ranks, which sum in another
            order.

    Raises:
        InputError: it is of another configuration, or its tensors do not fit the model.
    """
    training = training_record(path)
    check_same_config(training["config"], state.config, path)
    for name, now in (("threads", torch.get_num_threads()), ("ranks", state.ranks.size)):
        if training[name] != now:
            warn(f"{path} was trained with {training[name]} {name}, this is {now}: not the same to the bit")
    tested = model_tensors(state.model)
    read_tensors(path, tested)
    if state.ema is not None:
        for name, mean in state.ema.mean.items():
            mean.copy_(tested[name])
        read_tensors(path / TRAINING, {f"{RAW_WEIGHTS}/{name}": tested[name] for name in state.ema.mean})
    load_optimizer(state.optimizer, state.model, path / TRAINING)
    state.step, state.seconds, state.validated = (training[name] for name in ("step", "seconds", "validated"))
    state.log, state.validation = read_lines(path / LOG), read_lines(path / VALIDATION)
    state.position = None if training["course"] is None else DataState.of(training["course"])
    if state.source.allowance is not None:
        found: dict[str, dict[str, Any]] = {}
        left_out = path / LEFT_OUT
        for _, (split, image, reason) in read_jsonl(left_out, "an image") if left_out.exists() else ():
            found.setdefault(split, {})[image] = reason
        state.source.allowance.restore(found)


def checkpoint_due(step: StepSpec, config: TrainConfig) -> bool:
    """Whether a checkpoint is written after a step: each `checkpoint_every` images, or so many times in a run."""
    every = config.checkpoint_every
    if every is None:
        return completed_parts(config.checkpoints, step.ends) != completed_parts(config.checkpoints, step.begins)
    return step.after.images // every != step.before.images // every


def has_checkpoint(out: Path) -> bool:
    """Whether there is a checkpoint to go on from, or one that was."""
    return bool(checkpoints(out)) or os.path.lexists(out / CHECKPOINT)


def checkpoint_to_resume(out: Path, resume: bool, warn: Callable[[str], None]) -> Path | None:
    """The checkpoint that a run in a folder goes on from, as `last_whole`; an InputError where it is not to go on, and
    there is one."""
    if resume:
        return last_whole(out, warn)
    if has_checkpoint(out):
        raise InputError(f"{out}: holds a run already; resume=True continues it, another folder begins one")
    return None


def last_whole(out: Path, warn: Callable[[str], None] = unheard) -> Path | None:
    """The newest whole checkpoint of a run that is to go on; None of a new run.

    Args:
        warn: called with a line where that is not the last one, which says what is wrong with those after it.

    Raises:
        InputError: all are damaged, or gone while what a run writes after its first checkpoint is there.
    """
    faults = []
    for place in checkpoints(out):
        try:
            verify_checkpoint(place)
        except InputError as error:
            faults.append(str(error))
            continue
        if faults:
            warn(f"{'; and '.join(faults)}; going on from {place}")
        return place
    if faults:
        raise InputError("; and ".join(faults))
    for kept in (CHECKPOINT, BEST, LOG):
        place = out / kept
        # A log of nothing is that of a run which was killed before its first checkpoint.
        if place.is_symlink() or (place / CHECKSUMS).exists() or (place.is_file() and place.stat().st_size):
            raise InputError(
                f"--resume: {out} holds {kept} of a run whose {CHECKPOINTS} are gone (put them back; --overwrite "
                "begins anew)"
            )
    return None
