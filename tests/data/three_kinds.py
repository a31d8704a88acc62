"""The same images as a folder, as a data set of Hugging Face, and as tar shards."""

from __future__ import annotations

import contextlib
import io
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from tests.tiny import INPUTS

CLASSES = ("ant", "bee", "cat")
Images = Mapping[str, list[tuple[int, str, bytes]]]
"""Split -> (label, name, encoded image), in the order of the labels and names."""


def encoded(pixels: np.ndarray, kind: str = "PNG") -> bytes:
    """An image file."""
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, kind)
    return content.getvalue()


def images(count: int = 5, damaged: bool = False) -> dict[str, list[tuple[int, str, bytes]]]:
    """Noise of many sizes as PNG and JPEG, one on its side, one of CMYK, one of 16 bits; some that are damaged."""
    rng, found = np.random.default_rng(0), {}
    for split in ("train", "val"):
        found[split] = []
        for label in range(len(CLASSES)):
            for number in range(count):
                pixels = rng.integers(0, 256, (*rng.integers(16, 90, 2), 3), dtype=np.uint8)
                kind = "JPEG" if number % 2 else "PNG"
                found[split].append((label, f"{number}.{'jpg' if number % 2 else 'png'}", encoded(pixels, kind)))
    for number, name in enumerate(("exif_6.jpg", "cmyk.jpg", "gray16_ramp.png")):
        found["train"].append((number, f"other_{name}", (INPUTS / name).read_bytes()))
    if damaged:
        for name in ("truncated.jpg", "text.jpg", "zero_bytes.jpg"):
            found["train"].append((1, f"z_{name}", (INPUTS / name).read_bytes()))
    return {split: sorted(part) for split, part in found.items()}


def folder(root: Path, given: Images) -> str:
    """`imagefolder:`"""
    for split, part in given.items():
        for label, name, content in part:
            path = root / split / CLASSES[label] / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return f"imagefolder:{root}"


def tables(given: Images):
    """A `datasets.DatasetDict`."""
    import datasets

    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=list(CLASSES))})
    return datasets.DatasetDict(
        {
            {"val": "validation"}.get(split, split): datasets.Dataset.from_dict(
                {
                    "image": [{"bytes": content, "path": name} for _, name, content in part],
                    "label": [label for label, _, _ in part],
                },
                features=features,
            )
            for split, part in given.items()
        }
    )


def saved(root: Path, given: Images) -> str:
    """`hf:` of a folder that `save_to_disk` wrote, the first split in two files."""
    tables(given).save_to_disk(root, num_shards={"train": 2, "validation": 1})
    return f"hf:{root}"


def parquet(root: Path, given: Images) -> str:
    """`hf:` of a folder with Parquet files, as on the Hub."""
    (root / "data").mkdir(parents=True)
    for split, table in tables(given).items():
        for number in range(2):
            part = table.shard(2, number, contiguous=True)
            part.to_parquet(root / "data" / f"{split}-{number:05}-of-00002.parquet", batch_size=3)
    return f"hf:{root}"


def shards(root: Path, given: Images, each: int = 7) -> str:
    """`wds:` of a folder of shards, with `cls` for PNG and `json` for JPEG."""
    for split, part in given.items():
        for start in range(0, len(part), each):
            members = []
            for number, (label, name, content) in enumerate(part[start : start + each]):
                key, extension = f"s/{start + number:04}", name.rpartition(".")[2]
                said = ("cls", b"%d\n" % label) if extension == "png" else ("json", b'{"label": %d}' % label)
                members += [(f"{key}.{extension}", content), (f"{key}.{said[0]}", said[1])]
            write_tar(root / f"{split}-{start // each:04}.tar", members)
    (root / "classes.txt").write_text("\n".join(CLASSES))
    return f"wds:{root}"


def write_tar(path: Path, members: Iterable[tuple[str, bytes]]) -> None:
    """An archive of these names and contents."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, content in members:
            about = tarfile.TarInfo(name)
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))


KINDS = {"imagefolder": folder, "hf": saved, "parquet": parquet, "wds": shards}


@contextlib.contextmanager
def made(root: Path, given: Images) -> Iterator[dict[str, str]]:
    """Kind -> its data set of these images; inside, the cache of `datasets` lies below `root` too."""
    import datasets

    before, datasets.config.HF_DATASETS_CACHE = datasets.config.HF_DATASETS_CACHE, root / "arrow"
    try:
        yield {kind: make(root / kind, given) for kind, make in KINDS.items()}
    finally:
        datasets.config.HF_DATASETS_CACHE = before
