"""All that needs a GPU, in one run of minutes: every GPU test, then rows of attention, packed steps and whole models.

    python3 tools/gpu.py [--minutes 8] [--out FOLDER] [--only tests attention packed models]
                         [--match REGEX] [--device cuda|cpu] [--dry-run]

Needs a Python with torch, timm, pytest, pytest-xdist, hypothesis, numpy, scipy, pandas and safetensors, and no package
registry: pydantic, what it needs, filelock and ruamel.yaml are taken from the wheels in `.whl/` (`make gpu-wheels`)
where pydantic is not installed. Cases run in the order that `--dry-run` prints, by one clock: one whose estimate is
more than what is left is not started, and named as not measured. Rows are added to gpu_attention.jsonl,
gpu_packed.jsonl and gpu_models.jsonl after each case; the outcome of the tests is gpu_tests.json. Exit code 1 where a
test or a case failed.
`--device cpu` runs each case at a size that shows no speed, to try the script.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("tests", "attention", "packed", "models")
TESTS = ("tests/gpu", "tests/attention/test_flex.py", "tests/attention/test_varlen.py")
COLUMNS = ("benchmark", "subject", "baseline", "case", "ratio", "interval", "memory_ratio", "subject_ms", "baseline_ms")


class Case(NamedTuple):
    """One entry of the plan: an estimate in seconds, and options of the function of its name in `benchmarks/gpu.py`."""

    part: str
    seconds: int
    options: dict[str, Any]

    @property
    def words(self) -> str:
        """What it is, on one line."""
        said = (f"{value}" if key in ("name", "encoding") else f"{key} {value}" for key, value in self.options.items())
        return f"{self.part}: {', '.join(said)}"


def plan() -> list[Case]:
    """Every case, in the order in which they run: what is worth most first."""
    small, base = "vit_small_patch16", "vit_base_patch16"
    sizes = [(base, 224, 64), (base, 1024, 3), (small, 224, 128), (small, 1024, 6), (base, 384, 24), (small, 384, 48)]
    passes = (False, True)
    cases = [Case("tests", 150, {"marked": "gpu"})]
    # 197, 577, 1,025 and 4,097 tokens an image.
    seconds = {14: 5, 24: 7, 32: 10, 64: 12}
    cases += [Case("attention", seconds[side], {"side": side, "backward": back}) for side in seconds for back in passes]
    cases += [
        Case("packed", 14, {"encoding": encoding, "compiled": compiled})
        for compiled in passes
        for encoding in ("factorized", "lookhere_90")
    ]
    return cases + [
        Case("models", 20 if compiled else 8, {"name": name, "side": side, "images": images, "compiled": compiled})
        for compiled in passes
        for name, side, images in sizes
    ]


def find_packages() -> None:
    """Make this source and its benchmarks importable, also to children, and the wheels where pydantic is missing."""
    paths = [str(ROOT / "benchmarks"), str(ROOT / "src"), str(ROOT)]
    wheels = sorted((ROOT / ".whl").glob("*.whl"))
    if importlib.util.find_spec("pydantic") is None and wheels:
        folder = tempfile.mkdtemp(prefix="wheels-")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", folder]
        subprocess.run([*command, *map(str, wheels)], check=True)
        paths.append(folder)
    sys.path[:0] = paths
    os.environ["PYTHONPATH"] = os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])])


def run_tests(out: Path, seconds: float) -> bool:
    """Run every GPU test in at most so long, write gpu_tests.json; whether none failed."""
    report = Path(tempfile.mkdtemp(prefix="tests-")) / "report.xml"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-m",
        "gpu",
        "-n",
        "4",
        "--tb=short",
        f"--junitxml={report}",
        *TESTS,
    ]
    started = time.monotonic()
    try:
        code = subprocess.run(command, cwd=ROOT, timeout=seconds).returncode
    except subprocess.TimeoutExpired:
        code = 124
    found: dict[str, Any] = {"exit_code": code, "seconds": round(time.monotonic() - started), **machine()}
    if report.exists():
        for case in ElementTree.parse(report).iter("testcase"):
            kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
            found.setdefault(kinds.pop() if kinds else "passed", []).append(
                f"{case.get('classname')}::{case.get('name')}"
            )
    (out / "gpu_tests.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return code in (0, 5)


def machine() -> dict[str, str]:
    """What rows say of this machine."""
    import torch

    from sightline.distributed import machine

    device = "cuda" if torch.cuda.is_available() else "cpu"
    return {
        "hardware": machine.hardware_name(device), "torch": torch.__version__, "commit": machine.git_commit(),
    }  # fmt: skip


def run_case(case: Case, device: str, out: Path) -> list[dict[str, Any]]:
    """Measure a case and add its rows."""
    gpu, measure = importlib.import_module("gpu"), importlib.import_module("measure")
    try:
        rows = getattr(gpu, case.part)(**case.options, device=device)
    finally:
        gpu.tidy()
    measure.append(rows, out / f"gpu_{case.part}.jsonl")
    return [one | {"case": case.words} for one in rows]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--out", type=Path, help="a folder; benchmarks/results, of a CPU one that is made for it")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--match", default="", help="only cases whose line in --dry-run has this regular expression")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--dry-run", action="store_true", help="print every case with its estimate, and run none")
    chosen = parser.parse_args()
    cases = [case for case in plan() if case.part in chosen.only and re.search(chosen.match, case.words)]
    if chosen.dry_run:
        until = 0
        for number, case in enumerate(cases, start=1):
            until += case.seconds
            print(f"{number:3d}  {case.seconds:4d} s  until {until:4d} s  {case.words}")
        return 0
    ends, rows, faults = time.monotonic() + 60 * chosen.minutes, [], 0
    find_packages()
    usual = ROOT / "benchmarks" / "results" if chosen.device == "cuda" else Path(tempfile.mkdtemp(prefix="rows-"))
    out = chosen.out or usual
    out.mkdir(parents=True, exist_ok=True)
    for case in cases:
        left = ends - time.monotonic()
        if case.seconds > left:
            print(f"{case.words}: not measured (about {case.seconds} s, {left:.0f} s are left)", flush=True)
            continue
        print(f"{case.words} ({left:.0f} s left)", flush=True)
        if case.part == "tests":
            faults += not run_tests(out, min(left, 2 * case.seconds))
            continue
        try:
            rows += run_case(case, chosen.device, out)
        except Exception as error:
            faults += 1
            print(f"{case.words}: not measured ({type(error).__name__}: {str(error)[:300]})", flush=True)
    if rows:
        importlib.import_module("measure").print_table(COLUMNS, rows)
    return int(faults > 0)


if __name__ == "__main__":
    raise SystemExit(main())
