"""A run whose folder is taken over, or leads elsewhere, replaces nothing that is another's."""

from __future__ import annotations

import shutil
import threading

import pytest

from sightline.errors import InputError, StorageError
from sightline.io.checkpoint import verify_checkpoint
from sightline.io.run_lock import OWNER, claim
from sightline.training import loop, saving, train
from tests.tiny import ENDLESS, Stopped, digest, stop_at, tiny_config, tree


def test_found_28_a_run_that_is_taken_over_while_it_validates_saves_no_more(tmp_path, monkeypatch):
    out, taken = tmp_path / "a", []

    def measure(*_):
        taken.append((claim(out, take_over=True), tree(out)))

    monkeypatch.setattr(loop.Validation, "is_due", lambda *_: True)
    monkeypatch.setattr(loop.Validation, "measure", measure)
    with pytest.raises(StorageError, match="has taken it over, and this run writes no more"):
        train(ENDLESS, out)
    ((other, before),) = taken
    assert tree(out) == before
    other.release()


def test_found_28_a_folder_is_not_taken_over_in_mid_save(tmp_path, monkeypatch):
    out, taken = tmp_path / "a", []
    real = saving.write_asked_checkpoint

    def save(*arguments):
        other = threading.Thread(target=lambda: taken.append(claim(out, take_over=True)))
        other.start()
        other.join(0.3)
        assert not taken
        real(*arguments)
        threads.append(other)

    threads = []
    monkeypatch.setattr(saving, "write_asked_checkpoint", save)
    monkeypatch.setattr(saving.RunWriter, "keep_best", lambda *_: [thread.join(30) for thread in threads])
    with pytest.raises(StorageError, match="has taken it over"):
        train(ENDLESS, out)
    assert len(threads) == len(taken) == 1
    assert verify_checkpoint(out / "checkpoint")
    taken[0].release()


def test_found_28_the_lock_of_one_that_hangs_in_mid_save_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr("sightline.io.run_lock.PATIENCE", 0.1)
    mine = claim(tmp_path / "a")
    with mine.held():
        other = claim(tmp_path / "a", take_over=True)
    with pytest.raises(StorageError, match="has taken it over"):
        mine.check()
    other.release()
    assert not list(tmp_path.glob("a/.*"))


@pytest.mark.parametrize("dangling", [False, True])
def test_a_checkpoint_that_is_a_link_is_not_written_through(dangling, tmp_path):
    """It may be another run's, whose weights would be replaced by a continuation."""
    with pytest.raises(Stopped):
        train(ENDLESS, tmp_path / "a", observe=stop_at(3))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "checkpoint").symlink_to(tmp_path / "a" / ("nothing" if dangling else "checkpoint"))
    before = tree(tmp_path)
    with pytest.raises(InputError, match=r"b/checkpoint: is a link to .*, which is not this run's to replace"):
        train(ENDLESS, tmp_path / "b", resume=True)
    assert tree(tmp_path) == before


def test_a_best_checkpoint_that_is_a_link_is_not_either(tmp_path):
    config = tiny_config(validation=loop.TrainConfig(data="digits").validation)
    train(config, tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b", ignore=shutil.ignore_patterns("checkpoint*"))
    (tmp_path / "b" / "checkpoint.best").symlink_to(tmp_path / "a" / "checkpoint.best")
    before, warned = digest(tmp_path / "a" / "checkpoint.best" / "config.json"), []
    train(config, tmp_path / "b", warn=warned.append)
    assert digest(tmp_path / "a" / "checkpoint.best" / "config.json") == before
    assert any("checkpoint.best: is a link" in line for line in warned)


def test_found_28_a_folder_in_the_place_of_its_owner_is_named(tmp_path):
    (tmp_path / OWNER).mkdir()
    with pytest.raises(StorageError, match=rf"{OWNER}: cannot be written \(Is a directory\)"):
        claim(tmp_path, take_over=True)
