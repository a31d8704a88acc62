"""What is wrong with masks and boxes is one line that names the file, before a run begins; nothing is written."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from PIL import Image

from tests.data import dense_folders as folders

TINY = ("--images", 8, "--resolution", 16, "--set", "model_options.depth=1", "--set", "model_options.dim=48",
        "--set", "model_options.heads=4", "--set", "validation=null", "--threads", 1)  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "head", "code", "names"),
    [
        ("coco", "fcos", 3, "annotation 5: "),
        ("coco", "fcos", 2, "annotations[7]: "),
        ("ade20k", "pix", 3, "annotations/training/ADE_train_00000000.png"),
    ],
)
def test_a_run_is_refused_before_it_begins(kind, head, code, names, cli, tmp_path):
    """With one line, after its headers; nothing is written."""
    wrong = {"bbox": [15, 2, math.nan, 3]} if code == 3 else {"category_id": 5}
    change = {"change": lambda said: said["annotations"][-1].update(wrong)} if kind == "coco" else {}
    root = folders.WRITERS[kind](tmp_path / "data", **change)
    if kind == "ade20k":
        folders.index_png(root / names, np.ones((12, 19)))
    words = ("--task", "segmentation" if head == "pix" else "detection", "--head", head, "--data", f"{kind}:{root}")
    got, out, err = cli("train", *words, "--out", tmp_path / "run", *TINY)
    assert (got, out) == (code, "")
    [line] = [line for line in err.splitlines() if not line.startswith("reading headers")]
    assert line.startswith("sightline: error: ")
    assert str(root) in line
    assert names in line
    assert not (tmp_path / "run").exists()


def test_a_label_outside_the_range_ends_a_run_or_is_found_before_it(cli, tmp_path):
    """Headers do not tell it: the run ends with a line where it decodes the map, and `data check` says so before."""
    root = folders.ade20k(tmp_path / "ade")
    path = root / "annotations/training/ADE_train_00000001.png"
    Image.fromarray(np.full(folders.SIZES[1], 151, np.uint8)).save(path)
    said = f"{path}: value 151 at row 0, column 0 is no class"
    words = ("train", "--task", "segmentation", "--head", "pix", "--data", f"ade20k:{root}", *TINY)
    code, _, err = cli(*words, "--out", tmp_path / "run")
    assert code == 3
    assert said in err
    assert "Traceback" not in err
    code, _, err = cli(*words, "--out", tmp_path / "skips", "--skip-unreadable", 1)
    assert code == 0, err
    assert said in err
    code, out, err = cli("data", "check", f"ade20k:{root}", "--json")
    assert code == 3
    record = json.loads(out)
    [one] = record["unreadable"]["training"]
    assert one["path"] == str(root / "images/training/ADE_train_00000001.jpg")
    assert one["reason"].startswith(said)
    assert record["counts"] == {"training": {"images": 2}, "validation": {"images": 3}}
    assert f"sightline train --data ade20k:{root} --task segmentation" in record["next"]
