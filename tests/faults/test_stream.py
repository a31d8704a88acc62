"""What each step of a run sees is a function of its configuration: ids, seeds, sizes, drops and pixels are the same on
any number of ranks, with any number of workers, from files, tables or tars, and from any step on."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from typing import NamedTuple

import pytest
import torch

from sightline.data.config import MixingConfig, PackingConfig
from sightline.data.open import open_source
from sightline.data.rng import generator
from sightline.distributed.ranks import Ranks
from sightline.tasks.base import task_class
from sightline.tokens.rng import image_seed
from sightline.training.plan import DataState, as_trained_on, training_plan
from sightline.training.setup import build_model, resolve, task_options
from tests.batches import kept_of
from tests.data.three_kinds import images, made
from tests.tiny import tiny_config

# 21 images a pass, two passes and a part of the third; the last step of a pass is of one image.
COMMON = {
    "images": 49,
    "batch_size": 5,
    "augment": {"colour_jitter": {}, "random_erasing": {"chance": 0.5}},
    "mixing": MixingConfig(mixup=0.4, cutmix=1.0),
}
SHOWN = {
    "uniform": COMMON,
    "repeated": {**COMMON, "repeats": 3},
    "packed": {
        **COMMON,
        "packing": PackingConfig(tokens=60, resolutions=(8, 28), drop="beta", drop_options={"mean": 0.3, "most": 0.6}),
    },
}
QUICK = [("uniform", 2, 2, "imagefolder"), ("repeated", 1, 2, "hf"), ("packed", 2, 2, "wds")]


class Seen(NamedTuple):
    """An image of a step as a model sees it: which, by what seed, what of it stays, and a digest of its patches and
    its target."""

    index: int
    seed: int
    grid: tuple[int, int]
    kept: tuple[int, ...]
    digest: str


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    with made(tmp_path_factory.mktemp("stream"), images(count=6)) as specs:
        yield {kind: open_source(specs[kind]) for kind in ("imagefolder", "hf", "wds")}


@pytest.fixture(scope="module")
def planned(sources):
    """Plan, model and task of a way of showing images of a kind."""
    known = {}

    def get(way, kind, workers):
        if (way, kind, workers) not in known:
            config = tiny_config(data=kind, workers=workers, seed=11, **SHOWN[way])
            source = as_trained_on(sources[kind], config)
            config = resolve(config, source, torch.device("cpu"))
            model = build_model(config, source)
            task = task_class(config.task)(model.config, task_options(config)).bind(source, config.data)
            known[way, kind, workers] = training_plan(config, model.config, source), model, task
        return known[way, kind, workers]

    return get


def seen_in(batch):
    """The images of a batch, one row each or packed into one."""
    rows = batch.inputs[0].split([len(one) for one in kept_of(batch)]) if batch.layout.rows == 1 else batch.inputs
    if not len(batch):
        return []
    assert len(rows) == len(batch) == len(batch.layout.seeds)
    grids = [tuple(segment.grid) for segment in batch.layout.segments]
    kept = [tuple(one.tolist()) for one in kept_of(batch)]
    if len(grids) == 1:
        grids, kept = grids * len(batch), kept * len(batch)
    found = []
    for place, row in enumerate(rows):
        content = row.numpy().tobytes() + b"".join(
            target[place].numpy().tobytes() for _, target in sorted(batch.targets.items())
        )
        digest = hashlib.sha256(content).hexdigest()
        found.append(Seen(int(batch.indices[place]), int(batch.layout.seeds[place]), grids[place], kept[place], digest))
    return found


def stream(plan, model, task, size, first=0, position=None):
    """(step, its images of all ranks in the order of their ids and seeds) from a step on."""
    ranks = [
        plan.batches(model.image_rows, task, first, position=position, ranks=Ranks(rank, size)) for rank in range(size)
    ]
    return [
        (parts[0][0], sorted(one for _, batches in parts for batch in batches for one in seen_in(batch)))
        for parts in zip(*ranks, strict=True)
    ]


@pytest.fixture(scope="module")
def undisturbed(planned):
    """The stream of one rank without workers, from files."""
    known = {}

    def get(way):
        if way not in known:
            known[way] = stream(*planned(way, "imagefolder", 0), 1)
        return known[way]

    return get


# {1, 2, 4} ranks x three kinds of data x three ways of showing them; with two workers files, and two ranks of others.
# By default without workers, and of others two ranks alone.
EVERY_TIME = [*QUICK, *itertools.product(SHOWN, (1, 2, 4), [0], ["imagefolder"]),
              *itertools.product(SHOWN, [2], [0], ["hf", "wds"])]  # fmt: skip
PRODUCT = [
    pytest.param(*case, marks=[] if case in EVERY_TIME else [pytest.mark.slow], id="-".join(map(str, case)))
    for case in itertools.product(SHOWN, (1, 2, 4), (0, 2), ("imagefolder", "hf", "wds"))
    if not case[2] or case in QUICK or case[3] == "imagefolder" or case[1] == 2
]


@pytest.mark.parametrize(("way", "size", "workers", "kind"), PRODUCT)
def test_the_same_stream_from_any_step_on(way, size, workers, kind, planned, undisturbed):
    """Begun, stopped and gone on with anywhere, also from where a checkpoint says that the plan of a packed run
    stood."""
    whole, (plan, model, task) = undisturbed(way), planned(way, kind, workers)
    # Some places of all, others in each case; `test_every_place_of_the_plan` goes through them all.
    draws = generator("tests/stops", size, workers, epoch=len(kind))
    stops = sorted(draws.choice(len(whole), 2 if workers == 0 else 1, replace=False).tolist())
    assert stream(plan, model, task, size) == whole
    for first in stops:
        position = whole[first][0].position
        again = None if position is None else DataState.of(json.loads(json.dumps(position.as_record())))
        assert stream(plan, model, task, size, first, again) == whole[first:]


@pytest.mark.parametrize("kind", ["imagefolder", "hf", "wds"])
@pytest.mark.parametrize("way", SHOWN)
def test_every_place_of_the_plan(way, kind, planned, undisturbed):
    plan, whole = planned(way, kind, 0)[0], undisturbed(way)

    def told(first, position=None):
        def plain(one):
            return (
                one.index,
                one.epoch,
                one.image_size,
                None if one.patch_indices is None else one.patch_indices.tolist(),
            )

        return [(step, [plain(one) for one in every]) for step, every in plan.steps(first, position)]

    every = told(0)
    assert [step for step, _ in every] == [step for step, _ in whole]
    for first in range(len(every) + 1):
        assert told(first) == every[first:]
        if first < len(every):
            assert told(first, whole[first][0].position) == every[first:]


@pytest.mark.parametrize("way", SHOWN)
def test_each_image_once_a_pass_with_a_seed_of_its_own(way, planned, undisturbed):
    whole, (plan, *_) = undisturbed(way), planned(way, "imagefolder", 0)
    by_plan = [(one.index, one.epoch) for _, every in plan.steps(0) for one in every]
    length, repeats = plan.source.length("train"), plan.config.repeats
    assert (length, len(by_plan)) == (21, 49)
    for begin in range(0, 49, length):
        shown_here = Counter(index for index, _ in by_plan[begin : begin + length]) if way != "packed" else Counter(
            index for index, epoch in by_plan if epoch == begin // length
        )  # fmt: skip
        of_pass = min(length, 49 - begin)
        assert sum(shown_here.values()) == of_pass
        assert set(shown_here.values()) <= {repeats, of_pass % repeats or repeats}
        assert len(shown_here) == -(-of_pass // repeats)
    # No two showings draw alike, and what a rank sees is what was planned.
    assert len(set(by_plan)) == len(by_plan)
    seeds = [(one.index, one.seed) for _, every in whole for one in every]
    assert sorted(seeds) == sorted((index, image_seed(11, draws, index)) for index, draws in by_plan)
    assert len({seed for _, seed in seeds}) == len(seeds)
    # What is seen of an image differs each time.
    assert len({one.digest for _, every in whole for one in every}) == len(seeds)
