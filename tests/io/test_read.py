"""What comes from outside is read in one place: regular files of a bounded size, with numbers that are finite."""

from __future__ import annotations

import os
import signal
import socket

import pytest

from sightline.errors import InputError
from sightline.io.read import check_file, parse_json, read_bytes, read_json, read_jsonl, read_text
from tests.tiny import reseal, tree


@pytest.fixture(autouse=True)
def _in_time():
    """A pipe that is waited for fails the test, and does not stop it."""

    def late(*_):
        raise TimeoutError("it waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def make(kind, path):
    """Something at `path` that is no file to read; what is said of it."""
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
        return "is a pipe"
    if kind == "device":
        path.symlink_to("/dev/zero")
        return "is a device"
    if kind == "socket":
        here = os.getcwd()
        os.chdir(path.parent)
        try:
            with socket.socket(socket.AF_UNIX) as one:
                one.bind(path.name)
        finally:
            os.chdir(here)
        return "is a socket"
    if kind == "folder":
        path.mkdir()
        return "is a folder"
    assert kind == "sparse"
    with path.open("wb") as stream:
        stream.truncate(5 << 30)
    return "is larger than"


KINDS = ("pipe", "device", "socket", "folder", "sparse")


@pytest.mark.parametrize("kind", KINDS)
def test_regular_files_alone(kind, tmp_path):
    said = make(kind, tmp_path / "a")
    for read in (lambda path: read_bytes(path, 10, "text"), lambda path: read_text(path, 10, "text")):
        with pytest.raises(InputError, match=said):
            read(tmp_path / "a")
    with pytest.raises(InputError, match=said):
        read_jsonl(tmp_path / "a", "rows")
    if kind == "sparse":
        assert check_file(tmp_path / "a") == 5 << 30


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["config.json", "checksums.json"])
def test_in_a_checkpoint(kind, name, refused, run_copy):
    said = make(kind, run_copy / "checkpoint" / name)
    for words in (["evaluate", run_copy], ["report", run_copy], ["export", run_copy, "--to", "torch"]):
        refused(*words, says=[name, said])


@pytest.mark.parametrize("kind", KINDS)
def test_as_a_configuration(kind, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = make(kind, tmp_path / "a.yaml")
    refused("train", "--config", tmp_path / "a.yaml", says=["a.yaml", said])
    refused("convert", "timm", __file__, tmp_path / "m", "--config", tmp_path / "a.yaml", says=["a.yaml", said])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["log.jsonl", "results.jsonl", "validation.jsonl", "predictions.csv"])
def test_as_rows_or_a_log(kind, name, refused, run_copy, tmp_path):
    said = make(kind, run_copy / name)
    refused("report", run_copy, "--out", tmp_path / "page.html", says=[name, said])


@pytest.mark.parametrize("kind", ["pipe", "device", "socket", "folder"])
@pytest.mark.parametrize("name", ["a.safetensors", "a.pth", "a.npz"])
def test_as_weights(kind, name, refused, run_copy, tmp_path):
    said = make(kind, tmp_path / name)
    words = ["convert", "vision_transformer", tmp_path / name, tmp_path / "m", "--arguments.model_name=x"]
    if kind != "folder":
        refused(*words, says=[name, said])
    weights = run_copy / "checkpoint" / "model.safetensors"
    said = make(kind, weights)
    refused("evaluate", run_copy, says=["model.safetensors", said])


@pytest.mark.parametrize(
    "text", ["1e400", "[-1e999]", '{"a": NaN}', "Infinity", "-Infinity", "[" * 100_000, "9" * 400, "9" * 5000, "{"]
)
def test_numbers_are_finite(text, tmp_path):
    with pytest.raises(ValueError):
        parse_json(text)
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(InputError, match=r"a\.json: is not JSON"):
        read_json(tmp_path / "a.json", "a record")
    (tmp_path / "a.json").write_text(f"1\n\n{text}\n")
    with pytest.raises(InputError, match=r"a\.json:3: not JSON"):
        read_jsonl(tmp_path / "a.json", "rows")


@pytest.mark.parametrize("number", ["1e400", "1e39", "-1e400", "NaN"])
@pytest.mark.parametrize("key", ["layer_scale", "head_bias", "mlp_ratio", "norm_eps"])
def test_of_a_model(key, number, refused, run_copy):
    file = run_copy / "checkpoint" / "config.json"
    text = file.read_text()
    before = next(line for line in text.splitlines() if f'"{key}"' in line and line.startswith("    "))
    file.write_text(text.replace(before, f'    "{key}": {number},', 1))
    reseal(run_copy / "checkpoint")
    refused("evaluate", run_copy, says=["config.json"])


@pytest.mark.parametrize("number", ["1e400", "1e39", "3.5", '"3"', "true"])
def test_in_the_checksums(number, refused, run_copy):
    file = run_copy / "checkpoint" / "checksums.json"
    text = file.read_text()
    first = next(line for line in text.splitlines() if '"bytes"' in line)
    file.write_text(text.replace(first, f'      "bytes": {number},', 1))
    refused("evaluate", run_copy, says=["checksums.json", "damaged"])


@pytest.mark.parametrize(
    "setting",
    [
        "model_options.mlp_ratio=1e300", "model_options.mlp_ratio=1e30", "model_options.mlp_ratio=1e400",
        "model_options.layer_scale=1e39", "model_options.head_bias=-1e39", "optimizer.lr=1e400",
        "optimizer.weight_decay=1e39", "model_options.pool_mlp_ratio=1e300", "model_options.pool_mlp_ratio=1e30",
    ],
)  # fmt: skip
def test_of_a_run(setting, refused, tmp_path):
    key = setting.partition("=")[0].rpartition(".")[2]
    out = tmp_path / "run"
    refused("train", "--data", "digits", "--images", 8, f"--{setting}", "--out", out, says=[key])
    assert tree(tmp_path) == {}
