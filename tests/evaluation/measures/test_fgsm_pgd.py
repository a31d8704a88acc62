"""`--measures fgsm,pgd`: rows equal an attack written out image by image, whatever the batches, ranks and kills."""

from __future__ import annotations

import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from sightline.data.open import open_source
from sightline.data.sizes import View
from sightline.distributed.ranks import Ranks
from sightline.errors import InputError, NonFiniteError
from sightline.evaluation import EvaluateConfig, evaluate, predict
from sightline.evaluation.measure import RunInfo, count_images, spread_indices
from sightline.evaluation.measures import attacks, speed
from sightline.evaluation.measures.attacks import FGSM, PGD, pixel_mask
from sightline.evaluation.parts import work_folder
from sightline.models import Model
from sightline.results.rows import ResultRow
from sightline.tasks.classification import Classification
from tests.evaluation.models import measured, tiny
from tests.ranks import together
from tests.tiny import killed, pictures

NATIVE = View("native", 40)


def attacked_rows(rows: list[ResultRow]) -> dict[tuple, float]:
    return {
        (row.metric, row.size_label, row.slices["loss"], row.slices["epsilon"]): row.value
        for row in rows
        if "epsilon" in row.slices
    }


def by_hand(model: Model, data: str, side: int, count: int, loss: str, epsilon: int) -> tuple[float, float]:
    """Top-1 and top-5 of FGSM on whole images in [0, 1], one after the other."""
    source = open_source(data).prepared(model.config.interpolation, model.config.crop)
    mean, std = (torch.tensor(one).view(3, 1, 1) for one in (model.config.mean, model.config.std))
    model.eval()
    first = five = 0
    for index in spread_indices(source, "test", count):
        example = source.example("test", index, (side, side))
        x = torch.from_numpy(np.array(example.image)).permute(2, 0, 1).float() / 255
        x.requires_grad_()
        (logits,) = model([(x - mean) / std])
        label = example.target.label
        truth = torch.nn.functional.one_hot(torch.tensor(label), len(logits)).float()
        if loss == "ce":
            cost = -logits.log_softmax(0)[label]
        else:
            cost = torch.nn.functional.binary_cross_entropy_with_logits(logits, truth, reduction="sum")
        (slope,) = torch.autograd.grad(cost, x)
        moved = (x + epsilon / 255 * slope.sign()).clamp(0, 1).detach()
        with torch.no_grad():
            order = model([(moved - mean) / std])[0].argsort(descending=True).tolist()
        first, five = first + (order[0] == label), five + (label in order[:5])
    return first / count, five / count


@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
def test_rows_are_those_of_an_attack_written_out(link):
    model = tiny("digits", score_link=link)
    seen: list[int] = []
    rows = measured(model, "digits", 16, 20, images=12, advance=seen.append, measures=("fgsm",))
    found = attacked_rows(rows)
    losses = ["ce"] if link == "softmax" else ["ce", "bce"]
    assert len(found) == 2 * 2 * 2 * len(losses)
    for side in (16, 20):
        for loss in losses:
            for epsilon in (1, 3):
                top1, top5 = by_hand(model, "digits", side, 12, loss, epsilon)
                assert found["fgsm_top1", f"{side} px", loss, f"{epsilon}/255"] == pytest.approx(top1)
                assert found["fgsm_top5", f"{side} px", loss, f"{epsilon}/255"] == pytest.approx(top5)
    row = next(row for row in rows if row.metric == "fgsm_top5")
    assert (row.unit, row.count, row.better, row.split, row.grid) == ("fraction", 12, "higher", "test", (4, 4))
    assert sum(seen) == count_images(
        open_source("digits"), model, EvaluateConfig((16, 20), images=12, measures=("fgsm",)), 16
    )
    assert all(one.grad is None and one.requires_grad for one in model.parameters())


def test_a_model_that_knows_its_images_loses_them():
    """A head of the images' own features names each of them rightly, until they are moved; more so by more steps."""
    model, source, features = tiny("digits"), open_source("digits"), []
    labels = [source.example("test", index, (16, 16)).target.label for index in spread_indices(source, "test", 10)]
    handle = model.head.register_forward_hook(lambda _, given, out: features.append(given[0]))
    measured(model, "digits", 16, images=10, measures=())
    handle.remove()
    with torch.no_grad():
        truth = 10 * torch.nn.functional.one_hot(torch.tensor(labels), 10).float()
        there = torch.cat(features)
        model.head.weight.copy_((torch.linalg.pinv(there - there.mean(0)) @ truth).T)
        model.head.bias.copy_(truth.mean(0) - model.head.weight @ there.mean(0))
    rows = measured(model, "digits", 16, images=10, measures=("fgsm", "pgd"))
    found = attacked_rows(rows)
    clean = next(row.value for row in rows if row.metric == "top1" and not row.slices)
    assert clean == 1
    assert found["pgd_top1", "16 px", "ce", "3/255"] < clean
    assert found["pgd_top1", "16 px", "ce", "3/255"] <= found["fgsm_top1", "16 px", "ce", "3/255"]


def test_of_one_class_the_cross_entropy_has_nothing_to_attack(tmp_path):
    data = pictures(tmp_path, classes=("a", "b"))
    # A data set to be trained on has two classes, one to be tested on may have one.
    shutil.rmtree(tmp_path / "train")
    shutil.rmtree(tmp_path / "test" / "b")
    found = attacked_rows(measured(tiny(data, score_link="sigmoid"), data, 16, measures=("fgsm", "pgd")))
    assert len(found) == 2 * 2 * 2 * 2
    assert set(found.values()) == {1.0}


def test_batches_and_views_change_nothing(tmp_path, monkeypatch):
    data = pictures(tmp_path, classes=("a", "b", "c"), count=2)
    model = tiny(data)
    # Fewer steps say the same sooner.
    monkeypatch.setattr(PGD, "attack", replace(PGD.attack, steps=2))
    whole = attacked_rows(measured(model, data, 16, NATIVE, measures=("pgd",)))
    assert {name for _, name, *_ in whole} == {"16 px", NATIVE.name}
    monkeypatch.setattr(predict, "_TOKENS_A_BATCH", 48)
    monkeypatch.setattr(predict, "TOKENS_A_PACK", 48)
    monkeypatch.setattr(attacks, "_TOKENS_A_GRADIENT", 24)
    assert attacked_rows(measured(model, data, 16, NATIVE, measures=("pgd",))) == whole


def test_images_that_cannot_be_read_are_left_out_of_it_too(tmp_path, monkeypatch):
    monkeypatch.setattr(speed, "_SECONDS", 0.0)
    data = pictures(tmp_path, count=2)
    model, config = tiny(data), EvaluateConfig((16,), precision="float32", measures=("fgsm", "speed"))
    file = tmp_path / "test" / "a" / "0.png"
    file.write_bytes(file.read_bytes()[:-40])
    source, _ = open_source(data).check_readable("test", skip_unreadable=1)
    rows = evaluate(model, source, config, RunInfo("one", data, 16, 0))
    assert {row.count for row in rows if row.metric in ("top1", "fgsm_top1", "fgsm_top5")} == {3}
    full = predict._TOKENS_A_BATCH // 16
    assert {row.count for row in rows if row.metric == "throughput"} == {full * 3 // 4}
    assert {row.metric for row in rows} > {"throughput", "latency", "flops"}
    file.with_name("1.png").write_bytes(b"")
    shutil.rmtree(tmp_path / "test" / "b")
    monkeypatch.setattr(predict, "_TOKENS_A_BATCH", 16)
    source, _ = open_source(data).check_readable("test", skip_unreadable="all")
    assert not [row for row in evaluate(model, source, config, RunInfo("one", data, 16, 0)) if row.count]


def test_padding_is_not_moved(monkeypatch):
    """Of images of 14 px cut into patches of 4 the last two rows and columns are not theirs."""
    model, given = tiny("digits", fit="pad"), []
    outputs = Classification.outputs
    monkeypatch.setattr(
        Classification, "outputs",
        lambda self, model, batch, precision: given.append(batch.inputs) or outputs(self, model, batch, precision),
    )  # fmt: skip
    measured(model, "digits", 14, images=3, shrink=False, measures=("pgd",))
    there = pixel_mask(model.patch_embed.patchifier, (14, 14)).expand(3, -1, -1)
    clean, steps = given[0], [one.detach() for one in given[1:]]
    assert len(steps) == 2 * (10 + 1)
    for moved in steps:
        assert torch.equal(moved[~there], clean[~there])
        assert not torch.equal(moved[there], clean[there])
        assert float((moved - clean).abs().max()) <= 3
        assert 0 <= float(moved.min()) <= float(moved.max()) <= 255


def test_what_cannot_be_attacked_is_said_in_one_line(monkeypatch):
    with pytest.raises(InputError, match=r"fgsm.*segmentation"):
        FGSM.check(tiny("digits"), SimpleNamespace(name="segmentation"), open_source("digits"), ["test"])
    model = tiny("digits")
    monkeypatch.setattr(attacks, "attacked", lambda attack, pixels, *_: torch.full_like(pixels, torch.nan))
    with pytest.raises(NonFiniteError, match="under fgsm"):
        measured(model, "digits", 16, images=2, measures=("fgsm",))


def rows_of(ranks: Ranks, place, kill: int | None = None):
    torch.set_num_threads(1)
    predict._TOKENS_A_BATCH = attacks._TOKENS_A_GRADIENT = 32
    if kill is not None:
        from tests.tiny import after

        attacks.AttackMeasure._part = after(kill, attacks.AttackMeasure._part)
    model = tiny("digits")
    with work_folder(place, model, dict, ranks) as parts:
        rows = measured(model, "digits", 16, images=7, measures=("fgsm", "pgd"), parts=parts)
        if ranks.is_main:
            parts.discard()
    return [{key: value for key, value in row.record().items() if key not in ("seconds", "ranks")} for row in rows]


@pytest.mark.slow
def test_ranks_and_a_kill_change_nothing(tmp_path):
    one = rows_of(Ranks(), tmp_path / "one")
    assert len([row for row in one if row["metric"].startswith(("fgsm", "pgd"))]) == 8
    killed(rows_of, Ranks(), tmp_path / "two", kill=5)
    assert list(tmp_path.glob(".two*"))
    first, second = together(2, rows_of, tmp_path / "two")
    assert first == one
    assert second == []
    assert not list(tmp_path.glob(".two*"))
