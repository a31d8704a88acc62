"""`sightline cascade`: four files, two tables, and nothing at all from a fault."""

from __future__ import annotations

import json

import pytest

from tests.tiny import tree

FEW = ["--images", 12, "--threads", 1]


def test_rows_figures_and_a_page(cli, refused, run_copy, tmp_path):
    before, out = tree(run_copy), tmp_path / "new" / "folder"
    code, said, err = cli("cascade", run_copy, *FEW, "--out", out, "--json")
    assert code == 0, err
    assert "tokens: " in err
    assert {file.name for file in out.iterdir()} == {"cascade.jsonl", "cascade.svg", "calibration.svg", "cascade.html"}
    assert said == (out / "cascade.jsonl").read_text()
    rows = [json.loads(line) for line in said.splitlines()]
    # A quarter to four times the 4 x 4 patches of the training size.
    assert [row["budget"] for row in rows if row["kind"] == "single"] == [4, 9, 16, 25, 36, 64]
    points = [row for row in rows if row["kind"] == "cascade"]
    assert [row["alpha"] for row in points] == [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7]
    assert len({(row["budget"], row["second_budget"]) for row in points}) == 1
    for row in rows:
        assert (row["run"], row["data"], row["split"], row["images"]) == ("tiny", "digits", "test", 12)
        assert (row["held_out_split"], row["held_out"], row["scores"]) == ("minival", 12, "sigmoid")
        assert row["tokens"] <= row["budget"] + (row["second_budget"] or 0)
        assert row["low"] <= row["top1"] <= row["high"]
        assert row["milliseconds"] > 0
    again = ["cascade", run_copy, *FEW, "--out", out]
    refused(*again, says=["cascade.jsonl", "exists already", "--overwrite"])
    assert said == (out / "cascade.jsonl").read_text()
    assert cli(*again, "--tokens", "4,9", "--overwrite")[0] == 0
    assert tree(run_copy) == before


@pytest.mark.slow
def test_tables_and_the_alpha_for_a_budget(cli, run_copy, tmp_path):
    code, said, _ = cli(
        "cascade", run_copy, "digits", "--tokens", "4,9,16", "25", "--pair", "4,16", "--alphas", "0.25,0.5", "--budget",
        10, "--aspect", "square", *FEW, "--out", tmp_path / "out",
    )  # fmt: skip
    assert code == 0
    for words in ("12 images of digits/test", "Cascade: 4 tokens, then 16", "ECE", "ahead", "alpha 0.333", " *"):
        assert words in said
    assert max(map(len, said.partition("top-1 in %")[0].splitlines())) <= 80
    rows = [json.loads(line) for line in (tmp_path / "out" / "cascade.jsonl").read_text().splitlines()]
    # 4 + 16 x 4/12 tokens of an image.
    assert [(row["kind"], row["alpha"]) for row in rows[4:]] == [
        ("cascade", 0.25), ("cascade", 0.5), ("cascade", pytest.approx(1 / 3)),
    ]  # fmt: skip
    assert [row["chosen"] for row in rows] == [False] * 6 + [True]
    assert [row["tokens"] for row in rows[:4]] == [4, 9, 16, 25]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--tokens", "0,4"], ["budgets[0] = 0", "at least 1"]),
        (["--tokens", "4,x"], ["--tokens x", "whole numbers of patches"]),
        (["--tokens", "4,-9"], ["--tokens -9"]),
        (["--tokens", "4"], ["tokens 4", "two budgets"]),
        (["--pair", "9,4"], ["pair 9,4", "more tokens than the first"]),
        (["--pair", "9"], ["--pair 9", "two numbers"]),
        (["--alphas", "0.1,1.5"], ["alphas[1] = 1.5", "at most 1"]),
        (["--alphas", "half"], ["--alphas half"]),
        (["--budget", "3"], ["budget 3", "first look of 4 tokens"]),
        (["--budget", "8", "--pair", "9,16"], ["budget 8", "first look of 9 tokens"]),
        (["--images", "0"], ["images = 0"]),
        (["--split", "tset"], ["'tset'", "did you mean 'test'?"]),
        (["--aspect", "squar"], ["squar"]),
        (["--precision", "half"], ['precision = "half"']),
        (["--device", "gpu"], ["device 'gpu'"]),
        (["--skip-unreadable", "-1"], ["--skip-unreadable -1"]),
        (["scenes"], ["24 classes", "head 10"]),
        (["digit"], ["'digit'", "did you mean 'digits'?"]),
    ],
)
def test_what_is_refused(words, says, refused, run_copy, tmp_path):
    before = tree(tmp_path)
    refused("cascade", run_copy, *words, "--out", tmp_path / "new", "--threads", 1, says=says)
    assert tree(tmp_path) == before


def test_where_it_may_not_write(refused, run_copy, tmp_path):
    (tmp_path / "file").write_text("mine")
    refused("cascade", run_copy, "--out", tmp_path / "file", says=["--out", str(tmp_path / "file")])
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "cascade.html").write_text("mine")
    refused("cascade", run_copy, "--out", tmp_path / "folder", says=["cascade.html", "exists already"])
    assert (tmp_path / "folder" / "cascade.html").read_text() == "mine"
