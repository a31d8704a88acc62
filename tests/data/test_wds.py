"""Tar shards: how they are found, what a sample is, and what is wrong with one is said of it alone."""

import functools
import os

import numpy as np
import pytest

from sightline.data import tar_index
from sightline.data.image_file import read_image
from sightline.data.sources.wds import WebDataset
from sightline.data.tar_index import index_shards
from sightline.errors import InputError, UnreadableDataError
from tests.data.three_kinds import encoded, write_tar

PIXELS = np.random.default_rng(0).integers(0, 256, (8, 14, 15, 3), dtype=np.uint8)
PNGS = [encoded(pixels) for pixels in PIXELS]


def sample(number, label):
    return [(f"{number:03}.png", PNGS[number]), (f"{number:03}.cls", str(label).encode())]


def whole(root):
    """Two shards to train on and one to measure, of three classes."""
    write_tar(root / "train-0.tar", [*sample(0, 0), *sample(1, 1)])
    write_tar(root / "train-1.tar", [*sample(2, 2), *sample(3, 0)])
    write_tar(root / "val-0.tar", sample(4, 1))
    return root


def unreadable(source, split="train"):
    """Name of a member -> why it cannot be read."""
    left, lost = source.check_readable(split, skip_unreadable="all")
    assert left.length(split) == source.length(split) - len(lost)
    return {one.path.rpartition(":")[2]: one.reason for one in lost}


@pytest.mark.parametrize(
    ("shards", "splits", "first"),
    [
        ("", ("train", "test"), ["train-0.tar:000", "train-0.tar:001", "train-1.tar:002", "train-1.tar:003"]),
        ("/train-{0..0}.tar", ("train",), ["train-0.tar:000", "train-0.tar:001"]),
        ("/*-0.tar", ("train", "test"), ["train-0.tar:000", "train-0.tar:001"]),
        ("/{train,val}-{00..00}.tar", None, None),
        ("/train-1.tar", ("train",), ["train-1.tar:002", "train-1.tar:003"]),
    ],
)
def test_shards_by_folder_pattern_and_braces(shards, splits, first, tmp_path):
    whole(tmp_path)
    if splits is None:
        # Every shard that braces name must be there.
        with pytest.raises(InputError, match=r"train-00\.tar"):
            WebDataset(f"{tmp_path}{shards}")
        return
    (tmp_path / "classes.txt").write_text("a\nb\nc\n")
    source = WebDataset(f"{tmp_path}{shards}")
    assert (source.splits, source.classes) == (splits, ("a", "b", "c"))
    names = [source.example_name("train", index) for index in range(source.length("train"))]
    assert names == [f"{tmp_path}/{name}.png" for name in first]


def test_a_key_ends_at_the_first_dot_behind_the_last_slash(tmp_path):
    members = [
        ("a.b/x.y.png", PNGS[0]), ("a.b/x.JPG", encoded(PIXELS[1], "JPEG")), ("a.b/x.cls", b" 1\r\n"),
        ("./z.seg.png", PNGS[2]), ("./z.png", PNGS[3]), ("./z.json", b'{"cls": 0, "more": [1]}'),
        ("._hidden.png", PNGS[4]), ("README", b"text"), ("__meta__/x", b""),
    ]  # fmt: skip
    write_tar(tmp_path / "train.tar", members)
    source = WebDataset(str(tmp_path))
    assert unreadable(source) == {}
    assert [source.example_name("train", index).rpartition(":")[2] for index in (0, 1)] == ["a.b/x.jpg", "./z.png"]
    assert source.labels == [1, 0]
    assert [one.path.rpartition(":")[2] for one in source.skipped] == ["._hidden.png", "README"]
    other = WebDataset(f"{tmp_path},image=seg.png")
    assert list(unreadable(other)) == ["a.b/x"]
    assert np.array_equal(read_image(other.listing.image(1)), PIXELS[2])
    assert np.array_equal(read_image(source.listing.image(1)), PIXELS[3])


def test_faults_are_of_their_sample(tmp_path):
    cut = encoded(PIXELS[7])[:-40]
    # Name of what cannot be read -> the member that says why.
    faults = {
        "word.png": ("word.cls", b"cat"), "minus.png": ("minus.cls", b"-1"), "wide.png": ("wide.cls", b"\xd9\xa1"),
        "bad.png": ("bad.json", b'{"label": 1'), "deep.png": ("deep.json", b"[" * 9999),
        "name.png": ("name.json", b'{"label": "cat"}'), "truth.png": ("truth.json", b'{"label": true}'),
        "other.png": ("other.json", b'{"class": 1}'), "list.png": ("list.json", b"[1]"),
        "two.png": ("two.jpg", PNGS[3]), "twice.png": ("twice.png", PNGS[3]),
    }  # fmt: skip
    members = [*sample(0, 0), *sample(1, 1), ("two.cls", b"1"), ("twice.cls", b"1"), ("alone.cls", b"1")]
    members += [part for name, said in faults.items() for part in ((name, PNGS[2]), said)]
    members += [("text.jpg", b"hello"), ("text.cls", b"0"), ("empty.png", b""), ("empty.cls", b"0"),
                ("none.png", PNGS[2]), ("cut.png", cut), ("cut.cls", b"1")]  # fmt: skip
    write_tar(tmp_path / "train-0.tar", members)
    source = WebDataset(str(tmp_path))
    assert source.classes == ("0", "1")
    found = unreadable(source)
    assert found.keys() == {*faults, "alone", "text.jpg", "empty.png", "none.png"}
    for name in list(faults)[:9]:
        assert found[name].startswith(f"{faults[name][0]}: "), name
    # One that only decoding tells, and each of the others, when it is asked for.
    for index in range(2, source.length("train")):
        with pytest.raises(UnreadableDataError) as raised:
            source.example("train", index, (8, 8))
        assert str(raised.value).startswith(f"{source.example_name('train', index)}: ")
        assert "\n" not in str(raised.value)
    other = WebDataset(f"{tmp_path},label=class")
    assert other.labels[other.listing.paths.index(f"{tmp_path}/train-0.tar:other.png")] == 1


@pytest.mark.parametrize("names", ["classes.txt", "classnames.txt"])
def test_a_label_outside_of_the_classes_cannot_be_read(names, tmp_path):
    write_tar(tmp_path / "train-0.tar", [*sample(0, 0), *sample(1, 1), *sample(2, 7)])
    assert WebDataset(str(tmp_path)).classes == tuple("01234567")
    (tmp_path / names).write_text("ant\nbee\n")
    source = WebDataset(str(tmp_path))
    assert (source.classes, list(unreadable(source))) == (("ant", "bee"), ["002.png"])
    with pytest.raises(UnreadableDataError):
        source.example("train", 2, (8, 8))
    # What is remembered does not hang on the names.
    (tmp_path / names).write_text("\n".join("abcdefgh"))
    assert unreadable(WebDataset(str(tmp_path))) == {}


def test_wherever_a_shard_is_cut_off_it_is_said(tmp_path):
    """At every block and inside of each: what is whole before it is read, and the loss is named or noted."""
    path, members = tmp_path / "train-0.tar", [part for number in range(4) for part in sample(number, number % 2)]
    write_tar(path, members)
    content = path.read_bytes()
    end = len(content.rstrip(b"\0"))
    [complete] = index_shards([str(path)], tmp_path)
    assert ([one.fault for one in complete.samples], complete.skipped) == ([""] * 4, [])
    for at in sorted({*range(0, end, 512), *range(100, end, 512), *range(511, end, 512)}):
        path.write_bytes(content[:at])
        [shard] = index_shards([str(path)], tmp_path)
        good = [one for one in shard.samples if not one.fault]
        assert set(good) <= set(complete.samples)
        assert all(one.offset + one.size <= at for one in good)
        assert len(good) < len(shard.samples) or shard.skipped, at
        if at == complete.samples[3].offset + 100:
            [name] = unreadable(WebDataset(str(tmp_path)))
            assert name == f"byte {complete.samples[3].offset - 512}"
    for place in (0, 512 * 3 + 148, 512 * 8 + 20):
        damaged = bytearray(content)
        damaged[place : place + 8] = b"\xff" * 8
        path.write_bytes(damaged)
        [shard] = index_shards([str(path)], tmp_path)
        assert any(one.fault for one in shard.samples) or shard.samples == complete.samples


@pytest.mark.parametrize(
    "argument",
    ["/none", "/none-*.tar", "/train-{{3..1}}.tar", "/train-{{0..999999}}.tar", ",label=", ",label=a,label=b",
     ",labels=a", ",streaming=true", "/empty"],
)  # fmt: skip
def test_refusals(argument, tmp_path):
    (whole(tmp_path) / "empty").mkdir()
    with pytest.raises(InputError):
        WebDataset(f"{tmp_path}{argument.format()}")


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="open files are not listed here")
def test_many_shards_do_not_stay_open(tmp_path, monkeypatch):
    monkeypatch.setattr(tar_index, "_opened", functools.lru_cache(maxsize=2)(tar_index._opened.__wrapped__))
    for number in range(8):
        write_tar(tmp_path / f"train-{number}.tar", sample(number, number % 2))
    source = WebDataset(str(tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    seen = [source.example("train", index, (14, 15)).image.sum() for index in (*range(8), *range(8))]
    assert seen[:8] == seen[8:]
    assert len(os.listdir("/proc/self/fd")) <= before + 2
