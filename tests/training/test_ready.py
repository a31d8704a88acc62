"""Batches made ahead for several runs: the same bits, made by a run itself where they are not there."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import pytest
import torch

from sightline.data.batch import Batch
from sightline.data.discovery import open_source
from sightline.data.loader import Planned
from sightline.errors import InputError
from sightline.training import jobs, ready, run
from sightline.training.config import TrainConfig
from sightline.training.ready import Ahead, Ready, dumped
from tests.tiny import fork_server, pictures, tiny_config, weights
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


def three_encodings(**changes) -> list[TrainConfig]:
    return [tiny_config(encoding=encoding, **changes) for encoding in ("none", "rope_axial", "lookhere_90")]


@pytest.mark.parametrize("kind", ["folder", "digits", "unknown"])
def test_no_data_is_opened_to_learn_that_it_cannot_be_shared(kind, tmp_path, monkeypatch):
    """With tens of thousands of files that took up to seconds, before each job, in which no job was heard."""
    opened = []
    monkeypatch.setattr(run, "open_source", lambda spec: opened.append(spec) or open_source(spec))
    several = three_encodings(data=pictures(tmp_path) if kind == "folder" else kind)
    ahead = Ahead(several, None)
    assert [ahead.of(one) for one in several] == [None, None, None]
    assert not opened


@pytest.mark.parametrize("fault", [None, InputError("no such scenes"), ValueError("of somebody else's source")])
def test_what_could_not_be_shared_is_tried_once_and_its_fault_left_to_the_runs(fault, monkeypatch):
    tried = []

    def no_room(config, context):
        tried.append(config)
        if fault is not None:
            raise fault

    monkeypatch.setattr(ready, "room_for", no_room)
    several = three_encodings(data="scenes")
    ahead = Ahead(several, None)
    assert [ahead.of(one) for one in several] == [None, None, None]
    assert len(tried) == 1


def make_until_it_fails(first: Batch, there: Ready) -> None:
    def one_and_a_fault(config: TrainConfig) -> Iterator[Batch]:
        yield first
        raise ValueError("of somebody else's source")

    ready._batches = one_and_a_fault
    ready.make_ahead(tiny_config(), there)


def test_the_process_that_makes_them_leaves_a_fault_to_the_runs(made):
    """Its traceback stood beside what the run said."""
    there = Ready.of(2, len(dumped(made[0])) + 4096, fork_server())
    process = fork_server().Process(target=make_until_it_fails, args=(made[0], there))
    process.start()
    process.join(600)
    assert process.exitcode == 0
    assert same(there.get(0), made[0])
    assert there.get(1) is None


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
