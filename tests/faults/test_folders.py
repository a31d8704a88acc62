"""A folder of one's own images, through the commands: trained on, measured, and every fault of it named."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from sightline.io.yaml import read_yaml
from sightline.results.rows import read_rows
from tests.tiny import INPUTS, MODEL, SOFTMAX_MEASURES, log_lines, tree, weights

CLASSES = ("bright ones", "dunkle Häuser", "zebra")
OPTIONS = [f"--model_options.{key}={value}" for key, value in MODEL.items()]
TRAIN = ["--model", "vit_micro_patch4", "--resolution", 16, "--threads", 1, "--batch_size=4", *OPTIONS]


def picture(label, number, rng):
    """Classes that one look tells apart, in all shapes."""
    height, width = 9 + 7 * number, 40 - 5 * number
    image = rng.integers(0, 60, (height, width, 3))
    image += (190, 0, 0)[label]
    if label == 2:
        image[::4] += 120
    return Image.fromarray(image.astype(np.uint8))


@pytest.fixture
def folder(tmp_path):
    """train: 3 classes of 5 images; test: 3 of 2, in names with blanks and letters beyond ASCII."""
    root = tmp_path / "my images"
    rng = np.random.default_rng(0)
    for split, count in (("train", 5), ("test", 2)):
        for label, name in enumerate(CLASSES):
            (root / split / name).mkdir(parents=True)
            for number in range(count):
                picture(label, number, rng).save(root / split / name / f"bild {number} ü.png")
    return root


@pytest.fixture
def train(cli, folder, tmp_path):
    def run(*words, out="run", root=folder):
        return cli("train", "--data", f"imagefolder:{root}", *TRAIN, "--epochs", 1, *words, "--out", tmp_path / out)

    return run


def test_trained_and_measured(train, cli, folder, tmp_path):
    code, out, err = train("--optimizer.lr=3e-3", "--loss=ce")
    assert code == 0, err
    run = tmp_path / "run"
    assert read_yaml(run / "config.yaml")["images"] == 15
    # Five passes of 4, 4, 4, 3 would be 20 steps; one pass is 4.
    assert [json.loads(line)["images"] for line in log_lines(run)] == [4, 8, 12, 15]
    code, out, _ = cli("evaluate", run, "--resolutions", "16,24", "--json")
    assert code == 0
    rows = [json.loads(line) for line in out.splitlines()]
    whole = [row for row in rows if not row["slices"]]
    assert {(row["resolution"], row["metric"], row["images"], row["task"]) for row in whole} == {
        (side, metric, 6, "classification") for side in (16, 24) for metric in SOFTMAX_MEASURES
    }
    code, out, _ = cli("predict", run, folder / "test" / CLASSES[1] / "bild 0 ü.png", "--json")
    assert code == 0
    assert {one["class"] for one in json.loads(out)["top"]} == set(CLASSES)
    assert cli("report", run, "--out", tmp_path / "page.html")[0] == 0


@pytest.fixture
def damaged(folder):
    """The folder with three more images in train that cannot be read, and one in test."""
    for number, name in enumerate(("truncated.jpg", "zero_bytes.jpg", "bomb_100000x100000.png")):
        shutil.copy(INPUTS / name, folder / "train" / CLASSES[number] / f"0 {name}")
    shutil.copy(INPUTS / "text.jpg", folder / "test" / CLASSES[0] / "0 text.jpg")
    return folder


def test_images_that_cannot_be_read_stop_a_run_before_it_begins(train, damaged, tmp_path):
    code, out, err = train("--skip-unreadable", 1)
    assert (code, out) == (3, "")
    last = err.splitlines()[-1]
    assert last.startswith("sightline: error: ")
    for word in ("2 of 18", "0 zero_bytes.jpg: ", "--skip-unreadable N or all", "--max-pixels N", "allowed: 1"):
        assert word in last
    # The test split is looked at before the training too.
    for file in damaged.glob("train/*/0 *"):
        file.unlink()
    code, _, err = train()
    assert code == 3
    assert "0 text.jpg" in err
    assert not (tmp_path / "run").exists()


def test_some_may_be_left_out_and_are_named(train, cli, folder, damaged, tmp_path):
    """The others are used with the labels that they had: the weights are those of a folder without the bad files."""
    (damaged / "train" / CLASSES[0] / "notes.txt").write_text("not an image")
    code, _, err = train("--skip-unreadable", 3)
    assert code == 0
    for name in ("0 zero_bytes.jpg", "0 bomb_100000x100000.png", "0 text.jpg", "notes.txt", "0 truncated.jpg"):
        assert sum(line.startswith("left out: ") and name in line for line in err.splitlines()) == 1, name
    run = tmp_path / "run"
    # The truncated one has its turn, and is not there.
    assert json.loads(log_lines(run)[-1])["images"] == 16
    assert {row.images for row in read_rows(run / "results.jsonl") if not row.slices} == {6}
    code, _, err = cli("evaluate", run, "--resolutions", "16", "--json", "--skip-unreadable", 0)
    assert code == 3
    # What the run may leave out, its evaluation may.
    code, out, err = cli("evaluate", run, "--resolutions", "16", "--json", "--workers", 2)
    assert code == 0
    assert {row["images"] for row in map(json.loads, out.splitlines()) if not row["slices"]} == {6}
    assert "left out: " in err
    for file in [*damaged.glob("*/*/0 [!t]*"), *damaged.glob("test/*/0 *"), *damaged.glob("*/*/notes.txt")]:
        file.unlink()
    # The same run but for what headers tell, which is in its configuration and not in its weights.
    assert train("--skip-unreadable", 3, out="clean")[0] == 0
    assert weights(tmp_path / "clean") == weights(run)


def test_some_of_the_classes_in_another_folder(train, cli, folder, tmp_path):
    """Labels go by name: a folder with the last class alone is measured as what it is."""
    assert train("--loss=ce")[0] == 0
    run = tmp_path / "run"
    other = tmp_path / "other"
    shutil.copytree(folder / "test" / CLASSES[2], other / CLASSES[2])
    code, out, err = cli("evaluate", run, "--data", f"imagefolder:{other}", "--resolutions", "16", "--json")
    assert code == 0, err
    top1 = next(json.loads(line) for line in out.splitlines())
    files = sorted((other / CLASSES[2]).iterdir())
    code, out, _ = cli("predict", run, *files, "--resolution", 16, "--topk", 1, "--json")
    right = [json.loads(line)["top"][0]["class"] == CLASSES[2] for line in out.splitlines()]
    assert top1["value"] == np.mean(right)
    assert top1["images"] == 2


def no_images(root):
    for file in root.rglob("*.png"):
        file.unlink()


def only(root, *names):
    for split in ("train", "test"):
        for name in CLASSES:
            if name not in names:
                shutil.rmtree(root / split / name)


FAULTS = {
    "empty": (lambda root: [shutil.rmtree(root / split) for split in ("train", "test")], ["my images", "no class"]),
    "no images": (no_images, ["no images", "3 of 3 class folders"]),
    "one class": (lambda root: only(root, "zebra"), ["one class only, 'zebra'", "at least 2"]),
    "an empty class": (lambda root: (root / "train" / "void").mkdir(), ["void", "no images"]),
    "no train": (lambda root: shutil.rmtree(root / "train"), ["'train'", "test"]),
    "a class in test alone": (
        lambda root: shutil.copytree(root / "test" / "zebra", root / "test" / "new"),
        ["new", "lacks"],
    ),
    "splits of the same files": (
        lambda root: (shutil.rmtree(root / "test"), shutil.copytree(root / "train", root / "test")),
        ["bild 0 ü.png", "the same image as", "overlap"],
    ),
    "a file": (lambda root: (shutil.rmtree(root), root.write_text("x")), ["no such folder"]),
    "nothing": (shutil.rmtree, ["no such folder"]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_folder_that_cannot_be_trained_on(fault, train, folder, tmp_path):
    damage, says = FAULTS[fault]
    damage(folder)
    before = tree(tmp_path)
    code, out, err = train()
    assert (code, out) == (2, ""), err
    assert err.startswith("sightline: error: ")
    assert err.count("\n") == 1
    for word in says:
        assert word in err, err
    assert tree(tmp_path) == before
