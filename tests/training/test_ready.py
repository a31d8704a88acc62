"""Batches made ahead for several runs: the same bits, made by a run itself where they are not there."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch

from sightline.data.batch import Batch
from sightline.data.loader import Planned
from sightline.training import jobs, ready
from sightline.training.ready import Ahead, Ready, dumped
from tests.tiny import fork_server, tiny_config, weights
from tests.training.test_jobs import job


def batches(config, count=2) -> list[Batch]:
    return list(itertools.islice(ready._batches(config), count))


@pytest.fixture
def made() -> list[Batch]:
    return batches(tiny_config(data="scenes", images=64, parts=0.35))


def room(made, slots=2) -> Ready:
    return Ready.of(slots, len(dumped(made[0])) + 4096)


def same(one: Batch, other: Batch) -> bool:
    equal = [torch.equal(getattr(one, name), getattr(other, name)) for name in ("inputs", "indices")]
    assert one.layout.seeds is not None
    assert other.layout.seeds is not None
    equal += [torch.equal(one.layout.seeds, other.layout.seeds)]
    equal += [one.layout.segments[0].grid == other.layout.segments[0].grid, len(one) == len(other)]
    return all(equal) and (one.names, one.slices, one.left_out) == (other.names, other.slices, other.left_out)


def test_a_batch_comes_back_as_it_was(made):
    there = room(made)
    assert there.get(0) is None
    there.put(1, made[1])
    assert there.get(0) is None
    found = there.get(1)
    assert found is not None
    assert same(found, made[1])
    assert not same(found, made[0])
    assert torch.equal(found.targets["labels"], made[1].targets["labels"])
    assert found.inputs.dtype == torch.uint8
    # Beyond the room there is none, and one that is too large is not kept.
    there.put(2, made[0])
    assert there.get(2) is None
    Ready.of(2, 100).put(0, made[0])


def test_what_is_not_whole_is_not_taken(made):
    there = room(made)
    there.put(0, made[0])
    there.memory[500] ^= 1
    assert there.get(0) is None


def test_a_run_makes_what_is_not_there_and_what_is_of_another_plan(made):
    there = room(made, slots=3)
    # The second of a run that began at step 4 is number 5; here at 1.
    there.put(1, made[1])
    asked = []

    def make(planned):
        asked.append([one.index for one in planned])
        return made[0]

    first, second = ([Planned(int(index), 0, (16, 16), 16) for index in batch.indices] for batch in made)
    ask = there.before(make, 0)
    assert ask(first) is made[0]
    assert same(ask(second), made[1])
    assert asked == [made[0].indices.tolist()]
    # Number 1 holds other images than these.
    assert there.before(make, 1)(first) is made[0]
    assert len(asked) == 2


def test_runs_share_that_see_the_same_and_only_where_others_do(monkeypatch):
    config = tiny_config(data="scenes", images=64)
    other, longer = (dataclasses.replace(config, **change) for change in ({"encoding": "rope_axial"}, {"images": 96}))
    begun = []
    monkeypatch.setattr(Ahead, "_begin", lambda self, seen: begun.append(seen) or object())
    ahead = Ahead([config, longer, other], None)
    assert ahead.of(longer) is None
    assert ahead.of(config) is not None
    assert [one.images for one in begun] == [64]
    for change in ({"workers": 1}, {"accumulate": 2}, {"data": "digits"}, {"init_from": "timm:vit"}):
        assert not ready.may_share(dataclasses.replace(config, **change))
    assert ready.may_share(config)


def test_jobs_that_share_are_as_those_alone(tmp_path, monkeypatch):
    """And what they share was made in another process: in theirs it is refused."""
    context = fork_server()
    monkeypatch.setattr(jobs.multiprocessing, "get_context", lambda kind: context)
    two = [job(tmp_path, data="scenes"), job(tmp_path, "b", data="scenes", encoding="rope_axial")]
    seen = []
    begin = Ahead._begin
    monkeypatch.setattr(Ahead, "_begin", lambda self, config: seen.append(begin(self, config)) or seen[-1])
    jobs.run_jobs(two, lambda at: None)
    for one in two:
        jobs.run_job(dataclasses.replace(one, out=tmp_path / "alone" / one.name), lambda at: None)
        assert weights(one.out) == weights(tmp_path / "alone" / one.name)
    (there,) = seen
    assert there is not None


def test_room_that_the_system_does_not_have_is_not_taken(monkeypatch):
    config = tiny_config(data="scenes", images=64)
    assert ready.room_for(config, ready.multiprocessing) is not None
    monkeypatch.setattr(ready.shutil, "disk_usage", lambda place: type("", (), {"free": 1000}))
    assert ready.room_for(config, ready.multiprocessing) is None


def test_targets_of_any_kind_come_back_as_they_were(made):
    tree = {"maps": [torch.eye(3, dtype=torch.uint8)], "sides": (4, 5.5, "a", None, True), "of": {"b": torch.ones(2)}}
    one = dataclasses.replace(made[0], targets=tree)
    there = Ready.of(1, len(dumped(one)))
    there.put(0, one)
    found = there.get(0).targets
    assert found["sides"] == tree["sides"]
    assert torch.equal(found["maps"][0], tree["maps"][0])
    assert torch.equal(found["of"]["b"], tree["of"]["b"])
    # What is of a kind of its own is made by each run.
    assert dumped(dataclasses.replace(made[0], targets={"own": object()})) is None
