"""JPEGs of the texture and size of photographs, from a seed: as a folder, as shards of a tar, as a table."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

_CLASSES = 10
# Of each octave of the texture beside the one before it: what is as fine as a pixel keeps its contrast, as in nature.
_FALL = 0.72
# Some pictures, of which each file is a part in another place: to draw them takes longer than to write them.
_DRAWN = 4
# Sides of photographs that were made smaller than a camera writes them.
_SHRUNK = 1000


def _texture(draws: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Noise of every scale about 0, and that of a sensor, more in what was shrunk: float32 [height, width]."""
    longest, cells, strength = max(height, width), 2, 60.0
    made = (5 if longest < _SHRUNK else 3) * draws.standard_normal((height, width), dtype=np.float32)
    while cells <= longest // 2:
        shape = [max(2, cells * side // longest) for side in (height, width)]
        coarse = Image.fromarray(draws.standard_normal(shape, dtype=np.float32))
        made += strength * np.asarray(coarse.resize((width, height), Image.Resampling.BILINEAR))
        cells, strength = 2 * cells, _FALL * strength
    return made


def photos(count: int, height: int, width: int, quality: int) -> Iterator[tuple[bytes, int]]:
    """The bytes of so many different JPEGs, and the class of each; colours are as coarse as those of a camera."""
    draws, drawn = np.random.default_rng(0), []
    for _ in range(min(_DRAWN, count)):
        planes = [_texture(draws, height, width)]
        for _ in range(2):
            colour = Image.fromarray(_texture(draws, height // 4, width // 4) / 2)
            planes.append(np.asarray(colour.resize((width, height), Image.Resampling.BILINEAR)))
        drawn.append([np.clip(plane + 128, 0, 255).astype(np.uint8) for plane in planes])
    for number in range(count):
        place = draws.integers(0, height), draws.integers(0, width)
        moved = [Image.fromarray(np.roll(plane, place, (0, 1))) for plane in drawn[number % len(drawn)]]
        file = io.BytesIO()
        Image.merge("YCbCr", moved).save(file, "JPEG", quality=quality)
        yield file.getvalue(), number % _CLASSES


def write_folder(images: list[tuple[bytes, int]], root: Path) -> None:
    """As `imagefolder:` and timm read them: root/train/CLASS/NUMBER.jpg."""
    for number, (content, label) in enumerate(images):
        folder = root / "train" / f"{label:02d}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:05d}.jpg").write_bytes(content)


def write_shards(images: list[tuple[bytes, int]], root: Path, shards: int) -> list[str]:
    """As `wds:` and webdataset read them, in so many archives, whose paths are returned."""
    root.mkdir()
    paths = [str(root / f"train-{shard:04d}.tar") for shard in range(shards)]
    for shard, path in enumerate(paths):
        with tarfile.open(path, "w") as archive:
            for number, (content, label) in enumerate(images):
                if number * shards // len(images) != shard:
                    continue
                for extension, held in (("jpg", content), ("cls", b"%d" % label)):
                    member = tarfile.TarInfo(f"{number:05d}.{extension}")
                    member.size = len(held)
                    archive.addfile(member, io.BytesIO(held))
    return paths


def write_table(images: list[tuple[bytes, int]], root: Path) -> None:
    """As `hf:` and `datasets` read them: what `save_to_disk` writes."""
    import datasets

    features = datasets.Features(image=datasets.Image(), label=datasets.ClassLabel(names=[*map(str, range(_CLASSES))]))
    columns = {
        "image": [{"bytes": content, "path": None} for content, _ in images],
        "label": [label for _, label in images],
    }
    datasets.disable_progress_bars()
    datasets.DatasetDict({"train": datasets.Dataset.from_dict(columns, features=features)}).save_to_disk(str(root))
