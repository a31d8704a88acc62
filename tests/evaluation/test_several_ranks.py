"""What several ranks measure is what one measures, also where images are few, a rank was killed, or others go on."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from sightline.data.open import open_source
from sightline.data.sizes import View
from sightline.distributed.ranks import Ranks
from sightline.errors import InputError, NonFiniteError, RanksError, StorageError, UnreadableDataError
from sightline.evaluation import EvaluateConfig, counted, evaluate, predict
from sightline.evaluation.measure import RunInfo
from sightline.evaluation.parts import WorkFolder, dumped, loaded, weights_digest, work_folder
from sightline.hub.load import load_model, save_model
from sightline.training.setup import build_model, open_training_data, resolve
from tests.contract.randomise import randomise_parameters
from tests.ranks import together
from tests.tiny import after, killed, pictures, tiny_config

NATIVE = View("native", 64)


def config_of(*resolutions, **options):
    return EvaluateConfig(resolutions, precision="float32", **options)


# Of 16 px one batch holds two images: what they share is uneven, and of one image the other rank has none.
CASES = {
    "seven": ("scenes", {}, config_of(16, 24, images=7)),
    "one": ("scenes", {}, config_of(16, images=1)),
    "knob": ("scenes", {"encoding": "lookhere_90"}, config_of(16, images=5, knobs="both", tune_images=9)),
    "temperature": ("scenes", {}, config_of(16, 24, images=5, temperature=True, temperature_images=7)),
    "segmentation": (
        "scenes:pairs", {"task": "segmentation", "task_options": {"head": "pix"}}, config_of(16, 24, images=7)
    ),
    "detection": ("scenes:pairs", {"task": "detection", "task_options": {"head": "fcos"}}, config_of(16, 24, images=7)),
    "native": ("files", {}, config_of(NATIVE, 16)),
}  # fmt: skip

QUICK = ("segmentation",)


@pytest.fixture
def saved(tmp_path):
    """`saved(name)` is what `measured` takes for a case."""

    def make(name):
        data, options, config = CASES[name]
        data = pictures(tmp_path / "data") if data == "files" else data
        asked = tiny_config(data=data, images=None if name == "native" else 64, **options)
        if name == "native":
            asked = dataclasses.replace(asked, epochs=1.0)
        source = open_training_data(asked)
        model = build_model(resolve(asked, source, torch.device("cpu")), source)
        save_model(randomise_parameters(model), tmp_path / name)
        return tmp_path / name, data, config

    return make


def measured(ranks: Ranks, place: Path, data, config, out: Path, kill=None):
    """Rows, answers, and pictures or stored logits; `kill` is (rank, how many batches it finishes first)."""
    torch.set_num_threads(1)
    predict._TOKENS_A_BATCH = predict.TOKENS_A_PACK = 32
    if kill is not None and kill[0] == ranks.rank:
        counted._part = after(kill[1], counted._part)
    model, source = load_model(place), open_source(data)
    source, _ = source.check_readable("test")
    moved, answers, drawn = [], [], {}
    logits = {}
    classifies = model.config.task == "classification"
    keep = (lambda name, stored: logits.update({name: stored.logits})) if classifies else None
    with work_folder(out, model, lambda: {"config": repr(config), "data": data}, ranks) as parts:
        rows = evaluate(
            model, source, config, RunInfo("name", data, 16, 3), advance=moved.append, answers=answers,
            pictures=drawn, parts=parts, keep=keep,
        )  # fmt: skip
        assert not classifies or bool(logits) == ranks.is_main
        left = sorted(file.name for file in parts.folder.glob("*.json"))
        if ranks.is_main:
            parts.discard()
    said = [row.record() for row in rows]
    seen = {name: np.asarray(one) for name, one in (drawn | logits).items()}
    return said, answers, seen, sum(moved), left


def assert_equal(one, other, ranks=1):
    for row, its in zip(one[0], other[0], strict=True):
        assert its.pop("ranks", 1) == ranks
        assert its.pop("seconds") > 0
        assert {name: value for name, value in row.items() if name != "seconds"} == its
    assert one[1] == other[1]
    assert one[2].keys() == other[2].keys()
    assert all((picture == other[2][name]).all() for name, picture in one[2].items())
    assert one[3] == other[3]


@pytest.fixture
def alone(monkeypatch):
    monkeypatch.setattr(predict, "_TOKENS_A_BATCH", 32)
    monkeypatch.setattr(predict, "TOKENS_A_PACK", 32)
    return lambda *arguments: measured(Ranks(), *arguments)


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(one, marks=pytest.mark.slow) for one in CASES if one not in QUICK)]
)
def test_two_ranks_measure_what_one_measures(name, saved, alone, tmp_path):
    asked = saved(name)
    one = alone(*asked, tmp_path / "one.jsonl")
    first, second = together(2, measured, *asked, tmp_path / "two.jsonl")
    assert len(one[0]) >= 2
    assert_equal(one, first, ranks=2)
    assert second[:3] == ([], [], {})
    assert not list(tmp_path.glob(".*"))
    # In memory, as without a folder, it is the same.
    model, source = load_model(asked[0]), open_source(asked[1])
    rows = evaluate(model, source, asked[2], RunInfo("name", asked[1], 16, 3))
    assert [row.value for row in rows] == [row["value"] for row in one[0]]


def test_a_killed_measurement_goes_on_with_what_is_left(saved, alone, tmp_path, monkeypatch):
    asked = saved("seven")
    one = alone(*asked, tmp_path / "one.jsonl")
    killed(measured, Ranks(), *asked, tmp_path / "two.jsonl", kill=(0, 6))
    made = []
    part = counted._part
    monkeypatch.setattr(counted, "_part", lambda *given, **options: made.append(1) or part(*given, **options))
    assert_equal(one, alone(*asked, tmp_path / "two.jsonl"))
    # Batches: four at 16 px, which are kept, seven at 24 px, seven that are shrunk.
    assert len(made) == 7 + 7
    assert not list(tmp_path.glob(".two*"))


@pytest.mark.slow
def test_another_number_of_ranks_goes_on(saved, alone, tmp_path):
    asked = saved("seven")
    one = alone(*asked, tmp_path / "one.jsonl")
    killed(measured, Ranks(), *asked, tmp_path / "two.jsonl", kill=(0, 6))
    found = together(4, measured, *asked, tmp_path / "two.jsonl")[0]
    # The first measurement is that of one, and the others are of four.
    assert [row.pop("ranks", 1) for row in found[0]] == [1 if row["resolution"] == 16 else 4 for row in one[0]]
    assert_equal(one, found)


def raising(ranks: Ranks, place, data, config, out, kind, rank):
    if ranks.rank == rank:
        counted._part = failing(kind)
    return measured(ranks, place, data, config, out)


def failing(kind):
    def fail(*_, **__):
        raise kind("the line")

    return fail


def test_a_fault_of_one_ends_all_and_what_is_finished_stays(saved, tmp_path):
    other, own = together(2, raising, *saved("seven"), tmp_path / "rows.jsonl", NonFiniteError, 1)
    assert (type(own), str(own)) == (NonFiniteError, "the line")
    assert isinstance(other, RanksError)
    # Of the first measurement nothing was finished.
    assert not list(tmp_path.glob(".rows.jsonl.writing-parts-*/*.json"))


@pytest.mark.slow
def test_images_that_cannot_be_read_count_together(saved, tmp_path):
    place, data, config = saved("native")
    damaged = sorted((tmp_path / "data" / "test").rglob("*.png"))[::5]
    for file in damaged:
        content = file.read_bytes()
        file.write_bytes(content[: len(content) * 2 // 3])
    found = together(2, skipping, place, data, config, tmp_path / "rows.jsonl", len(damaged))
    assert found[0] == sorted(str(file) for file in damaged)
    said = together(2, skipping, place, data, config, tmp_path / "rows.jsonl", len(damaged) - 1)
    assert UnreadableDataError in map(type, said)


def skipping(ranks: Ranks, place, data, config, out, skip):
    predict._TOKENS_A_BATCH = predict.TOKENS_A_PACK = 16
    model, source = load_model(place), open_source(data)
    source, _ = source.check_readable("test", skip_unreadable=skip)
    with work_folder(out, model, lambda: {"skip": skip}, ranks) as parts:
        evaluate(model, source, config, RunInfo("name", data, 16, 3), parts=parts)
        if ranks.is_main:
            parts.discard()
    return sorted(one.path for one in source.allowance.left_out("test"))


def test_nothing_is_left_where_nothing_was_finished(saved, tmp_path):
    model = load_model(saved("one")[0])
    with pytest.raises(KeyboardInterrupt), work_folder(tmp_path / "out", model, dict):
        raise KeyboardInterrupt
    assert not list(tmp_path.glob(".out*"))


def test_another_model_or_option_has_parts_of_its_own(saved, tmp_path):
    model = load_model(saved("knob")[0])
    digests = {weights_digest(model)}

    def numbers(about):
        made = []
        with work_folder(tmp_path / "out", model, lambda: about) as parts:
            found = parts.gather("work", [1, 1, 1], lambda todo: (made.append(one) or one for one in todo))
            assert found.values == [0, 1, 2]
        return made

    assert [numbers({"a": 1}), numbers({"a": 1}), numbers({"a": 2})] == [[0, 1, 2], [], [0, 1, 2]]
    model.set_knob(0.123)
    digests.add(weights_digest(model))
    assert numbers({"a": 1}) == [0, 1, 2]
    model.head.weight.data[0, 0] += 1
    assert len(digests | {weights_digest(model)}) == 3
    assert len(list(tmp_path.glob(".out*"))) == 3
    # What is whole takes with it what is of other weights, but for what another process holds.
    with work_folder(tmp_path / "out", model, lambda: {"a": 3}) as parts:
        parts.discard()
    assert not list(tmp_path.glob(".out*"))


def test_two_commands_are_not_at_the_same_work(saved, tmp_path):
    model = load_model(saved("one")[0])
    with work_folder(tmp_path / "out", model, dict) as parts:
        parts.save("work", 0)
        other = work_folder(tmp_path / "out", model, dict)
        with pytest.raises(InputError, match="writing-parts"), other:
            pass
        assert parts.load("work") == 0
        for file in parts.folder.glob("*.json"):
            os.unlink(file)
        with pytest.raises(StorageError):
            parts.load("work")


def test_values_come_back_as_they_were():
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (3, 5, 3), dtype=np.uint8))
    tree = {"a": (1, 2.5, [None, True]), 3: [np.float32(0.1), np.array([["é", "b\udc80"]])], "b": (), "array": picture}
    back = loaded(dumped(tree))
    assert back["a"] == tree["a"]
    assert back[3][0] == tree[3][0]
    assert back[3][0].dtype == np.float32
    assert (back[3][1] == tree[3][1]).all()
    assert back["b"] == ()
    assert (np.asarray(back["array"]) == np.asarray(picture)).all()
    assert all(np.isnan(loaded(dumped([np.nan, float("nan")]))))
    for odd in ({1, 2}, np.array([object()]), torch.zeros(1)):
        with pytest.raises(TypeError):
            dumped(odd)


def test_what_cannot_be_told_is_not_kept(saved, tmp_path):
    model = load_model(saved("one")[0])
    with work_folder(tmp_path / "out", model, dict) as parts:
        assert parts.gather("work", [1, 1], lambda todo: iter([{1}, "told"])).values == [{1}, "told"]
        assert "work" not in parts
    assert not list(tmp_path.glob(".out*"))
    assert WorkFolder().gather("work", [1, 1], lambda todo: iter([{1}, {2}])).values == [{1}, {2}]
