"""Snippets of the pages: Python blocks and shell commands, in order, in one folder with small data.

A block that follows one of them and is marked `text` is what it printed, where numbers may differ, "..." stands for
anything, and lines may be left out at the end.
"""

from __future__ import annotations

import contextlib
import fnmatch
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sightline.cli.app import main

# Commands that set up or serve, those whose data is not here, and a comparison (tests/cli/test_commands_compare.py).
NOT_RUN = ("make ", "pip install", "source ", "sightline explore", "sightline compare", "sbatch", "mkdocs")
# What makes a run small, unless the command says it itself.
SMALL = {
    "train": {
        "--model": "vit_tiny_patch16",
        "--model-options.depth": "1",
        "--resolution": "32",
        "--images": "16",
        "--batch-size": "8",
        "--workers": "0",
        "--validation.images": "8",
    },
    "evaluate": {"--images": "8"},
}
NARROW = {r'"vit_(base|small)_patch16"': '"vit_tiny_patch16"', r"timm:vit_small_": "timm:vit_tiny_"}


def blocks(page: Path) -> list[tuple[str, str]]:
    """(language, text) of each block of code that has a language."""
    return re.findall(r"^```(\w+)[^\n]*\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)


def commands(block: str) -> list[str]:
    """The commands of a shell block: lines that end with a backslash go on."""
    lines = block.replace("\\\n", " ").splitlines()
    return [" ".join(line.split()) for line in lines if line.strip() and not line.startswith("#")]


def words_of(command: str) -> list[str]:
    """The words of a command without its comment, made small."""
    words = shlex.split(command, comments=True)
    at = words.index("sightline") + 1
    small = SMALL.get(words[at], {})
    if "--init-from" in words:
        small = {name: value for name, value in small.items() if not name.startswith("--model")}
    if "--recipe" in words or any(word in ("digits", "scenes") for word in words):
        small = {name: value for name, value in small.items() if name not in ("--model", "--resolution", "--workers")}
    if any("navit" in word for word in words):
        small = {name: value for name, value in small.items() if name != "--batch-size"}
    if "--epochs" in words:
        first = words.index("--epochs")
        words[first : first + 2] = ["--images", "32"]
    for name, value in small.items():
        if name not in words:
            words += [name, value]
    if any(word.startswith("timm:") for word in words):
        words = [word.replace("timm:vit_small_", "timm:vit_tiny_") for word in words]
        words += [] if "--no-pretrained" in words else ["--no-pretrained"]
    return words


def run_command(command: str) -> str:
    """Run one command in the current folder, in this process where it is ours alone; gives what it printed."""
    if command.startswith(NOT_RUN):
        return ""
    words = words_of(command) if "sightline" in command.split() else shlex.split(command, comments=True)
    if words[0] == "sightline":
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            code = main(words[1:])
        assert code == 0, (command, said.getvalue())
        return said.getvalue()
    words[0] = {"python": sys.executable}.get(words[0], words[0])
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def run_python(code: str, given: dict[str, Any], page: str) -> str:
    """Run Python in the namespace of its page; gives what it printed."""
    for wide, narrow in NARROW.items():
        code = re.sub(wide, narrow, code)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(code, page, "exec"), given)
    return said.getvalue()


def agrees(shown: str, said: str) -> bool:
    """Whether what a page shows is what was printed, but for numbers, blanks and "..."."""

    def plain(text: str) -> list[str]:
        return [" ".join(re.sub(r"(?<!\w)[\d.,]*\d", "0", line).split()) for line in text.splitlines() if line.strip()]

    lines = iter(plain(said))
    return all(any(fnmatch.fnmatchcase(line, _pattern(wanted)) for line in lines) for wanted in plain(shown))


def _pattern(line: str) -> str:
    return re.sub(r"([][*?])", r"[\1]", line).replace("...", "*")


def make_data(folder: Path) -> None:
    """`photo.jpg`, and `my_images` with two classes in train and test."""
    draws = np.random.default_rng(0)
    for name in ("train/cat", "train/dog", "test/cat", "test/dog"):
        (folder / "my_images" / name).mkdir(parents=True)
        for number in range(8):
            height, width = draws.integers(40, 80, 2).tolist()
            pixels = draws.integers(0, 256, (height, width, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "my_images" / name / f"{number}.jpg")
    Image.fromarray(draws.integers(0, 256, (90, 140, 3), dtype=np.uint8)).save(folder / "photo.jpg")
