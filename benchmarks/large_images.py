"""The memory of `sightline predict` on a JPEG of 89 megapixels in each EXIF orientation: the peak of its process.

python benchmarks/large_images.py [--side 9459] [--orientations 1,2,3,4,5,6,7,8] [--out OUT]
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
from measure import RESULTS, Parser, append, destination, write
from PIL import Image

from sightline import create_model, save_model
from sightline.distributed import machine


def peak(arguments: list[str]) -> tuple[int, int]:
    """(exit code, peak resident bytes) of the command line in a process of its own."""
    child = os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "sightline", *arguments],
        os.environ | {"OMP_NUM_THREADS": "1"},
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
    )
    _, status, used = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), used.ru_maxrss * 1024


def measure(side: int, orientation: int, folder: Path) -> int:
    """Peak bytes of `predict` on one image with that orientation."""
    model, path = folder / "model", folder / f"{orientation}.jpg"
    if not model.exists():
        save_model(create_model("vit_micro_patch4", num_classes=10), model)
    ramp = np.linspace(0, 255, side, dtype=np.uint8)
    pixels = np.broadcast_to(ramp, (side, side))
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(np.ascontiguousarray(pixels)).convert("RGB").save(path, exif=exif, quality=80)
    code, used = peak(["predict", str(model), str(path), "--device", "cpu"])
    if code != 0:
        raise SystemExit(f"predict ended with {code}")
    path.unlink()
    return used


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--side", type=int, default=9459)
    parser.add_argument("--orientations", default="1,2,3,4,5,6,7,8")
    parser.add_argument("--out", type=Path, help="replace this file; else a row is added to benchmarks/results")
    asked = parser.parse_args()
    path = destination(asked.out, RESULTS / "large_images.jsonl")
    with tempfile.TemporaryDirectory() as place:
        peaks = {
            orientation: round(measure(asked.side, int(orientation), Path(place)) / 2**20)
            for orientation in asked.orientations.split(",")
        }
    row = {
        "benchmark": "large_images",
        "pixels": asked.side**2,
        "peak_mb_by_orientation": peaks,
        "worst_mb": max(peaks.values()),
        "hardware": machine.hardware_name(),
        "commit": machine.git_commit(),
    }
    print(json.dumps(row))
    (write if asked.out else append)([row], path)


if __name__ == "__main__":
    main()
