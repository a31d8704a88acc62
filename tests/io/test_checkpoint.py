"""The checkpoint folder: whole or not at all, and nothing damaged is ever parsed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from sightline.errors import InputError, StorageError
from sightline.io.checkpoint import verify_checkpoint, write_checkpoint
from sightline.io.tensors import load_tensors


def write(folder: Path, value: int = 1) -> None:
    """A checkpoint that holds a number, and weights."""
    tensors = {"head.weight": torch.full((3, 4), float(value)), "head.bias": torch.arange(3.0)}
    write_checkpoint(folder, {"config.json": f"{value:08}".encode()}, tensors)


def value_in(folder: Path) -> int:
    """The number in a checkpoint, after every file in it was verified."""
    return int(verify_checkpoint(folder)["config.json"].read_bytes())


def one_line(error: pytest.ExceptionInfo[BaseException], *words: str) -> None:
    message = str(error.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message


HEAD = """
import os, sys
import torch
from sightline.io.checkpoint import write_checkpoint
def write(value, size=10):
    write_checkpoint(sys.argv[1], {"config.json": str(value).encode()}, {"weight": torch.zeros(size)})
"""


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    """A process of its own that runs a script, which has `write` for the folder that is its first argument."""
    code = HEAD + textwrap.dedent(script)
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(script: str, *arguments: object) -> tuple[int, str, str]:
    """The exit code and the output of such a process."""
    process = start(script, *arguments)
    out, err = process.communicate()
    return process.returncode, out, err


def test_round_trip_and_replacement(tmp_path):
    folder = tmp_path / "deep" / "checkpoint"
    write(folder, 1)
    assert set(verify_checkpoint(folder)) == {"config.json", "model.safetensors"}
    assert load_tensors(verify_checkpoint(folder)["model.safetensors"])["head.weight"].shape == (3, 4)
    write(folder, 2)
    assert value_in(folder) == 2
    assert [entry.name for entry in folder.parent.iterdir()] == ["checkpoint"]


def test_same_tensors_make_the_same_bytes(tmp_path):
    write(tmp_path / "a")
    write(tmp_path / "b")
    assert (tmp_path / "a/checksums.json").read_bytes() == (tmp_path / "b/checksums.json").read_bytes()


def test_a_file_or_a_folder_of_other_things_is_not_replaced(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"x")
    (tmp_path / "file").write_bytes(b"x")
    for name in ("photos", "file"):
        with pytest.raises(InputError):
            write(tmp_path / name)
    assert (tmp_path / "photos" / "cat.jpg").read_bytes() == (tmp_path / "file").read_bytes() == b"x"
    assert len(list(tmp_path.iterdir())) == 2


# -- killed at a moment -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("renames", [0, 1, 2])
def test_killed_around_the_renames(renames, tmp_path):
    """The old folder or the new one is whole at each moment: in its place, or beside it under a name that says so."""
    folder = tmp_path / "checkpoint"
    write(folder, 1)
    script = """
        real, left = os.replace, int(sys.argv[2])
        def replace(*arguments):
            global left
            if left == 0:
                os._exit(9)
            left -= 1
            real(*arguments)
            if left == 0:
                os._exit(9)
        os.replace = replace
        write(2)
        """
    assert run(script, folder, renames)[0] == 9
    [old] = [place for place in (folder, *tmp_path.glob("checkpoint.old-*")) if place.exists()][-1:]
    assert value_in(old) == 1
    assert renames == 1 or value_in(folder) == renames // 2 + 1
    write(folder, 3)
    assert value_in(folder) == 3


def test_a_rename_that_fails_puts_the_old_folder_back(tmp_path, monkeypatch):
    folder = tmp_path / "checkpoint"
    write(folder, 1)
    real = os.replace

    def replace(source, target):
        if ".tmp-" in str(source):
            raise OSError(5, "Input/output error")
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(StorageError):
        write(folder, 2)
    assert value_in(folder) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["checkpoint"]


# -- storage that fails -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_full_disk_leaves_the_old_checkpoint(tmp_path):
    """A limit on the size of a file stands for a full disk: the system refuses the write in the same way."""
    folder = tmp_path / "checkpoint"
    write(folder, 1)
    script = """
        import resource
        from sightline.errors import StorageError
        tensors = {"head.weight": torch.zeros(10**5)}
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
        try:
            write_checkpoint(sys.argv[1], {"config.json": b"2"}, tensors)
        except StorageError as error:
            print(error, flush=True)
            sys.exit(error.exit_code)
        """
    code, out, err = run(script, folder)
    assert code == 5, err
    assert out.startswith(f"{folder}: cannot be written (File too large")
    assert out.count("\n") == 1
    assert value_in(folder) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["checkpoint"]


# -- damage -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "checksums.json"])
@pytest.mark.parametrize("position", [0.0, 0.02, 0.3, 0.6, 0.999])
@pytest.mark.parametrize("bit", [0, 5, 7])
def test_one_flipped_bit_anywhere_is_refused(name, position, bit, tmp_path):
    write(tmp_path / "checkpoint")
    file = tmp_path / "checkpoint" / name
    content = bytearray(file.read_bytes())
    content[int(position * len(content))] ^= 1 << bit
    file.write_bytes(content)
    with pytest.raises(InputError) as error:
        verify_checkpoint(tmp_path / "checkpoint")
    one_line(error, "checkpoint/")
    if name != "checksums.json":
        one_line(error, f"checkpoint/{name}", "checksum")


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "checksums.json"])
@pytest.mark.parametrize(("keep", "word"), [(0, "truncated"), (3, "truncated"), (None, "")])
def test_a_truncated_or_missing_file_is_refused(name, keep, word, tmp_path):
    write(tmp_path / "checkpoint")
    file = tmp_path / "checkpoint" / name
    if keep is None:
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(InputError) as error:
        verify_checkpoint(tmp_path / "checkpoint")
    one_line(error, name, word)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd"])
def test_checksums_cannot_point_outside(name, tmp_path):
    write(tmp_path / "checkpoint")
    table = {"files": {name: {"bytes": 1, "sha256": "0" * 64}}}
    (tmp_path / "checkpoint" / "checksums.json").write_text(json.dumps(table))
    with pytest.raises(InputError, match="damaged"):
        verify_checkpoint(tmp_path / "checkpoint")
