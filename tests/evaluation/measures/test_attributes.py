"""Linear probes of attributes: rows by independent code, for any model, and two models paired."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import wilcoxon
from sklearn.linear_model import LogisticRegression

from sightline.data.open import open_source
from sightline.errors import InputError
from sightline.evaluation import features
from sightline.evaluation.measures.linear_probe import STRENGTHS, _groups
from sightline.metrics.base import metrics_of
from sightline.models import create_model
from sightline.results.attributes import compare_attributes, pair_attributes
from sightline.results.rows import ResultRow, dump_rows, read_rows, to_frame, wilson_interval
from sightline.results.statistics import signed_rank
from sightline.tokens.text import TextTokenizer
from tests.attribute_data import AGES, GENDERS, NAMES, RACES, celeba, fairface
from tests.contract.randomise import randomise_parameters
from tests.evaluation.models import measured, tiny


@pytest.fixture(scope="module")
def faces(tmp_path_factory):
    return f"csv:{fairface(tmp_path_factory.mktemp('faces'), 60, 30)}"


@pytest.fixture(scope="module")
def model():
    return tiny("digits")


def by_slices(rows, metric):
    return {tuple(row.slices.values()): row for row in rows if row.metric == metric}


def independent(model, data, split, indices):
    """What enters the head, image by image."""
    source, found = open_source(data).with_view(still=True), []
    mean, std = (torch.tensor(one).view(-1, 1, 1) for one in (model.config.mean, model.config.std))
    for index in indices:
        image = source.example(split, index, (16, 16)).image
        pixels = (torch.from_numpy(image.copy()).permute(2, 0, 1).float() / 255 - mean) / std
        with torch.inference_mode():
            found.append(model.forward_head(model.forward_features(pixels.unsqueeze(0)), pre_logits=True)[0])
    return torch.stack(found).double().numpy()


def answers(model, data, attribute):
    """Of each test image 1 or 0, nan without a label: scikit-learn's regression, its strength by the held-out fifth."""
    source = open_source(data)
    order = features._chosen(source, "train")
    labels, test = (source.attribute_labels[attribute][source.rows_of(split)] for split in ("train", "test"))
    x, y = independent(model, data, "train", order), labels[order]
    cut = len(order) - len(order) // 5
    parts = [(x[part][y[part] >= 0], y[part][y[part] >= 0]) for part in (slice(cut), slice(cut, None))]
    (train, classes), (held_out, others) = parts
    mean, deviation = train.mean(0), train.std(0) + 1e-5
    best = None
    for strength in reversed(STRENGTHS):
        probe = LogisticRegression(C=1 / (strength * len(train)), tol=1e-9, max_iter=20_000)
        probe.fit((train - mean) / deviation, classes)
        right = int((probe.predict((held_out - mean) / deviation) == others).sum())
        if best is None or right > best[0]:
            best = right, strength, probe
    said = best[2].predict((independent(model, data, "test", range(len(test))) - mean) / deviation)
    return np.where(test >= 0, said == test, np.nan), best[1], len(train)


def test_rows_are_those_of_independent_code(faces, model):
    source = open_source(faces)
    rows = measured(model, faces, 16, splits=("test",), measures=("linear_probe",))
    top1, worst, gaps = (by_slices(rows, f"linear_probe_{one}") for one in ("top1", "worst_group", "gap"))
    others = (by_slices(rows, f"linear_probe_{one}") for one in ("l2", "train_images"))
    (strengths, trained), means, each = others, [], []
    for name in source.attributes:
        right, strength, count = answers(model, faces, name)
        known = ~np.isnan(right)
        assert 0 < right[known].mean() <= 1
        assert (top1[name,].value, top1[name,].count) == (pytest.approx(right[known].mean()), known.sum())
        assert top1[name,].right == "".join("-" if one != one else str(int(one)) for one in right)
        assert (strengths[name,].value, trained[name,].value) == (strength, count)
        means.append(right[known].mean())
        each.append(right)
        for by in (one for one in source.attributes if one != name):
            labels = source.attribute_labels[by][source.rows_of("test")]
            shares = {value: right[known & (labels == place)] for place, value in enumerate(source.attributes[by])}
            for value, some in shares.items():
                row = top1[name, by, value]
                assert (row.value, row.count) == (pytest.approx(some.mean()), len(some))
            found = {value: some.mean() for value, some in shares.items()}
            low, high = min(found, key=found.get), max(found, key=found.get)
            assert worst[name, by, low].value == pytest.approx(found[low])
            assert gaps[name, by].value == pytest.approx(found[high] - found[low])
            limits = [wilson_interval(found[one], len(shares[one])) for one in (low, high)]
            p, q = found[low], found[high]
            assert gaps[name, by].interval == pytest.approx((
                max(q - p - math.hypot(q - limits[1][0], limits[0][1] - p), 0),
                min(q - p + math.hypot(limits[1][1] - q, p - limits[0][0]), 1),
            ))  # fmt: skip
    assert any(0 < mean < 1 for mean in means)
    (whole,) = by_slices(rows, "linear_probe_mean").values()
    assert (whole.value, whole.count) == (pytest.approx(np.mean(means)), 30)
    # Over images drawn again.
    table, draws = np.array(each), np.random.default_rng(0)
    drawn = [np.nanmean(table[:, draws.integers(30, size=30)], axis=1).mean() for _ in range(2000)]
    assert whole.stderr == pytest.approx(np.std(drawn), rel=0.15)
    assert {row.task for row in rows} == {"attributes"}
    assert "right" not in to_frame(rows)


def test_the_gap_of_two_groups_that_lie_far_apart(faces):
    source, labels = open_source(faces), np.repeat([0, 1], [30, 20])
    images = features.Features(np.zeros((50, 1), np.float32), labels, {"gender": labels, "age": labels, "race": labels})
    right = np.concatenate([np.arange(30) < 27, np.arange(20) < 4])
    gap = next(row for row in _groups("age", right, images, source) if row.metric == "linear_probe_gap")
    (_, above), (below, _) = wilson_interval(0.2, 20), wilson_interval(0.9, 30)
    (low, _), (_, high) = wilson_interval(0.2, 20), wilson_interval(0.9, 30)
    assert gap.value == pytest.approx(0.7)
    assert gap.interval == pytest.approx(
        (0.7 - math.hypot(0.9 - below, above - 0.2), 0.7 + math.hypot(high - 0.9, 0.2 - low))
    )


def test_with_a_class_its_accuracy_is_a_row_of_its_own(faces, model):
    rows = measured(model, f"{faces},label=race", 16, splits=("test",), measures=("linear_probe",))
    top1 = by_slices(rows, "linear_probe_top1")
    assert (top1[()].value, top1[()].count) == (top1["race",].value, top1["race",].count)
    own = tiny(f"{faces},label=race")
    rows = measured(own, f"{faces},label=race", 16, splits=("test",), measures=("linear_probe", "knn"))
    assert {"top1", "knn_top1", "linear_probe_top1", "linear_probe_mean"} <= {row.metric for row in rows}
    assert by_slices(rows, "top1").keys() >= {()}


def test_groups_are_those_that_are_asked_for_where_attributes_are_many(faces, model, tmp_path, monkeypatch):
    rows = measured(model, f"{faces},group=race", 16, splits=("test",), measures=("linear_probe",))
    assert by_slices(rows, "linear_probe_gap").keys() == {("age", "race"), ("gender", "race")}
    celeba(tmp_path, 80)
    monkeypatch.setattr("sightline.evaluation.measures.linear_probe._MOST_CUT", len(NAMES) - 1)
    asked = {"splits": ("test",), "measures": ("linear_probe",)}
    assert not by_slices(measured(model, f"csv:{tmp_path}", 16, **asked), "linear_probe_gap")
    rows = measured(model, f"csv:{tmp_path},group=Male", 16, **asked)
    assert by_slices(rows, "linear_probe_gap").keys() == {(name, "Male") for name in NAMES if name != "Male"}
    assert set(by_slices(rows, "linear_probe_top1")) >= {("Young", "Male", "-1"), ("Young", "Male", "1")}


def test_a_group_without_images_and_a_column_without_labels_are_left_out(tmp_path, model):
    root = fairface(tmp_path, 40, 12)
    table = root / "fairface_label_val.csv"
    head, *lines = (line.split(",") for line in table.read_text().splitlines())
    lines = [[name, "", gender, RACES[number % 2], test] for number, (name, _, gender, _, test) in enumerate(lines)]
    table.write_text("".join(f"{','.join(line)}\n" for line in (head, *lines)))
    rows = measured(model, f"csv:{root}", 16, splits=("test",), measures=("linear_probe",))
    top1 = by_slices(rows, "linear_probe_top1")
    assert set(top1) == {
        ("gender",), ("gender", "race", "White"), ("gender", "race", "Black"), ("race",),
        *(("race", "gender", one) for one in GENDERS),
    }  # fmt: skip
    assert all(age not in one for one in top1 for age in AGES)


HEADS = {
    "no classes": {"num_classes": 0, "class_names": None},
    "segmentation": {"head": "upernet", "task": "segmentation", "num_classes": 3, "class_names": ("a", "b", "c"),
        "depth": 4},
    "mlp": {"head": "mlp", "num_classes": 2, "class_names": ("x", "y")},
}  # fmt: skip


@pytest.mark.parametrize("head", HEADS)
def test_a_model_with_any_head(head, faces):
    options = HEADS[head]
    made = create_model("vit_micro_patch4", image_size=16, **{"depth": 1, "dim": 48, "heads": 4, **options})
    model = randomise_parameters(made).eval()
    rows = measured(model, faces, 16, splits=("test",), measures=("linear_probe",))
    assert set(by_slices(rows, "linear_probe_top1")) >= {("age",), ("gender",), ("race",)}
    assert {row.metric.startswith("linear_probe") for row in rows} == {True}
    assert (model.attn_pool is None) == (head == "segmentation")
    for asked in ({"measures": ("knn",)}, {"measures": ()}, {"measures": ("linear_probe",), "knobs": "both"}):
        with pytest.raises(InputError):
            measured(model, faces, 16, splits=("test",), **asked)


def test_a_model_of_images_and_texts(faces):
    """Also for classes, beside what it says by words."""
    learned = TextTokenizer.learn(["a photo of a face"], vocab_size=270)
    text = {"depth": 1, "dim": 16, "heads": 2, "vocab_size": learned.vocab_size, "end_id": 1, "lower_case": True}
    options = {"embed_dim": 16, "text": {**text, "tokenizer": learned.content, "length": 16}}
    model = create_model(
        "vit_micro_patch4", image_size=16, depth=1, dim=48, num_classes=0, task="contrastive", head="contrastive",
        head_options=options, pool="mean",
    ).eval()  # fmt: skip
    rows = measured(model, faces, 16, splits=("test",), measures=("linear_probe",))
    assert set(by_slices(rows, "linear_probe_top1")) >= {("age",), ("gender",), ("race",)}
    rows = measured(model, f"{faces},label=race", 16, splits=("test",), measures=("zero_shot", "linear_probe", "knn"))
    assert {"zero_shot_top1", "linear_probe_top1", "knn_top1"} <= {row.metric for row in rows}
    assert metrics_of(features.FrozenTrunk(model.config)) == []


def test_of_a_model_that_pools_nothing_a_feature_is_the_mean_of_its_tokens(faces, monkeypatch):
    model = randomise_parameters(
        create_model("vit_micro_patch4", image_size=16, dim=48, heads=4, **HEADS["segmentation"])
    ).eval()
    seen = []
    together = features._together
    monkeypatch.setattr(features, "_together", lambda *given: seen.append(together(*given)) or seen[-1])
    measured(model, faces, 16, splits=("test",), measures=("linear_probe",))
    image = open_source(faces).example("test", 0, (16, 16)).image
    mean, std = (torch.tensor(one).view(-1, 1, 1) for one in (model.config.mean, model.config.std))
    pixels = ((torch.from_numpy(image.copy()).permute(2, 0, 1).float() / 255 - mean) / std).unsqueeze(0)
    with torch.inference_mode():
        rows, layout = model.prepare(pixels)
        tokens = model.encode(rows, layout)
    expected = tokens[:, model.num_prefix_tokens :].mean(1)[0]
    torch.testing.assert_close(torch.from_numpy(seen[-1].values[0]), expected, rtol=1e-4, atol=1e-5)


def paired_row(attribute, right, run="one", **changes):
    answered = [one for one in right if one != "-"]
    fields = {
        "run": run, "encoding": run, "task": "attributes", "data": "csv:faces", "split": "test",
        "metric": "linear_probe_top1", "value": answered.count("1") / len(answered), "unit": "fraction",
        "count": len(answered), "resolution": 16, "grid": (4, 4), "train_resolution": 16, "knob": None, "tuned": False,
        "seed": 0, "seconds": 1.0, "commit": "0000000", "hardware": "none", "slices": {"attribute": attribute},
        "right": right, "better": "higher",
    }  # fmt: skip
    return ResultRow(**{**fields, **changes})


def drawn(share, seed, images=60):
    draws = np.random.default_rng(seed)
    said = np.where(draws.random(images) < share, "1", "0")
    said[:3] = "-"
    return "".join(said)


def test_two_models_are_paired(tmp_path):
    names = tuple("abcdefg")
    first = [paired_row(name, drawn(0.95 - 0.02 * place, place)) for place, name in enumerate(names)]
    second = [paired_row(name, drawn(0.9 - 0.07 * place, 50 + place), "two") for place, name in enumerate(names[:6])]
    found = pair_attributes(first, second)
    assert [one.attribute for one in found] == list(names[:6])
    by_hand = []
    for one, other, pair in zip(first, second, found, strict=False):
        both = list(zip(one.right[3:], other.right[3:], strict=True))
        b, c = both.count(("1", "0")), both.count(("0", "1"))
        tail = sum(math.comb(b + c, some) for some in range(min(b, c) + 1)) / 2 ** (b + c)
        by_hand.append(min(2 * tail, 1))
        assert (pair.alone, pair.images, pair.first, pair.second) == ((b, c), 57, one.value, other.value)
        assert pair.p == pytest.approx(by_hand[-1], rel=1e-12)
        assert pair.shown == ("16 px", "16 px")
    order, highest = np.argsort(by_hand), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1, (6 - rank) * by_hand[place]))
        assert found[place].adjusted == pytest.approx(highest, rel=1e-12)
    assert min(by_hand) < 0.01 < max(by_hand)
    expected = wilcoxon([row.value for row in first[:6]], [row.value for row in second])
    assert {pair.signed_rank for pair in found} == {expected.pvalue}
    # As they are written and read, from the folders of two models.
    for folder, rows in (("one", first), ("two", second)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "results.jsonl").write_text(dump_rows(rows))
    assert read_rows(tmp_path / "one/results.jsonl") == first
    assert compare_attributes(tmp_path / "one", tmp_path / "two") == found
    with pytest.raises(InputError):
        compare_attributes(tmp_path / "one", tmp_path / "two", data="csv:others")


def test_sizes_are_paired_where_both_have_them_or_each_has_one():
    first = [paired_row("a", drawn(0.9, 1), resolution=side, grid=(side // 4,) * 2) for side in (16, 32)]
    second = [replace(row, run="two", right=drawn(0.5, 2)) for row in first]
    assert [pair.shown for pair in pair_attributes(first, second)] == [("16 px",) * 2, ("32 px",) * 2]
    native = [paired_row("a", drawn(0.9, 3), resolution=None, grid=None, view="tokens:16", patches=15.0)]
    assert [pair.shown for pair in pair_attributes(native, second[:1])] == [("tokens:16", "16 px")]
    assert pair_attributes(native, second) == []


@pytest.mark.parametrize("change", [
    {"right": drawn(0.9, 1, 59)}, {"right": "1" + drawn(0.9, 1)[1:]}, {"data": "csv:others"},
], ids=["fewer", "others", "data"])  # fmt: skip
def test_other_images_are_no_pair(change):
    row = paired_row("a", drawn(0.9, 1))
    with pytest.raises(InputError):
        pair_attributes([row], [replace(row, run="two", **change)])


def test_equal_accuracies_differ_in_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert signed_rank([0.5, 0.75], [0.5, 0.75]) == 1
    assert signed_rank([0.1, 0.2, 0.3, 0.4, 0.5], [0.2, 0.4, 0.6, 0.8, 0.9]) == pytest.approx(2 / 2**5)
