"""Files of whoever runs, from one folder for all kinds: an encoding, a task, a source, a metric, an embedder, ...

The folder's files are modules of this package, so that a worker or another rank, which inherits the environment, finds
them by the same name. Never a model's folder: what is loaded runs.
"""

from __future__ import annotations

import os
from pathlib import Path

from sightline.errors import InputError

FOLDERS = "SIGHTLINE_PLUGINS"
"""The variable of the environment that names the folders, as `PATH` does."""

given: list[str] = []
"""Those of them that this process was told of, as it was: for the commands that it names."""


def add(folder: str | Path) -> None:
    """Find plug-ins in a folder too, in this process and those that it starts from here on.

    Raises:
        InputError: there is no such folder, or it holds no Python file.
    """
    named, folder = str(folder), Path(folder).resolve()
    if folder.is_file():
        parent = Path(named).parent
        raise InputError(f"--plugins {named}: is a file; give its folder: --plugins {parent}")
    if not any(folder.glob("[!_]*.py")):
        raise InputError(f"--plugins {folder}: {'holds no Python file' if folder.is_dir() else 'no such folder'}")
    given.append(named)
    if str(folder) not in __path__:
        __path__.append(str(folder))
        os.environ[FOLDERS] = os.pathsep.join(__path__[1:])


__path__ += [folder for folder in os.environ.get(FOLDERS, "").split(os.pathsep) if folder]
