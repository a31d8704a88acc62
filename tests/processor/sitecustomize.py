"""Reports another processor than there is: `pytest --processor NAME` loads this in its own process, and every process
that a test starts finds it in PYTHONPATH, so that all of them choose alike."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

VARIABLE = "SIGHTLINE_TEST_PROCESSOR"
FLAGS = "fpu sse4_2 avx avx2 avx512f"
# What /proc/cpuinfo says of each.
PROCESSORS = {
    "amd": {"vendor_id": "AuthenticAMD", "cpu family": "26", "model": "2", "flags": f"{FLAGS} avx512_bf16"},
    "intel": {"vendor_id": "GenuineIntel", "cpu family": "6", "model": "207", "flags": f"{FLAGS} avx512_bf16"},
    "unknown": {"vendor_id": "Unknown", "cpu family": "1", "model": "1", "flags": FLAGS},
}

_read_text = Path.read_text


def _reported(self: Path, *arguments: Any, **options: Any) -> str:
    if self != Path("/proc/cpuinfo"):
        return _read_text(self, *arguments, **options)
    name = os.environ[VARIABLE]
    fields = {"model name": f"{name} processor", **PROCESSORS[name]}
    return "".join(f"{key}\t: {value}\n" for key, value in fields.items())


if os.environ.get(VARIABLE):
    Path.read_text = _reported
