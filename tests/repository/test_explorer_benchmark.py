"""What a click takes, over HTTP and in the browser: small, for what the rows say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.explorer.page import browsing

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
    promised = [one for one in _kept("explorer") if one["wanted_ms"] is not None]
    assert {(one["model"], one["size"]) for one in promised} == {("demo", 32), ("vit_small_patch16", 512)}
    assert all(one["click_ms"] <= one["wanted_ms"] for one in promised)


@pytest.mark.slow
def test_a_key_and_the_first_paint_are_measured_in_the_browser(tmp_path):
    pytest.importorskip("playwright")
    if browsing.chromium() is None:
        pytest.skip("no Chromium here (make browser)")
    done, out = _page_rows(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "[2/2" in done.stdout
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    said = [tuple(one[key] for key in ("model", "encoding", "size", "tokens", "wanted_ms")) for one in rows]
    # 160 px in patches of 16, and a class token.
    assert said == [("demo", "lookhere_90", 32, 65, 50), ("test_vit", "learned_1d", 160, 101, 250)]
    for one in rows:
        assert (one["threads"], one["beside"], one["presses"], one["loads"]) == (1, "tests", 4, 2)
        assert 0 < one["answered_ms"] < one["press_ms"] <= one["press_ms_p90"]
        assert 0 < one["first_paint_ms"] <= one["first_paint_ms_most"]
        # There is something to see before the first map.
        assert one["first_paint_ms"] < one["first_map_ms"]
        assert one["hardware"]
        assert one["browser"].startswith("Chromium ")


def test_rows_of_the_browser_are_within_what_was_promised():
    rows = _kept("explorer_page")
    assert {(one["model"], one["size"]) for one in rows} == {("demo", 32), ("vit_small", 512)}
    for one in rows:
        assert one["presses"] >= 40
        assert one["answered_ms"] <= one["wanted_ms"]
        assert one["first_paint_ms_most"] <= one["wanted_first_paint_ms"] == 1000


def _kept(benchmark: str) -> list[dict]:
    lines = (BENCHMARKS / "results/explorer.jsonl").read_text(encoding="utf-8").splitlines()
    return [row for line in lines if (row := json.loads(line))["benchmark"] == benchmark]


def _page_rows(folder: Path) -> tuple[subprocess.CompletedProcess[str], Path]:
    out = folder / "rows.jsonl"
    command = [sys.executable, str(BENCHMARKS / "explorer_page.py"), "--quick", "--out", str(out), "--beside", "tests"]
    return subprocess.run(command, capture_output=True, text=True, check=False), out
