"""The file of a sweep: its cells, and what is refused with the nearest right name."""

from __future__ import annotations

import pytest

from sightline.errors import InputError
from sightline.io.config import build_config
from sightline.sweeps.space import (
    SearchRange,
    SweepConfig,
    SweepEvaluation,
    grid_cells,
    record_of,
    refuse_other,
    sample_cells,
    training_fields,
)

GRID = {"encoding": ["lookhere_90", "rope_axial"], "optimizer.lr": [1e-3, 2e-3], "seed": [0, 1, 2]}


def test_the_cells_of_a_grid_are_every_combination_in_order():
    config = SweepConfig(base={"data": "digits", "optimizer": {"warmup": 0.2}}, grid=GRID)
    cells = grid_cells(config)
    assert config.count == len(cells) == 12
    assert len({cell.name for cell in cells}) == 12
    assert [cell.number for cell in cells] == list(range(12))
    assert cells[0].fields == {"encoding": "lookhere_90", "optimizer.lr": 1e-3, "seed": 0}
    assert cells[11].fields == {"encoding": "rope_axial", "optimizer.lr": 2e-3, "seed": 2}
    assert cells[4].name == "004-lookhere_90-lr0.002-seed1"
    fields = training_fields(config, cells[4])
    assert fields == {
        "data": "digits", "encoding": "lookhere_90", "optimizer": {"warmup": 0.2, "lr": 2e-3}, "seed": 1
    }  # fmt: skip
    # The base is not changed by what a cell sets.
    assert config.base["optimizer"] == {"warmup": 0.2}


def test_a_search_is_probed_at_its_ends_and_with_each_value():
    search = {
        "optimizer.lr": {"low": 1e-4, "high": 1e-2, "log": True},
        "batch_size": {"low": 8, "high": 64, "int": True},
        "encoding": ["a", "b", "c"],
    }
    config = SweepConfig(search=search, trials=5)
    assert config.count == 5
    assert config.span("optimizer.lr") == SearchRange(1e-4, 1e-2, log=True)
    found = [cell.fields for cell in sample_cells(config)]
    assert [one["encoding"] for one in found] == ["a", "b", "c"]
    assert {one["optimizer.lr"] for one in found} == {1e-4, 1e-2}
    assert {one["batch_size"] for one in found} == {8, 64}
    assert all(isinstance(one["batch_size"], int) for one in found)


LR = {"low": 1e-4, "high": 1e-2}


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({}, None),
        ({"grid": GRID, "search": {"a": LR}, "trials": 2}, None),
        ({"gird": GRID}, "gird"),
        ({"grid": {}}, "grid"),
        ({"grid": {"seed": []}}, "grid.seed"),
        ({"grid": {"seed": [1, 2, 1]}}, "grid.seed"),
        ({"grid": {"optimizer.": [1]}}, "grid.optimizer."),
        ({"grid": {"recipe": ["vit_scenes"]}}, "grid.recipe"),
        ({"grid": {"optimizer": [{}], "optimizer.lr": [1]}}, "grid.optimizer"),
        ({"grid": {"seed": [1]}, "trials": 3}, "trials"),
        ({"grid": {f"f{n}": list(range(10)) for n in range(5)}}, "grid"),
        ({"search": {"optimizer.lr": LR}}, "trials"),
        ({"search": {"a": {"low": 1, "hihg": 2}}, "trials": 2}, "hihg"),
        ({"search": {"a": {"low": 2, "high": 1}}, "trials": 2}, "low"),
        ({"search": {"a": {"low": 0, "high": 1, "log": True}}, "trials": 2}, "low"),
        ({"search": {"a": {"low": 0.5, "high": 2, "int": True}}, "trials": 2}, "low"),
        ({"search": {"a": 5}, "trials": 2}, "search.a"),
        ({"grid": GRID, "evaluate": {"resolution": [32]}}, "evaluate.resolution"),
        ({"grid": GRID, "metric": "top5"}, "metric"),
        ({"grid": GRID, "evaluate": {"resolutions": [32, "natve"]}}, "evaluate.resolutions"),
    ],
)
def test_what_is_refused(given, field):
    with pytest.raises(InputError, match=r"^s\.yaml: ") as error:
        build_config(SweepConfig, given, "s.yaml")
    assert error.value.field == field


@pytest.mark.parametrize(
    ("other", "field"),
    [
        ({"grid": {**GRID, "seed": [0, 1]}}, "grid.seed"),
        ({"base": {"data": "scenes"}}, "base.data"),
        ({"grid": dict(reversed(GRID.items()))}, "fields"),
        ({"evaluate": SweepEvaluation((32,))}, "evaluate.resolutions"),
    ],
)
def test_another_file_is_refused_by_the_field_that_differs(other, field):
    given = {"base": {"data": "digits"}, "grid": GRID}
    before = record_of(SweepConfig(**given, out="here"))
    # Where it is kept may differ between machines.
    refuse_other(before, SweepConfig(**given, out="there", storage="sqlite:///x"), "study s")
    with pytest.raises(InputError, match=r"^study s") as error:
        refuse_other(before, SweepConfig(**{**given, **other}), "study s")
    assert error.value.field == field
