"""Each command that is printed as the next one is taken as it stands."""

from __future__ import annotations

import shlex
import shutil

import pytest

import sightline
from tests.clips import make
from tests.data.dense_folders import ade20k, cityscapes, coco, lvis, masks, voc
from tests.data.three_kinds import images, saved, shards
from tests.tiny import pictures

pytestmark = pytest.mark.slow

MAKE = {
    "imagefolder": pictures, "images": lambda root: pictures(root) and f"images:{root}",
    "clips": lambda root: f"clips:{make(root)}", "masks": lambda root: f"masks:{masks(root)}",
    "coco": lambda root: f"coco:{coco(root)}", "voc": lambda root: f"voc:{voc(root)}",
    "ade20k": lambda root: f"ade20k:{ade20k(root)}", "cityscapes": lambda root: f"cityscapes:{cityscapes(root)}",
    "lvis": lambda root: f"lvis:{lvis(root)}", "wds": lambda root: shards(root, images(count=1)),
    "hf": lambda root: saved(root, images(count=1)), "alone": lambda root: pictures(root).partition(":")[2],
}  # fmt: skip


def printed(said):
    """The words of each command in what was printed."""
    lines = [line.rpartition(": sightline ")[2] for line in said.splitlines() if ": sightline " in line]
    return [shlex.split(line) for line in lines]


@pytest.mark.parametrize("kind", MAKE)
def test_what_a_check_of_data_prints_is_taken(kind, cli, tmp_path, monkeypatch):
    """With an unreadable image too, and where a run of that name is there."""
    monkeypatch.chdir(tmp_path)
    if kind == "hf":
        pytest.importorskip("datasets")
    data = MAKE[kind](tmp_path / "my data")
    if kind in ("imagefolder", "images"):
        (tmp_path / "my data" / "train" / "a" / "0.png").write_bytes(b"no image")
    for name in ("my data", "my data_packed"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    _, out, err = cli("data", "check", data)
    words = printed(out)
    assert len(words) == (2 if kind in ("imagefolder", "hf", "wds", "alone") else 1), out
    # The packed one is of the same model.
    for one in words[-1:]:
        assert one[0] == "train"
        code, _, err = cli(*one, "--dry-run", "--threads", "1")
        assert code == 0, err


@pytest.mark.parametrize("kind", ["imagefolder", "images"])
def test_what_is_printed_of_data_to_measure_is_taken(kind, cli, tmp_path):
    own = {"image_size": 8, "depth": 1, "dim": 48, "heads": 4}
    masked = {"task": "masked_patches", "head": "masked_patches", "num_classes": 0}
    own |= masked if kind == "images" else {"num_classes": 2, "class_names": ["a", "b"]}
    sightline.save_model(sightline.create_model("vit_micro_patch4", **own), tmp_path / "RUN")
    pictures(tmp_path / "data")
    shutil.rmtree(tmp_path / "data" / "train")
    code, out, err = cli("data", "check", f"{kind}:{tmp_path / 'data'}")
    assert code == 0, err
    measure, train = printed(out)
    measure = [str(tmp_path / "RUN") if word == "RUN" else word for word in measure]
    code, _, err = cli(*measure, "--resolutions", "8", "--out", tmp_path / "rows.jsonl")
    assert code == 0, err
    code, _, err = cli(*train, "--dry-run", "--threads", "1")
    assert code == 0, err
