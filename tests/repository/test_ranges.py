"""Published speeds are what the rows say: ranges over all runs, none left out."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Tables that other tests make anew: tests/encodings/test_lookhere_directions.py, tests/convert/test_timm_table.py.
ELSEWHERE = {
    "encodings.md": {"| heads | `lookhere_180`, `lookhere_90` | `lookhere_45` | undirected |"},
    "transfer.md": {"| data set | steps | learning rates | held out of train |"},
    "weights.md": {"| timm module | supported | refused |"},
}


@pytest.fixture(scope="module")
def ranges() -> ModuleType:
    specification = importlib.util.spec_from_file_location("ranges", ROOT / "benchmarks" / "ranges.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        specification.loader.exec_module(module)
    return module


def row(ratio: float, hardware: str = "AMD EPYC, 2 cores, avx512_bf16", **changes: Any) -> dict[str, Any]:
    return {
        "subject": "auto", "baseline": "no_bias", "encoding": "lookhere_90", "threads": 1, "device": "cpu",
        "tokens": 5, "head_dim": 64, "dtype": "float32", "pass": "forward", "ratio": ratio, "hardware": hardware,
        "commit": "a", "chosen": "tiles", "fastest": False, "errors": [0.9], **changes,
    }  # fmt: skip


def unlisted_tables(text: str, names: Iterable[str], ranges: ModuleType) -> list[str]:
    """The heads of tables without markers of which most cells beside the first are numbers."""
    for name in names:
        text = text.replace(ranges.between(text, name), "")
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", text + "\n", re.M):
        head, _, *lines = table.splitlines()
        cells = [cell.strip(" *`") for line in lines for cell in line.strip("|").split("|")[1:]]
        if sum(bool(re.match(r"[+-]?\.?\d", cell)) for cell in cells) > len(cells) / 2:
            found.append(head)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_table_of_figures_is_made_from_rows(page: Path, ranges: ModuleType) -> None:
    text = page.read_text(encoding="utf-8")
    names = re.findall(r"^<!-- (.*): benchmarks/ranges.py writes what follows -->$", text, re.M)
    for name in names:
        files, _ = ranges.TABLES[name]
        assert all((ranges.RESULTS / f"{file}.jsonl").is_file() for file in files)
        assert ranges.between(text, name) == ranges.block(name), f"python benchmarks/ranges.py --write {page}"
    assert set(unlisted_tables(text, names, ranges)) <= ELSEWHERE.get(page.name, set())


def test_a_table_without_markers_is_found(ranges: ModuleType) -> None:
    text = "| size | top-1 | nll |\n|---|---|---|\n| 32 px | 91.2 | **.31** |\n| 64 px | 80.0 (1.2) | word |\n"
    assert unlisted_tables(text, [], ranges) == ["| size | top-1 | nll |"]
    marked = f"{ranges.BEGIN.format('swin')}\n{text}{ranges.END.format('swin')}\n"
    assert unlisted_tables(marked, ["swin"], ranges) == []


def test_the_worst_machine_and_run_come_first(ranges: ModuleType) -> None:
    intel = "Intel(R) Xeon(R) Processor, 2 cores, amx_bf16"
    found = [row(2.0), row(1.35, note="told", errors=[1.1]), row(0.9, intel), row(1.1, intel)]
    assert ranges.in_words(found) == "0.90 to 1.10 Intel Xeon (AMX); 1.35 to 2.00 AMD EPYC"
    assert ranges.in_words(found[:1]) == "2.00 AMD EPYC"
    held = row(1.2, f"{intel}, ATEN_CPU_CAPABILITY=avx2, ONEDNN_MAX_CPU_ISA=AVX2")
    assert ranges.in_words([held, row(1.1, intel)]) == "1.10 Intel Xeon (AMX); 1.20 Intel Xeon held to avx2"
    assert ranges.in_words([]) == "-"
    # Where little is wanted, much is the worst.
    assert ranges.in_words(found, wanted="at most") == "1.35 to 2.00 AMD EPYC; 0.90 to 1.10 Intel Xeon (AMX)"
    line = ranges.table(found)
    assert line.splitlines()[-1].endswith("| - | - | 0.90 to 1.10 Intel Xeon (AMX); 1.35 to 2.00 AMD EPYC | 1.10 | 3 |")
    # Other encodings, threads and devices are no part of what is published here.
    for changes in ({"encoding": "alibi_2d"}, {"threads": 2}, {"device": "cuda"}, {"baseline": "explicit"}):
        assert ranges.table([*found, row(0.1, **changes)]) == line
    # What is chosen is nowhere so far behind as with heads of another width.
    narrow = [row(0.8, head_dim=16, fastest=True, baseline="by_head"), row(0.1, head_dim=16, baseline="sdpa")]
    worst = ranges.table([*found, *narrow]).splitlines()[-1]
    assert worst == "With heads of 16 over the fastest of all at worst 0.80 (5 tokens, float32, forward)."


def test_ratios_name_the_interval_of_the_worst_run_and_what_was_wanted(ranges: ModuleType) -> None:
    found = [row(1.2, interval=[1.1, 1.3], wanted=1.0), row(1.1, interval=[0.9, 1.2], wanted=1.0, commit="b")]
    lines = ranges.ratios([*found, row(0.1, threads=2, interval=[0, 1], wanted=1.0)], "dtype").splitlines()
    assert lines[2:] == ["| float32 | 1.10 to 1.20 AMD EPYC | 0.90 to 1.20 | at least 1 | 2 |"]
    (line,) = ranges.ratios(found, "dtype", wanted="at most").splitlines()[2:]
    assert line == "| float32 | 1.10 to 1.20 AMD EPYC | 1.10 to 1.30 | at most 1 | 2 |"
