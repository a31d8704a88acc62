"""Which names mean a split and which a class: one rule for folders, shards and tables."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from sightline.data.folders import files_by_split, split_by_name, split_in, splits_among
from sightline.data.open import open_source
from sightline.data.sources.wds import WebDataset
from sightline.errors import InputError
from tests.clips import frames_of, save_folder, save_gif
from tests.data.test_image_folder import save
from tests.data.three_kinds import images, write_tar
from tests.tiny import pictures


def write(root, *names):
    """Images of these names below a folder, each another one."""
    for number, name in enumerate(names):
        save(root / name, sum(map(ord, f"{name}{number}")) * 1000 + number)
    return root


def save_map(path, seed):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 2, (12, 18), dtype=np.uint8)).save(path)


def opened(root, kind="imagefolder"):
    source = open_source(f"{kind}:{root}")
    return source.splits, source.classes, {one.path.removeprefix(f"{root}/"): one.reason for one in source.skipped}


def test_names_of_splits_in_any_case_and_as_published():
    meanings = {
        "train": ("train", "Train", "TRAINING"), "val": ("val", "valid", "Dev"), "validation": ("Validation",),
        "test": ("test", "TEST", "testing", "eval", "evaluation"), "minival": ("minival",),
        None: ("trains", "extra", "unlabeled", "trainval", "test2", ""),
    }  # fmt: skip
    for split, names in meanings.items():
        assert {split_by_name(name) for name in names} == {split}
    assert splits_among(["b", "Testing", "TRAIN"], "x") == {"train": "TRAIN", "test": "Testing"}
    for two in (["train", "Training"], ["val", "validation"], ["dev", "valid"]):
        with pytest.raises(InputError, match=f"x: {two[0]} and {two[1]}"):
            splits_among(two, "x")


@pytest.mark.parametrize("names", [("Train", "Test"), ("training", "testing"), ("TRAIN", "valid"), ("train", "Dev")])
@pytest.mark.parametrize("kind", ["imagefolder", "clips"])
def test_folders_of_class_folders_are_splits(names, kind, tmp_path):
    write(tmp_path, *(f"{split}/{name}/{number}.png" for split in names for name in "ab" for number in range(2)))
    assert opened(tmp_path, kind) == (("train", "test"), ("a", "b"), {})
    source = open_source(f"{kind}:{tmp_path}")
    assert source.length(names[0]) == source.length("train") == source.length(names[1]) == 4


@pytest.mark.parametrize("name", ["train", "Test", "val"])
def test_a_class_may_be_called_as_a_split(name, tmp_path):
    """Means of transport: one that holds images directly, beside others that do."""
    write(tmp_path, "bus/0.png", "car/0.png", f"{name}/0.png", f"{name}/1.png")
    assert opened(tmp_path) == (("test",), tuple(sorted(("bus", "car", name))), {})
    inside = tmp_path / "inside"
    write(inside, *(f"{split}/{one}/0.png" for split in ("train", "val") for one in ("bus", "train", "test")))
    assert opened(inside)[:2] == (("train", "test"), ("bus", "test", "train"))
    clips = tmp_path / "clips"
    for number, one in enumerate(("bus", name)):
        save_folder(clips / one / "a", frames_of(number, 2))
    assert opened(clips, "clips")[:2] == (("test",), tuple(sorted(("bus", name))))
    save_gif(clips / "car" / "b.gif", frames_of(7, 2))
    assert opened(clips, "clips")[:2] == (("test",), tuple(sorted(("bus", "car", name))))
    # Of stills, one a clip, these are class folders, and not folders of frames.
    stills = write(tmp_path / "stills", "train/a/0.png", "train/b/0.png", "val/a/0.png", "extra/0.png")
    assert opened(stills, "clips") == (("train", "test"), ("a", "b"), {"extra": "not a split"})


@pytest.mark.parametrize("names", [
    ("train/a/0.png", "train/b/0.png", "test/0.png", "bus/0.png"),
    ("train/a/0.png", "train/0.png", "bus/0.png", "car/0.png"),
    ("Val/a/0.png", "Train/0.png", "bus/0.png"),
])  # fmt: skip
def test_both_readings_at_once_are_refused(names, tmp_path):
    with pytest.raises(InputError) as raised:
        opened(write(tmp_path, *names))
    said = str(raised.value)
    assert names[0].partition("/")[0] in said
    assert "bus" in said
    assert "splits" in said
    assert "class folders" in said
    assert "\n" not in said


@pytest.mark.parametrize(("shown", "maps", "taken"), [
    (("Train", "Val"), ("train", "val"), {"train", "val"}),
    (("train", "val"), ("TRAIN", "Validation"), {"TRAIN", "Validation"}),
    (("Training", "test"), ("train", "Testing", "val"), {"train", "Testing"}),
    (("Train", "val"), ("train", "Train", "val"), {"Train", "val"}),
])  # fmt: skip
def test_masks_are_paired_by_the_split_that_folders_mean(shown, maps, taken, tmp_path):
    for name in shown:
        save(tmp_path / "images" / name / "0.png", sum(map(ord, name)))
    for number, name in enumerate(maps):
        save_map(tmp_path / "masks" / name / "0.png", number)
    source = open_source(f"masks:{tmp_path}")
    assert (source.splits, source.length("train"), source.length("test")) == (("train", "test"), 1, 1)
    assert {path.split("/")[-2] for path in map(source.map_path, source.images)} == taken


def test_a_word_of_a_file_s_name_counts_where_each_has_one():
    assert files_by_split(["train-0.tar", "x-val-0.tar"], "test") == {"train": ["train-0.tar"], "val": ["x-val-0.tar"]}
    assert files_by_split(["night-train-0.tar", "bus-0.tar"], "test") == {"test": ["night-train-0.tar", "bus-0.tar"]}
    inside = ["d/Train/night-test-0.tar", "d/Train/bus.tar", "d/val/0.tar"]
    assert files_by_split(inside, "test") == {"train": inside[:2], "val": inside[2:]}
    assert files_by_split(["d/test/train-0.tar", "d/test/dev-0.tar"], "test") == {
        "train": ["d/test/train-0.tar"], "val": ["d/test/dev-0.tar"]
    }  # fmt: skip
    assert [split_in(name) for name in ("train_test-0.tar", "Training-1.tar", "trainval.tar")] == [None, "train", None]


def sample(number, label):
    pixels = images(count=3)["train"][number][2]
    return [(f"{number}.png", pixels), (f"{number}.cls", str(label).encode())]


def test_no_shard_is_left_out_for_a_word(tmp_path):
    for number, name in enumerate(("night-train-0", "bus-0")):
        write_tar(tmp_path / f"{name}.tar", [*sample(2 * number, 0), *sample(2 * number + 1, 1)])
    source = WebDataset(str(tmp_path))
    assert (source.splits, source.length("test"), source.skipped) == (("test",), 4, ())
    with pytest.raises(InputError, match=r"bus-0\.tar"):
        source.length("train")
    write_tar(tmp_path / "extra" / "0.tar", sample(5, 1))
    assert [one.path for one in WebDataset(str(tmp_path)).skipped] == [f"{tmp_path}/extra"]
    for name in ("Train", "Validation"):
        write_tar(tmp_path / "inside" / name / "bus.tar", [*sample(6, 0), *sample(len(name), 1)])
    assert WebDataset(str(tmp_path / "inside")).splits == ("train", "test")


def test_names_of_a_dict_are_given(tmp_path):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])})
    given = {
        ("Train", "valid"): ("train", "test"), ("train", "dev", "test"): ("train", "minival", "test"),
        ("train", "validation", "dev"): ("train", "test"), ("train", "val", "valid"): ("train", "test"),
        ("test", "testing", "train"): ("train", "test"), ("train", "Train", "training"): ("train",),
        ("train", "val", "validation"): None, ("train", "dev", "valid"): None, ("Train", "training"): None,
    }  # fmt: skip
    exact = ("train", "test", "validation", "val")
    for number, (names, splits) in enumerate(given.items()):
        parts = {
            name: datasets.Dataset.from_dict(
                {"image": [{"bytes": one[2], "path": None} for one in images()["train"][4 * at : 4 * at + 4]],
                 "label": [0, 1, 0, 1]}, features=features,
            )
            for at, name in enumerate(names)
        }  # fmt: skip
        root = tmp_path / str(number)
        datasets.DatasetDict(parts).save_to_disk(root)
        if splits is None:
            with pytest.raises(InputError):
                opened(root, "hf")
            continue
        beside = [one for one in names if one not in exact] if len(names) > len(splits) else []
        assert opened(root, "hf") == (splits, ("a", "b"), {f"{root}:{one}": "not a split" for one in beside})


def test_predict_says_what_is_left_out(tmp_path, cli):
    import sightline

    sightline.save_model(
        sightline.create_model("vit_micro_patch4", depth=1, dim=48, heads=4, image_size=8, num_classes=2),
        tmp_path / "m",
    )
    data = pictures(tmp_path / "data")
    write(tmp_path / "data", "extra/0.png", "val/a/7.png")
    (tmp_path / "data" / "test" / "a" / "9.png").write_bytes((tmp_path / "data" / "train" / "a" / "0.png").read_bytes())
    code, out, err = cli("predict", tmp_path / "m", data)
    assert code == 0, err
    assert [line for line in err.splitlines() if "left out" in line] == [
        f"left out: {tmp_path / 'data' / 'extra'}: not a split"
    ]
    assert "test/a/9.png" in out
    (tmp_path / "data" / "notes.txt").write_text("x")
    code, out, err = cli("predict", tmp_path / "m", tmp_path / "data")
    assert code == 0, err
    assert "notes.txt: unknown extension" in err
    assert "extra/0.png" in out
