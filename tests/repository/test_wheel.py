"""The wheel installs alone into a new environment and works in an empty folder."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import sightline

ROOT = Path(__file__).resolve().parents[2]


def run(*words: object, cwd: Path) -> str:
    done = subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_wheel_works_in_an_empty_folder(tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path / "dist", ROOT, cwd=tmp_path)
    (wheel,) = (tmp_path / "dist").iterdir()
    run(sys.executable, "-m", "venv", "--without-pip", "env", cwd=tmp_path)
    python = tmp_path / "env" / "bin" / "python"
    run(Path(sys.executable).with_name("uv"), "pip", "install", "--no-deps", "--python", python, wheel, cwd=tmp_path)
    packages = next((tmp_path / "env" / "lib").glob("*/site-packages"))
    # What the wheel depends on is there already; its own packages come first.
    (packages / "tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    empty, command = tmp_path / "empty", python.with_name("sightline")
    empty.mkdir()
    where = run(python, "-c", "import sightline; print(sightline.__file__)", cwd=empty).strip()
    assert Path(where).is_relative_to(packages)
    assert sightline.__version__ in run(command, "--version", cwd=empty)
    run(command, "train", "--data", "scenes", "--images", 64, "--batch-size", 32, "--out", "run", cwd=empty)
    run(command, "evaluate", "run", "--resolutions", 16, "--images", 8, cwd=empty)
    run(command, "report", "run", "--out", "page.html", cwd=empty)
    assert "<svg" in (empty / "page.html").read_text()
