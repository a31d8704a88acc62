"""A run's folder and other commands: a live run is neither joined nor deleted, and rows of two evaluations all stay."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import time

import pytest

from sightline.io.run_lock import LOCK, RunLock
from sightline.results.rows import read_rows, update_rows
from sightline.training import checkpointer, jobs
from tests.tiny import MODEL, tiny_config, tree

OPTIONS = [f"--model_options.{key}={value}" for key, value in MODEL.items()]
TINY = ["--data", "digits", "--images", 64, "--threads", 1, "--precision=float32", *OPTIONS]


@pytest.mark.parametrize("how", ["--resume", "--overwrite"])
def test_a_live_run_is_neither_joined_nor_deleted(how, cli, refused, run_copy):
    with RunLock(run_copy):
        before = tree(run_copy)
        refused("train", *TINY, "--out", run_copy, how, says=[str(run_copy), f"process {os.getpid()} on "])
        assert tree(run_copy) == before
    assert cli("train", *TINY, "--out", run_copy, how)[0] == 0
    assert not (run_copy / LOCK).exists()


@pytest.mark.slow
def test_a_demonstration_and_its_runs_have_owners(refused, tmp_path, monkeypatch):
    out = tmp_path / "d"
    (out / "rope_axial").mkdir(parents=True)
    for owned in (out, out / "rope_axial"):
        with RunLock(owned):
            before = tree(tmp_path)
            for how in ("--resume", "--overwrite"):
                refused("demo", "--quick", "--out", out, how, says=[str(owned), f"process {os.getpid()} on "])
            assert tree(tmp_path) == before


def test_a_folder_that_is_renamed_in_mid_run_ends_it_with_5(cli, tmp_path, monkeypatch):
    real = checkpointer.write_checkpoint

    def rename(*arguments, **options):
        real(*arguments, **options)
        (tmp_path / "a").rename(tmp_path / "b")

    monkeypatch.setattr(checkpointer, "write_checkpoint", rename)
    words = [*TINY, "--checkpoint_every=32", "--batch_size=32"]
    code, out, err = cli("train", *words, "--out", tmp_path / "a")
    assert (code, out) == (5, "")
    assert f"{tmp_path / 'a'}: it was moved or deleted" in err.splitlines()[-1]
    assert not (tmp_path / "a").exists()
    monkeypatch.setattr(checkpointer, "write_checkpoint", real)
    # Where it is now, it goes on.
    assert cli("train", *words, "--out", tmp_path / "b", "--resume")[0] == 0
    assert (tmp_path / "b" / "config.yaml").exists()


def test_after_the_last_step_too(cli, tmp_path, monkeypatch):
    real = checkpointer.Checkpointer.finish

    def rename(checkpointer):
        real(checkpointer)
        (tmp_path / "a").rename(tmp_path / "b")

    monkeypatch.setattr(checkpointer.Checkpointer, "finish", rename)
    assert cli("train", *TINY, "--out", tmp_path / "a")[0] == 5
    assert not (tmp_path / "a").exists()


def slowly_add(file, row):
    from sightline.results import rows as update

    real = update.merge_rows

    def merge(*arguments, **options):
        time.sleep(0.2)
        return real(*arguments, **options)

    update.merge_rows = merge
    update_rows(file, [row])


def test_two_evaluations_at_once_lose_no_rows(run_copy):
    file = run_copy / "results.jsonl"
    first, before = read_rows(file)[0], sorted(path.name for path in run_copy.iterdir())
    context = multiprocessing.get_context("fork")
    rows = [dataclasses.replace(first, resolution=side) for side in (20, 24, 28)]
    children = [context.Process(target=slowly_add, args=(file, row)) for row in rows]
    for child in children:
        child.start()
    for child in children:
        child.join(240)
    assert {row.resolution for row in read_rows(file)} == {16, 20, 24, 28}
    assert sorted(path.name for path in run_copy.iterdir()) == before


def test_a_job_claims_its_folder(tmp_path):
    from sightline.errors import InputError
    from sightline.evaluation import EvaluateConfig

    job = jobs.Job("a", tiny_config(), EvaluateConfig((16,), images=8), tmp_path / "a", threads=1)
    with RunLock(tmp_path / "a"), pytest.raises(InputError, match=f"process {os.getpid()} on "):
        jobs.run_job(job, lambda at: None)
    jobs.run_job(job, lambda at: None)
    assert job.is_measured
