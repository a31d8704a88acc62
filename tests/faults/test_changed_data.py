"""A run that is resumed on data that changed: refused by what differs, or accepted by name."""

import dataclasses
import json
import os
import shutil

import numpy as np
import pytest
from PIL import Image

from sightline.errors import InputError
from sightline.io.run_files import CHECKPOINT, LEFT_OUT
from sightline.training import TrainConfig
from sightline.training.config import ValidationConfig
from tests.tiny import MODEL, log_lines, train, weights

CLASSES = ("ant", "bee", "cow")


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "images"
    rng = np.random.default_rng(0)
    for label, name in enumerate(CLASSES):
        for split in ("train", "test"):
            (root / split / name).mkdir(parents=True)
            for number in range(4):
                pixels = rng.integers(0, 60, (9 + number, 12 + label, 3)) + 60 * label
                Image.fromarray(pixels.astype(np.uint8)).save(root / split / name / f"{number}.png")
    return root


def config(folder, **changes):
    options = {
        "loss": "ce",
        "resolution": 16,
        "batch_size": 4,
        "images": 24,
        "precision": "float32",
        "validation": None,
    }
    options |= changes
    return TrainConfig(data=f"imagefolder:{folder}", model="vit_micro_patch4", model_options=MODEL, **options)


class Killed(Exception):
    pass


def killed(settings, out, after=3):
    """A run that is killed after so many steps, of which each leaves a checkpoint."""

    def stop(progress):
        if progress.step == after:
            raise Killed

    with pytest.raises(Killed):
        train(settings, out, observe=stop)


def rename(root):
    (root / "train" / "ant").rename(root / "train" / "zebra")
    shutil.rmtree(root / "test")


def exchange(root):
    (root / "train" / "ant").rename(root / "train" / "x")
    (root / "train" / "bee").rename(root / "train" / "ant")
    (root / "train" / "x").rename(root / "train" / "bee")


def replace(root):
    path = root / "train" / "cow" / "1.png"
    size = path.stat().st_size
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert path.stat().st_size == size


CHANGES = {
    "renamed": (rename, ["class zebra is what ant was"]),
    "exchanged": (exchange, ["class ant is what bee was", "class bee is what ant was"]),
    "added": (
        lambda root: shutil.copy(root / "train/ant/0.png", root / "train/bee/new.png"),
        ["1 added (train/bee/new.png)"],
    ),
    "removed": (lambda root: (root / "train/bee/2.png").unlink(), ["1 removed (train/bee/2.png)"]),
    "replaced": (replace, ["1 replaced (train/cow/1.png)"]),
    "more classes": (
        lambda root: shutil.copytree(root / "train/ant", root / "train/dog"),
        ["new class dog", "3 classes then, 4 now", "--overwrite"],
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_data_is_named(change, cli, folder, tmp_path):
    out = tmp_path / "run"
    killed(config(folder, checkpoint_every=4), out)
    kept = weights(out)
    damage, says = CHANGES[change]
    damage(folder)
    words = ["train", "--data", f"imagefolder:{folder}", "--model", "vit_micro_patch4", "--resolution", 16]
    words += [f"--model_options.{key}={value}" for key, value in MODEL.items()]
    code, _, err = cli(*words, "--epochs", 2, "--batch_size=4", "--threads", 1, "--resume", "--out", out)
    assert code == 2, err
    last = err.splitlines()[-1]
    for word in says:
        assert word in last, last
    assert ("--accept-changed-data" in last) == (change != "more classes")
    assert weights(out) == kept


def test_accepted_by_name(folder, tmp_path):
    """The run keeps its length and goes on with what is there."""
    out = tmp_path / "run"
    settings = config(folder, checkpoint_every=4)
    killed(settings, out)
    shutil.copy(folder / "train/ant/0.png", folder / "train/bee/new.png")
    warned = []
    train(settings, out, resume=True, accept_changed_data=True, warn=warned.append)
    assert json.loads(log_lines(out)[-1])["images"] == 24
    assert any("1 added" in line for line in warned)
    # What it ended on is what it stands for from now on.
    train(settings, out, resume=True)


def test_another_minival_is_named(folder, tmp_path):
    """By it the curve is measured and the best model kept."""
    for label, name in enumerate(CLASSES):
        (folder / "minival" / name).mkdir(parents=True)
        Image.new("RGB", (10, 10), (80 * label, 9, 9)).save(folder / "minival" / name / "0.png")
    settings = config(folder, checkpoint_every=4, validation=ValidationConfig(times=10, images=8))
    killed(settings, tmp_path / "run")
    killed(config(folder, checkpoint_every=4), tmp_path / "not validated")
    for first, second in (("ant", "x"), ("bee", "ant"), ("x", "bee")):
        (folder / "minival" / first).rename(folder / "minival" / second)
    with pytest.raises(InputError, match=r"minival.*--accept-changed-data"):
        train(settings, tmp_path / "run", resume=True)
    warned = []
    train(settings, tmp_path / "run", resume=True, accept_changed_data=True, warn=warned.append)
    assert any("minival" in line for line in warned)
    train(config(folder, checkpoint_every=4), tmp_path / "not validated", resume=True)


def test_a_copy_is_the_same_data(folder, tmp_path):
    """Other times and another place, the same contents: the same weights as without a break."""
    settings = config(folder, checkpoint_every=4)
    train(settings, tmp_path / "whole")
    killed(settings, tmp_path / "run")
    original = tmp_path / "original"
    folder.rename(original)
    shutil.copytree(original, folder, copy_function=shutil.copyfile)
    train(settings, tmp_path / "run", resume=True)
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


@pytest.fixture
def large(folder):
    """A file of which samples see a part alone, and what changes a byte in another part without its size."""
    file = folder / "train" / "bee" / "large.bmp"
    Image.fromarray(np.zeros((120, 120, 3), np.uint8)).save(file)

    def damage():
        content = bytearray(file.read_bytes())
        content[6000] ^= 255
        file.write_bytes(content)
        os.utime(file, (1, 1))

    return damage


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_what_samples_do_not_see_is_compared_whole_after_a_check(
    again, cached, cli, folder, large, tmp_path, monkeypatch
):
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))
    assert cli("data", "check", f"imagefolder:{folder}")[0] == 0
    settings, out, warned = config(folder, checkpoint_every=4), tmp_path / "run", []
    killed(settings, out)
    if not cached:
        # What was known is in the checkpoint, and stays in those after it.
        monkeypatch.setenv("SIGHTLINE_CACHE", "")
    if again:
        with pytest.raises(Killed):
            train(settings, out, resume=True, observe=_stop, warn=warned.append)
    shutil.copytree(folder, tmp_path / "copy", copy_function=shutil.copyfile)
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "copy", folder, copy_function=shutil.copyfile)
    train(settings, out, resume=True, warn=warned.append)
    assert warned == []
    large()
    with pytest.raises(InputError, match=r"1 replaced \(train/bee/large.bmp\)"):
        train(settings, out, resume=True)
    train(settings, out, resume=True, accept_changed_data=True)


def _stop(progress):
    raise Killed


def test_without_a_check_a_line_says_what_was_not_compared(folder, large, tmp_path):
    settings, out, warned = config(folder, checkpoint_every=4), tmp_path / "run", []
    killed(settings, out)
    large()
    train(settings, out, resume=True, warn=warned.append)
    (line,) = warned
    assert "train/bee/large.bmp" in line
    assert "data check" in line
    # Saved anew since, with the times as they are.
    train(settings, out, resume=True, warn=warned.append)
    assert warned == [line]


@pytest.mark.parametrize("packed", [False, True])
def test_a_damaged_image_leaves_its_batch_the_same_after_a_kill_and_with_workers(packed, folder, tmp_path):
    """Bit for bit, and it is in the record of the run."""
    bad = folder / "train" / "bee" / "1.png"
    bad.write_bytes(bad.read_bytes()[:-40])
    packing = None
    if packed:
        from sightline.data.config import PackingConfig

        packing = PackingConfig(tokens=40)
    size = None if packed else 4
    settings = config(folder, checkpoint_every=1, skip_unreadable=1, packing=packing, batch_size=size)
    train(settings, tmp_path / "whole")
    left_out = (tmp_path / "whole" / CHECKPOINT / LEFT_OUT).read_text()
    assert json.loads(left_out)[:2] == ["train", str(bad)]
    for workers, after in ((0, 1), (2, 3), (0, 5)):
        out = tmp_path / f"run{workers}{after}"
        sitting = dataclasses.replace(settings, workers=workers)
        killed(sitting, out, after)
        train(sitting, out, resume=True)
        assert weights(out) == weights(tmp_path / "whole")
        assert log_lines(out) == log_lines(tmp_path / "whole")
        assert (out / CHECKPOINT / LEFT_OUT).read_text() == left_out


def test_a_step_of_nothing_but_damaged_images_is_no_step(folder, tmp_path):
    for number in range(4):
        path = folder / "train" / "bee" / f"{number}.png"
        path.write_bytes(path.read_bytes()[:-40])
    train(config(folder, batch_size=1, images=12, skip_unreadable="all"), tmp_path / "run")
    assert len(log_lines(tmp_path / "run")) == 8
