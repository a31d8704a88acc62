"""What the first and the second start on a folder of many files take: processor time and wall time, by fresh processes.

    python benchmarks/data_scan.py [--files 50000] [--out OUT]

Makes a folder of tiny PNGs in 100 classes of train and test, in a temporary folder with a cache of its own. A start is
what `train` does before its first batch: find the files, read or remember the headers, and the fingerprint.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from measure import RESULTS, Parser, append, destination, write
from PIL import Image

from sightline.distributed import machine

_START = """
import json, resource, sys, time
from sightline.data.sources.imagefolder import ImageFolder
began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
source = ImageFolder(sys.argv[1])
for split in ("train", "test"):
    source, _ = source.check_readable(split)
digest = source.fingerprint().digest
after = resource.getrusage(resource.RUSAGE_SELF)
cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
print(json.dumps({"cpu_seconds": round(cpu, 2), "seconds": round(time.perf_counter() - began, 2), "digest": digest,
                  "peak_mb": round(after.ru_maxrss / 1024)}))
"""


def make(root: Path, files: int) -> None:
    """Distinct PNGs of 8 to 40 px."""
    rng = np.random.default_rng(0)
    for number in range(files):
        folder = root / ("test" if number // 100 % 10 == 0 else "train") / f"{number % 100:02d}"
        if number < 1000:
            folder.mkdir(parents=True, exist_ok=True)
        picture = io.BytesIO()
        size = (int(rng.integers(8, 41)), int(rng.integers(8, 41)), 3)
        Image.fromarray(rng.integers(0, 256, size, dtype=np.uint8)).save(picture, "PNG", compress_level=0)
        (folder / f"{number:07d}.png").write_bytes(picture.getvalue())


def start(root: Path, cache: Path) -> dict[str, object]:
    """One start, in a process of its own."""
    environment = os.environ | {"SIGHTLINE_CACHE": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", _START, str(root)], env=environment, check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout)


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--files", type=int, default=50_000)
    parser.add_argument("--out", type=Path, help="replace this file; else a row is added to benchmarks/results")
    asked = parser.parse_args()
    path = destination(asked.out, RESULTS / "data_scan.jsonl")
    with tempfile.TemporaryDirectory() as place:
        root, cache = Path(place) / "images", Path(place) / "cache"
        make(root, asked.files)
        starts = [start(root, cache) for _ in range(3)]
        kept = sum(file.stat().st_size for file in cache.rglob("*") if file.is_file())
    assert len({one.pop("digest") for one in starts}) == 1
    row = {
        "benchmark": "data_scan",
        "files": asked.files,
        "first": starts[0],
        "second": starts[1],
        "third": starts[2],
        "cache_bytes": kept,
        "hardware": machine.hardware_name(),
        "commit": machine.git_commit(),
    }
    print(json.dumps(row))
    (write if asked.out else append)([row], path)


if __name__ == "__main__":
    main()
