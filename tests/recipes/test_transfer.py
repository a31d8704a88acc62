"""Settings of ViT's fine-tuning by data set (table 4)."""

from __future__ import annotations

import pytest

from sightline.errors import InputError
from sightline.recipes.config import TrainingData, config_with_recipe
from sightline.recipes.transfer import (
    CIFAR,
    IMAGENET,
    TransferSetting,
    images_of,
    open_transfer_data,
    setting_of,
    transfer_fields,
)
from tests.tiny import pictures
from tests.vtab import save_tiny, write_task


class Counted:
    """As much of a source as a setting is chosen by."""

    def __init__(self, images, classes):
        self.images, self.classes = images, tuple(map(str, range(classes)))

    def length(self, split):
        assert split == "train"
        return self.images


@pytest.mark.parametrize(
    ("images", "classes", "expected"),
    [
        (1_281_167, 1000, IMAGENET),
        (50_000, 10, CIFAR),
        (50_000, 100, CIFAR),
        (3_680, 37, TransferSetting(500, (0.001, 0.003, 0.01, 0.03), 0.1)),
        (2_040, 102, TransferSetting(500)),
        (9_999, 5, TransferSetting(500)),
        (10_000, 5, TransferSetting(10_000)),
        (None, 24, TransferSetting(10_000)),
    ],
)
def test_table_4(images, classes, expected):
    assert setting_of(Counted(images, classes)) == expected
    assert (IMAGENET.steps, IMAGENET.lrs, IMAGENET.held_out) == (20_000, (0.003, 0.01, 0.03, 0.06), 0.01)
    assert (CIFAR.steps, CIFAR.lrs, CIFAR.held_out) == (10_000, (0.001, 0.003, 0.01, 0.03), 0.02)


def test_data_sets_and_tasks(tmp_path):
    folder = pictures(tmp_path / "pets", count=10)
    write_task(tmp_path / "vtab-1k" / "svhn")
    write_task(tmp_path / "vtab-1k" / "kitti", classes=4)
    found, missing = open_transfer_data([folder, "digits", f"vtab:{tmp_path / 'vtab-1k'}"])
    assert [one.name for one in found] == ["pets", "digits", "svhn", "kitti"]
    assert [one.group for one in found] == ["", "", "Natural", "Structured"]
    assert (len(missing), missing[:2]) == (17, ["Caltech101", "CIFAR-100"])
    assert found[0].grid_spec == f"{folder},minival=0.1"
    assert found[1].grid_spec == "digits"
    assert found[2].setting == TransferSetting(2500, (0.01,), 0.2)


def test_the_configuration_is_the_papers(tmp_path):
    [data], _ = open_transfer_data([pictures(tmp_path / "pets", count=10)])
    fields = transfer_fields(data, str(tmp_path), steps=500, resolution=384, batch_size=512, final=True)
    assert (fields["data"], fields["images"], fields["resolution"]) == (data.spec, 500 * 20, 384)
    assert fields["optimizer"]["warmup"] == 100
    [task], _ = open_transfer_data([f"vtab:{write_task(tmp_path / 'svhn')}"])
    fields = transfer_fields(task, "model", steps=2500, resolution=384, batch_size=512, final=False)
    assert (fields["data"], fields["optimizer"]["warmup"]) == (f"{task.spec},minival=0.2", 500)
    assert (fields["parts"], fields["model_options"]) == (None, {"crop_mode": "squash", "crop": 1.0})


def test_what_the_recipe_says_of_a_task(tmp_path):
    [task], _ = open_transfer_data([f"vtab:{write_task(tmp_path / 'svhn')}"])
    fields = transfer_fields(
        task, str(save_tiny(tmp_path / "model")), steps=10, resolution=16, batch_size=4, final=True
    )
    made = config_with_recipe(fields, TrainingData(), recipe=fields.pop("recipe"))
    optimizer = made.optimizer
    assert (optimizer.name, optimizer.momentum, optimizer.weight_decay, optimizer.clip) == ("sgd", 0.9, 0.0, 1.0)
    assert (optimizer.schedule, optimizer.warmup, made.images) == ("cosine", 2, 40)
    assert (made.parts, made.flip, made.loss) == (None, None, "ce")
    assert made.model_options == {"head": "linear", "head_std": 0.0, "crop_mode": "squash", "crop": 1.0}


@pytest.mark.parametrize(("steps", "batch", "images"), [(2500, 512, 1000), (60, 32, 1000), (7, 512, 300), (5, 8, None)])
def test_as_many_steps_as_were_asked_for(steps, batch, images):
    shown, sizes = images_of(steps, batch, images), []
    while shown > 0:
        left = shown if images is None else min(images, shown)
        shown -= left
        sizes += [min(batch, left - start) for start in range(0, left, batch)]
    assert len(sizes) == steps


@pytest.mark.parametrize("specs", [[], ["digits", "digits"], ["scenes:nothing"], ["vtab:nowhere"]])
def test_what_is_no_set_of_data_is_refused(specs):
    with pytest.raises(InputError):
        open_transfer_data(specs)


def test_a_task_of_another_name(tmp_path):
    """Alone it has VTAB-1k's setting and held-out images; among others it is a mistake."""
    write_task(tmp_path / "svhn")
    own = write_task(tmp_path / "SVHNN")
    [data], _ = open_transfer_data([f"vtab:{own}"])
    assert (data.setting.lrs, data.grid_spec, data.group) == ((0.01,), f"vtab:{own},minival=0.2", "")
    with pytest.raises(InputError, match="SVHNN"):
        open_transfer_data([f"vtab:{tmp_path}"])


def test_what_is_held_out_is_learned_from_in_the_end(tmp_path):
    task, folder = write_task(tmp_path / "svhn"), pictures(tmp_path / "pets", count=10)
    found, _ = open_transfer_data([f"vtab:{task},minival=0.2", f"{folder},minival=0.3"])
    assert [(one.spec, one.images, one.setting.held_out) for one in found] == [
        (f"vtab:{task}", 50, 0.2),
        (folder, 20, 0.3),
    ]
    assert found[1].grid_spec == f"{folder},minival=0.3"
    with pytest.raises(InputError):
        open_transfer_data([f"{folder},minival=x"])


def test_the_folder_where_one_stands(tmp_path, monkeypatch):
    monkeypatch.chdir(write_task(tmp_path / "svhn"))
    [data], _ = open_transfer_data(["vtab:."])
    assert (data.name, data.title, data.group) == ("svhn", "SVHN", "Natural")
