"""Measuring a cascade on a data set: what is held out, what is refused, and rows that agree with the parts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from sightline.data.open import open_source
from sightline.data.sizes import View
from sightline.errors import InputError
from sightline.evaluation.cascade import CascadeConfig, count_tokens, measure, plan_stages
from sightline.evaluation.measure import RunInfo
from sightline.models import create_model
from sightline.tasks.classification import scores_of
from tests.batches import said
from tests.contract.randomise import randomise_parameters

IDENTITY = RunInfo("one", "digits", 16, 3)


def model(**options):
    built = create_model(
        "vit_micro_patch4",
        encoding="rope_axial",
        depth=1,
        dim=48,
        heads=4,
        image_size=16,
        score_link="sigmoid",
        **{"num_classes": 10, **options},
    )
    return randomise_parameters(built).eval()


def measured(config: CascadeConfig, advance=None):
    return measure(model(), open_source("digits"), config, IDENTITY, advance=advance)


def test_thresholds_come_from_minival_and_points_from_test():
    shown = []
    config = CascadeConfig((4, 9), (4, 16), alphas=(0.25, 0.5, 0.0), images=60, aspect="square", precision="float32")
    rows, looks = measured(config, shown.append), plan_stages(open_source("digits"), config)
    assert [(one.split, len(one.indices), one.budgets) for one in looks] == [
        ("minival", 60, (4, 16)), ("test", 60, (4, 9, 16)),
    ]  # fmt: skip
    assert sum(shown) == count_tokens(looks) == 60 * (4 + 16) + 60 * (4 + 9 + 16)
    assert [(row.kind, row.budget, row.second_budget, row.alpha) for row in rows] == [
        ("single", 4, None, None),
        ("single", 9, None, None),
        ("single", 16, None, None),
        ("cascade", 4, 16, 0.0),
        ("cascade", 4, 16, 0.25),
        ("cascade", 4, 16, 0.5),
    ]
    source, built = open_source("digits"), model()

    def alone(split: str, budget: int):
        look = looks[split == "test"]
        return said(built, source, split, look.indices, View("tokens", budget), aspect="square")

    held_out, tested = (
        scores_of(torch.from_numpy(alone(split, 4).logits).double(), "sigmoid").amax(1).numpy()
        for split in ("minival", "test")
    )
    for row in rows[4:]:
        assert row.fraction is not None
        assert (held_out < row.threshold).mean() == row.alpha
        assert (tested < row.threshold).mean() == row.fraction
    assert rows[3].top1 == rows[0].top1
    assert (rows[0].tokens, rows[5].tokens) == (4, pytest.approx(4 + 16 * (rows[5].fraction or 0)))
    one = alone("test", 9)
    assert rows[1].top1 == (one.logits.argmax(1) == one.labels).mean()
    assert (rows[0].run, rows[0].seed, rows[0].data, rows[0].images) == ("one", 3, "digits", 60)


def test_labels_are_those_of_the_model():
    source = open_source("digits")
    config = CascadeConfig((4, 9), (4, 9), images=40, precision="float32")
    order = np.roll(np.arange(10), 1)
    # The data's class i is the model's order[i].
    built = model(class_names=tuple(source.classes[number] for number in np.argsort(order)))
    rows = measure(built, source, config, IDENTITY)
    given = said(built, source, "test", plan_stages(source, config)[1].indices, View("tokens", 9))
    assert rows[1].top1 == (given.logits.argmax(1) == order[given.labels]).mean()
    with pytest.raises(InputError, match="'digits'"):
        measure(model(num_classes=3), source, config, IDENTITY)


def test_an_alpha_for_a_budget_is_the_last_row():
    config = CascadeConfig((4, 9, 16), budget=12, alphas=(0.5,), images=100, aspect="square", precision="float32")
    rows = measured(config)
    assert plan_stages(open_source("digits"), config)[0].budgets == (4, 9, 16)
    chosen = rows[-1]
    assert [row.chosen for row in rows] == [False] * 4 + [True]
    # Squares have as many tokens as they may: what is left after the first look, in whole images.
    alpha = np.floor(100 * (12 - chosen.budget) / (chosen.second_budget or 0)) / 100
    assert chosen.alpha == pytest.approx(min(alpha, 1))


def test_without_minival_the_halves_of_the_split_mix_its_classes(tmp_path):
    """Files are sorted by class: the first ones would be of the first class alone."""
    for number in range(40):
        folder = tmp_path / "test" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 20)).save(folder / f"{number}.png")
    source = open_source(f"imagefolder:{tmp_path}")
    for images, halves in ((None, (20, 20)), (13, (6, 7))):
        looks = plan_stages(source, CascadeConfig((4, 9), images=images))
        assert {look.split for look in looks} == {"test"}
        assert tuple(len(look.indices) for look in looks) == halves
        held_out, tested = (list(look.indices) for look in looks)
        assert not set(held_out) & set(tested)
        assert (held_out, tested) == (sorted(held_out), sorted(tested))
        for indices in (held_out, tested):
            # The first twenty are of class a.
            assert 0.15 < sum(index < 20 for index in indices) / len(indices) < 0.85
        again = plan_stages(source, CascadeConfig((4, 9), images=images, seed=5))
        assert [list(look.indices) for look in again] == [held_out, tested]
    with pytest.raises(InputError, match="split test"):
        plan_stages(source, CascadeConfig((4, 9), images=1))


def test_minival_itself_is_halved_and_an_endless_split_needs_a_number():
    source = open_source("scenes")
    held_out, tested = plan_stages(source, CascadeConfig((4, 9), split="minival", images=10))
    assert len({*held_out.indices, *tested.indices}) == len(held_out.indices) + len(tested.indices) == 10
    with pytest.raises(InputError, match="endless"):
        plan_stages(source, CascadeConfig((4, 9), split="train"))


def test_bfloat16_is_asked_for_and_said():
    rows = measured(CascadeConfig((4, 9), (4, 9), images=20, precision="bfloat16"))
    full = measured(CascadeConfig((4, 9), (4, 9), images=20, precision="float32"))
    assert (rows[0].precision, full[0].precision) == ("bfloat16", "float32")
    assert rows[0].ece != full[0].ece
    assert torch.get_num_threads() == rows[0].threads
