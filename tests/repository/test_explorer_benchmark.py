"""What a click takes: small, for what the rows say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.slow
def test_a_click_is_measured_over_http(tmp_path):
    out = tmp_path / "rows.jsonl"
    command = [sys.executable, str(BENCHMARKS / "explorer.py"), "--quick", "--out", str(out), "--beside", "tests"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "[4/4" in done.stdout
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [(one["model"], one["size"], one["wanted_ms"]) for one in rows] == [
        ("demo", 32, 50), ("demo", 128, None), ("vit_small_patch16", 224, None), ("vit_small_patch16", 512, 250),
    ]  # fmt: skip
    assert [one["tokens"] for one in rows] == [65, 1025, 197, 1025]
    for one in rows:
        assert one["hardware"]
        assert (one["threads"], one["beside"], one["encoding"]) == (1, "tests", "lookhere_90")
        assert 0 < one["click_ms"] <= one["click_ms_p90"]
        assert all(one[key] > 0 for key in ("together_ms", "view_ms", "first_byte_ms", "page_ms", "kilobytes"))


def test_rows_of_clicks_are_within_what_was_promised():
    rows = [json.loads(line) for line in (BENCHMARKS / "results/explorer.jsonl").read_text().splitlines()]
    promised = [one for one in rows if one["wanted_ms"] is not None]
    assert {(one["model"], one["size"]) for one in promised} == {("demo", 32), ("vit_small_patch16", 512)}
    assert all(one["click_ms"] <= one["wanted_ms"] for one in promised)
