"""`sightline predict` of a folder beside timm's transform, loader and model, put together plainly.

    python benchmarks/predict.py [--quick] [--models vit_small_patch16] [--precisions float32] [--rounds 9] [--out OUT]

The script makes photographs from a seed: JPEGs of 640 x 427 px and, of every ten, one that is odd (upright, turned by
EXIF, grey, CMYK, PNG, small, large), and a model with random weights (learned_1d, 224 px, crop .9, bicubic), which goes
to timm's ViT bit by bit. A work is a pass over all of them, in this process: ours is the command with its options and
`--json`, from opening the model's folder to the last line; theirs is `timm.create_model`, the
weights of a file, `create_transform`, torch's loader in batches of as many images, and the five best classes of each as
JSON. Both read and compute in turn, with the same threads and no workers, in the same precision (`float32`, or
`bfloat16` by autocast); `own` is what each does unasked: `--precision auto` beside timm in float32.

Ratios are of images a second, ours over theirs; `wanted` is expected. Before anything is timed, both must name the same
best class of each image; `differing` counts those whose two best are closer than the largest difference of scores, and
`score_difference` is that.
"""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import Parser, clock, counted, interleave, print_table, row, threads
from photos import photos
from PIL import Image, ImageOps
from safetensors.torch import load_file, save_file
from torch import nn

from sightline import export_weights, save_model
from sightline.cli.app import main as sightline
from sightline.distributed import machine
from sightline.models import create_model

_SIDE, _CROP, _CLASSES, _TOPK, _BATCH, _WANTED = 224, 0.9, 1000, 5, 20, 1.1
_TIMM = {"vit_tiny_patch16": "vit_tiny_patch16_224", "vit_small_patch16": "vit_small_patch16_224"}
_COLUMNS = (
    "model", "precision", "baseline", "ratio", "interval", "wanted", "images_s", "baseline_images_s", "differing",
)  # fmt: skip


def _upright(image: Image.Image) -> tuple[Image.Image, dict[str, Any]]:
    return image.transpose(Image.Transpose.ROTATE_90), {}


def _turned(image: Image.Image) -> tuple[Image.Image, dict[str, Any]]:
    exif = Image.Exif()
    exif[0x0112] = 6
    return image, {"exif": exif}


def _of_size(width: int, height: int) -> Callable[[Image.Image], tuple[Image.Image, dict[str, Any]]]:
    return lambda image: (image.resize((width, height), Image.Resampling.BICUBIC), {})


# Ending and how it is made of a photograph.
_ODD: dict[str, tuple[str, Callable[[Image.Image], tuple[Image.Image, dict[str, Any]]]]] = {
    "upright": ("jpg", _upright),
    "turned": ("jpg", _turned),
    "grey": ("jpg", lambda image: (image.convert("L"), {})),
    "cmyk": ("jpg", lambda image: (image.convert("CMYK"), {})),
    "png": ("png", lambda image: (image, {})),
    "small": ("jpg", _of_size(150, 100)),
    "large": ("jpg", _of_size(1920, 1281)),
}


def make_photographs(count: int, root: Path) -> list[Path]:
    """So many files in a folder, in the order in which `predict` lists them; every tenth is odd, each kind in turn."""
    kinds, files = list(_ODD), []
    for number, (content, _) in enumerate(photos(count, 427, 640, 90)):
        if number % 10 != 9:
            files.append(root / f"{number:04d}.jpg")
            files[-1].write_bytes(content)
            continue
        kind = kinds[number // 10 % len(kinds)]
        ending, make = _ODD[kind]
        image, options = make(Image.open(io.BytesIO(content)))
        files.append(root / f"{number:04d}-{kind}.{ending}")
        image.save(files[-1], **options)
    return files


def make_models(name: str, folder: Path) -> tuple[Path, Path]:
    """Our model's folder, and timm's weights of the same."""
    options = {"interpolation": "bicubic_antialias"}
    model = create_model(name, encoding="learned_1d", encoding_options=options, num_classes=_CLASSES, crop=_CROP)
    ours, theirs = folder / name, folder / f"{name}.safetensors"
    save_model(model, ours)
    state, _ = export_weights(model, "timm")
    save_file({key: value.contiguous() for key, value in state.items()}, theirs)
    return ours, theirs


def ours(model: Path, photographs: Path, precision: str) -> list[Any]:
    """What the command says of each image."""
    given = ["predict", str(model), str(photographs), "--resolution", str(_SIDE), "--topk", str(_TOPK), "--json"]
    with contextlib.redirect_stdout(io.StringIO()) as answers, contextlib.redirect_stderr(io.StringIO()) as said:
        code = sightline([*given, "--precision", precision, "--device", "cpu"])
    if code:
        raise RuntimeError(said.getvalue())
    return [json.loads(line)["top"] for line in answers.getvalue().splitlines()]


class Photographs(torch.utils.data.Dataset[torch.Tensor]):
    """Files as timm's transform gives them."""

    def __init__(self, files: list[Path], transform: Callable[[Image.Image], torch.Tensor]) -> None:
        self.files, self.transform = files, transform

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> torch.Tensor:
        with Image.open(self.files[index]) as image:
            # timm's own reader turns nothing; without this, what lies on its side would have other answers.
            return self.transform(ImageOps.exif_transpose(image).convert("RGB"))


def theirs(name: str, weights: Path, files: list[Path], precision: str) -> list[Any]:
    """The same of timm, put together as its documentation does."""
    timm = machine.import_timm()
    model: nn.Module = timm.create_model(_TIMM[name], num_classes=_CLASSES)
    model.load_state_dict(load_file(weights))
    model.eval()
    normal = (0.5, 0.5, 0.5)
    transform = timm.data.create_transform(
        (3, _SIDE, _SIDE), interpolation="bicubic", mean=normal, std=normal, crop_pct=_CROP
    )
    loader = torch.utils.data.DataLoader(Photographs(files, transform), _BATCH)
    mixed = torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16")
    answers: list[Any] = []
    with torch.inference_mode(), mixed:
        for images in loader:
            best = model(images).float().softmax(-1).topk(_TOPK)
            for scores, indices in zip(best.values.tolist(), best.indices.tolist(), strict=True):
                pairs = zip(indices, scores, strict=True)
                answers.append([{"class": str(one), "index": one, "score": score} for one, score in pairs])
    lines = [json.dumps({"image": str(file), "top": one}) for file, one in zip(files, answers, strict=True)]
    return [json.loads(line)["top"] for line in lines]


def agreement(mine: list[Any], their: list[Any]) -> dict[str, Any]:
    """The largest difference of the best score, and how many images have another best class though it cannot explain
    that; raises where there are any."""
    best = [[max(one, key=lambda each: each["score"]) for one in answers] for answers in (mine, their)]
    largest = max(abs(a["score"] - b["score"]) for a, b in zip(*best, strict=True))
    differing = 0
    for one, a, b in zip(their, *best, strict=True):
        if a["index"] == b["index"]:
            continue
        differing += 1
        found = [each["score"] for each in one if each["index"] == a["index"]]
        if not found or b["score"] - found[0] > 2 * largest:
            raise RuntimeError(f"other predictions: {a} here, {b} there")
    return {"differing": differing, "score_difference": float(np.float32(largest))}


def compare(name: str, precision: str, place: Path, files: list[Path], rounds: int) -> dict[str, Any]:
    """The row of a model in a precision, or in what each takes unasked."""
    model, weights = make_models(name, place)
    mine, their = ("auto", "float32") if precision == "own" else (precision, precision)
    works = {
        "sightline": lambda: ours(model, files[0].parent, mine),
        "timm": lambda: theirs(name, weights, files, their),
    }
    # Also the round that warms both.
    same = agreement(works["sightline"](), works["timm"]())
    times = interleave(dict(works), rounds, warm=False, by=clock())
    about = {"model": name, "precision": precision, "images": len(files), "batch": _BATCH, "wanted": _WANTED, **same}
    found = row("predict", "sightline", "timm", times, {}, **about)
    speeds = {
        key: round(len(files) / found[ms] * 1e3, 2)
        for key, ms in (("images_s", "subject_ms"), ("baseline_images_s", "baseline_ms"))
    }
    return found | speeds


def cases(chosen: Any) -> Iterator[tuple[str, str]]:
    for name in chosen.models:
        for precision in chosen.precisions:
            yield name, precision


def main() -> None:
    parser = Parser(__doc__)
    parser.usual("predict", "40 images, the small model and few rounds: about a minute")
    parser.add_argument("--models", nargs="+", choices=[*_TIMM], default=None)
    parser.add_argument("--precisions", nargs="+", choices=["float32", "bfloat16", "own"], default=None)
    parser.add_argument("--rounds", type=threads, help="passes of each; at least 6 give an interval")
    chosen = parser.begin()
    chosen.models = chosen.models or (["vit_tiny_patch16"] if chosen.quick else [*_TIMM])
    native = machine.has_cpu_feature("avx512_bf16")
    chosen.precisions = chosen.precisions or ["float32", *(["bfloat16"] if native else []), "own"]
    rounds = chosen.rounds or (6 if chosen.quick else 7)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        photographs = place / "photographs"
        photographs.mkdir()
        files = make_photographs(40 if chosen.quick else 200, photographs)
        for (name, precision), said in counted(list(cases(chosen))):
            print(f"{said} {name} {precision}", flush=True)
            rows.append(compare(name, precision, place, files, rounds))
            print_table(_COLUMNS, rows[-1:])
    parser.save(rows)
    print(f"rows: {parser.path}")


if __name__ == "__main__":
    main()
