"""`tools/gpu.py` runs where there is no package registry: by a bare Python, and without what models do not need."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = str(ROOT / "tools" / "gpu.py")
MISSING = (
    "av", "cyclopts", "datasets", "fastapi", "jinja2", "matplotlib", "optuna", "pycocotools", "rich", "starlette",
    "tensorboard", "torchmetrics", "uvicorn", "wandb", "webdataset",
)  # fmt: skip
# What the script and the tests that it starts import; timm brings its own.
BLOCK = f"""
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {MISSING}:
            raise ModuleNotFoundError(f"No module named {{name!r}}")

sys.meta_path.insert(0, Missing())
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "benchmarks")!r}]
"""


@pytest.mark.parametrize(
    "modules",
    [
        # These import models and encodings.
        pytest.param("sightline.convert, sightline.training", id="library"),
        pytest.param(
            "gpu, tests.gpu.test_models, tests.gpu.test_training, "
            "tests.attention.test_flex, tests.attention.test_varlen",
            id="tests",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_runs_on_a_gpu_imports_nothing_that_is_missing_there(modules):
    done = subprocess.run([sys.executable, "-c", f"{BLOCK}\nimport {modules}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("only", [(), ("--only", "packed")])
def test_the_plan_is_printed_without_torch_and_fits_eight_minutes(only):
    command = [sys.executable, "-S", "-I", SCRIPT, "--dry-run", *only]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    found = [re.fullmatch(r" *(\d+) +(\d+) s  until +(\d+) s  (\w+): .+", line) for line in lines]
    assert [int(one[1]) for one in found] == list(range(1, len(lines) + 1))
    assert sum(int(one[2]) for one in found) == int(found[-1][3]) <= 8 * 60
    parts = list(dict.fromkeys(one[4] for one in found))
    assert parts == (["packed"] if only else ["tests", "attention", "packed", "models"])


def test_what_no_time_is_left_for_is_named(tmp_path):
    command = [sys.executable, SCRIPT, "--minutes", "0", "--device", "cpu", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) > 20
    assert all(": not measured (about " in line for line in lines)
    assert not any(tmp_path.iterdir())
