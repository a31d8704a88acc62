"""The folder is the registry: classes of a kind are found in their package, and among the plug-ins of whoever runs."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from sightline import plugins
from sightline.errors import InputError, unknown_name_error


def modules(package: str) -> Iterator[ModuleType]:
    """The modules of a package, by their names; then the plug-ins.

    Raises:
        InputError: a plug-in cannot be imported; names its file.
    """
    for info in pkgutil.iter_modules(importlib.import_module(package).__path__):
        yield importlib.import_module(f"{package}.{info.name}")
    for info in pkgutil.iter_modules(plugins.__path__):
        name = f"{plugins.__name__}.{info.name}"
        try:
            yield importlib.import_module(name)
        # Somebody else's code may raise anything, or exit.
        except (Exception, SystemExit) as error:
            place = getattr(info.module_finder, "path", name)
            said = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            raise InputError(f"{place}/{info.name}.py: cannot be imported ({said})") from error


def classes(base: type, package: str) -> dict[str, Any]:
    """The final subclasses of `base` by their `name`, each from a file of its own.

    Raises:
        InputError: two have one name, or a plug-in cannot be imported; names its file.
    """
    found: dict[str, Any] = {}
    for module in modules(package):
        for one in vars(module).values():
            if isinstance(one, type) and issubclass(one, base) and one.__module__ == module.__name__:
                name = vars(one).get("name")
                if not isinstance(name, str) or inspect.isabstract(one):
                    continue
                if name in found:
                    raise InputError(
                        f"{module.__file__}: the name {name!r} is that of {found[name].__module__} already"
                    )
                found[name] = one
    return found


@functools.cache
def find(base: type, package: str, kind: str, name: str) -> Any:
    """The class of that name, as `classes` finds it; `kind` is what its kind is called in the error.

    Raises:
        InputError: there is none (names the nearest), or as `classes`.
    """
    found = classes(base, package)
    if name not in found:
        raise unknown_name_error(kind, name, found)
    return found[name]
