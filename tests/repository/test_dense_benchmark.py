"""The speed of dense tasks beside the usual ways: small, for what its rows say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "dense.py"


def rows_of(out, *parts):
    command = [sys.executable, str(SCRIPT), "--quick", "--parts", *parts, "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


@pytest.mark.slow
def test_padded_images_have_the_loss_of_the_pack(tmp_path):
    """The script stops where a padded batch has another loss than the pack of the same weights."""
    longest, box = rows_of(tmp_path / "rows.jsonl", "packed")
    assert (longest["baseline"], box["baseline"]) == ("padded to the longest", "padded to the largest sides")
    assert 1 < longest["padding_factor"] < box["padding_factor"]
    assert longest["wanted"] == pytest.approx(0.85 * longest["padding_factor"], abs=1e-3)
    assert all(one["clock"] == "process_time" and one["interval"] == [one["ratio"]] * 2 for one in (longest, box))


@pytest.mark.slow
def test_windows_have_half_as_many_tokens_again(tmp_path):
    one, many = rows_of(tmp_path / "rows.jsonl", "windows", "scales")
    assert (one["tokens"], one["baseline"]) == (1.5, "mmseg 512/341")
    assert 1 < one["operations"] < 1.5
    # Mirrored too.
    assert many["tokens"] == 3
