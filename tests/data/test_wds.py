"""Tar shards: how they are found, what a sample is, and what is wrong with one is said of it alone."""

import gzip
import os

import numpy as np
import pytest

from sightline.data.image_file import read_image
from sightline.data.open import open_source
from sightline.data.sources.wds import WebDataset
from sightline.data.stored import options_of
from sightline.data.tar_index import SampleFields, index_shards
from sightline.errors import InputError, UnreadableDataError
from tests.data.three_kinds import encoded, write_tar

PIXELS = np.random.default_rng(0).integers(0, 256, (8, 14, 15, 3), dtype=np.uint8)
PNGS = [encoded(pixels) for pixels in PIXELS]


def sample(number, label, key=None):
    key = f"{number:03}" if key is None else key
    return [(f"{key}.png", PNGS[number]), (f"{key}.cls", str(label).encode())]


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
    return {one.path.rpartition("/")[2]: one.reason for one in lost}


@pytest.mark.parametrize(
    ("shards", "splits", "length"),
    [
        ("", ("train", "test"), 4),
        ("/{train,val}-{0..1}.tar", None, None),
        ("/train-{0..1}.tar", ("train",), 4),
        ("/train-*.tar", ("train",), 4),
        ("/*-0.tar", ("train", "test"), 2),
        ("/train-1.tar", ("train",), 2),
    ],
)
def test_shards_by_folder_pattern_and_braces(shards, splits, length, tmp_path):
    whole(tmp_path)
    if splits is None:
        # Every shard that braces name must be there.
        with pytest.raises(InputError, match=r"val-1.tar: no such file"):
            WebDataset(f"{tmp_path}{shards}")
        return
    (tmp_path / "classes.txt").write_text("a\nb\nc\n")
    source = WebDataset(f"{tmp_path}{shards}")
    assert (source.splits, source.length("train"), source.classes) == (splits, length, ("a", "b", "c"))
    first = "train-1.tar:002.png" if shards == "/train-1.tar" else "train-0.tar:000.png"
    assert source.example_name("train", 0) == f"{tmp_path}/{first}"


def test_folders_of_splits_and_padded_numbers(tmp_path):
    for number in range(8, 12):
        write_tar(tmp_path / "train" / f"{number:03}.tar", sample(number - 8, number % 2))
    write_tar(tmp_path / "validation" / "0.tar", sample(5, 1))
    source = WebDataset(str(tmp_path))
    assert (source.splits, source.length("train"), source.length("validation")) == (("train", "test"), 4, 1)
    part = WebDataset(f"{tmp_path}/train/{{009..011}}.tar")
    assert (part.splits, part.length("train"), part.root) == (("train",), 3, tmp_path)
    # Not padded, as in a shell.
    with pytest.raises(InputError, match=r"/8.tar: no such file"):
        WebDataset(f"{tmp_path}/train/{{8..11}}.tar")


def test_listing_is_watched_where_there_is_something_to_list(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))
    whole(tmp_path)

    def opened():
        seen.clear()
        open_source(f"wds:{tmp_path}", lambda *moved: seen.append(moved))
        return seen

    assert opened() == [(1, 3), (2, 3), (3, 3)]
    # What is remembered is not listed; what was added is.
    assert opened() == []
    write_tar(tmp_path / "train-2.tar", sample(6, 1))
    assert opened() == [(1, 1)]


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
    assert {one.path.rpartition(":")[2]: one.reason for one in source.skipped} == {
        "._hidden.png": "hidden", "README": "no key and extension"
    }  # fmt: skip
    other = WebDataset(f"{tmp_path},image=seg.png")
    assert "no image" in unreadable(other)["x"]
    assert np.array_equal(read_image(other.listing.image(1)), PIXELS[2])
    assert np.array_equal(read_image(source.listing.image(1)), PIXELS[3])


def test_faults_are_of_their_sample(tmp_path):
    cut = encoded(PIXELS[7])[:-40]
    write_tar(tmp_path / "train-0.tar", [
        *sample(0, 0), *sample(1, 1), ("word.png", PNGS[2]), ("word.cls", b"cat"), ("minus.png", PNGS[2]),
        ("minus.cls", b"-1"), ("wide.png", PNGS[2]), ("wide.cls", b"\xd9\xa1"), ("bad.png", PNGS[2]),
        ("bad.json", b'{"label": 1'), ("deep.png", PNGS[2]), ("deep.json", b"[" * 9999), ("name.png", PNGS[2]),
        ("name.json", b'{"label": "cat"}'), ("truth.png", PNGS[2]), ("truth.json", b'{"label": true}'),
        ("other.png", PNGS[2]), ("other.json", b'{"class": 1}'), ("list.png", PNGS[2]), ("list.json", b"[1]"),
        ("none.png", PNGS[2]), ("alone.cls", b"1"), ("two.png", PNGS[2]), ("two.jpg", PNGS[3]), ("two.cls", b"1"),
        ("twice.png", PNGS[2]), ("twice.cls", b"1"), ("twice.png", PNGS[3]), ("text.jpg", b"hello"),
        ("text.cls", b"0"), ("empty.png", b""), ("empty.cls", b"0"), ("cut.png", cut), ("cut.cls", b"1"),
    ])  # fmt: skip
    source = WebDataset(str(tmp_path))
    assert source.classes == ("0", "1")
    found = {name.removeprefix("train-0.tar:"): reason for name, reason in unreadable(source).items()}
    expected = {
        "word.png": "word.cls: 'cat' (expected: the number of a class", "minus.png": "minus.cls: '-1'",
        "wide.png": "wide.cls: ", "bad.png": "bad.json: not JSON", "deep.png": "deep.json: not JSON",
        "name.png": "name.json: label 'cat'", "truth.png": "truth.json: label 'True'",
        "other.png": "other.json: no field label or cls (fields: class; label=FIELD chooses)",
        "list.png": "list.json: expected a JSON object",
        "none.png": "no label (members: png; expected: none.cls or none.json)",
        "alone": "no image (members: cls; expected: alone.jpg", "two.png": "and two.jpg are images of one key",
        "twice.png": "the key is there twice, with two members twice.png", "text.jpg": "not an image in a known format",
        "empty.png": "the member is empty",
    }  # fmt: skip
    assert found.keys() == expected.keys()
    for name, reason in expected.items():
        assert found[name].startswith(reason), name
    # One that only decoding tells, and each of the others, when it is asked for.
    for index in range(2, source.length("train")):
        with pytest.raises(UnreadableDataError) as raised:
            source.example("train", index, (8, 8))
        name = source.example_name("train", index)
        assert str(raised.value).startswith(f"{name}: ")
        assert "\n" not in str(raised.value)
    other = WebDataset(f"{tmp_path},label=class")
    assert other.labels[other.listing.paths.index(f"{tmp_path}/train-0.tar:other.png")] == 1


@pytest.mark.parametrize("names", ["classes.txt", "classnames.txt"])
def test_a_label_outside_of_the_classes_is_named(names, tmp_path):
    write_tar(tmp_path / "train-0.tar", [*sample(0, 0), *sample(1, 1), *sample(2, 7)])
    (tmp_path / names).write_text("ant\nbee\n")
    source = WebDataset(str(tmp_path))
    assert source.classes == ("ant", "bee")
    assert unreadable(source) == {"train-0.tar:002.png": "label 7 is none of the 2 classes (expected: 0 to 1)"}
    with pytest.raises(UnreadableDataError, match=r"train-0.tar:002.png: label 7 is none of the 2"):
        source.example("train", 2, (8, 8))
    # What is remembered does not hang on the names.
    (tmp_path / names).write_text("\n".join("abcdefgh"))
    assert unreadable(WebDataset(str(tmp_path))) == {}


def test_without_names_classes_are_those_that_are_trained_on(tmp_path):
    write_tar(tmp_path / "train-0.tar", [*sample(0, 0), *sample(1, 2)])
    write_tar(tmp_path / "val-0.tar", [*sample(2, 1), *sample(3, 5)])
    source = WebDataset(str(tmp_path))
    assert source.classes == ("0", "1", "2")
    assert unreadable(source, "test") == {"val-0.tar:003.png": "label 5 is none of the 3 classes (expected: 0 to 2)"}


def test_wherever_a_shard_is_cut_off_it_is_said(tmp_path):
    """At every block and inside of each: what is whole before it is read, and the loss is named or noted."""
    path, members = tmp_path / "train-0.tar", [part for number in range(4) for part in sample(number, number % 2)]
    write_tar(path, members)
    content = path.read_bytes()
    end = len(content.rstrip(b"\0"))
    complete = index_shards([str(path)], SampleFields(), tmp_path)[0]
    assert (complete.lost, complete.unlabelled, complete.skipped) == ({}, {}, [])
    for at in sorted({*range(0, end, 512), *range(100, end, 512), *range(511, end, 512)}):
        path.write_bytes(content[:at])
        [shard] = index_shards([str(path)], SampleFields(), tmp_path)
        faulty = shard.lost.keys() | shard.unlabelled.keys()
        for row, (name, offset, size) in enumerate(zip(shard.names, shard.offsets, shard.sizes, strict=True)):
            if row not in faulty:
                known = complete.names.index(name)
                assert (offset, size, shard.labels[row]) == (
                    complete.offsets[known], complete.sizes[known], complete.labels[known]
                )  # fmt: skip
                assert offset + size <= at
        assert faulty or shard.skipped, at
        assert len(shard.names) - len(faulty) <= 4
    for place in (0, 512 * 3 + 148, 512 * 8 + 20):
        damaged = bytearray(content)
        damaged[place : place + 8] = b"\xff" * 8
        path.write_bytes(damaged)
        [shard] = index_shards([str(path)], SampleFields(), tmp_path)
        assert shard.lost or shard.labels == complete.labels
    path.write_bytes(content[: complete.offsets[3] + 100])
    source = WebDataset(str(tmp_path))
    [(name, reason)] = unreadable(source).items()
    assert name == "train-0.tar:003.png"
    assert "the shard ends inside of 003." in reason


def test_a_shard_that_is_no_archive_is_one_image_that_cannot_be_read(tmp_path):
    whole(tmp_path)
    (tmp_path / "train-2.tar").write_bytes(b"no archive at all" * 100)
    (tmp_path / "train-3.tar").touch()
    source = WebDataset(str(tmp_path))
    assert unreadable(source) == {
        f"train-{number}.tar:byte 0": "no archive from here on: what stood behind is lost" for number in (2, 3)
    }
    for number in (0, 1):
        (tmp_path / f"train-{number}.tar").unlink()
    (tmp_path / "val-0.tar").unlink()
    with pytest.raises(UnreadableDataError, match=r"train-2.tar:byte 0: .*no label of .* can be read"):
        WebDataset(str(tmp_path)).length("train")


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_what_is_called_a_shard_and_is_no_file_is_refused(kind, tmp_path, refused):
    """To pass it over would be to train on less without a word."""
    odd = whole(tmp_path) / "train-2.tar"
    odd.symlink_to("elsewhere.tar") if kind == "link" else odd.mkdir()
    refused("data", "check", f"wds:{tmp_path}", says=[str(odd)], code=3)


def test_a_broken_link_to_the_names_of_classes_is_refused(tmp_path):
    whole(tmp_path)
    (tmp_path / "classes.txt").symlink_to("elsewhere.txt")
    with pytest.raises(InputError, match=r"classes\.txt"):
        WebDataset(str(tmp_path))


@pytest.mark.parametrize("name", ["train-0.tar.gz", "train-0.tgz", "train-0.tar.zst"])
def test_compressed_shards_are_refused(name, tmp_path):
    write_tar(tmp_path / "plain", sample(0, 0))
    (tmp_path / name).write_bytes(gzip.compress((tmp_path / "plain").read_bytes()))
    for shards in (tmp_path, tmp_path / name, tmp_path / "train-*"):
        with pytest.raises(InputError, match=r"is compressed, and nothing can be sought in it"):
            WebDataset(str(shards))


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("{root}/none", "none: no such file"),
        ("{root}/none-*.tar", "no file matches this pattern"),
        ("{root}/train-{{3..1}}.tar", "expected: two numbers, rising"),
        ("{root}/train-{{0..999}}-{{0..999}}.tar", "more than 100000 shards"),
        ("{root},label=", "option label without a value"),
        ("{root},label=a,label=b", "option label twice"),
        ("{root},labels=a", "did you mean 'label'?"),
        ("{root},streaming=true", "not streamed but read by index"),
        ("{root}/empty", "no .tar files in this folder"),
    ],
)
def test_refusals(argument, says, tmp_path, refused):
    (whole(tmp_path) / "empty").mkdir()
    refused("data", "check", f"wds:{argument.format(root=tmp_path)}", says=[says])


def test_commas_of_braces_are_no_options():
    assert options_of("a/{train,val}-{0..3}.tar,label=x", ("label",)) == ("a/{train,val}-{0..3}.tar", {"label": "x"})
    assert options_of("a,b", ("label",)) == ("a,b", {})


def test_many_shards_do_not_stay_open(tmp_path, monkeypatch):
    from sightline.data import tar_index

    monkeypatch.setattr(tar_index, "_OPEN", 2)
    for number in range(8):
        write_tar(tmp_path / f"train-{number}.tar", sample(number, number % 2))
    source = WebDataset(str(tmp_path))
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    seen = [source.example("train", index, (14, 15)).image.sum() for index in (*range(8), *range(8))]
    assert seen[:8] == seen[8:]
    if before:
        assert len(os.listdir("/proc/self/fd")) <= before + 2


def test_nothing_is_written_among_the_shards(tmp_path, refused, cli):
    root = whole(tmp_path / "data")
    refused("data", "check", f"wds:{root}", "--sheet", root / "sheet.png", says=["a folder of the data"])
    refused("train", "--data", f"wds:{root}/train-*.tar", "--out", root, says=["holds", "this command reads"])
    # Beside the shards of a pattern anything may stand.
    assert cli("data", "check", f"wds:{root}/train-*.tar", "--sheet", root / "sheet.png")[0] == 0
