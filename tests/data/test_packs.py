"""Packed batches: planned before they are made, the same for any number of workers, and each image as it is alone."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import torch
from PIL import Image

from sightline.data.discovery import open_source
from sightline.data.packs import of_rank, packed_batches, plan
from sightline.data.sampling import BetaDrop, ConstantDrop, ResolutionSampling, Showing
from sightline.encodings import list_encodings
from sightline.errors import InputError, UnreadableDataError
from sightline.models import create_model
from sightline.patchify import patchify
from sightline.tasks.classification import packed_model_input, to_model_input
from tests.contract.randomise import randomise_parameters

SHOWING = Showing(4, ResolutionSampling(8, 40), BetaDrop(), most_tokens=64)


def planned(source, count=None, **options):
    options = {"capacity": 256, "seed": 3, **options}
    return list(islice(plan(source, "train", SHOWING, **options), count))


def ids(batches):
    return [[(one.index, one.epoch, one.shown.grid, tuple(one.shown.kept)) for one in batch] for batch in batches]


def test_each_image_of_a_pass_comes_once_before_the_next():
    source = open_source("digits")
    found = [one for batch in planned(source, images=2 * 1297) for one in batch]
    assert len(found) == 2 * 1297
    for epoch in (0, 1):
        assert sorted(one.index for one in found if one.epoch == epoch) == list(range(1297))
    # In another order, and shown in another way.
    first, second = ([one for one in found if one.epoch == epoch] for epoch in (0, 1))
    assert [one.index for one in first] != [one.index for one in second]
    by_index = {one.index: one for one in second}
    assert sum(one.shown.grid != by_index[one.index].shown.grid for one in first) > 600


def test_no_batch_is_too_long_and_little_is_unused():
    batches = planned(open_source("scenes"), 60)
    sums = [sum(len(one.shown.kept) for one in batch) for batch in batches]
    assert max(sums) <= 256
    assert sum(sums) > 0.99 * 256 * len(sums)


def test_a_run_that_was_killed_goes_on_where_it_was():
    """At several places, in the middle of a pass and after one: the same ids, drops and sizes."""
    source = open_source("digits")
    whole = ids(planned(source, images=2000))
    for done in (1, 7, len(whole) // 2, len(whole) - 1):
        again = ids(list(plan(source, "train", SHOWING, capacity=256, seed=3, images=2000))[done:])
        assert again == whole[done:]
    assert ids(planned(source, images=2000, seed=4)) != whole


def test_workers_make_the_same_batches():
    source = open_source("scenes")
    batches = planned(source, 6)
    alone, by_two = (
        list(packed_batches(source, "train", batches, patch_size=4, seed=3, workers=workers)) for workers in (0, 2)
    )
    assert len(alone) == len(by_two) == 6
    for one, other in zip(alone, by_two, strict=True):
        assert torch.equal(one.patches, other.patches)
        assert one.grids == other.grids
        assert all(torch.equal(a, b) for a, b in zip(one.kept, other.kept, strict=True))
        assert (one.labels.tolist(), one.indices.tolist(), one.names) == (
            other.labels.tolist(), other.indices.tolist(), other.names,
        )  # fmt: skip


def test_a_batch_holds_the_kept_patches_of_its_images():
    source = open_source("scenes")
    (wanted,) = planned(source, 1)
    (batch,) = packed_batches(source, "train", [wanted], patch_size=4, seed=3)
    start = 0
    for number, one in enumerate(wanted):
        size = (one.shown.grid.rows * 4, one.shown.grid.cols * 4)
        example = source.example("train", one.index, size, seed=3)
        whole = patchify(torch.from_numpy(example.image.transpose(2, 0, 1).copy())[None], 4)[0]
        end = start + len(one.shown.kept)
        assert torch.equal(batch.patches[start:end], whole[torch.from_numpy(one.shown.kept)])
        assert (batch.labels[number], batch.names[number]) == (example.label, example.name)
        start = end
    assert start == len(batch.patches)
    assert len(batch) == len(wanted) > 3


@pytest.mark.parametrize("drop", [None, ConstantDrop(0.6)])
@pytest.mark.parametrize("encoding", list_encodings())
@torch.no_grad()
def test_an_image_in_a_pack_gives_what_it_gives_alone(encoding, drop):
    source = open_source("scenes")
    showing = Showing(4, ResolutionSampling(8, 40), drop, most_tokens=64)
    batches = list(islice(plan(source, "train", showing, capacity=256, images=12), 2))
    model = create_model("vit_micro_patch4", encoding=encoding, depth=2, dim=96, num_classes=5, pool="mean")
    randomise_parameters(model).eval()
    mean, std, device = (0.2, 0.3, 0.4), (0.3, 0.2, 0.5), torch.device("cpu")
    for batch in packed_batches(source, "train", batches, patch_size=4):
        patches, layout = packed_model_input(batch, mean, std, model.num_prefix_tokens, device)
        together = model(patches, layout=layout)
        assert together.std() > 0.02
        singles = list(packed_batches(source, "train", [[one] for one in _unpacked(batches, batch)], patch_size=4))
        alone = torch.cat(
            [model(*packed_model_input(one, mean, std, model.num_prefix_tokens, device)) for one in singles]
        )
        assert (together - alone).abs().max() < 2e-5
        if drop is None:
            example = source.example("train", int(batch.indices[0]), tuple(4 * side for side in batch.grids[0]))
            image = torch.from_numpy(example.image.transpose(2, 0, 1).copy())[None]
            assert (model(to_model_input(image, mean, std, device)) - together[0]).abs().max() < 2e-5


def _unpacked(batches, batch):
    return next(one for one in batches if [image.index for image in one] == batch.indices.tolist())


def test_what_cannot_be_planned_or_read(tmp_path):
    folder = tmp_path / "train" / "a"
    folder.mkdir(parents=True)
    (tmp_path / "train" / "b").mkdir()
    for number in range(3):
        Image.fromarray(np.zeros((40, 40, 3), np.uint8)).save(folder / f"{number}.png")
    Image.fromarray(np.zeros((40, 40, 3), np.uint8)).save(tmp_path / "train" / "b" / "0.png")
    source = open_source(f"imagefolder:{tmp_path}")
    native = Showing(4)
    with pytest.raises(InputError, match="has 100 tokens, and a sequence 99"):
        next(plan(source, "train", native, capacity=99))
    with pytest.raises(InputError, match="split"):
        next(plan(source, "trian", native, capacity=99))
    batches = list(plan(source, "train", native, capacity=200, images=4))
    assert [len(batch) for batch in batches] == [2, 2]
    content = (folder / "1.png").read_bytes()
    (folder / "1.png").write_bytes(content[:-30])
    for workers in (0, 2):
        with pytest.raises(UnreadableDataError, match=r"1\.png"):
            list(packed_batches(source, "train", batches, patch_size=4, workers=workers))


@pytest.mark.parametrize("world", [1, 2, 3, 5])
def test_processes_share_a_plan(world):
    """Each image once in all, as many steps each, and the same whoever asks."""
    whole = planned(open_source("digits"), images=1297)
    ranks = [list(of_rank(iter(whole), rank, world)) for rank in range(world)]
    assert {len(one) for one in ranks} == {-(-len(whole) // world)}
    steps = [batch for step in zip(*ranks, strict=True) for batch in step if batch]
    assert ids(steps) == ids(whole)
    for rank, ranks in ((2, 2), (-1, 2), (0, 0)):
        with pytest.raises(InputError, match="rank"):
            next(of_rank(iter(whole), rank, ranks))
