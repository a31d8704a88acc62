"""The same images give the same examples, batches and runs, be they files, rows of a table or members of tars."""

import numpy as np
import pytest
import torch

from sightline.data.open import open_source
from sightline.errors import UnreadableDataError
from tests.batches import uniform_batches
from tests.data.three_kinds import CLASSES, KINDS, images, made, write_tar

NEW = ["hf", "parquet", "wds"]


@pytest.fixture(scope="module")
def specs(tmp_path_factory):
    """Kind -> its data set, of whole images; the cache of `datasets` is of this file alone."""
    with made(tmp_path_factory.mktemp("kinds"), images()) as found:
        yield found


@pytest.fixture(scope="module")
def opened(specs):
    return {kind: open_source(spec) for kind, spec in specs.items()}


@pytest.mark.parametrize("kind", NEW)
def test_examples_are_those_of_files(kind, opened):
    files, other = opened["imagefolder"], opened[kind]
    assert (other.splits, other.classes, other.task) == (("train", "test"), CLASSES, "classification")
    seen = set()
    for split in files.splits:
        assert other.length(split) == files.length(split) > 0
        for index in range(files.length(split)):
            # Small enough that a JPEG is read at a part of its size.
            one, two = (source.example(split, index, (8, 12), seed=3, epoch=2) for source in (files, other))
            assert np.array_equal(one.image, two.image)
            assert one.target == two.target
            assert files.stored_size(split, index) == other.stored_size(split, index)
            assert other.example_name(split, index) == two.name
            seen.add(two.name)
    assert len(seen) == sum(map(files.length, files.splits))
    for wanted in ("side", "mean", "std", "images"):
        assert getattr(other.summary(), wanted) == getattr(files.summary(), wanted)
    sizes = {len(one.fingerprint("train").files) for one in (files, other)}
    assert sizes == {files.length("train")}
    contents = [sorted((size, sample) for _, size, sample in one.fingerprint().files) for one in (files, other)]
    assert contents[0] == contents[1]


@pytest.mark.parametrize("kind", ["hf", "wds"])
def test_a_damaged_image_leaves_its_batch_and_is_counted(kind, tmp_path):
    given = images(count=2, damaged=True)
    files, other = (open_source(KINDS[one](tmp_path / one, given)) for one in ("imagefolder", kind))
    with pytest.raises(UnreadableDataError, match="allowed: 1"):
        other.check_readable("train", skip_unreadable=1)
    found = {}
    for source in (files, other):
        left, lost = source.check_readable("train", skip_unreadable="all")
        assert len(lost) == 2
        assert left.length("train") == 10
        asked = {"indices": range(10), "image_size": (8, 8), "batch_size": 5}
        batches = list(uniform_batches(left, "train", **asked))
        # What only decoding tells is counted with its batch.
        [cut] = [one for batch in batches for one in batch.left_out]
        assert "truncated" in cut.reason
        assert len(left.allowance.left_out("train")) == 3
        found[source.name] = torch.cat([batch.inputs for batch in batches])
        with pytest.raises(UnreadableDataError, match=r"truncated"):
            source.check_readable("train", skip_unreadable="all")[0].example(
                "train", next(i for i in range(10) if left.example_name("train", i) == cut.path), (8, 8)
            )
    assert torch.equal(found["imagefolder"], found[kind])


@pytest.mark.parametrize("kind", ["hf", "wds"])
def test_what_was_found_is_remembered(kind, tmp_path, monkeypatch):
    from sightline.data import image_index, tar_index

    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))
    spec = KINDS[kind](tmp_path / kind, images(count=2))
    first, _ = open_source(spec).check_readable("train")
    sizes = [first.stored_size("train", index) for index in range(first.length("train"))]
    with monkeypatch.context() as nothing:
        nothing.setattr(image_index, "read_header", None)
        nothing.setattr(tar_index, "_scan", None)
        again, _ = open_source(spec).check_readable("train")
        assert [again.stored_size("train", index) for index in range(again.length("train"))] == sizes
        assert again.fingerprint() == first.fingerprint()
    if kind == "wds":
        # One shard is another now: it alone is listed anew.
        write_tar(tmp_path / kind / "train-0001.tar", [("n.png", images(1)["val"][0][2]), ("n.cls", b"2")])
        scanned, real = [], tar_index._scan
        monkeypatch.setattr(tar_index, "_scan", lambda path, *rest: scanned.append(path) or real(path, *rest))
        changed = open_source(spec)
        assert scanned == [str(tmp_path / kind / "train-0001.tar")]
        assert changed.length("train") == 8
        assert changed.fingerprint() != first.fingerprint()
        # Who opened it before says so, and reads nothing at the old places.
        with pytest.raises(UnreadableDataError, match=r"train-0001.tar: changed"):
            again.example("train", 8, (8, 8))


@pytest.mark.parametrize("kind", ["hf", "wds"])
def test_an_image_of_train_is_measured_in_no_other_split(kind, tmp_path):
    given = images(count=3)
    given["val"].append((0, "twin.png", given["train"][2][2]))
    source = open_source(KINDS[kind](tmp_path / kind, given))
    assert source.length("test") == 9
    [one] = source.skipped
    assert "val" in one.path
