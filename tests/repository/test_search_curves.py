"""The script that takes means over seeds: intervals by hand, differences seed by seed."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from sightline.results.rows import ResultRow, dump_rows

_SCRIPT = runpy.run_path(str(Path(__file__).resolve().parents[2] / "benchmarks" / "search_curves.py"))


def _row(encoding: str, seed: int, value: float, shrunk: int | None = None) -> ResultRow:
    return ResultRow(
        metric="miou", value=value, unit="", interval=(0.0, 1.0), better="higher", count=9, counted="images",
        run=f"{encoding}_{seed}", encoding=encoding, task="search", data="scenes:search", split="test",
        train_resolution=32, seed=seed, commit="c", hardware="h", resolution=64, grid=(16, 16), knob=None, tuned=False,
        seconds=1.0, view="square", patches=256.0, shrunk=shrunk,
    )  # fmt: skip


def test_means_intervals_and_differences_by_seed(tmp_path: Path) -> None:
    values = {"a": (0.5, 0.7, 0.9), "b": (0.4, 0.5, 0.6)}
    folders = []
    for name, some in values.items():
        for seed, value in enumerate(some):
            folder = tmp_path / f"{name}{seed}"
            folder.mkdir()
            rows = [_row(name, seed, value), _row(name, seed, value / 2, shrunk=32)]
            parts = replace(rows[0], metric="iou", slices={"class": "disc"})
            (folder / "results.jsonl").write_text(dump_rows([*rows, parts]))
            folders.append(folder)
    made = {
        (one["encoding"], one["shrunk"]): one
        for one in _SCRIPT["summary"](_SCRIPT["measured"](folders, "miou"), "miou")
    }
    assert made.keys() == {("a", None), ("a", 32), ("b", None), ("b", 32), ("a less b", None)}
    # Student's t of two degrees of freedom: 4.3027.
    assert made["a", None]["value"] == pytest.approx(0.7)
    assert made["a", None]["interval"] == pytest.approx(
        [0.7 - 4.3027 * 0.2 / 3**0.5, 0.7 + 4.3027 * 0.2 / 3**0.5], abs=1e-4
    )
    assert made["a", 32]["value"] == pytest.approx(0.35)
    assert made["a less b", None]["seeds"] == pytest.approx({0: 0.1, 1: 0.2, 2: 0.3})
    with pytest.raises(SystemExit, match="seed 0 of a is there twice"):
        _SCRIPT["measured"]([folders[0], folders[0]], "miou")
