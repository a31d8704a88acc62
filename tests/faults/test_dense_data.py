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


@pytest.fixture
def ends(cli, tmp_path):
    """`ends(*words, code, says)`: a run is refused with one line, after its headers; nothing is written."""

    def check(*words, code, says):
        got, out, err = cli("train", *words, "--out", tmp_path / "run", *TINY)
        assert (got, out) == (code, "")
        lines = [line for line in err.splitlines() if not line.startswith("reading headers")]
        assert len(lines) == 1
        assert lines[0].startswith("sightline: error: ")
        for one in says:
            assert one in lines[0]
        assert not (tmp_path / "run").exists()

    return check


def last(**changes):
    return lambda said: said["annotations"][-1].update(changes)


@pytest.mark.parametrize(("change", "code", "says"), [
    (last(bbox=[15, 2, math.nan, 3]), 3, "annotation 5: its box [15.0, 2.0, nan, 3.0] is not finite"),
    (last(image_id=5), 2, "annotations[7]: image_id '5'"),
])  # fmt: skip
def test_objects(change, code, says, ends, tmp_path):
    root = folders.coco(tmp_path / "coco", change=change)
    words = ("--task", "detection", "--head", "fcos", "--data", f"coco:{root}")
    ends(*words, code=code, says=[str(root / "annotations/instances_train2017.json"), says])


@pytest.mark.parametrize(("spoil", "code", "says"), [
    (lambda path: path.unlink(), 2, "ADE_train_00000000.jpg: no map of labels"),
    (lambda path: folders.index_png(path, np.ones((12, 19))), 3, "ADE_train_00000000.png is 12 x 19 pixels"),
    (lambda path: path.write_bytes(path.read_bytes()[:20]), 3, "ADE_train_00000000.png: "),
])  # fmt: skip
def test_maps(spoil, code, says, ends, tmp_path):
    root = folders.ade20k(tmp_path / "ade")
    spoil(root / "annotations/training/ADE_train_00000000.png")
    words = ("--task", "segmentation", "--head", "pix", "--data", f"ade20k:{root}")
    ends(*words, code=code, says=[str(root / "images/training/ADE_train_00000000.jpg"), says])


def test_a_label_outside_the_range_ends_a_run_or_is_found_before_it(cli, tmp_path):
    """Headers do not tell it: the run ends with a line where it decodes the map, and `data check` says so before."""
    root = folders.ade20k(tmp_path / "ade")
    path = root / "annotations/training/ADE_train_00000001.png"
    Image.fromarray(np.full(folders.SIZES[1], 151, np.uint8)).save(path)
    said = f"{path}: value 151 at row 0, column 0 is no class (expected: 0, which is ignored, or 1 to 150)"
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
    assert "1 image of a split cannot be read (allowed: 0; --skip-unreadable N or all" in err
    record = json.loads(out)
    [one] = record["unreadable"]["training"]
    assert one["path"] == str(root / "images/training/ADE_train_00000001.jpg")
    assert one["reason"] == said
    assert record["counts"] == {"training": {"images": 2}, "validation": {"images": 3}}
    assert f"sightline train --data ade20k:{root} --task segmentation" in record["next"]
