"""By which numbers a run chooses its attention: those that it began with, wherever it goes on."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from sightline import runtime
from sightline.attention import costs
from sightline.attention.costs import Costs, Group, Point, current, using
from sightline.errors import InputError
from sightline.load import load_model, read_record
from sightline.training import loop, same_attention, train
from tests.ranks import together
from tests.tiny import MODEL, Stopped, log_lines, reseal, stop_at, tiny_config, weights

# Of the forms that a short image on a CPU may take, each the cheapest of some numbers.
GROUPS = [Group("float32", work, 12) for work in ("forward", "training")]
# More steps than are done before it is stopped, and a layer before that of class tokens alone.
CONFIG = tiny_config(model_options={**MODEL, "depth": 2}, images=96, checkpoint_every=32)


def numbers(form: str, **changes) -> Costs:
    found = Costs(
        runtime.processor(), torch.__version__, 1, points={group: {form: [Point(17, 1.0, 1.0)]} for group in GROUPS}
    )
    return dataclasses.replace(found, **changes)


def record_of(out: Path) -> dict:
    return read_record(out / "checkpoint")["training"]["attention"]


def changed(out: Path, change) -> None:
    """Another record of the numbers in the checkpoint of a run."""
    file = out / "checkpoint" / "config.json"
    content = json.loads(file.read_text())
    change(content["training"])
    file.write_text(json.dumps(content))
    reseal(out / "checkpoint")


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """By which numbers the steps chose."""
    seen, take = [], loop.take_step

    def watched(*given):
        seen.append(current().as_record())
        return take(*given)

    monkeypatch.setattr(loop, "take_step", watched)
    return seen


def stopped(out: Path) -> None:
    with pytest.raises(Stopped):
        train(CONFIG, out, device="cpu", observe=stop_at(1))


def test_a_run_records_the_numbers_that_chose(tmp_path: Path, chosen: list[dict]) -> None:
    other = Group("float32", "training", 64)
    mixed = numbers("by_head")
    mixed = dataclasses.replace(mixed, points={**mixed.points, other: {"sdpa": [Point(17, 1.0, 1.0)]}})
    with using(mixed):
        train(CONFIG, tmp_path / "a", device="cpu")
        assert current() is mixed
    expected = numbers("by_head").as_record()
    assert chosen == [expected] * 3, "those of its width of head alone"
    assert record_of(tmp_path / "a") == expected


def test_a_run_goes_on_with_the_numbers_that_it_began_with(tmp_path: Path, chosen: list[dict]) -> None:
    """To the same weights, where this machine would choose another form by now."""
    with using(numbers("by_head")):
        train(CONFIG, tmp_path / "undisturbed", device="cpu")
        stopped(tmp_path / "a")
    warned: list[str] = []
    with using(numbers("explicit")):
        train(CONFIG, tmp_path / "a", device="cpu", resume=True, warn=warned.append)
        train(CONFIG, tmp_path / "other", device="cpu")
    assert warned == []
    assert chosen[:-3] == [numbers("by_head").as_record()] * (len(chosen) - 3)
    assert record_of(tmp_path / "a") == numbers("by_head").as_record()
    assert weights(tmp_path / "a") == weights(tmp_path / "undisturbed")
    assert log_lines(tmp_path / "a") == log_lines(tmp_path / "undisturbed")
    assert weights(tmp_path / "other") != weights(tmp_path / "a"), "the forms give the same bits: this shows nothing"


@pytest.mark.parametrize("name", ["processor", "torch"])
def test_numbers_of_another_machine_are_said_and_not_taken(tmp_path: Path, chosen: list[dict], name: str) -> None:
    with using(numbers("by_head")):
        stopped(tmp_path / "a")
    done = len(chosen)
    changed(tmp_path / "a", lambda training: training["attention"].update({name: "another"}))
    warned: list[str] = []
    with using(numbers("explicit")):
        train(CONFIG, tmp_path / "a", device="cpu", resume=True, warn=warned.append)
    assert len(warned) == 1
    assert "another kind of processor or by another torch" in warned[0]
    assert "\n" not in warned[0]
    assert chosen[done:] == [numbers("explicit").as_record()] * (len(chosen) - done)
    assert len(chosen) > done
    assert record_of(tmp_path / "a") == numbers("explicit").as_record()


def test_a_run_of_a_gpu_goes_on_with_those_of_here(tmp_path: Path, chosen: list[dict]) -> None:
    with using(numbers("by_head")):
        stopped(tmp_path / "a")
    changed(tmp_path / "a", lambda training: training.update(attention=None))
    warned: list[str] = []
    with using(numbers("explicit")):
        train(CONFIG, tmp_path / "a", device="cpu", resume=True, warn=warned.append)
    assert warned == []
    assert chosen[-1] == record_of(tmp_path / "a") == numbers("explicit").as_record()


def test_a_record_that_is_damaged_is_refused(tmp_path: Path) -> None:
    stopped(tmp_path / "a")
    changed(tmp_path / "a", lambda training: training["attention"].update(groups=3))
    with pytest.raises(InputError, match=r"config\.json: training\.attention: holds no costs") as raised:
        train(CONFIG, tmp_path / "a", device="cpu", resume=True)
    assert "\n" not in str(raised.value)


def test_what_ships_of_another_torch_is_the_run_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ships chooses by processor alone; a run that goes on by it is no run of another torch."""
    monkeypatch.setattr(costs, "_shipped", lambda: [numbers("by_head", torch="0.1")])
    costs.found.cache_clear()
    try:
        stopped(tmp_path / "a")
        assert record_of(tmp_path / "a") == numbers("by_head").as_record()
        warned: list[str] = []
        train(CONFIG, tmp_path / "a", device="cpu", resume=True, warn=warned.append)
        assert warned == []
    finally:
        costs.found.cache_clear()


def test_on_a_gpu_nothing_is_asked(tmp_path: Path) -> None:
    assert same_attention.run_costs(CONFIG, None, tmp_path, torch.device("cuda"), None, None) is None


def asked(ranks, out: str, processors: list[str]) -> list:
    """What each of several ranks goes on with, on processors of their own."""
    runtime.processor = lambda: processors[ranks.rank]
    warned: list[str] = []
    last = Path(out) / "checkpoint"
    found = same_attention.run_costs(CONFIG, load_model(last).config, last, torch.device("cpu"), ranks, warned.append)
    return [found.as_record()["groups"], len(warned)]


@pytest.mark.slow
@pytest.mark.parametrize("first", ["same", "another"])
def test_ranks_on_different_processors_go_on_alike(tmp_path: Path, first: str) -> None:
    with using(numbers("by_head")):
        stopped(tmp_path / "a")
    here = runtime.processor()
    processors = [here, "another"] if first == "same" else ["another", here]
    one, other = together(2, asked, str(tmp_path / "a"), processors)
    assert one[0] == other[0]
    assert [one[1], other[1]] == ([0, 0] if first == "same" else [1, 0])
    assert (one[0] == numbers("by_head").as_record()["groups"]) == (first == "same")
