"""Frozen features: of which images, as they are measured, once for all measures, on any number of ranks."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from sightline.data.open import open_source
from sightline.data.sizes import FrameSampling, View
from sightline.distributed.ranks import Ranks
from sightline.errors import InputError, UnreadableDataError
from sightline.evaluation import EvaluateConfig, evaluate, features, predict
from sightline.evaluation.features import Features, FrozenFeatureMeasure
from sightline.evaluation.measure import RunInfo, count_images, data_sets, splits_read
from sightline.evaluation.measures.base import MeasureInput, measure_class
from sightline.evaluation.measures.knn import NearestNeighbours
from sightline.evaluation.parts import WorkFolder, work_folder
from sightline.evaluation.tune import tuned_at
from sightline.hub.load import load_model, save_model
from sightline.models import Model, create_model
from sightline.tasks.base import task_of
from tests.contract.randomise import randomise_parameters
from tests.ranks import together
from tests.tiny import pictures

ALL = ("few_shot", "knn", "linear_probe")


class Seen(FrozenFeatureMeasure):
    """Keeps what it is given."""

    name = "seen"

    def __init__(self) -> None:
        self.calls: list[tuple[str, Features, Features]] = []

    def fit(self, train, held_out):
        self.calls.append(("learn", train, held_out))
        return len(self.calls)

    def score(self, learned, images):
        self.calls.append(("measured", images, images))
        return []


def tiny(classes, **options) -> Model:
    torch.manual_seed(0)
    made = create_model(
        "vit_micro_patch4", image_size=16, depth=1, dim=48, heads=4, num_classes=len(classes), class_names=classes,
        **options,
    )  # fmt: skip
    return randomise_parameters(made).eval()


def subject_of(model: Model, source, view=16, split="test", indices=range(6)) -> MeasureInput:
    task = task_of(model).bind(source, source.name)
    return MeasureInput(model, task, source, split, indices, view, "float32")


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "TRAIN_IMAGES", 60)
    monkeypatch.setattr(features, "ENDLESS_TRAIN_IMAGES", 40)
    monkeypatch.setattr(features, "HELD_OUT_IMAGES", 30)


@pytest.mark.parametrize("options", [{}, {"head": "mlp"}, {"pool": "mean"}, {"encoding": "lookhere_90"}], ids=str)
def test_a_feature_is_what_timm_calls_pre_logits_of_the_image_as_it_is_measured(options):
    source = open_source("digits")
    model, measure = tiny(source.classes, **options), Seen()
    assert measure.rows(subject_of(model, source, 20), WorkFolder(), "work") == []
    (_, train, held_out), (_, images, _) = measure.calls
    assert (len(train), len(held_out), len(images)) == (60, 30, 6)
    task = task_of(model).bind(source, "digits")
    chosen = {"train": features._chosen(source, "train"), "minival": features._chosen(source, "minival")}
    for name, found, indices in (
        ("train", train, chosen["train"]), ("minival", held_out, chosen["minival"]), ("test", images, range(6)),
    ):  # fmt: skip
        shown = [source.with_view(still=True).example(name, index, (20, 20)) for index in indices]
        assert found.labels.tolist() == task.targets(shown)["labels"].tolist()
        for example, values in list(zip(shown, found.values, strict=True))[:5]:
            pixels = torch.from_numpy(example.image.copy()).permute(2, 0, 1).float() / 255
            mean, std = (torch.tensor(one).view(-1, 1, 1) for one in (model.config.mean, model.config.std))
            with torch.inference_mode():
                expected = model.forward_head(
                    model.forward_features(((pixels - mean) / std).unsqueeze(0)), pre_logits=True
                )
            torch.testing.assert_close(torch.from_numpy(values), expected[0], rtol=1e-5, atol=1e-5)
    assert not model._forward_pre_hooks
    assert not model.head._forward_pre_hooks


def test_another_rule_by_which_tables_are_resized_gives_other_features():
    source = open_source("digits")
    model, parts = tiny(source.classes, encoding="learned_2d"), WorkFolder()
    seen = []
    for value in ("bilinear", "bicubic", "bilinear"):
        measure = Seen()
        with tuned_at(model, {"rule": value}):
            measure.rows(subject_of(model, source, 20), parts, f"work {value}")
        seen.append(measure.calls[-1][1].values)
    assert np.abs(seen[0] - seen[1]).max() > 1e-3
    np.testing.assert_array_equal(seen[0], seen[2])


def test_the_images_are_a_seeded_permutation_of_train_the_same_for_every_model():
    source = open_source("digits")
    chosen = features._chosen(source, "train")
    assert len(set(chosen)) == 60
    assert max(chosen) < 1297
    assert chosen != sorted(chosen)
    assert features._chosen(source, "train") == chosen
    # No run comes so far: whatever its seed, the model has not seen them.
    endless = features._chosen(open_source("scenes"), "train")
    assert len(endless) == 40
    assert endless[0] > 10**12


def test_without_minival_the_last_fifth_of_each_class_is_held_out():
    labels = np.array([0] * 11 + [1] * 4 + [2] * 2 + [3])
    labels = labels[np.random.default_rng(0).permutation(len(labels))]
    train, held_out = Features(np.arange(len(labels), dtype=np.float32)[:, None], labels).held_out()
    counts = [np.bincount(one.labels, minlength=4).tolist() for one in (train, held_out)]
    assert counts == [[9, 3, 1, 1], [2, 1, 1, 0]]
    for label in range(3):
        assert train.values[train.labels == label].max() < held_out.values[held_out.labels == label].min()


@pytest.mark.parametrize("view", [16, View("native", 32), View("tokens", 9)], ids=str)
def test_without_minival_and_at_any_view_features_stand_in_their_order(tmp_path, view, monkeypatch):
    source = open_source(pictures(tmp_path / "data", count=7))
    model, measure = tiny(source.classes), Seen()
    measure.rows(subject_of(model, source, view, indices=[3, 0, 2]), WorkFolder(), "work")
    (_, train, held_out), (_, images, _) = measure.calls
    assert (len(train), len(held_out)) == (12, 2)
    assert images.labels.tolist() == [source.example("test", index, (16, 16)).target.label for index in (3, 0, 2)]
    for index, values in zip((3, 0, 2), images.values, strict=True):
        alone = Seen()
        alone.rows(subject_of(model, source, view, indices=[index]), WorkFolder(), "work")
        np.testing.assert_allclose(values, alone.calls[1][1].values[0], rtol=1e-4, atol=1e-5)
    assert np.abs(images.values[0] - images.values[1:]).max(axis=1).min() > 1e-2
    monkeypatch.setattr(predict, "_TOKENS_A_BATCH", 1)
    monkeypatch.setattr(predict, "TOKENS_A_PACK", 1)
    other = Seen()
    other.rows(subject_of(model, source, view, indices=[3, 0, 2]), WorkFolder(), "work")
    for one, two in zip(measure.calls, other.calls, strict=True):
        for ours, theirs in zip(one[1:], two[1:], strict=True):
            assert ours.labels.tolist() == theirs.labels.tolist()
            np.testing.assert_allclose(ours.values, theirs.values, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["few_shot", "linear_probe"])
def test_what_is_chosen_is_chosen_before_an_image_of_the_test_split_is_read(tmp_path, name, monkeypatch):
    source = open_source("digits")
    guarded = copy.copy(source)

    def example(split, index, *arguments, **options):
        if split == "test":
            raise UnreadableDataError("the test split was read")
        return source.with_view(still=True).example(split, index, *arguments, **options)

    guarded.example = example
    model, kind = tiny(source.classes), measure_class(name)
    as_written, learned = kind.fit, []

    def learn(self, train, held_out):
        learned.append(as_written(self, train, held_out))
        return learned[-1]

    monkeypatch.setattr(kind, "fit", learn)
    with work_folder(tmp_path / "rows", model, dict) as parts:
        with pytest.raises(UnreadableDataError):
            kind().rows(subject_of(model, guarded), parts, "work")
        assert len(learned) == 1
        # What was learned is kept: it is not learned again, and the rows are those of a run that nothing stopped.
        rows = kind().rows(subject_of(model, source), parts, "work")
        assert len(learned) == 1
    assert rows == kind().rows(subject_of(model, source), WorkFolder(), "work")
    assert len(learned) == 2


def test_features_of_a_size_are_made_once_for_all_measures_and_those_of_others_are_let_go(monkeypatch):
    source = open_source("digits")
    model, parts = tiny(source.classes, encoding="lookhere_90"), WorkFolder()
    config = EvaluateConfig((16, 20), images=5, measures=ALL, precision="float32", shrink=False)
    shown, moved = [], []
    pooled = features._pooled

    def counting(model, batch, precision="float32"):
        shown.append(len(batch))
        return pooled(model, batch, precision)

    monkeypatch.setattr(features, "_pooled", counting)
    rows = evaluate(model, source, config, RunInfo("one", "digits", 16, 0), advance=moved.append, parts=parts)
    assert sum(shown) == 2 * (60 + 30 + 5)
    assert sum(moved) == count_images(source, model, config, 16) == 2 * (5 + 2 * (60 + 30 + 5) + 60 + 5)
    assert {name for name in parts.shared if name.startswith("features ")} == {
        f"features {json.dumps([20, model.knob.value, None])} {split}" for split in ("train", "minival", "test")
    }
    named = {row.metric for row in rows}
    assert {"few_shot_top1", "few_shot_l2", "knn_top1", "linear_probe_top1", "linear_probe_l2"} <= named
    assert splits_read(source, config) == ("test", "train", "minival")
    assert splits_read(source, EvaluateConfig((16,), measures=("knn",))) == ("test", "train")
    assert splits_read(source, EvaluateConfig((16,), ("minival",), measures=ALL)) == ("minival", "train")


def test_what_cannot_be_learned_from_is_refused_in_one_line(tmp_path):
    source = open_source("digits")
    model, identity = tiny(source.classes), RunInfo("one", "digits", 16, 0)
    with pytest.raises(InputError, match=r"knn.*train"):
        evaluate(model, source, EvaluateConfig((16,), ("train",), images=2, measures=("knn",)), identity)
    untrained = copy.copy(source)
    untrained.splits = ("test",)
    with pytest.raises(InputError, match=r"few_shot.*train"):
        evaluate(model, untrained, EvaluateConfig((16,), images=2, measures=("few_shot",)), identity)
    single = open_source(pictures(tmp_path / "data", count=1))
    for name in ("few_shot", "linear_probe"):
        with pytest.raises(InputError, match=f"measures: {name}"):
            measure_class(name)().rows(subject_of(tiny(single.classes), single, indices=[0]), WorkFolder(), "work")
    rows = measure_class("knn")().rows(subject_of(tiny(single.classes), single, indices=[0]), WorkFolder(), "work")
    assert [row.slices.get("k") for row in rows] == [2, None]


def test_on_minival_itself_nothing_is_chosen_on_it(tmp_path):
    source = open_source("digits")
    measure = Seen()
    measure.rows(subject_of(tiny(source.classes), source, split="minival"), WorkFolder(), "work")
    assert [(len(train) + len(held_out)) for _, train, held_out in measure.calls[:1]] == [60]
    folder = pictures(tmp_path / "data", count=3)
    (tmp_path / "data/val").mkdir()
    for name in ("a", "b"):
        (tmp_path / "data/val" / name).mkdir()
        (tmp_path / "data/test" / name / "2.png").rename(tmp_path / "data/val" / name / "2.png")
    source = open_source(folder)
    assert Seen.reads(source, "test") == ("train", "minival")
    # It is also asked for by the name of its folder.
    assert Seen.reads(source, "val") == Seen.reads(source, "minival") == ("train",)


def test_features_of_other_numbers_of_frames_are_other_features(monkeypatch):
    """Made once for all measures, but not for all that `--frames` asks for."""
    monkeypatch.setattr(features, "TRAIN_IMAGES", 20)
    source = open_source("moving")
    clips = {"embedder": "tubelets", "clip_frames": 4, "encoding": "rope_axial"}
    model, config = tiny(source.classes, **clips), EvaluateConfig((16,), images=6, measures=("knn",), shrink=False)
    lengths = [source.with_view(frames=FrameSampling(count)) for count in (2, 4)]
    seen = []
    monkeypatch.setattr(NearestNeighbours, "score", lambda self, learned, images: seen.append(learned.values) or [])
    sets = [one for some in lengths for one in data_sets(some, "moving", config, 16)]
    evaluate(model, sets, config, RunInfo("one", "moving", 16, 0))
    assert not np.array_equal(*seen)


def rows_of(ranks: Ranks, place: Path, data: str, out: Path):
    torch.set_num_threads(1)
    predict._TOKENS_A_BATCH = predict.TOKENS_A_PACK = 100
    features.TRAIN_IMAGES, features.HELD_OUT_IMAGES = 61, 23
    model, source = load_model(place), open_source(data)
    config = EvaluateConfig((16, View("tokens", 12)), images=7, measures=ALL, precision="float32")
    with work_folder(out, model, dict, ranks) as parts:
        rows = evaluate(model, source, config, RunInfo("one", data, 16, 0), parts=parts)
    named = ("few_shot", "knn", "linear_probe")
    return [row.record() | {"seconds": 0, "ranks": 0} for row in rows if row.metric.startswith(named)]


@pytest.mark.slow
def test_two_ranks_measure_what_one_does(tmp_path):
    save_model(tiny(open_source("digits").classes), tmp_path / "model")
    alone = rows_of(Ranks(), tmp_path / "model", "digits", tmp_path / "alone")
    assert len({row["metric"] for row in alone}) >= 7
    first, second = together(2, rows_of, tmp_path / "model", "digits", tmp_path / "two")
    assert first == alone
    assert second == []
