"""`import sightline` is light, and its public names are there for people and for type checkers."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import sightline

HEAVY = ("torch", "torchvision", "timm", "numpy", "PIL", "matplotlib", "pydantic", "rich", "yaml", "jinja2", "cyclopts")


def loaded_by(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after running `code`."""
    script = f"{code}\nimport sys\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_import_loads_nothing_heavy():
    assert loaded_by("import sightline").isdisjoint(HEAVY)


def test_a_name_loads_only_what_it_needs():
    assert "torch" not in loaded_by("from sightline import Grid")


@pytest.mark.parametrize("name", sorted(sightline._HOMES))
def test_every_public_name_resolves(name):
    value = getattr(sightline, name)
    assert value is getattr(sightline, name)
    assert name in dir(sightline)
    assert name in sightline.__all__


def test_parts_are_reached_without_an_import_of_their_own():
    script = "import sightline; print(*(getattr(sightline, name).__name__ for name in sightline._PARTS))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [f"sightline.{name}" for name in sightline._PARTS]


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        sightline.nothing  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]


def test_static_names_are_the_lazy_ones():
    tree = ast.parse(Path(sightline.__file__).read_text(encoding="utf-8"))
    static = {
        alias.name: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert static == {**sightline._HOMES, **dict.fromkeys(sightline._PARTS, "sightline")}


def test_nothing_imports_torchvision_or_timm_at_import_time():
    # decisions/weights: torchvision from the registry does not import beside a CPU-only build of torch.
    root = Path(sightline.__file__).parent
    for file in root.rglob("*.py"):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not {name.split(".")[0] for name in names} & {"timm", "torchvision"}, file
