"""Rows of a run: of the weights that they stand beside, in no checkpoint, and not replaced by worse ones."""

import shutil

import pytest

from sightline.results.rows import read_rows
from tests.tiny import tree

FEW = ["--resolutions", 8, "--images", 6, "--threads", 1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["", "local-dir:"])
def test_rows_of_a_run_s_checkpoint_are_the_run_s(kind, cli, run_copy):
    inside = tree(run_copy / "checkpoint")
    code, out, _ = cli("evaluate", f"{kind}{run_copy / 'checkpoint'}", *FEW)
    assert code == 0
    assert tree(run_copy / "checkpoint") == inside
    assert {row.resolution for row in read_rows(run_copy / "results.jsonl")} == {8, 16}
    assert f"rows: {run_copy / 'results.jsonl'}" in out
    assert cli("report", run_copy / "checkpoint", "--out", run_copy.parent / "page.html")[0] == 0


@pytest.mark.parametrize("name", ["checkpoint.best", "checkpoints/step-00000001"])
def test_rows_of_other_weights_do_not_stand_beside_them(name, cli, refused, run_copy, tmp_path):
    older = shutil.copytree(run_copy / "checkpoint", run_copy / "checkpoints" / "step-00000001")
    (run_copy / "checkpoint.best").unlink()
    (run_copy / "checkpoint.best").symlink_to(older)
    spare = run_copy / name
    before = tree(run_copy)
    refused("evaluate", spare, *FEW, says=[name, f"give {run_copy}", "--out DIR"])
    assert cli("evaluate", spare, *FEW, "--out", tmp_path / "rows")[0] == 0
    assert tree(run_copy) == before
