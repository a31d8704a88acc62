"""Captions: what each data set says in words, which of several is drawn, and what is wrong with one."""

from __future__ import annotations

import hashlib
import json
import pickle

import numpy as np
import pytest

from sightline.data.loader import read_example
from sightline.data.open import open_source, recognise_layout
from sightline.data.scenes.draw import COLOURED_CLASSES, HELD_OUT_CLASSES, PAIR_CLASSES
from sightline.data.targets import Captions, Label, LabelledCaptions, with_one_caption
from sightline.errors import InputError
from tests.data.dense_folders import picture
from tests.data.three_kinds import encoded, write_tar

PNGS = [encoded(one) for one in np.random.default_rng(0).integers(0, 256, (6, 14, 15, 3), dtype=np.uint8)]
TWO = ("a cat", "the cat")


def target(source, split="train", index=0, **shown):
    return source.example(split, index, (8, 8), **shown).target


def said(source, split="test"):
    return [target(source, split, index).captions for index in range(source.length(split))]


def unreadable(source, split="train"):
    return {one.path.rpartition("/")[2] for one in source.check_readable(split, skip_unreadable="all")[1]}


def table(folder, text, name="captions.csv", images=6):
    for number in range(images):
        picture(folder / "images" / f"{number}.png", (12, 16), number)
    (folder / name).write_text(text, encoding="utf-8")
    return f"csv:{folder / name}"


def shards(folder, *samples, split="train"):
    """Each sample is a mapping of extension to content, beside its image."""
    members = []
    for number, sample in enumerate(samples):
        for extension, content in ({"png": PNGS[number]} | sample).items():
            content = json.dumps(content) if isinstance(content, dict) else content
            members.append((f"{number}.{extension}", content.encode() if isinstance(content, str) else content))
    write_tar(folder / f"{split}-0.tar", members)
    return f"wds:{folder}"


def draw_caption(captions, **shown):
    (drawn,) = with_one_caption(Captions(captions), **shown).captions
    return drawn


def test_one_caption_is_drawn_each_epoch():
    five = tuple("abcde")
    drawn = [draw_caption(five, seed=1, epoch=epoch, index=3) for epoch in range(200)]
    assert drawn[7] == draw_caption(five, seed=1, epoch=7, index=3)
    assert min(map(drawn.count, five)) > 20
    for others in ({"seed": 1, "index": at} for at in range(20)), ({"seed": at, "index": 1} for at in range(20)):
        assert {draw_caption(five, epoch=0, **other) for other in others} == set(five)
    assert draw_caption(("one",), seed=0, epoch=0, index=0) == "one"


@pytest.mark.parametrize("divided", [",", "\t"])
def test_a_table_of_captions(divided, tmp_path):
    rows = [
        "Title|FILEPATH|split", "a cat|images/0.png|train", "a dog|images/1.png|train",
        '"the\n cat"|images/0.png|train', f"a bird|{tmp_path}/images/2.png|val", "b|images/3.png|restval",
    ]  # fmt: skip
    source = open_source(table(tmp_path, "\ufeff" + "\r\n".join(rows).replace("|", divided)))
    assert (source.splits, source.provides, source.classes) == (("train", "test"), ("captions",), ())
    assert [source.length(split) for split in source.splits] == [2, 1]
    assert said(source) == [("a bird",)]
    assert target(source, "test") == Captions(("a bird",), meaning=-1)
    assert {target(source, epoch=epoch).captions for epoch in range(20)} == {TWO[:1], TWO[1:]}
    # As a worker reads it.
    example, _ = read_example(pickle.loads(pickle.dumps(source)), "train", 0, (8, 8), seed=5, epoch=3)
    assert example.target.captions == (draw_caption(TWO, seed=5, epoch=3, index=0),)
    assert [one.reason for one in source.skipped] == ["not a split"]
    assert unreadable(source) == set()


def test_a_table_without_splits(tmp_path):
    text = "path,caption\nimages/0.png,a\nimages/1.png,b\nimages/2.png,c\n"
    assert open_source(table(tmp_path, text)).splits == ("train",)
    assert open_source(table(tmp_path, text, "photos_test.csv")).splits == ("test",)
    held = open_source(f"{table(tmp_path, text)},minival=0.4")
    assert [held.length(split) for split in held.splits] == [2, 1]
    assert recognise_layout(f"{tmp_path}/captions.csv") == f"csv:{tmp_path}/captions.csv"
    # A run that goes on sees other captions.
    texts = (text, text, text.replace("png,c", "png,d"))
    first, same, other = (open_source(table(tmp_path, one)).fingerprint().digest for one in texts)
    assert first == same != other


@pytest.mark.parametrize("text", ["", "caption\na\n", "path,label\nimages/0.png,1\n", "path,caption\n",
    "path,caption\n ,a\n", "path,caption,split\nimages/0.png,a,other\n"])  # fmt: skip
def test_a_table_that_is_none(text, tmp_path):
    for spec in (table(tmp_path, text), f"csv:{tmp_path}/missing.csv"):
        with pytest.raises(InputError):
            open_source(spec)


def test_rows_that_cannot_be_read(tmp_path):
    text = 'path,caption\nimages/0.png,a\nimages/1.png," "\nimages/2.png\nimages/9.png,b\n'
    assert unreadable(open_source(table(tmp_path, text))) == {"1.png", "2.png", "9.png"}


def test_captions_in_shards(tmp_path):
    lines = {"txt": "a cat\n\n the  cat \n"}
    spec = shards(tmp_path, lines, {"json": {"caption": "a dog"}}, {"json": {"captions": ["a", "", "b"]}}, split="test")
    for _ in ("read", "remembered"):
        source = open_source(spec)
        assert (source.provides, source.classes, source.splits) == (("captions",), (), ("test",))
        assert said(source) == [TWO, ("a dog",), ("a", "b")]
    other = shards(tmp_path / "other", {"json": {"title": "a bird", "caption": "b"}}, split="test")
    assert said(open_source(f"{other},caption=title")) == [("a bird",)]


def test_labels_beside_captions_in_shards(tmp_path):
    samples = [{"cls": "0", "txt": "a cat"}, {"cls": "1", "txt": "a dog"}, {"cls": "1", "txt": "dogs"}]
    source = open_source(shards(tmp_path / "both", *samples))
    assert (source.provides, source.classes) == (("label", "captions"), ("0", "1"))
    assert target(source) == LabelledCaptions(0, captions=("a cat",))
    # One of them has no caption: they are classes alone, unless captions are asked for.
    spec = shards(tmp_path / "some", *samples[:2], {"cls": "1"})
    assert target(open_source(spec)) == Label(0)
    assert unreadable(open_source(f"{spec},caption=txt")) == {"train-0.tar:2.png"}
    # Words that are labels are no captions.
    words = shards(tmp_path / "words", *({"txt": word} for word in ("cat", "dog", "cat", "dog")))
    assert open_source(f"{words},label=txt").provides == ("label",)


def test_samples_without_a_caption(tmp_path):
    bad = [{"txt": " \n"}, {"txt": b"\xff\xfe"}, {"json": "{"}, {"json": {"caption": 3}}]
    source = open_source(shards(tmp_path, {"txt": "a cat"}, *bad))
    assert unreadable(source) == {f"train-0.tar:{number}.png" for number in range(1, 5)}


def test_captions_in_tables_of_hugging_face(tmp_path):
    datasets = pytest.importorskip("datasets")

    def spec(name, **columns):
        values = {"image": [{"bytes": one, "path": None} for one in PNGS[:2]], **columns}
        rows = datasets.Dataset.from_dict(values).cast_column("image", datasets.Image())
        datasets.DatasetDict(test=rows).save_to_disk(tmp_path / name)
        return f"hf:{tmp_path / name}"

    assert said(open_source(spec("text", text=["a cat", "a dog"]))) == [("a cat",), ("a dog",)]
    source = open_source(spec("lists", Captions=[TWO, ["a dog"]], text=["x", "y"]))
    assert (source.provides, said(source)) == (("captions",), [TWO, ("a dog",)])
    assert said(open_source(f"hf:{tmp_path / 'lists'},caption=text")) == [("x",), ("y",)]
    assert unreadable(open_source(spec("empty", sentence=["a cat", ""])), "test") == {"1"}
    both = open_source(spec("both", label=[1, 0], caption=["a cat", "a dog"]))
    assert (both.provides, target(both, "test")) == (("label", "captions"), LabelledCaptions(1, captions=("a cat",)))
    with pytest.raises(InputError):
        open_source(f"hf:{tmp_path / 'both'},caption=label")


def coco(root, change=lambda said: None):
    (root / "annotations").mkdir()
    for at, own in enumerate(("train2017", "val2017")):
        images = [{"id": 7 + number, "file_name": f"{number}.jpg", "height": 12, "width": 16} for number in range(2)]
        captions = [{"id": at, "image_id": 7 + at // 2, "caption": f"{own} {at} on the left"} for at in range(4)]
        for number in range(2):
            picture(root / own / f"{number}.jpg", (12, 16), 10 * at + number)
        content = {"images": images, "annotations": captions}
        change(content)
        (root / "annotations" / f"captions_{own}.json").write_text(json.dumps(content))
    return f"coco-captions:{root}"


def test_captions_of_coco(tmp_path):
    source = open_source(coco(tmp_path))
    assert (source.splits, source.provides) == (("train", "test"), ("captions",))
    assert said(source) == [tuple(f"val2017 {at} on the left" for at in some) for some in ((0, 1), (2, 3))]
    assert recognise_layout(str(tmp_path)) == f"coco-captions:{tmp_path}"
    # Left and right are told apart.
    assert (source.says_sides, source.transform.flip) == (True, 0.0)
    (tmp_path / "val2017" / "1.jpg").unlink()
    assert unreadable(open_source(f"coco-captions:{tmp_path}"), "test") == {"1.jpg"}


@pytest.mark.parametrize("where", [("annotations", "image_id", 99), ("images", "file_name", 3),
    ("images", "id", 8), ("images", "file_name", "../x.jpg")])  # fmt: skip
def test_captions_of_coco_that_contradict_themselves(where, tmp_path):
    with pytest.raises(InputError):
        open_source(coco(tmp_path, lambda content: content[where[0]][0].update({where[1]: where[2]})))


def test_pairs_of_shapes_in_words():
    source = open_source("scenes:pairs")
    assert source.provides == ("label", "pixels", "objects", "captions")
    known = [set(one) for one in source.class_captions]
    assert sum(map(len, known)) == len(set.union(*known)) == 8 * len(PAIR_CLASSES)
    assert {"a disc left of a square", "a square right of a disc"} <= known[PAIR_CLASSES.index("disc left of square")]
    for index in range(8):
        one = target(source, "test", index)
        assert (set(one.captions), one.meaning) == (known[one.label], one.label)
        one = target(source, "train", index, seed=3)
        assert len(one.captions) == len({*one.captions} & known[one.label]) == 1
    # Its draws did not move.
    pixels = b"".join(source.example("train", index, (16, 16), seed=5).image.tobytes() for index in range(3))
    assert hashlib.sha256(pixels).hexdigest()[:16] == "3c639e4a9676fb63"


def test_colours_of_shapes_in_words():
    source = open_source("scenes:captions")
    held = {COLOURED_CLASSES.index(name) for name in HELD_OUT_CLASSES}
    seen = {split: {target(source, split, index).label for index in range(300)} for split in source.splits}
    assert seen["heldout"] == held
    assert seen["train"] == seen["test"] == set(range(24)) - held
    # Each shape and each colour is held out at most once, and so is seen.
    assert all(len(set(part)) == len(part) for part in zip(*map(str.split, HELD_OUT_CLASSES), strict=True))
    for index in range(20):
        example = source.example("heldout", index, (48, 48))
        colour, shape = source.classes[example.target.label].split()
        assert all(colour in one and shape in one for one in example.target.captions)
        shown = example.image[example.target.objects.masks[0]].mean(axis=0) > 127
        assert tuple(shown) == {"green": (0, 1, 0), "blue": (0, 0, 1), "yellow": (1, 1, 0)}.get(colour, (1, 0, 1))
