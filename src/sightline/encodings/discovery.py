"""Every encoding file in `added/`, `rotation/` and `pattern/`, among the plug-ins and in other packages."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import inspect
import logging
import sys
from pathlib import Path
from types import ModuleType

from sightline import plugins
from sightline.encodings.base import PositionEncoding
from sightline.errors import InputError, unknown_name_error
from sightline.io.read import check_file
from sightline.registry import modules

_LOG = logging.getLogger("sightline")
KINDS = ("added", "rotation", "pattern")
ENTRY_POINTS = "sightline.encodings"

_found: dict[str, type[PositionEncoding]] = {}
# The folders of plug-ins that were looked into.
_folders: set[str] = set()


def _register(module: ModuleType, where: str) -> list[str]:
    new: dict[str, type[PositionEncoding]] = {}
    for _, cls in inspect.getmembers(module, inspect.isclass):
        if not issubclass(cls, PositionEncoding) or cls.__module__ != module.__name__:
            continue
        for name in cls.names:
            known = _found.get(name)
            if known is not None and known.__module__ != cls.__module__:
                raise InputError(f"{where}: encoding name {name!r} is already taken by {known.__module__}")
            if "+" in name or not name.isidentifier():
                raise InputError(f"{where}: encoding name {name!r} must be a plain identifier")
            new[name] = cls
    # All or none: a refused file leaves nothing behind.
    _found.update(new)
    return list(new)


def registry() -> dict[str, type[PositionEncoding]]:
    """Every registered name and the class that builds it."""
    if "none" in _found and _folders.issuperset(plugins.__path__):
        return _found
    for kind in KINDS:
        for module in modules(f"sightline.encodings.{kind}"):
            _register(module, str(module.__file__))
    _folders.update(plugins.__path__)
    # Other packages' encodings; what is wrong with them is theirs, and ours are there without them.
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        try:
            loaded = point.load()
            _register(loaded if inspect.ismodule(loaded) else sys.modules[loaded.__module__], point.name)
        # Somebody else's code may raise anything, and end the process with SystemExit.
        except (Exception, SystemExit) as error:
            said = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            _LOG.warning("encodings of the plug-in %s (%s) are left out: %s", point.name, point.value, said)
    return _found


def unknown_encoding_error(name: str) -> InputError:
    """The error for a name that no encoding has; returned, not raised, so that the caller's line says `raise`."""
    own = "one of your own: --plugins DIR, in Python sightline.add_encodings(path)"
    return InputError(f"{unknown_name_error('encoding', name, registry(), cutoff=0.65)}; {own}")


def first_line(name: str) -> str:
    """The first line of what the class of an encoding says of itself; "" of a name that is not known."""
    return (getattr(registry().get(name), "__doc__", None) or "").strip().partition("\n")[0]


def list_encodings() -> list[str]:
    """The registered names, sorted; any two may be joined as "first+second"."""
    return sorted(registry())


def add_encodings(path: str | Path) -> list[str]:
    """Register the encodings of a Python file, or of every file in a folder, from outside the package.

    Returns:
        The names that were found.

    Raises:
        InputError: nothing is there, a file cannot be imported, has no encoding, or takes a name that is taken.
    """
    path = Path(path)
    files = sorted(path.glob("*.py")) if path.is_dir() else [path]
    files = [file for file in files if not file.name.startswith("_")]
    if not files:
        raise InputError(f"{path}: holds no Python file")
    registry()
    return [name for file in files for name in _load(file)]


def _load(file: Path) -> list[str]:
    check_file(file, "a Python file")
    name = f"sightline_outside_{file.stem}_{hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise InputError(f"{file}: is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # Registered before it runs, so that its dataclasses and pickles find their module.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
        if names := _register(module, str(file)):
            return names
        raise InputError(f"{file}: defines no PositionEncoding with `names`")
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        if isinstance(error, InputError):
            raise
        raise InputError(f"{file}: cannot be imported ({type(error).__name__}: {error})") from error
