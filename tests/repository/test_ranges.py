"""Published speeds are what the rows say: ranges over all runs, none left out."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def ranges() -> ModuleType:
    specification = importlib.util.spec_from_file_location("ranges", ROOT / "benchmarks" / "ranges.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def row(ratio: float, hardware: str = "AMD EPYC, 2 cores, avx512_bf16", **changes: Any) -> dict[str, Any]:
    return {
        "subject": "auto", "baseline": "no_bias", "encoding": "lookhere_90", "threads": 1, "device": "cpu",
        "tokens": 5, "head_dim": 64, "dtype": "float32", "pass": "forward", "ratio": ratio, "hardware": hardware,
        "commit": "a", "chosen": "tiles", "fastest": False, "errors": [0.9], **changes,
    }  # fmt: skip


def test_found_42_the_readme_states_the_range_of_all_rows(ranges: ModuleType) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name, fresh in ranges.blocks().items():
        if ranges.BEGIN.format(name) in readme:
            assert ranges.between(readme, name) == fresh, "python benchmarks/ranges.py --write README.md"
    # Not measured here, so it is no row; told by a user, it is said beside the table.
    assert "1.35 (1.46 with the backward pass) over a ready bias and 1.14 over none" in " ".join(readme.split())


def test_found_42_the_worst_machine_and_run_come_first(ranges: ModuleType) -> None:
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


def test_the_table_of_the_demonstration_is_that_of_its_rows(ranges: ModuleType) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = ranges.rows("demo")
    assert ranges.between(readme, "demonstration") == ranges.demonstration(found), (
        "python benchmarks/ranges.py --write README.md"
    )
    # The worst of four seeds is what is published of LookHere-90.
    seeds = {
        name: {row["seed"] for row in found if row["run"] == name}
        for name in ("lookhere_90", "rope_axial", "learned_1d")
    }
    assert seeds["lookhere_90"] == {0, 1, 2, 3}
    largest = [row for row in found if (row["run"], row["resolution"], row["metric"]) == ("lookhere_90", 148, "top1")]
    assert min(row["value"] for row in largest) >= 0.85
    assert all(0 in every for every in seeds.values())
    assert not any(row["commit"].endswith("dirty") for row in found)


def test_the_table_of_segmentation_is_that_of_its_rows(ranges: ModuleType) -> None:
    found = ranges.rows("search_curves")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert ranges.between(readme, "segmentation") == ranges.segmentation(found), (
        "python benchmarks/ranges.py --write README.md"
    )
    assert all(len(row["seeds"]) == 3 for row in found)
    assert not any("dirty" in row["commit"] for row in found)
    mean = {(row["encoding"], row["data"], row["resolution"]): row["value"] for row in found if row["shrunk"] is None}
    # What the recipe is published with.
    for name, side, least in (
        ("lookhere_90", 32, 0.9),
        ("rope_axial", 32, 0.9),
        ("learned_1d", 32, 0.7),
        ("lookhere_90", 64, 0.72),
        ("lookhere_90", 108, 0.6),
    ):
        assert mean[name, "scenes:pairs", side] >= least
    assert ("lookhere_90 less rope_axial", "scenes:pairs", 64) in mean


def test_the_table_of_the_comparison_is_that_of_its_rows(ranges: ModuleType) -> None:
    page = (ROOT / "docs/how-to/compare.md").read_text(encoding="utf-8")
    found = ranges.rows("compare") if (ranges.RESULTS / "compare.jsonl").exists() else []
    assert ranges.between(page, "comparison") == ranges.comparison(found), (
        "python benchmarks/ranges.py --write docs/how-to/compare.md"
    )
    if not found:
        return
    means = [row for row in found if row["kind"] == "mean"]
    assert len({row["encoding"] for row in means}) >= 8
    assert {len(row["seeds"]) for row in means} == {3}
    assert {(row["resolution"], row["coefficient"]) for row in found if row["kind"] == "rank"} >= {
        (148, "spearman"), (148, "kendall"),
    }  # fmt: skip
    assert {row["resolution"] for row in found if row["kind"] == "difference"} >= {32, 148}
    assert not any("dirty" in row["commit"] for row in found)
