"""Training images from files: ours beside timm's loader, webdataset's and that of datasets; and a run that goes on.

    python benchmarks/loading.py [--quick] [--parts small large shards table resume] [--workers 0 2] [--out OUT]

The script makes JPEGs of the texture and size of photographs, from a seed. A work is a pass over all of them: read,
decoded, a random part of each cut to 224 px and perhaps mirrored, in batches, normalised in this process; workers start
within it. `small` (500 x 375 px) and `large` (4000 x 3000) are our `imagefolder:` beside timm's `create_loader` with
Pillow (RandomResizedCrop and flip, the same parts and filter, no jitter). The other parts are of the small images:
`shards` our `wds:`, shuffled over all of them, beside webdataset, which reads its archives from the first byte to the
last, with timm's transform; `table` our `hf:` beside `datasets` with that transform and torch's loader. A ratio is the
other's time over ours, the images a second of ours over its; at least `wanted` is expected.

`resume` is the first batch of a run that was stopped at 90 % of a pass beside the cold first batch of a pass, from
opening the data on (a ratio of .667: it took 1.5 times as long); `repeated` and `missing` count the images of both
parts of that pass.

webdataset is needed by this script alone: pip install webdataset==1.0.2
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import itertools
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from measure import Parser, Work, counted, interleave, print_table, row, threads
from photos import photos, write_folder, write_shards, write_table

from sightline.data.batch import Batch, normalize
from sightline.data.config import PackingConfig
from sightline.data.crops import RandomResizedCrop
from sightline.data.open import open_source
from sightline.distributed.machine import import_timm
from sightline.errors import InputError
from sightline.models.embedder import embedder_class
from sightline.tasks.base import make_task
from sightline.tokens.patchify import ImagePatchifier
from sightline.training.config import TrainConfig
from sightline.training.plan import DataState, StepSpec, training_plan
from sightline.training.setup import model_config_of

_SIDE, _NORMAL = 224, ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
# Part -> its baseline, and the least ratio that is expected.
_PARTS = {"small": ("timm", 1.0), "large": ("timm", 4.0), "shards": ("webdataset", 0.95), "table": ("datasets", None)}
_VERSIONS = {"webdataset": "webdataset==1.0.2"}
_SLOWEST_FIRST_BATCH = 1.5
_COLUMNS = ("part", "data", "workers", "baseline", "ratio", "interval", "wanted", "subject_ms", "baseline_ms")


class Opened:
    """A run whose data is open, as the training loop sees it."""

    def __init__(self, config: TrainConfig) -> None:
        self.source, _ = open_source(config.data).check_readable("train")
        self.config, self.model = config, model_config_of(config, self.source)
        self.task = make_task("classification", self.model).bind(self.source, config.data)
        self.rows = ImagePatchifier(embedder_class(self.model.embedder).patchifier_of(self.model), self.model.mean)

    def batches(
        self, seed: int = 0, first: int = 0, position: DataState | None = None
    ) -> Generator[tuple[StepSpec, Batch]]:
        """The steps of the run, from one of them on."""
        plan = training_plan(dataclasses.replace(self.config, seed=seed), self.model, self.source)
        # Its workers end with it.
        with contextlib.closing(plan.batches(self.rows, self.task, first, position=position)) as steps:
            yield from ((step, batches[0]) for step, batches in steps)


class Ours:
    """A pass over all images, shuffled anew each time."""

    def __init__(self, data: str, batch: int, workers: int, images: int) -> None:
        self.opened, self.passes = Opened(_config(data, images, batch, workers)), itertools.count()

    def __call__(self) -> None:
        seen = sum(len(normalize(batch.inputs, *_NORMAL)) for _, batch in self.opened.batches(next(self.passes)))
        assert seen == self.opened.config.images, seen


def _config(data: str, images: int, batch: int, workers: int, packing: PackingConfig | None = None) -> TrainConfig:
    return TrainConfig(
        data=data, model="vit_small_patch16", resolution=_SIDE, images=images, batch_size=batch, workers=workers,
        packing=packing,
    )  # fmt: skip


class Theirs:
    """A pass over all images by another project's loader, whose batches timm's prefetcher normalises."""

    def __init__(self, loader: Iterable[Any], images: int) -> None:
        self.loader, self.images = loader, images

    def __call__(self) -> None:
        seen = sum(len(inputs) for inputs, _ in self.loader)
        assert seen == self.images, seen


def _timm_transform(data: Any) -> Callable[[Any], Any]:
    """RandomResizedCrop and flip to uint8 [3, height, width], as timm makes them where its prefetcher normalises."""
    return data.create_transform(
        (3, _SIDE, _SIDE), is_training=True, color_jitter=None, use_prefetcher=True, **_as_ours()
    )


def _as_ours() -> dict[str, Any]:
    shown = RandomResizedCrop()
    return {
        "scale": shown.scale, "ratio": shown.aspect, "hflip": shown.flip, "interpolation": shown.interpolation,
        "mean": _NORMAL[0], "std": _NORMAL[1],
    }  # fmt: skip


def _timm(root: Path, batch: int, workers: int) -> Iterable[Any]:
    data = import_timm().data
    return data.create_loader(
        data.create_dataset("", root=str(root), split="train"), (3, _SIDE, _SIDE), batch, is_training=True,
        color_jitter=None, num_workers=workers, persistent_workers=False, device=torch.device("cpu"), **_as_ours(),
    )  # fmt: skip


def _loaded(images: Any, batch: int, workers: int, *, shuffle: bool) -> Iterable[Any]:
    """Transformed images in timm's batches, by torch's loader."""
    from timm.data.loader import PrefetchLoader, fast_collate

    loader = torch.utils.data.DataLoader(images, batch, shuffle, num_workers=workers, collate_fn=fast_collate)
    return PrefetchLoader(loader, *_NORMAL, device=torch.device("cpu"))


def _webdataset(shards: Sequence[str], batch: int, workers: int) -> Iterable[Any]:
    webdataset: Any = importlib.import_module("webdataset")
    read = webdataset.WebDataset(shards, shardshuffle=False).decode("pilrgb").to_tuple("jpg", "cls")
    return _loaded(read.map_tuple(_timm_transform(import_timm().data)), batch, workers, shuffle=False)


class _Transformed:
    """What `set_transform` is given, in a form that workers take."""

    def __init__(self, transform: Callable[[Any], Any]) -> None:
        self.transform = transform

    def __call__(self, rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
        return rows | {"image": [self.transform(image.convert("RGB")) for image in rows["image"]]}


class _Pairs:
    """Rows of a table as pairs."""

    def __init__(self, table: Any) -> None:
        self.table = table

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        one = self.table[index]
        return one["image"], one["label"]


def _datasets(root: Path, batch: int, workers: int) -> Iterable[Any]:
    datasets: Any = importlib.import_module("datasets")
    table = datasets.load_from_disk(str(root))["train"]
    shown = table.with_transform(_Transformed(_timm_transform(import_timm().data)))
    return _loaded(_Pairs(shown), batch, workers, shuffle=True)


def compare(part: str, place: Path, images: int, batch: int, workers: int, rounds: int) -> list[dict[str, Any]]:
    """The row of a part, or none where what it is compared with is missing."""
    baseline, wanted = _PARTS[part]
    made: dict[str, tuple[str, Callable[[], Iterable[Any]]]] = {
        "small": (f"imagefolder:{place / part}", lambda: _timm(place / part, batch, workers)),
        "large": (f"imagefolder:{place / part}", lambda: _timm(place / part, batch, workers)),
        "shards": (
            f"wds:{place / part}",
            lambda: _webdataset([*map(str, sorted((place / part).glob("*.tar")))], batch, workers),
        ),
        "table": (f"hf:{place / part}", lambda: _datasets(place / part, batch, workers)),
    }
    data, other = made[part]
    try:
        import_timm()
        version = metadata.version(baseline)
        loader = other()
    except (ImportError, InputError) as error:
        print(f"{part}: not measured ({error}; pip install {_VERSIONS.get(baseline, baseline)})")
        return []
    works: dict[str, Work] = {"sightline": Ours(data, batch, workers, images), baseline: Theirs(loader, images)}
    # Large files were written just now, and a pass over them is long.
    times = interleave(works, rounds, warm=part != "large")
    return [_row(part, data, workers, "sightline", baseline, times, images, wanted, version=version)]


def _row(
    part: str,
    data: str,
    workers: int,
    subject: str,
    baseline: str,
    times: dict[str, list[float]],
    images: int,
    wanted: float | None,
    **more: Any,
) -> dict[str, Any]:
    about = {"part": part, "data": data.partition(":")[0], "images": images, "workers": workers, "wanted": wanted}
    return row("loading", subject, baseline, times, {}, **about, **more)


def resume(data: str, images: int, batch: int, workers: int, rounds: int, packed: bool) -> dict[str, Any]:
    """The row of a run that was stopped and goes on."""
    packing = PackingConfig(tokens=batch * 196, resolutions=(128, _SIDE)) if packed else None
    config, seen = _config(data, images, batch, workers, packing), Counter()
    every = list(Opened(config).batches())
    stops = min(round(0.9 * len(every)), len(every) - 1)
    position = every[stops - 1][0].position
    for _, shown in (*every[:stops], *Opened(config).batches(first=stops, position=position)):
        seen.update(shown.indices.tolist())

    def begin(first: int, position: DataState | None) -> None:
        with contextlib.closing(Opened(config).batches(first=first, position=position)) as steps:
            next(steps)

    works: dict[str, Work] = {"resumed": partial(begin, stops, position), "cold": partial(begin, 0, None)}
    counts = {"repeated": sum(seen.values()) - len(seen), "missing": images - len(seen)}
    about = {"packed": packed, "stopped_at": round(stops / len(every), 3), **counts}
    wanted = round(1 / _SLOWEST_FIRST_BATCH, 3)
    return _row("resume", data, workers, "resumed", "cold", interleave(works, rounds), images, wanted, **about)


def _write(parts: Sequence[str], place: Path, quick: bool) -> dict[str, tuple[int, int]]:
    """The files of all parts; how many the small and the large images are, and their mean size in KiB."""
    made = {}
    for part, (count, height, width, quality) in _sizes(quick).items():
        if part == "large" and part not in parts:
            continue
        print(f"making {count} JPEGs of {width} x {height}", flush=True)
        started = time.perf_counter()
        images = list(photos(count, height, width, quality))
        write_folder(images, place / part)
        if part == "small":
            write_shards(images, place / "shards", 2 if quick else 5)
            if "table" in parts:
                write_table(images, place / "table")
        made[part] = count, round(sum(len(content) for content, _ in images) / count / 1024)
        print(f"  {made[part][1]} KiB each, {time.perf_counter() - started:.0f} s", flush=True)
    return made


def _sizes(quick: bool) -> dict[str, tuple[int, int, int, int]]:
    """Number, height, width and quality of the small and the large images."""
    if quick:
        return {"small": (16, 375, 500, 95), "large": (4, 1500, 2000, 90)}
    return {"small": (500, 375, 500, 95), "large": (100, 3000, 4000, 90)}


def main() -> None:
    parser = Parser(__doc__)
    parser.usual("loading", "few images and two rounds: for what rows say, not for speeds")
    parser.add_argument("--parts", nargs="+", choices=[*_PARTS, "resume"], default=[*_PARTS, "resume"])
    parser.add_argument("--workers", nargs="+", type=int, default=[0, 2], help="0 2")
    parser.add_argument(
        "--rounds", type=threads, help="passes of each; 7, of large images and tables 6; or 2 if --quick"
    )
    chosen = parser.begin()
    batch = 4 if chosen.quick else 25
    cases: list[tuple[str, int, str, bool]] = [(part, n, "", False) for part in _PARTS for n in chosen.workers]
    kinds = (("small", "imagefolder", False), ("shards", "wds", False), ("small", "imagefolder", True))
    cases += [("resume", n, f"{kind}:{folder}", packs) for folder, kind, packs in kinds for n in chosen.workers]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        os.environ["SIGHTLINE_CACHE"] = str(place / "cache")
        made = _write(chosen.parts, place, chosen.quick)
        for (part, workers, data, packs), said in counted([case for case in cases if case[0] in chosen.parts]):
            print(f"{said} {part} {data}{', packed' if packs else ''}, {workers} workers", flush=True)
            images, size = made["large" if part == "large" else "small"]
            rounds = chosen.rounds or (2 if chosen.quick else 7 if part in ("small", "shards", "resume") else 6)
            if part == "resume":
                kind, _, inside = data.partition(":")
                fresh = [resume(f"{kind}:{place / inside}", images, batch, workers, rounds, packs)]
            else:
                fresh = compare(part, place, images, batch, workers, rounds)
            if fresh:
                print_table(_COLUMNS, [one | {"wanted": one["wanted"] or "-"} for one in fresh])
            rows += [one | {"kib_an_image": size} for one in fresh]
    parser.save(rows)
    print(f"rows: {parser.path}")


if __name__ == "__main__":
    main()
