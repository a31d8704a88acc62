"""docs/FINDINGS.md names every test of every finding, and each of the 43 findings has one."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_table_of_findings_is_that_of_the_tests():
    table = (ROOT / "docs" / "FINDINGS.md").read_text(encoding="utf-8")
    lines = {int(line[2:4]): line for line in table.splitlines() if re.match(r"\| \d\d \|", line)}
    # 20 was of weights files that unfold, which nothing refuses any more.
    assert sorted(lines) == [number for number in range(1, 44) if number != 20]
    there: dict[int, set[str]] = {number: set() for number in lines}
    for file in (ROOT / "tests").rglob("test_*.py"):
        for name in re.findall(r"^def (test_found_\d\d_\w+)", file.read_text(encoding="utf-8"), re.M):
            there[int(name[11:13])].add(f"{file.relative_to(ROOT / 'tests')}: {name}")
    for number, line in lines.items():
        cells = [cell.replace("`", "") for cell in line.rsplit(" | ", 1)[1].rstrip(" |").split("<br>")]
        named = {
            f"{file}: {name}"
            for file, _, names in (cell.partition(": ") for cell in cells)
            for name in names.split(", ")
        }
        assert there[number], f"finding {number} has no test"
        assert named == there[number], number
