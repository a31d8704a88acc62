"""`--measures speed`: rows of a clock that is known; nothing here waits for, or judges, a real time."""

from __future__ import annotations

import statistics
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import binom

from sightline.data.open import open_source
from sightline.data.sizes import View
from sightline.distributed import machine
from sightline.evaluation import EvaluateConfig, predict
from sightline.evaluation.measure import count_images
from sightline.evaluation.measures import speed
from sightline.evaluation.parts import work_folder
from sightline.models import Model
from sightline.models.flops import forward_flops
from sightline.results.rows import ResultRow
from tests.evaluation.models import measured, tiny
from tests.tiny import pictures


def test_slow_passes_are_fewer(monkeypatch):
    clock(monkeypatch, 9.0)
    found = whole(rows_of(tiny(), "digits", 16, images=2))
    assert (found["latency", "16 px"].count, found["latency", "16 px"].interval) == (3, None)
    assert found["throughput", "16 px"].interval is None


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(speed, "_SECONDS", 0.0)


def rows_of(model: Model, data: str, *shown, **options) -> list[ResultRow]:
    rows = measured(model, data, *shown, measures=("speed",), **options)
    return [row for row in rows if row.metric in ("throughput", "latency", "peak_memory", "flops")]


def whole(rows: list[ResultRow]) -> dict[tuple[str, str], ResultRow]:
    return {(row.metric, row.size_label): row for row in rows if not row.slices}


def clock(monkeypatch, *seconds: float):
    """Passes take these times, the first ones over and over."""
    times = iter(seconds * 100)
    monkeypatch.setattr(speed, "_seconds", lambda *_: next(times))


@pytest.mark.parametrize("count", range(1, 80))
def test_the_median_lies_between_order_statistics_with_95_percent(count):
    values = np.random.default_rng(count).permutation(count).tolist()
    found = speed.median_limits(values)
    # With k values left out at each end, the median is outside where at most k draws lie on one side of it.
    wide = [k for k in range(count // 2 + 1) if 2 * binom.cdf(k, count, 0.5) <= 0.05]
    assert found == (None if not wide else (wide[-1], count - 1 - wide[-1]))
    assert (found is None) == (count < 6)


def test_rows_are_those_of_a_known_clock(monkeypatch):
    monkeypatch.setattr(predict, "_TOKENS_A_BATCH", 48)
    # Of each size nine passes of a batch, fifteen of an image, and three that warm it or are measured for memory.
    clock(monkeypatch, 0.5, 0.25, 0.125, 1.0, 2.0)
    model, seen = tiny(), []
    rows = rows_of(model, "digits", 16, 20, images=5, shrink=False, advance=seen.append)
    assert sum(seen) == count_images(open_source("digits"), model, EvaluateConfig((16, 20), images=5, shrink=False), 16)
    found = whole(rows)
    batch = [0.25, 0.125, 1.0, 2.0, 0.5, 0.25, 0.125, 1.0, 2.0]
    one = found["throughput", "16 px"]
    assert (one.value, one.unit, one.count, one.counted, one.better) == (6.0, "images/s", 3, "images a pass", "higher")
    assert sorted(batch)[4] == 0.5
    assert one.interval == (3 / 2.0, 3 / 0.125)
    # One more warms the single image; these are the fifteen after it.
    single = [1000 * one for one in (0.25, 0.125, 1.0, 2.0, 0.5)] * 3
    one = found["latency", "16 px"]
    assert (one.value, one.unit, one.count, one.counted, one.better) == (500, "ms", 15, "passes", "lower")
    assert one.interval == speed.median_limits(single) == (250, 1000)
    quartiles = {row.slices["quartile"]: row.value for row in rows if row.slices and row.size_label == "16 px"}
    assert quartiles == {1: 250, 3: 1000}
    assert statistics.quantiles(single, n=4, method="inclusive") == [250, 500, 1000]
    # At 20 px one of 25 patches fits.
    assert found["throughput", "20 px"].count == 1
    flops = {side: found["flops", f"{side} px"] for side in (16, 20)}
    assert [one.value for one in flops.values()] == [forward_flops(model.config, [cells]) for cells in (16, 25)]
    assert {(one.unit, one.count, one.interval) for one in flops.values()} == {("FLOP", 5, None)}


def test_a_batch_is_full_though_the_split_is_small_and_of_a_view_the_most_usual(tmp_path, monkeypatch):
    clock(monkeypatch, 1.0)
    data = pictures(tmp_path)
    model, view = tiny(data), View("native", 40)
    rows = whole(rows_of(model, data, view, 16))
    assert rows["throughput", "16 px"].count == predict._TOKENS_A_BATCH // 16
    source, split = open_source(data), "test"
    planned = predict.plan_split(model, source, split, range(source.length(split)), view)
    usual = max(planned, key=len)[0].tokens
    assert rows["throughput", view.name].count == predict.TOKENS_A_PACK // usual
    lengths = [one.tokens for batch in planned for one in batch]
    assert len(set(lengths)) > 1
    mean = sum(forward_flops(model.config, [length]) for length in lengths) / len(lengths)
    assert rows["flops", view.name].value == pytest.approx(mean)


class Ballast(torch.nn.Module):
    """Takes so many bytes for a moment."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        held = torch.ones(self.size, dtype=torch.uint8)
        return x + held[:1].float() - 1


@pytest.mark.slow
@pytest.mark.skipif(not machine.reset_peak_memory(), reason="this system does not say what a process took since")
def test_memory_is_what_a_pass_takes_beside_the_weights(monkeypatch):
    monkeypatch.setattr(predict, "_TOKENS_A_BATCH", 48)
    took = []
    for size in (1, 96 << 20, 32 << 20):
        model = tiny()
        model.fc_norm = Ballast(size)
        row = whole(rows_of(model, "digits", 16, images=3))["peak_memory", "16 px"]
        assert (row.unit, row.counted, row.count, row.better) == ("MiB", "images a pass", 3, "lower")
        took.append(row.value)
    held = sum(one.numel() for one in model.parameters()) * 4 / 2**20
    assert held <= took[0] < held + 16
    # What came before does not hide what comes after.
    assert took[1] - took[0] == pytest.approx(96, abs=8)
    assert took[2] - took[0] == pytest.approx(32, abs=8)


def test_what_is_not_known_has_no_row(monkeypatch):
    monkeypatch.setattr(machine, "reset_peak_memory", lambda *_: False)
    clock(monkeypatch, 1.0)
    found = {name for name, _ in whole(rows_of(tiny(), "digits", 16, images=3))}
    assert found == {"throughput", "latency", "flops"}
    # What a head of all tokens computes is its own.
    source = SimpleNamespace(splits=["test"])
    speed.Speed.check(tiny(), SimpleNamespace(name="segmentation"), source, ["test"])  # type: ignore[arg-type]


def test_what_another_machine_measured_is_measured_again(tmp_path, monkeypatch):
    model = tiny()

    def latency(seconds: float) -> float:
        clock(monkeypatch, seconds)
        with work_folder(tmp_path / "rows", model, dict) as parts:
            return whole(rows_of(model, "digits", 16, images=2, parts=parts))["latency", "16 px"].value

    assert [latency(1.0), latency(2.0)] == [1000, 1000]
    monkeypatch.setattr(machine, "hardware_name", lambda *_: "another machine")
    assert [latency(3.0), latency(4.0)] == [3000, 3000]
