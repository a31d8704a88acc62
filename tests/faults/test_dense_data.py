"""What is wrong with masks and boxes is one line that names the file, before a run begins; nothing is written."""

from __future__ import annotations

import json

import numpy as np
from PIL import Image

from tests.data import dense_folders as folders

TINY = ("--images", 8, "--resolution", 16, "--model_options.depth=1", "--model_options.dim=48",
        "--model_options.heads=4", "--validation=null", "--threads", 1)  # fmt: skip


def test_a_label_outside_the_range_ends_a_run_or_is_found_before_it(cli, tmp_path):
    """Headers do not tell it: the run ends with a line where it decodes the map, and `data check` says so before."""
    root = folders.ade20k(tmp_path / "ade")
    path = root / "annotations/training/ADE_train_00000001.png"
    Image.fromarray(np.full(folders.SIZES[1], 151, np.uint8)).save(path)
    said = f"{path}: value 151 at row 0, column 0 is no class"
    words = ("train", "--task", "segmentation", "--task-options.head", "pix", "--data", f"ade20k:{root}", *TINY)
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
