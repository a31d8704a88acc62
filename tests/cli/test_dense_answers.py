"""What models of pixels and of boxes say of each image, as files and JSON."""

from __future__ import annotations

import contextlib
import csv
import io
import json
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

import sightline
from sightline.hub.load import save_model
from tests.contract.randomise import randomise_parameters
from tests.data import dense_folders as folders


@pytest.fixture
def saved(tmp_path):
    """`saved(task, head, names)` is the folder of a model whose answers are spread."""

    def make(task, head, names, seed=0):
        model = sightline.create_model(
            "vit_micro_patch4", depth=1, dim=48, heads=2, encoding="rope_axial", task=task, head=head, image_size=16,
            num_classes=len(names), class_names=list(names),
        )  # fmt: skip
        randomise_parameters(model, seed)
        # Of boxes many are sure, and have an area.
        for name, parameter in model.head.named_parameters():
            if name.endswith(("classes.bias", "sides.bias")):
                torch.nn.init.ones_(parameter)
        save_model(model, tmp_path / "model")
        return tmp_path / "model"

    return make


def colours(path):
    with Image.open(path) as image:
        assert image.mode == "P"
        return np.asarray(image)


@pytest.mark.parametrize("resolution", ["16", "16x32", "max:20", "native", "tokens:12"])
def test_a_map_is_drawn_at_the_size_of_its_image(cli, saved, tmp_path, resolution):
    """What was cut off by a view of another shape is of no class."""
    model = saved("segmentation", "pix", "abc")
    folders.picture(tmp_path / "wide.png", (24, 60), 0)
    folders.picture(tmp_path / "tall.png", (50, 20), 1)
    words = ("predict", model, tmp_path / "wide.png", tmp_path / "tall.png", "--json", "--resolution", resolution)
    code, said, err = cli(*words, "--out", tmp_path / "drawn")
    assert code == 0, err
    for line, size in zip(said.splitlines(), ((24, 60), (50, 20)), strict=True):
        pictures = json.loads(line)["pictures"]
        labels = colours(pictures["labels"])
        assert labels.shape == size
        with Image.open(pictures["overlay"]) as overlay:
            assert overlay.size == size[::-1]
        # A square of a wide image shows its middle.
        whole = resolution in ("max:20", "native", "tokens:12")
        assert (labels == 255).any() != whole
        assert set(np.unique(labels)) <= {0, 1, 2, 255}
        assert not (labels[size[0] // 2 - 2 : size[0] // 2 + 2, size[1] // 2 - 2 : size[1] // 2 + 2] == 255).any()


def test_results_of_boxes_are_those_of_coco(cli, saved, tmp_path):
    """pycocotools loads them, and finds the same average precision."""
    root = folders.coco(tmp_path / "data")
    model = saved("detection", "fcos", ("car", "cat", "toothbrush"))
    words = ("evaluate", model, "--data", f"coco:{root}", "--out", tmp_path / "out", "--precision", "float32")
    code, _, err = cli(*words, "--resolutions", "native")
    assert code == 0, err
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO(str(root / "annotations" / "instances_val2017.json"))
        judged: Any = COCOeval(coco, coco.loadRes(str(tmp_path / "out/predictions/test_native.json")), "bbox")
        judged.evaluate()
        judged.accumulate()
        judged.summarize()
    rows = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    ours = {one["metric"]: one["value"] for one in rows if not one["slices"]}
    assert ours["box_ap50"] > 0
    for metric, place in (("box_ap", 0), ("box_ap50", 1), ("box_ap75", 2), ("box_ar100", 8)):
        assert judged.stats[place] == pytest.approx(ours[metric], abs=1e-6)
    found = json.loads((tmp_path / "out/predictions/test_native.json").read_text())
    assert {one["image_id"] for one in found} <= {1000, 1001, 1002}
    assert {one["category_id"] for one in found} <= {3, 17, 90}
    sizes = dict(zip((1000, 1001, 1002), folders.SIZES, strict=True))
    for one in found:
        (x, y, width, height), (rows_, cols) = one["bbox"], sizes[one["image_id"]]
        assert min(x, y) >= 0 < min(width, height)
        assert (x + width, y + height) <= (cols + 1e-3, rows_ + 1e-3)


def test_results_at_several_sizes_are_of_the_stored_image(cli, saved, tmp_path):
    root = folders.coco(tmp_path / "data")
    model = saved("detection", "fcos", ("car", "cat", "toothbrush"))
    words = ("evaluate", model, "--data", f"coco:{root}", "--out", tmp_path / "out", "--resolutions", "32,16")
    code, _, err = cli(*words)
    assert code == 0, err
    files = sorted((tmp_path / "out" / "predictions").iterdir())
    assert [file.name for file in files] == ["test_16px.json", "test_32px.json"]
    for file in files:
        # Of the first image, 12 x 20, a square shows the middle.
        found = [one["bbox"] for one in json.loads(file.read_text()) if one["image_id"] == 1000]
        assert found
        assert all(x >= 4 and x + width <= 16 + 1e-3 for x, _, width, _ in found)


def test_results_of_maps_are_index_pngs_and_a_line_an_image(cli, saved, tmp_path):
    root = folders.masks(tmp_path / "data", highest=2)
    model = saved("segmentation", "pix", "012")
    words = ("evaluate", model, "--data", f"masks:{root}", "--out", tmp_path / "out")
    code, _, err = cli(*words, "--resolutions", "16,native")
    assert code == 0, err
    folder, lines = tmp_path / "out" / "predictions", []
    for name in ("test_16px.csv", "test_native.csv"):
        with (folder / name).open(newline="") as file:
            lines += csv.DictReader(file)
    assert [(one["view"], one["resolution"], one["index"]) for one in lines] == [
        (*shown, str(index)) for shown in (("square", "16"), ("native", "")) for index in range(3)
    ]
    true, right, there = [], 0, 0
    for one, size in zip(lines, folders.SIZES * 2, strict=True):
        labels = colours(folder / one["labels"])
        assert labels.shape == size
        assert (labels == 255).any() == (one["view"] == "square")
        if one["view"] == "native":
            with Image.open(one["name"].replace("/images/", "/masks/")) as mask:
                true = np.asarray(mask)
            right, there = right + (labels == true)[true != 255].sum(), there + (true != 255).sum()
    rows = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    [ours] = [one["value"] for one in rows if (one["metric"], one["view"]) == ("pixel_accuracy", "native")]
    assert right / there == pytest.approx(ours)


@pytest.mark.parametrize("name", ["mine.txt", "mine.json", "mine.csv", "test_16px/mine.png", "mine/0.png"])
def test_files_of_the_user_s_own_stay_beside_results(name, cli, saved, tmp_path):
    root = folders.masks(tmp_path / "data", highest=2)
    words = ("--data", f"masks:{root}", "--out", tmp_path / "out", "--resolutions", "16", "--overwrite")
    mine = tmp_path / "out" / "predictions" / name
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    # The second time other weights answer: all that was written is replaced.
    for seed in (1, 2):
        code, _, err = cli("evaluate", saved("segmentation", "pix", "012", seed), *words)
        assert code == 0, err
        assert mine.read_text() == "mine"


def test_json_has_boxes_as_coco_has_them(cli, saved, tmp_path):
    model = saved("detection", "fcos", ("car", "cat"))
    folders.picture(tmp_path / "wide.png", (8, 200), 0)
    code, said, err = cli("predict", model, tmp_path / "wide.png", "--json")
    assert code == 0, err
    objects = json.loads(said)["objects"]
    assert objects
    assert max(one["box"][0] for one in objects) > 8
    for one in objects:
        x, y, width, height = one["box"]
        assert x + width <= 200 + 1e-3
        assert y + height <= 8 + 1e-3
