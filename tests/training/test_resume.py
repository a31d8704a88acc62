"""Stopped anywhere and resumed, a run ends with the weights and the log of one that was never disturbed."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from sightline.errors import InputError
from sightline.hub.load import load_model, read_config_record, save_model
from sightline.io import atomic, checkpoint
from sightline.models import VisionTransformer
from sightline.training import checkpointer, resume_checks
from sightline.training.config import OptimizerConfig
from sightline.training.resume_checks import check_same_config
from sightline.training.run import OpenedRun
from tests.tiny import (
    ENDLESS,
    EVENTFUL,
    TRAINING,
    KillAt,
    Stopped,
    after,
    digest,
    killed,
    log_lines,
    reseal,
    stop_at,
    tiny_config,
    train,
    tree,
    weights,
)


@pytest.mark.parametrize(("step", "workers"), [(2, 0), pytest.param(6, 2, marks=pytest.mark.slow)])
def test_killed(step, workers, undisturbed, tmp_path):
    config = dataclasses.replace(EVENTFUL, workers=workers)
    killed(train, config, tmp_path / "a", observe=KillAt(step))
    train(config, tmp_path / "a", resume=True)
    assert (weights(tmp_path / "a"), log_lines(tmp_path / "a")) == undisturbed(EVENTFUL)


MOMENTS = {
    "between the checkpoint and its log": (Path, "replace", 2),
    "before the checkpoint is written": (checkpointer, "write_checkpoint", 1),
    "while its files are flushed": (checkpoint, "fsync", 8),
    "before it is put into its place": (atomic.os, "replace", 3),
    "before the link is moved": (checkpointer.os, "replace", 4),
    "before those that are not to stay are deleted": (checkpointer.shutil, "rmtree", 1),
    "in the last save": (Path, "symlink_to", 2),
}


def train_dying(moment, out):
    owner, name, calls = MOMENTS[moment]
    setattr(owner, name, after(calls, getattr(owner, name)))
    train(ENDLESS, out)


QUICK = ("before it is put into its place", "before the link is moved", "in the last save")


@pytest.mark.parametrize(
    "moment", [pytest.param(one, marks=() if one in QUICK else pytest.mark.slow) for one in MOMENTS]
)
def test_killed_while_saving(moment, undisturbed, tmp_path):
    killed(train_dying, moment, tmp_path / "a")
    train(ENDLESS, tmp_path / "a", resume=True)
    assert (weights(tmp_path / "a"), log_lines(tmp_path / "a")) == undisturbed(ENDLESS)
    left = [name for name in tree(tmp_path / "a") if name.count("/") < 2 or "step" not in name]
    assert left == [
        "checkpoint",
        "checkpoints",
        "checkpoints/step-00000006",
        "config.yaml",
        "log.jsonl",
        "progress.json",
    ]


def test_a_finished_run_is_left_as_it_is(tmp_path):
    train(EVENTFUL, tmp_path / "a")
    before = tree(tmp_path / "a")
    seen = []
    model = train(EVENTFUL, tmp_path / "a", resume=True, observe=seen.append)
    assert seen == []
    assert tree(tmp_path / "a") == before
    assert not model.training


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"seed": 1}, "seed"),
        ({"images": 128}, "images"),
        ({"encoding": "none"}, "encoding"),
        ({"optimizer": OptimizerConfig(lr=0.5)}, "optimizer.lr"),
        ({"model_options": {"depth": 2, "dim": 48, "heads": 4}}, "model_options.depth"),
        ({"encoding_options": {"global_slope": 0.5}}, "encoding_options.global_slope"),
        ({"batch_size": 16}, "batch_size"),
        ({"frames": 8}, "frames"),
        ({"augment": {"colour_jitter": {"hue": 0.1}, "three_augment": {}}}, "augment"),
        ({"augment": {"three_augment": {}, "colour_jitter": {"hue": 0.2}}}, "augment.colour_jitter.hue"),
        ({"augment": {}}, "augment.three_augment"),
    ],
)
def test_another_configuration_is_refused(changes, field):
    config = tiny_config(augment={"three_augment": {}, "colour_jitter": {"hue": 0.1}})
    saved = json.loads(json.dumps(dataclasses.asdict(config)))
    check_same_config(saved, config, Path("run"))
    with pytest.raises(InputError) as error:
        check_same_config(saved, dataclasses.replace(config, **changes), Path("run"))
    assert error.value.field == field


def test_another_number_of_epochs_is_refused_in_epochs(tmp_path):
    config = tiny_config(images=None, epochs=1.0, batch_size=500)
    train(config, tmp_path / "a")
    train(config, tmp_path / "a", resume=True)
    with pytest.raises(InputError, match=r"epochs 1\.0, not 2\.0") as error:
        train(dataclasses.replace(config, epochs=2.0), tmp_path / "a", resume=True)
    assert (error.value.field, error.value.value) == ("epochs", 2.0)


def test_a_difference_that_rounded_epochs_do_not_show_is_refused_in_images(tmp_path, monkeypatch):
    kept = {"config": {"images": 100_001}}
    monkeypatch.setattr(resume_checks, "training_record", lambda path: kept)
    with pytest.raises(InputError) as error:
        resume_checks.check_same_epochs(tmp_path / "run/checkpoints/step", 1.0, tiny_config(images=100_000))
    assert (error.value.field, error.value.value) == ("images", 100_000)


def test_data_that_is_not_under_this_folder_is_named_by_its_option(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = "imagefolder:shapes"
    with pytest.raises(InputError) as error:
        _ = OpenedRun(Path("a"), {}, {"data": data}, "", None, data, 0, 1).source  # type: ignore[arg-type]
    assert (error.value.field, error.value.value) == ("data", data)


def test_what_does_not_change_the_weights_may_change(undisturbed, tmp_path):
    with pytest.raises(Stopped):
        train(ENDLESS, tmp_path / "a", observe=stop_at(3))
    train(dataclasses.replace(ENDLESS, workers=2, checkpoint_every=16), tmp_path / "a", resume=True)
    assert (weights(tmp_path / "a"), log_lines(tmp_path / "a")) == undisturbed(ENDLESS)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda tensors: tensors.pop("weights/head.bias"), "weights/head.bias"),
        (lambda tensors: tensors.update(more=torch.zeros(1)), "more"),
        (lambda tensors: tensors.update({"weights/head.bias": torch.zeros(3)}), "weights/head.bias"),
    ],
)
def test_the_state_of_another_training(change, says, tmp_path):
    """Checksums that fit, on tensors that do not."""
    config = tiny_config(optimizer=OptimizerConfig(ema=0.5))
    train(config, tmp_path / "a")
    file = tmp_path / "a" / "checkpoint" / TRAINING
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file)
    reseal(tmp_path / "a" / "checkpoint")
    before = tree(tmp_path)
    with pytest.raises(InputError) as error:
        train(config, tmp_path / "a", resume=True)
    assert says in str(error.value)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("lacking", ["ranks", "data", "log.jsonl", "batch_size"])
def test_what_another_version_began_is_refused_by_name(lacking, tmp_path):
    train(tiny_config(), tmp_path / "a")
    folder = tmp_path / "a" / "checkpoint"
    record = json.loads((folder / "config.json").read_text())
    if lacking == "log.jsonl":
        (folder / lacking).unlink()
    else:
        del (record["training"]["config"] if lacking == "batch_size" else record["training"])[lacking]
    (folder / "config.json").write_text(json.dumps(record))
    reseal(folder)
    with pytest.raises(InputError, match=lacking):
        train(tiny_config(), tmp_path / "a", resume=True)


@pytest.mark.parametrize("became", ["gone", "another"])
def test_what_a_run_began_with_is_not_asked_for_again(became, run_copy, tmp_path):
    config = tiny_config(init_from=str(run_copy), images=96, batch_size=32, checkpoint_every=32)
    train(config, tmp_path / "whole")
    with pytest.raises(Stopped):
        train(config, tmp_path / "a", observe=stop_at(2))
    shutil.rmtree(run_copy)
    if became == "another":
        # Of the same shape, so that its weights would fit.
        save_model(VisionTransformer(load_model(tmp_path / "whole").config.replace(crop=0.5)), run_copy)
    train(config, tmp_path / "a", resume=True)
    for name in ("model.safetensors", TRAINING):
        assert digest(tmp_path / "a/checkpoint" / name) == digest(tmp_path / "whole/checkpoint" / name)
    assert load_model(tmp_path / "a").config == load_model(tmp_path / "whole").config
    assert read_config_record(tmp_path / "a")["training"]["config"]["init_from"] == str(run_copy)
