"""What a run says of itself in a line where it cannot do all that is expected of it."""

from __future__ import annotations

import dataclasses
import json
import shutil

from sightline.evaluation import EvaluateConfig
from sightline.training import jobs
from sightline.training.config import ValidationConfig
from tests.tiny import MODEL, log_lines, pictures, tiny_config, train

VALIDATED = tiny_config(images=320, batch_size=32, checkpoint_every=32, validation=ValidationConfig(images=20))


def folder_config(data, **changes):
    return tiny_config(data=data, images=16, batch_size=4, model_options=MODEL, **changes)


def test_data_without_a_split_for_it_is_said_not_to_be_validated(tmp_path):
    data, warned = pictures(tmp_path / "data"), []
    train(folder_config(data, validation=ValidationConfig()), tmp_path / "a", warn=warned.append)
    (line,) = warned
    assert f"--data {data},minival=" in line
    train(folder_config(data, validation=None), tmp_path / "b", warn=warned.append)
    assert warned == [line]


def test_a_best_checkpoint_that_was_deleted_is_made_again_or_said_to_be_lost(tmp_path):
    out, warned = tmp_path / "a", []
    train(VALIDATED, out)
    lines = (out / "validation.jsonl").read_text().splitlines()
    best = max(map(json.loads, lines), key=lambda line: line["top1"])["step"]
    shutil.rmtree((out / "checkpoint.best").resolve())
    train(VALIDATED, out, resume=True, warn=warned.append)
    last = len(log_lines(out))
    assert (out / "checkpoint.best").exists() == (best == last)
    assert [f"checkpoint.best: is gone, and cannot be made again of step-{best:08}" in line for line in warned] == (
        [] if best == last else [True]
    )


def test_the_bar_says_that_nothing_of_a_step_could_be_read(cli, tmp_path):
    data, seen = pictures(tmp_path / "data"), []
    for file in (tmp_path / "data" / "train" / "a").iterdir():
        file.write_bytes(file.read_bytes()[:-40])
    train(folder_config(data, skip_unreadable="all", max_pixels=999) , tmp_path / "a",
          observe=lambda at: seen.append(at.loss))  # fmt: skip
    assert len([loss for loss in seen if loss is not None]) == len(log_lines(tmp_path / "a"))
    one = folder_config(data, skip_unreadable="all")
    seen.clear()
    train(dataclasses.replace(one, batch_size=1), tmp_path / "b", observe=lambda at: seen.append(at.loss))
    assert None in seen
    assert not any(loss != loss for loss in seen)


def test_a_job_tests_within_the_limits_that_it_trained_in(tmp_path):
    data = pictures(tmp_path / "data")
    for split in ("train", "test"):
        (tmp_path / "data" / split / "a" / "damaged.png").write_bytes(b"\x89PNG")
    config = folder_config(data, skip_unreadable=1, max_pixels=40 * 40)
    job = jobs.Job("a", config, EvaluateConfig((16,)), tmp_path / "a", threads=1)
    jobs.run_job(job, lambda at: None)
    assert (tmp_path / "a" / "results.jsonl").exists()
