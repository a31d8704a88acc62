"""A run's folder and other commands: a live run is neither joined nor deleted, and rows of two evaluations all stay."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import shutil
import time

import pytest

from sightline.cli.output import add_rows
from sightline.io.run_lock import OWNER, claim
from sightline.results.rows import read_rows
from sightline.training import jobs, loop, saving
from tests.tiny import MODEL, tiny_config, tree

OPTIONS = [word for key, value in MODEL.items() for word in ("--set", f"model_options.{key}={value}")]
TINY = ["--data", "digits", "--images", 64, "--threads", 1, "--set", "precision=float32", *OPTIONS]


@pytest.mark.parametrize("how", ["--resume", "--overwrite"])
def test_found_28_a_live_run_is_neither_joined_nor_deleted(how, cli, refused, run_copy):
    with claim(run_copy):
        before = tree(run_copy)
        refused("train", *TINY, "--out", run_copy, how, says=["is at work", "--take-over"])
        assert tree(run_copy) == before
    assert cli("train", *TINY, "--out", run_copy, how)[0] == 0
    assert not (run_copy / OWNER).exists()


def test_found_28_the_dead_are_taken_over_and_the_living_by_force(cli, run_copy):
    mine = claim(run_copy)
    code, _, err = cli("train", *TINY, "--out", run_copy, "--resume", "--take-over")
    assert code == 0
    assert "sightline: warning: " in err
    assert "taken over from process" in err
    mine.release()
    (run_copy / OWNER).write_text(json.dumps({**dataclasses.asdict(mine._record), "started": 17}))
    code, _, err = cli("train", *TINY, "--out", run_copy, "--overwrite")
    assert code == 0
    assert "on this host, which is gone" in err


def test_found_28_a_demonstration_and_its_runs_have_owners(refused, tmp_path, monkeypatch):
    out = tmp_path / "d"
    (out / "rope_axial").mkdir(parents=True)
    for owned in (out, out / "rope_axial"):
        with claim(owned):
            before = tree(tmp_path)
            for how in ("--resume", "--overwrite"):
                refused("demo", "--quick", "--out", out, how, says=["is at work"])
            assert tree(tmp_path) == before


def test_found_30_a_folder_that_is_renamed_in_mid_run_ends_it_with_5(cli, tmp_path, monkeypatch):
    real = saving.write_asked_checkpoint

    def rename(*arguments):
        real(*arguments)
        (tmp_path / "a").rename(tmp_path / "b")

    monkeypatch.setattr(saving, "write_asked_checkpoint", rename)
    words = [*TINY, "--set", "checkpoint_every=32", "--set", "batch_size=32"]
    code, out, err = cli("train", *words, "--out", tmp_path / "a")
    assert (code, out) == (5, "")
    assert f"{tmp_path / 'a'}: it was moved or deleted" in err.splitlines()[-1]
    assert not (tmp_path / "a").exists()
    monkeypatch.setattr(saving, "write_asked_checkpoint", real)
    # Where it is now, it goes on.
    monkeypatch.setattr("sightline.io.run_lock.is_alive", lambda process: False)
    assert cli("train", *words, "--out", tmp_path / "b", "--resume")[0] == 0
    assert (tmp_path / "b" / "config.yaml").exists()


def test_found_30_after_the_last_step_too(cli, tmp_path, monkeypatch):
    real = loop.drop_previous

    def rename(out):
        real(out)
        out.rename(tmp_path / "b")

    monkeypatch.setattr(loop, "drop_previous", rename)
    assert cli("train", *TINY, "--out", tmp_path / "a")[0] == 5
    assert not (tmp_path / "a").exists()


def slowly_add(file, row):
    from sightline.cli import output

    real = output.merge_rows

    def merge(*arguments, **options):
        time.sleep(0.2)
        return real(*arguments, **options)

    output.merge_rows = merge
    add_rows(file, [row])


def test_found_28_two_evaluations_at_once_lose_no_rows(run_copy):
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


def test_found_28_a_job_claims_its_folder(tmp_path):
    from sightline.errors import InputError
    from sightline.evaluation import EvaluateConfig

    job = jobs.Job("a", tiny_config(), EvaluateConfig((16,), images=8), tmp_path / "a", threads=1)
    with claim(tmp_path / "a"), pytest.raises(InputError, match="is at work"):
        jobs.run_job(job, lambda at: None)
    seen = []
    with claim(tmp_path / "a"):
        jobs.run_job(dataclasses.replace(job, take_over=True), lambda at: None, seen.append)
    assert "taken over from" in seen[0]
    shutil.rmtree(tmp_path / "a")
