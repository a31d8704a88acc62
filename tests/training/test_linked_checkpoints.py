"""A run whose folder leads elsewhere replaces nothing that is another's."""

from __future__ import annotations

import os

import pytest

from sightline.errors import InputError, StorageError
from sightline.io.run_lock import LOCK, RunLock
from sightline.training.config import ValidationConfig
from tests.tiny import ENDLESS, Stopped, stop_at, tiny_config, train, tree


@pytest.mark.parametrize("dangling", [False, True])
def test_a_checkpoint_that_is_a_link_is_not_written_through(dangling, tmp_path):
    """It may be another run's, whose weights would be replaced by a continuation."""
    with pytest.raises(Stopped):
        train(ENDLESS, tmp_path / "a", observe=stop_at(3))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "checkpoint").symlink_to(tmp_path / "a" / ("nothing" if dangling else "checkpoint"))
    before = tree(tmp_path)
    with pytest.raises(InputError, match="holds checkpoint of a run whose checkpoints are gone"):
        train(ENDLESS, tmp_path / "b", resume=True)
    assert tree(tmp_path) == before


def test_a_best_checkpoint_that_is_a_link_is_not_either(tmp_path):
    config = tiny_config(validation=ValidationConfig())
    train(config, tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "checkpoint.best").symlink_to(tmp_path / "a" / "checkpoint.best")
    before = tree(tmp_path / "a")
    train(config, tmp_path / "b")
    assert tree(tmp_path / "a") == before
    assert os.readlink(tmp_path / "b" / "checkpoint.best") == "checkpoints/step-00000002"


def test_found_28_a_folder_in_the_place_of_its_owner_is_named(tmp_path):
    (tmp_path / LOCK).mkdir()
    with pytest.raises(StorageError, match=rf"{tmp_path}: cannot be written \(Is a directory\)"):
        RunLock(tmp_path).__enter__()
