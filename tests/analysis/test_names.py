"""Every measure has a function of its own name, which `sightline.analysis` gives and analysis.md describes."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import sightline.analysis
from sightline.analysis.measures.base import measure_classes

ROOT = Path(__file__).parents[2]
FOLDER = Path(sightline.analysis.__file__).parent
NAMES = sorted({*sightline.analysis._MEASURES, "cka"})


def test_each_measure_has_a_public_name():
    own = [name for name, one in measure_classes().items() if one.__module__.startswith("sightline.analysis")]
    assert sorted(own) == NAMES
    # `sightline.analysis.NAME` would be the module once it is imported.
    assert not [name for name in NAMES if (FOLDER / f"{name}.py").exists() or (FOLDER / name).exists()]


@pytest.mark.parametrize("name", NAMES)
def test_its_function_is_described(name):
    function, quantities = getattr(sightline.analysis, name), measure_classes()[name].quantities
    assert inspect.isfunction(function)
    assert all(quantity in (function.__doc__ or "") for quantity in quantities) or name == "cka"
    assert name in dir(sightline.analysis)
    assert {"images", "sizes"} <= set(inspect.signature(function).parameters)
    text = (ROOT / "docs/reference/analysis.md").read_text(encoding="utf-8")
    described = text.split(f"### `{name}`\n")[1].split("\n## ")[0].split("\n### ")[0]
    assert not [one for one in quantities if f"`{one}`" not in described]
    assert "prefix" in described.lower()
    assert "mask" in described.lower()


def test_the_package_is_light_until_a_measure_is_used():
    script = "import sightline.analysis, sys; dir(sightline.analysis); print(*({'torch', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
