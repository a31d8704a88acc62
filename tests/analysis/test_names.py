"""Every measure has a function of its own name, which `sightline.analysis` gives and docs/ANALYSIS.md describes."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import sightline.analysis
from sightline.analysis.measures.base import measure_classes

ROOT = Path(__file__).parents[2]
FOLDER = Path(sightline.analysis.__file__).parent / "measures"
FILES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in ("__init__", "base"))


def test_each_file_holds_the_measure_of_its_name():
    files = {name: one for name, one in measure_classes().items() if one.__module__.startswith("sightline.analysis")}
    assert sorted(files) == FILES
    assert all(one.__module__ == f"sightline.analysis.measures.{name}" for name, one in files.items())


@pytest.mark.parametrize("name", FILES)
def test_its_function_is_a_public_name(name):
    function = getattr(sightline.analysis, name)
    assert inspect.isfunction(function)
    assert all(quantity in (function.__doc__ or "") for quantity in measure_classes()[name].quantities) or name == "cka"
    assert name in dir(sightline.analysis)
    parameters = list(inspect.signature(function).parameters)
    assert "images" in parameters
    assert "sizes" in parameters


@pytest.mark.parametrize("name", FILES)
def test_a_module_does_not_stand_in_the_way_of_the_name(name):
    """`sightline.analysis.NAME` would be the module once it is imported."""
    assert not (FOLDER.parent / f"{name}.py").exists()
    assert not (FOLDER.parent / name).exists()


@pytest.mark.parametrize("name", FILES)
def test_the_page_describes_it(name):
    text = (ROOT / "docs" / "ANALYSIS.md").read_text(encoding="utf-8")
    assert f"### `{name}`\n" in text
    described = text.split(f"### `{name}`\n")[1].split("\n## ")[0].split("\n### ")[0]
    missing = [one for one in measure_classes()[name].quantities if f"`{one}`" not in described]
    assert not missing
    assert "prefix" in described.lower()
    assert "mask" in described.lower()


@pytest.mark.parametrize("name", sightline.analysis._HOMES)
def test_other_public_names_resolve(name):
    assert getattr(sightline.analysis, name).__module__ == sightline.analysis._HOMES[name]


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        sightline.analysis.nothing  # noqa: B018


def test_the_package_is_light_until_a_measure_is_used():
    script = "import sightline.analysis, sys; dir(sightline.analysis); print(*({'torch', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
