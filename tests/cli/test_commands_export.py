"""`sightline export`: one file, a clean terminal, and a check that can fail."""

from __future__ import annotations

import json

import pytest
import torch

import sightline
from sightline.cli.app import main


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    """Commands write into the current folder: an empty one."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def no_work(monkeypatch):
    def forbidden(*_, **__):
        raise AssertionError("work was done before the refusal")

    monkeypatch.setattr(torch.export, "export", forbidden)


@pytest.mark.slow
def test_onnx_with_a_check_and_nothing_else_on_the_terminal(tiny_run, tmp_path, capfd):
    assert main(["export", str(tiny_run), "--to", "onnx", "--check"]) == 0
    out, err = capfd.readouterr()
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.onnx"]
    first, *table = [line for line in out.splitlines() if line.strip()]
    assert first.startswith("tiny.onnx: ")
    assert "ONNX opset 20" in first
    assert table[0].split() == ["size", "grid", "largest", "difference", "limit", "within"]
    cells = [line.split() for line in table[2:5]]
    # Trained at 16 px with patches of 4.
    assert [(size, grid, within) for size, grid, _, _, within in cells] == [
        ("20x20", "5x5", "yes"),
        ("12x28", "3x7", "yes"),
        ("36x12", "9x3", "yes"),
    ]
    assert all(0 <= float(found) < float(limit) == 1e-4 for _, _, found, limit, _ in cells)
    steps = {line.partition(":")[0] for line in err.splitlines()}
    assert steps == {"tracing", "writing onnx", "checking"}, err


@pytest.mark.slow
def test_torch_as_json_at_given_sizes(cli, tiny_run, tmp_path):
    code, out, _ = cli("export", tiny_run, "--to", "torch", "--sizes", "32,24x40", "--json", "--output", "new/a.pt2")
    assert code == 0
    (answer,) = map(json.loads, out.splitlines())
    assert (answer["file"], answer["to"], answer["int8"], answer["limit"]) == ("new/a.pt2", "torch", False, 1e-4)
    assert answer["bytes"] == (tmp_path / "new" / "a.pt2").stat().st_size
    assert [(row["size"], row["grid"]) for row in answer["check"]] == [([32, 32], [8, 8]), ([24, 40], [6, 10])]
    assert all(row["difference"] <= 1e-4 for row in answer["check"])
    program = torch.export.load(tmp_path / "new" / "a.pt2").module()
    with torch.no_grad():
        given = torch.randn(5, 3, 20, 8)
        assert (program(given) - sightline.load_model(tiny_run)(given)).abs().max() < 1e-5


@pytest.mark.slow
def test_int8_is_always_measured(cli, tiny_run):
    code, out, _ = cli("export", tiny_run, "--to", "onnx", "--int8", "--json")
    assert code == 0
    answer = json.loads(out)
    assert answer["int8"] is True
    assert answer["limit"] is None
    assert len(answer["check"]) == 3
    assert all(row["difference"] > 1e-4 and 0 <= row["same_top1"] <= 1 for row in answer["check"])


@pytest.mark.slow
def test_a_difference_beyond_the_limit_is_exit_1(cli, tiny_run, monkeypatch):
    """What is compared with is another model than was written."""
    from sightline.export import compare

    def other(model):
        changed = frozen(model)
        with torch.no_grad():
            changed.head.bias += 1e-3
        return changed

    frozen = compare.frozen_copy
    monkeypatch.setattr(compare, "frozen_copy", other)
    code, out, err = cli("export", tiny_run, "--to", "torch", "--check")
    assert code == 1
    assert out.count(" NO") == 3
    assert err.splitlines()[-1].startswith(
        "sightline: error: tiny.pt2: differs from the model by up to 1.0e-03, more than 1e-04"
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--to", "onx"), ["'onx'", "did you mean 'onnx'", "torch"]),
        (("--to", "torch", "--int8"), ["--int8", "--to onnx"]),
        (("--to", "onnx", "--sizes", "big"), ["--sizes big", "96,160x288"]),
        (("--to", "onnx", "--sizes", ","), ["--sizes ,"]),
        (("--to", "onnx", "--sizes", "4x32"), ["4x32", "1x8 patches", "nearest: 8x32"]),
        (("--to", "torch", "--sizes", "16,18x20"), ["18x20", "patch size 4", "nearest: 16x20"]),
        ((), ["--to"]),
    ],
)
def test_refused_before_any_work(words, says, refused, tiny_run, tmp_path, no_work):
    refused("export", tiny_run, *words, says=says)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_file_that_exists_is_replaced_only_when_asked(refused, cli, tiny_run, tmp_path, no_work, monkeypatch):
    (tmp_path / "tiny.onnx").write_text("mine")
    refused("export", tiny_run, "--to", "onnx", says=["tiny.onnx", "exists already", "--overwrite"])
    assert (tmp_path / "tiny.onnx").read_text() == "mine"
    (tmp_path / "folder").mkdir()
    refused("export", tiny_run, "--to", "onnx", "--output", "folder", says=["--output folder", "is a folder"])
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.pt2").write_text("mine")
    assert cli("export", tiny_run, "--to", "torch", "--overwrite")[0] == 0
    assert (tmp_path / "tiny.pt2").stat().st_size > 10_000
    assert len(list(tmp_path.iterdir())) == 3
