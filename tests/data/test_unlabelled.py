"""Data of which no split has a label: `predict` takes all its images, what needs labels refuses it in one line."""

from __future__ import annotations

import json

import pytest
from PIL import Image

import sightline
from tests.clips import frames_of, save_gif
from tests.data.test_labels import PIXELS, PNGS, tables
from tests.data.three_kinds import write_tar


@pytest.fixture
def model(tmp_path):
    made = sightline.create_model("vit_micro_patch4", depth=1, dim=48, heads=4, image_size=8, num_classes=2)
    sightline.save_model(made, tmp_path / "model")
    return tmp_path / "model"


def shard(beside):
    """A shard of images, each with the member that `beside` makes of its number."""

    def write(root):
        members = [(f"{number}.png", PNGS[number]) for number in range(3)]
        members += [(f"{number}.{beside[0]}", beside[1]) for number in range(3) if beside]
        write_tar(root / "test-0.tar", sorted(members))
        return f"wds:{root}/test-0.tar"

    return write


def saved(labels, split="test", kind=None, drop=()):
    """What `save_to_disk` writes of these labels; `kind` is given `datasets`, and makes the column's feature."""

    def write(root):
        datasets = pytest.importorskip("datasets")
        parts = tables({split: labels}, kind and kind(datasets))
        datasets.DatasetDict(parts).map(remove_columns=list(drop)).save_to_disk(root)
        return f"hf:{root}"

    return write


def folder(kind, *names):
    def write(root):
        for number, name in enumerate(names):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(PIXELS[number]).save(root / name)
        return f"{kind}:{root}"

    return write


def clips(root):
    for number in range(3):
        save_gif(root / "test" / f"{number}.gif", frames_of(number, 2))
    return f"clips:{root}"


SOURCES = {
    "wds without a member": shard(()),
    "wds of -1": shard(("cls", b"-1")),
    "wds of null": shard(("json", b'{"label": null}')),
    "hf of -1": saved([-1] * 3, kind=lambda datasets: datasets.ClassLabel(names=["a", "b"])),
    "hf of null": saved([None] * 3, kind=lambda datasets: datasets.ClassLabel(names=["a", "b"])),
    "hf without a column": saved([0] * 3, kind=lambda datasets: datasets.Value("int64"), drop=["label"]),
    "imagefolder": folder("imagefolder", "test/0.png", "test/1.png", "test/2.png"),
    "imagefolder of two": folder("imagefolder", "val/0.png", "val/1.png", "Test/2.png"),
    "clips": clips,
}


@pytest.mark.parametrize("kind", SOURCES)
def test_what_has_no_label_is_predicted_and_else_refused(kind, tmp_path, cli, model):
    data = SOURCES[kind](tmp_path / "data")
    code, out, err = cli("predict", model, data, "--json", "--precision", "float32")
    assert code == 0, err
    assert len([json.loads(line) for line in out.splitlines()]) == 3
    assert "left out" not in err
    for words in (
        ("evaluate", model, "--data", data, "--resolutions", 8),
        ("evaluate", model, "--data", data, "--split", "test,train", "--resolutions", 8, "--skip-unreadable", "all"),
        ("train", "--data", data, "--out", tmp_path / "run", "--model", "vit_micro_patch4", "--resolution", 8),
        ("train", "--data", data, "--out", tmp_path / "run", "--model", "vit_micro_patch4", "--dry-run"),
    ):
        code, out, err = cli(*words)
        assert (code in (2, 3), err.count("\n"), "Traceback" in err) == (True, 1, False), (words[0], err)
    assert not (tmp_path / "run").exists()


def test_images_of_any_kind_are_predicted(tmp_path, cli, model):
    for number, names in enumerate((("0.png", "deep/1.png"), ("test/0.png", "test/1.png"))):
        data = folder("images", *names)(tmp_path / str(number))
        code, out, err = cli("predict", model, data, "--json")
        assert (code, len(out.splitlines())) == (0, 2), err
        for words in (("evaluate", model, "--data", data), ("train", "--data", data, "--task", "classification")):
            code, _, err = cli(*words, "--out", tmp_path / "run")
            assert (code, err.count("error: "), "Traceback" in err) == (2, 1, False), err
