"""kill -9 at moments that a seed draws, again and again: each sitting goes on by the same command, and the run ends
with the log and the weights of one that was never disturbed; no process is left."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import sys
import time
from typing import Any

import pytest
import yaml

from sightline.data.open import open_source
from sightline.data.rng import generator
from sightline.hub.load import load_model, read_config_record
from sightline.results.rows import read_rows
from sightline.training.checkpointer import last_whole
from tests.batches import uniform_batches
from tests.processes import group, wait_for
from tests.tiny import MODEL, TRAINING, digest, fork_server, log_lines, pictures, tree, weights

SEED = 5
# Of each combination: 12 in all.
KILLS = 6
# All that a step's state may hang on, over three passes; a checkpoint each second step or so.
COMMON = {
    "model": "vit_micro_patch4",
    "model_options": {**MODEL, "depth": 2, "drop_path": 0.3},
    "encoding": "rope_mixed+learned_1d",
    "resolution": 16,
    "images": 160,
    "batch_size": 4,
    "checkpoint_every": 8,
    "loss": "ce",
    "precision": "float32",
    "optimizer": {"lr": 0.01, "ema": 0.7},
    "augment": {"colour_jitter": {}},
    "validation": {"times": 3, "images": 8},
}
PACKING = {"tokens": 64, "resolutions": [8, 24], "drop": "beta", "drop_options": {"mean": 0.4}}


def command(words: list[str], said: str) -> None:
    """`sightline` with these words in a group of its own, as a shell starts it, what it says in a file."""
    os.setsid()
    # This one is of a fork server, which saves two seconds; its workers begin as those of a command do.
    multiprocessing.set_start_method("fork", force=True)
    from sightline.cli.app import main

    with (
        open(said, "a", encoding="utf-8") as stream,
        contextlib.redirect_stdout(stream),
        contextlib.redirect_stderr(stream),
    ):
        code = main(words)
    sys.exit(code)


def begin(words: list[str], out, said) -> Any:
    """The process of a sitting, once the folder is its own."""
    child = fork_server().Process(target=command, args=(words, str(said)))
    child.start()

    def owns() -> bool:
        with contextlib.suppress(OSError, ValueError):
            return json.loads((out / ".lock").read_text())["process"] == child.pid
        return False

    wait_for(lambda: owns() or not child.is_alive(), 600, 0.002)
    return child


def survives(out) -> int:
    """How many steps the last checkpoint holds; it is whole, none was passed over for it, and the log has each step
    once."""
    warned: list[str] = []
    found = last_whole(out, warned.append)
    assert warned == []
    if found is None:
        return 0
    load_model(out)
    if (out / "log.jsonl").exists():
        steps = [json.loads(line)["step"] for line in log_lines(out)]
        assert steps == list(range(1, len(steps) + 1))
    return read_config_record(found)["training"]["step"]


def three_splits(folder) -> str:
    """train of 54 images, minival of 42 and test of 12."""
    data = pictures(folder, count=27)
    for name in ("a", "b"):
        (folder / "minival" / name).mkdir(parents=True)
        for number in range(6, 27):
            (folder / "test" / name / f"{number}.png").rename(folder / "minival" / name / f"{number}.png")
    return data


def left_by(out):
    """What tells how a run ended: weights, the state of its training, log, curve, rows and names of files."""
    rows = [(row.split, row.metric, row.value, row.images) for row in read_rows(out / "results.jsonl")]
    state = digest(out / "checkpoint" / TRAINING)
    return weights(out), state, log_lines(out), (out / "validation.jsonl").read_text(), rows, list(tree(out))


def ended(child: Any) -> bool:
    """Kill a sitting where it is still at work; whether it died of that. No process of it is left then."""
    child.kill()
    child.join(60)
    try:
        wait_for(lambda: not group(child.pid), 120)
    finally:
        for one in group(child.pid):
            os.kill(one, signal.SIGKILL)
    return child.exitcode == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.parametrize(("packed", "workers"), [(False, 2), (True, 0)], ids=["uniform", "packed"])
def test_killed_at_six_moments_and_gone_on_with(packed, workers, tmp_path):
    """A moment is drawn over the time that an undisturbed run takes from the claim of its folder to its end, tests
    and all; where a sitting ends before its moment, the run is compared and another begins."""
    data, said = three_splits(tmp_path / "data"), tmp_path / "said.txt"
    config = {**COMMON, "data": data, "workers": workers, "packing": PACKING if packed else None}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config))

    def sitting(out):
        words = ["train", "--config", tmp_path / "run.yaml", "--out", out, "--resume", "--threads", 1]
        return begin([str(word) for word in words], out, said)

    child, began = sitting(tmp_path / "whole"), time.monotonic()
    child.join(600)
    seconds = time.monotonic() - began
    assert child.exitcode == 0, said.read_text()
    undisturbed = left_by(tmp_path / "whole")
    draws = generator("tests/kills/1", SEED, workers, epoch=packed)
    saving, after, runs, out = 0, [], 0, tmp_path / "run0"
    while len(after) < KILLS or (out / ".lock").exists():
        child = sitting(out)
        child.join(draws.uniform(0, seconds) if len(after) < KILLS else 600)
        if ended(child):
            saving += any(out.glob("checkpoints/.*"))
            after.append(survives(out))
            continue
        assert child.exitcode == 0, said.read_text()
        assert left_by(out) == undisturbed
        runs += 1
        out = tmp_path / f"run{runs}"
    print(f"{len(after)} kills of {runs} runs of {seconds:.2f} s, {saving} in mid-save, after steps {after}")
    assert runs >= 1
    assert "Traceback" not in said.read_text()


def loading(data: str, method: str, begun: str) -> None:
    """Take batches by two workers, which begin in this way, and never end."""
    os.setsid()
    multiprocessing.set_start_method(method, force=True)
    source = open_source(data)
    for batch in uniform_batches(source, "train", indices=[0, 1] * 10**6, image_size=(8, 8), batch_size=2, workers=2):
        assert len(batch) == 2
        if not os.path.exists(begun):
            with open(begun, "w", encoding="utf-8") as stream:
                stream.write("x")
            time.sleep(600)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_no_worker_outlives_what_is_killed(method, tmp_path):
    """Also where it is the child of a fork server, as by default from Python 3.14 on: that lives as long as it does."""
    given = loading, (pictures(tmp_path / "data"), method, str(tmp_path / "begun"))
    child = fork_server().Process(target=given[0], args=given[1])
    child.start()
    wait_for((tmp_path / "begun").exists, 240)
    assert len(group(child.pid)) >= 3
    assert ended(child)
