"""Transfers of several models on one page."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sightline.errors import InputError
from sightline.reports.transfer_page import render, tables
from sightline.results.transfer import TransferRow, with_means
from tests.pages import Page

ROW = TransferRow(
    model="runs/a", data="digits", title="digits", metric="top1", value=0.5, interval=None, values=(0.5,), seeds=(0,),
    count=300, lr=0.01, held_out={"0.01": 0.6, "0.03": 0.6}, steps=500, batch_size=512, resolution=384,
)  # fmt: skip


def test_sizes_of_one_model_are_columns_of_their_own():
    rows = [ROW, replace(ROW, resolution=224, value=0.9)]
    page = Page(render(rows, "again"))
    assert page.tables["Top-1 accuracy in %"][1][1:] == ["50.0 rate 0.01", "90.0 rate 0.01"]
    with pytest.raises(InputError):
        render([ROW, ROW], "again")


def test_means_are_over_the_seeds_that_all_tasks_have():
    task = replace(ROW, data="vtab:a", title="DTD", group="Natural", seeds=(0, 1), values=(0.2, 0.4), held_out={})
    other = replace(task, data="vtab:b", title="SVHN", seeds=(1, 2), values=(0.8, 0.1))
    rows = with_means([ROW, other, task], {"DTD": "Natural", "SVHN": "Natural"})
    assert [row.title for row in rows] == ["digits", "DTD", "SVHN", "Natural", "all tasks"]
    assert (rows[3].seeds, rows[3].values, rows[3].tasks) == ((1,), (pytest.approx(0.6),), ("DTD", "SVHN"))
    assert list(tables(rows)) == ["sets", "groups", "tasks"]
