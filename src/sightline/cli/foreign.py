"""Another project's weights and the arguments of its class, as they are named on the command line."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from sightline.convert import find_project
from sightline.convert.foreign_folder import read_foreign_folder
from sightline.convert.hf_folder import transformers_record
from sightline.convert.timm import read_timm_folder
from sightline.convert.weights import read_weights
from sightline.errors import InputError
from sightline.io.config import merge
from sightline.io.read import CONFIGURATION, read_text
from sightline.io.yaml import read_yaml

_WITH_FOLDERS = ("transformers", "open_clip", "owlvit")


def read_source(
    project: str, source: Path, config: Path | None, given: Mapping[str, Any], *, needed: bool = True
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the arguments.

    Arguments come from the source where it records them, then from `config`, then from `given`.

    Args:
        needed: arguments must be there, where weights alone do not tell enough.

    Raises:
        InputError: the project or the source is not known, or there are no arguments.
    """
    example = find_project(project).example
    if not source.exists():
        raise InputError(f"{source}: no such file or folder")
    stored: dict[str, Any] = {}
    if source.is_dir() and project in _WITH_FOLDERS and (read := read_foreign_folder(source)):
        if read[0] != project:
            raise InputError(f"{source}: is a folder of {read[0]} (expected one of {project})")
        return dict(read[1]), merge(merge(read[2], read_yaml(config) if config else {}), given)
    if source.is_dir():
        folder = read_timm_folder(source) if project == "timm" else None
        if folder is None:
            expected = f"a file, or a folder of {project}'s" if project in ("timm", *_WITH_FOLDERS) else "a file"
            kind = "a folder of transformers'" if transformers_record(source) else "a folder"
            raise InputError(f"{source}: is {kind} (expected {expected})")
        stored, source = folder.given, folder.weights
    asked = merge({**stored, **(read_yaml(config) if config else {})}, given)
    # Read only now: it may be large.
    state, recorded = read_weights(source, lambda said: print(f"{source}: {said}", file=sys.stderr))
    arguments = {**recorded, **asked}
    if needed and example and not arguments:
        raise InputError(
            f"{source}: does not record the arguments of its class (expected --config FILE, or --arguments.{example})"
        )
    return state, arguments


def read_names(file: Path) -> tuple[str, ...]:
    """The classes that a text file names, one a line; empty lines do not count.

    Raises:
        InputError: the file cannot be read, or names none, or one twice.
    """
    lines = read_text(file, CONFIGURATION, "a text file of names, one a line").splitlines()
    names = tuple(name for line in lines if (name := line.strip()))
    if not names:
        raise InputError(f"{file}: names no class (expected a name on each line)")
    if twice := next((name for number, name in enumerate(names) if name in names[:number]), None):
        raise InputError(f"{file}: names {twice!r} twice")
    return names
