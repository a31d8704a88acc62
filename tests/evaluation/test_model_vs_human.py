"""model-vs-human: numbers equal to those of its published definitions, computed here by hand."""

from __future__ import annotations

import csv
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import cohen_kappa_score

from sightline.errors import InputError
from sightline.evaluation.imagenet import synsets
from sightline.evaluation.logits import find_logits, read_logits, rescore
from sightline.evaluation.suites.base import open_suite
from sightline.evaluation.suites.model_vs_human import error_consistency
from sightline.metrics.model_vs_human import kappa, published
from sightline.reports.results_tables import error_consistency as error_consistency_table
from sightline.reports.series import Study
from sightline.results.rows import read_rows
from sightline.runs.report import report
from sightline.tasks.classification import Classification
from tests.evaluation.model_vs_human_data import (
    CLASSES,
    LEVELS,
    answering_at_random,
    answers_of,
    logits_of,
    stimuli,
)  # fmt: skip
from tests.evaluation.suite_data import model_folder, picture
from tests.tiny import tiny_config, train

# As the paper leaves them out, in the words of the files' names.
LEFT_OUT = {"contrast": ["c100", "c03"], "uniform-noise": ["0.00", "0.60"], "false-colour": ["true"]}
SHORT = {"0.00": "0", "0.10": "0.1", "0.35": "0.35", "0.60": "0.6"}
PEOPLE = {"subject-01": 0.8, "subject-02": 0.5, "subject-03": 0.3}


@pytest.fixture
def measured(tmp_path, cli, monkeypatch):
    """`measured(root, seed, options, sizes)`: the rows, and the folder."""

    def measure(root, seed=0, options="", sizes="16", words=()):
        answering_at_random(monkeypatch, seed)
        out = tmp_path / f"out{seed}"
        code, _, err = cli(
            "evaluate", model_folder(tmp_path / "model"), "--suite", f"model-vs-human:{root}{options}", "--out", out,
            "--precision", "float32", "--resolutions", sizes, "--logits", *words,
        )  # fmt: skip
        assert code == 0, err
        measure.err = err
        return read_rows(out / "results.jsonl"), out

    return measure


def answer(file: Path, seed: int) -> str:
    """The class of the largest mean softmax, exactly."""
    logits = logits_of(str(file), seed).astype(np.float64)
    softmax = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    return max(CLASSES, key=lambda one: np.mean([softmax[number] for number in published()["classes"][one]]))


def images_of(root: Path, name: str, seed: int = 0) -> dict[tuple[str, str], tuple[bool, str]]:
    """By level and name of an image: whether it was named rightly, and how."""
    found = {}
    for file in (root / name).rglob("*.png"):
        words = file.name.split("_")
        level, kind = (words[3], words[4]) if name in LEVELS else ("", file.parent.name)
        key = "_".join(words[-2:]) if words[-2:-1] and words[-2].startswith("n0") else words[-1]
        found[level, key] = answer(file, seed) == kind, answer(file, seed)
    return found


def accuracy(root: Path, name: str, level: str) -> float:
    return float(np.mean([right for (own, _), (right, _) in images_of(root, name).items() if own == level]))


def errors_of(shares: list[float]) -> tuple[float, float]:
    """How far below and above the mean of shares of eight images each lies with 95 % (Wilson, Newcombe)."""
    limits = [binomtest(round(8 * one), 8).proportion_ci(method="wilson") for one in shares]
    low = math.hypot(*(one - pair.low for one, pair in zip(shares, limits, strict=True))) / len(shares)
    return low, math.hypot(*(pair.high - one for one, pair in zip(shares, limits, strict=True))) / len(shares)


def consistency(right: list[bool], other: list[bool]) -> float:
    p, q = sum(right) / len(right), sum(other) / len(other)
    observed = sum(one == two for one, two in zip(right, other, strict=True)) / len(right)
    expected = p * q + (1 - p) * (1 - q)
    if observed == 1:
        return 1.0
    value = (observed - expected) / (1 - expected)
    assert math.isclose(value, cohen_kappa_score(right, other), abs_tol=1e-12)
    return value


def with_people(root: Path, folder: Path, name: str) -> float:
    images, means = images_of(root, name), []
    for file in sorted((folder / name).glob("*subject*.csv")):
        said = {}
        with file.open() as stream:
            for line in csv.DictReader(stream):
                words = line["imagename"].split("_")
                key = "_".join(words[-2:]) if name in LEVELS and name != "sketch" else words[-1]
                level = line["condition"] if name in LEVELS else ""
                said[level, key] = line["object_response"] == line["category"]
        assert said.keys() == images.keys()
        levels = sorted({level for level, _ in said} - set(LEFT_OUT.get(name, ())))
        each = []
        for level in levels:
            keys = [key for key in said if key[0] == level]
            each.append(consistency([images[key][0] for key in keys], [said[key] for key in keys]))
        means.append(sum(each) / len(each))
    return sum(means) / len(means)


def value_of(rows, metric, **slices):
    (row,) = [one for one in rows if one.metric == metric and dict(one.slices) == slices]
    return row.value


def test_the_classes_of_imagenet_are_those_of_their_synsets():
    """Some that everybody knows; every number once."""
    classes = published()["classes"]
    assert tuple(classes) == CLASSES
    numbers = [number for some in classes.values() for number in some]
    assert len(set(numbers)) == len(numbers) == 207
    known = {"knife": "n03041632", "oven": "n04111531", "airplane": "n02690373", "elephant": "n02504458"}
    assert all(synset in [synsets()[number] for number in classes[name]] for name, synset in known.items())
    assert sum(map(len, published()["left_out"].values())) == 32
    assert len(published()["sets"]) == 17


def test_accuracy_by_level_and_its_means(measured, tmp_path):
    root = stimuli(tmp_path / "root")
    rows, out = measured(root)
    assert {(row.data, row.split, row.classes, row.resolution) for row in rows} == {("model-vs-human", "test", 16, 16)}
    means, errors = {}, {}
    for name, (_, levels) in LEVELS.items():
        counted = [level for level in levels if level not in LEFT_OUT.get(name, ())]
        means[name] = np.mean([accuracy(root, name, level) for level in counted])
        for level in levels if name != "sketch" else ():
            found = value_of(rows, "top1", set=name, level=SHORT.get(level, level))
            assert found == pytest.approx(accuracy(root, name, level), abs=1e-12)
        errors[name] = errors_of([accuracy(root, name, level) for level in counted])
    means["edge"], errors["edge"] = accuracy(root, "edge", ""), errors_of([accuracy(root, "edge", "")])
    for name, mean in means.items():
        assert value_of(rows, "top1", set=name) == pytest.approx(mean, abs=1e-12)
    assert rows[0].slices == {}
    assert rows[0].value == pytest.approx(np.mean(list(means.values())), abs=1e-12)
    assert 0.1 < rows[0].value < 0.9
    low, high = (math.hypot(*(some[end] for some in errors.values())) / len(errors) for end in (0, 1))
    assert rows[0].limits() == pytest.approx((rows[0].value - low, rows[0].value + high), abs=1e-5)
    # Levels of eight images each, of six sets.
    assert rows[0].count == 8 * (3 + 2 + 1 + 1 + 1)
    # No set without levels has any, and of cue-conflict no answer is right.
    told = {(row.slices["set"], row.slices.get("level")) for row in rows if row.metric == "top1" and row.slices}
    assert {name for name, level in told if level is not None} == set(LEVELS) - {"sketch"}
    assert "cue-conflict" not in {name for name, _ in told}
    again = [row for file in find_logits(out / "logits") for row in rescore(read_logits(file))]
    assert again == rows


def test_shape_bias_is_of_images_whose_cues_differ(measured, tmp_path):
    root = stimuli(tmp_path / "root", ["cue-conflict"], each=7)
    rows, _ = measured(root)
    shape = texture = images = 0
    for file in (root / "cue-conflict").rglob("*.png"):
        cues = [part.rstrip("0123456789") for part in file.stem.split("-")]
        if cues[0] != cues[1]:
            named = answer(file, 0)
            shape, texture, images = shape + (named == cues[0]), texture + (named == cues[1]), images + 1
    assert min(shape, texture) > 0
    assert images < 28
    assert value_of(rows, "shape_bias") == pytest.approx(shape / (shape + texture), abs=1e-12)
    assert [(row.metric, row.count) for row in rows] == [("shape_bias", shape + texture)]
    assert 0 < shape + texture < images


def test_error_consistency_with_people(measured, tmp_path):
    """Whose answers may lie beside those of models; one who says nothing is wrong."""
    root, folder = stimuli(tmp_path / "root", each=5), tmp_path / "root" / "raw-data"
    sets = ("contrast", "sketch", "edge", "cue-conflict")
    for name in sets:
        answers_of(folder, root, name, PEOPLE, na=["subject-02"])
        answers_of(folder, root, name, {"resnet50": 1.0})
    rows, _ = measured(root)
    expected = {name: with_people(root, folder, name) for name in sets}
    for name, value in expected.items():
        assert value_of(rows, "error_consistency", set=name) == pytest.approx(value, abs=1e-12)
    assert value_of(rows, "error_consistency") == pytest.approx(np.mean(list(expected.values())), abs=1e-12)
    assert len({row.slices["set"] for row in rows if row.metric == "error_consistency" and row.slices}) == 4
    counts = {row.slices["set"]: row.count for row in rows if row.metric == "error_consistency" and row.slices}
    assert counts == {"contrast": 60, "sketch": 20, "edge": 20, "cue-conflict": 20}
    assert "false-colour, uniform-noise (" in measured.err


def test_people_who_were_asked_about_some_images(measured, tmp_path):
    """Each is compared on what they were asked about: here one on the images of two classes, one on the others."""
    root, folder = stimuli(tmp_path / "root", ["edge"], each=6), tmp_path / "root" / "raw-data" / "edge"
    answers_of(folder.parent, root, "edge", {"subject-01": 0.7, "subject-02": 0.4})
    images, each = images_of(root, "edge"), []
    for file, kinds in zip(sorted(folder.glob("*.csv")), (CLASSES[:2], CLASSES[2:4]), strict=True):
        head, *lines = file.read_text().splitlines()
        lines = [line for line in lines if line.split(",")[5] in kinds]
        file.write_text("\n".join([head, *lines]))
        pairs = [(images["", words[7]][0], words[4] == words[5]) for words in (line.split(",") for line in lines)]
        assert len(pairs) == 12
        each.append(consistency(*map(list, zip(*pairs, strict=True))))
    rows, _ = measured(root)
    assert value_of(rows, "error_consistency", set="edge") == pytest.approx(sum(each) / 2, abs=1e-12)
    assert value_of(rows, "error_consistency") == value_of(rows, "error_consistency", set="edge")


def test_error_consistency_between_models(measured, tmp_path):
    """Wherever the data set stood when they were measured."""
    root, moved = stimuli(tmp_path / "root", each=5), tmp_path / "moved" / "datasets"
    shutil.copytree(root, moved)
    (_, first), (_, second) = measured(root, 1), measured(moved.parent, 2)
    one, other = (read_logits(*find_logits(out / "logits")) for out in (first, second))
    found = {row.slices.get("set"): row.value for row in error_consistency(one, other)}
    means = {}
    for name in (*LEVELS, "edge", "cue-conflict"):
        ours, theirs, each = images_of(root, name, 1), images_of(root, name, 2), []
        for level in sorted({level for level, _ in ours} - set(LEFT_OUT.get(name, ()))):
            keys = [key for key in ours if key[0] == level]
            each.append(consistency([ours[key][0] for key in keys], [theirs[key][0] for key in keys]))
        means[name] = sum(each) / len(each)
    assert found == pytest.approx({None: np.mean(list(means.values())), **means}, abs=1e-12)
    assert {row.value for row in error_consistency(one, one)} == {1.0}


def test_logits_of_no_shared_image_have_no_error_consistency(measured, tmp_path):
    root = stimuli(tmp_path / "root", ["sketch", "edge"])
    (_, first), (_, second) = measured(root, 1, ",parts=sketch"), measured(root, 2, ",parts=edge")
    with pytest.raises(InputError):
        error_consistency(*(read_logits(*find_logits(out / "logits")) for out in (first, second)))


def test_kappa_where_it_is_known():
    right = np.array([True, True, False, False])
    assert kappa(right, right) == kappa(right | True, right | True) == 1
    assert kappa(right, ~right) == -1
    assert kappa(right, right | True) == 0


def test_what_is_there_is_measured_and_the_rest_named(measured, tmp_path):
    root = stimuli(tmp_path / "root" / "datasets", ["contrast", "edge"]).parent
    rows, _ = measured(root, sizes="16,24")
    assert {row.slices.get("set") for row in rows} == {None, "contrast", "edge"}
    assert {row.resolution for row in rows} == {16, 24}
    assert "colour, high-pass" in measured.err
    (part,) = open_suite(f"model-vs-human:{root},parts=edge").parts
    assert {one["set"] for one in part.source.slices} == {"edge"}
    for wrong in (",parts=edge+sketch", ",parts=egde", f",people={tmp_path / 'nowhere'}"):
        with pytest.raises(InputError):
            open_suite(f"model-vs-human:{root}{wrong}")
    with pytest.raises(InputError):
        open_suite(f"model-vs-human:{tmp_path / 'root' / 'datasets' / 'contrast' / 'dnn'}")


def test_people_are_looked_for_where_it_is_said(tmp_path):
    root = stimuli(tmp_path / "root", ["edge"])
    answers_of(tmp_path / "elsewhere", root, "edge", PEOPLE)
    assert not any("people" in one for one in open_suite(f"model-vs-human:{root}").parts[0].source.slices)
    opened = open_suite(f"model-vs-human:{root},people={tmp_path / 'elsewhere'}")
    signs = [one["people"] for one in opened.parts[0].source.slices]
    assert {len(one) for one in signs} == {3}
    assert {sign for one in signs for sign in one} == {"0", "1"}
    assert opened.parts[0].digest() != open_suite(f"model-vs-human:{root}").parts[0].digest()


def test_answers_in_other_columns_are_refused(tmp_path):
    root = stimuli(tmp_path, ["edge"])
    answers_of(tmp_path / "raw-data", root, "edge", PEOPLE)
    file = next((tmp_path / "raw-data" / "edge").glob("*.csv"))
    file.write_text(file.read_text().replace("condition", "conditions", 1))
    with pytest.raises(InputError, match=file.name):
        open_suite(f"model-vs-human:{root}")


@pytest.mark.parametrize(
    "name",
    [
        "cue-conflict/dog/dog1-cow2.png",
        "cue-conflict/cow/cow1-dog2.png",
        "sketch/dnn/session-1/0001_ske_dnn_0_cow_00_1.png",
        "edge/cow/cow1.png",
    ],
)
def test_names_that_say_no_class_are_refused(name, tmp_path):
    picture(tmp_path / name)
    with pytest.raises(InputError, match=name):
        open_suite(f"model-vs-human:{tmp_path}")


def test_some_images_are_of_every_set(tmp_path):
    (part,) = open_suite(f"model-vs-human:{stimuli(tmp_path, each=4)}").parts
    some = part.limited(4 * 6)
    kept = [some.source.slices[row]["set"] for row in some.source.rows_of("test")]
    assert {name: kept.count(name) for name in kept} == dict.fromkeys(kept, 4)
    assert len(set(kept)) == 6


def test_a_model_with_classes_in_another_order_answers_the_same(tmp_path):
    """Groups are of the model's own numbers."""
    (part,) = open_suite(f"model-vs-human:{stimuli(tmp_path, ['edge'])}").parts
    numbers = np.random.default_rng(0).permutation(1000)
    (scoring,) = part.scorings
    logits = np.random.default_rng(1).normal(0, 3, (5, 1000)).astype(np.float32)
    labels = np.array([404, 294, 444, 8, 499])
    turned = np.empty_like(logits)
    turned[:, numbers] = logits
    _, shown, right = scoring.apply(logits, labels)
    _, again, other = scoring.renumbered(numbers.tolist()).apply(turned, numbers[labels])
    assert np.allclose(shown, again, atol=1e-6)
    assert (
        right.tolist()
        == other.tolist()
        == [CLASSES.index(one) for one in ("airplane", "bear", "bicycle", "bird", "knife")]
    )


def test_a_report_of_two_runs(measured, tmp_path, cli, monkeypatch):
    """By resolution, with what guessing gives of 16 classes, and how alike the two are."""
    for name in synsets():
        picture(tmp_path / "data" / "train" / name / "1.png", (4, 4))
    root, answers = stimuli(tmp_path / "root", ["edge", "sketch"], each=4), Classification.outputs
    answers_of(tmp_path / "root" / "raw-data", root, "edge", PEOPLE)
    for seed, encoding in enumerate(("learned_1d", "rope_axial")):
        monkeypatch.setattr(Classification, "outputs", answers)
        options = {"data": f"imagefolder:{tmp_path / 'data'}", "images": 4, "batch_size": 4, "encoding": encoding}
        train(tiny_config(**options), tmp_path / encoding)
        answering_at_random(monkeypatch, seed, synsets())
        words = ("--suite", f"model-vs-human:{root}", "--resolutions", "16,24", "--logits", "--precision", "float32")
        code, _, err = cli("evaluate", tmp_path / encoding, *words)
        assert code == 0, err
    made = report([tmp_path / "learned_1d", tmp_path / "rope_axial"], tmp_path / "report.html")
    assert made.content.chance == 1 / 16
    means = []
    for name in ("edge", "sketch"):
        ours, theirs = images_of(root, name, 0), images_of(root, name, 1)
        means.append(consistency([ours[key][0] for key in ours], [theirs[key][0] for key in ours]))
    ((pair, alike),) = made.content.alike.items()
    assert pair == ("learned_1d", "rope_axial")
    assert {side: one.value for side, one in alike.items()} == pytest.approx(dict.fromkeys((16, 24), np.mean(means)))
    table = error_consistency_table(Study.of(made.content.rows), made.content.alike)
    by_size = {head.title: [cell.value for cell in cells] for head, cells in table.lines}
    assert by_size["learned_1d and rope_axial"] == [f"{np.mean(means):.3f}"] * 2
    edge = with_people(root, tmp_path / "root" / "raw-data", "edge")
    assert by_size["learned_1d and people"] == [f"{edge:.3f}"] * 2
    assert 'id="people"' in made.path.read_text()
