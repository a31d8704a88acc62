"""ViT-S and ViT-B at 224 px beside timm's of the same weights, and ViT-B at 1024 px with LookHere beside no encoding.

    python benchmarks/beside_timm.py [--quick] [--rounds 12] [--out OUT] [--threads 1] [--device cpu|cuda]

At 224 px a round is one forward or one training step (autocast of the forward in bfloat16, cross-entropy in float32,
AdamW, fused) of timm's model, then of ours with each encoding, on the same fixed batch. With learned_1d ours holds
timm's weights and must give its logits; with lookhere_90 it holds all but the positions. timm's attention is the fused
one. `ratio` is timm's time over ours, our images a second over theirs. At 1024 px, forward, the baseline is our model
without an encoding; peaks are those of fresh processes, as in model.py. A row is `met` unless its interval lies
below `wanted`, or its peak more than 100 MiB above the baseline's.
"""

from __future__ import annotations

import gc
import itertools
from typing import Any

import torch
import torch.nn.functional as F
from measure import Parser, Work, clock, counted, interleave, print_table, row, threads
from model import compare
from timm_vit import timm_vit
from torch import Tensor, nn

from sightline.convert import import_weights
from sightline.distributed import machine
from sightline.models import Model

_SIDE, _LARGE = 224, 1024
# Images of a batch on a CPU, in a quick run, and on a GPU.
_MODELS = {"vit_small_patch16": (8, 2, 64), "vit_base_patch16": (4, 1, 64)}
_WANTED = {"learned_1d": 0.99, "lookhere_90": 0.97}
_FULL, _HALF = torch.float32, torch.bfloat16
# Faster than without an encoding at all, at so many bytes more.
_WANTED_LARGE, _MORE_MIB = 1.0, 100
_COLUMNS = ("model", "encoding", "pass", "dtype", "baseline", "ratio", "interval", "wanted", "met")


def pair(name: str, side: int = _SIDE) -> dict[str, nn.Module] | None:
    """timm's model with random weights, and ours with each encoding and these weights; None where timm is missing."""
    arguments = {"model": f"{name}_{_SIDE}", "img_size": side}
    torch.manual_seed(0)
    theirs = timm_vit(arguments["model"], side)
    if theirs is None:
        return None
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.02)
    found: dict[str, nn.Module] = {"timm": theirs}
    same = import_weights("timm", theirs.state_dict(), arguments)
    for encoding in _WANTED:
        # One has its positions, and all others have the rest.
        found[encoding] = same if encoding == same.config.encoding else _with_rest(same, encoding)
    return found


def _with_rest(model: Model, encoding: str) -> Model:
    other = type(model)(model.config.replace(encoding=encoding, encoding_options={}, origin=None))
    rest = {name: one for name, one in model.state_dict().items() if not name.startswith("encoding.")}
    other.load_state_dict(rest, strict=False)
    return other.eval()


def working(model: nn.Module, images: Tensor, dtype: torch.dtype, training: bool) -> Work:
    """One forward without gradients, or one training step."""
    device = images.device.type
    if not training:
        model.eval()

        def forward() -> None:
            with torch.inference_mode(), torch.autocast(device, _HALF, enabled=dtype == _HALF):
                model(images)

        return forward
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    labels = torch.arange(len(images), device=images.device)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, _HALF, enabled=dtype == _HALF):
            logits = model(images)
        F.cross_entropy(logits.float(), labels).backward()
        optimizer.step()

    return step


def beside(
    name: str, models: dict[str, nn.Module], dtype: torch.dtype, training: bool, batch: int, rounds: int, device: str
) -> list[dict[str, Any]]:
    """The rows of one model, dtype and pass: ours with each encoding over timm's."""
    images = torch.randn(batch, 3, _SIDE, _SIDE, generator=torch.Generator().manual_seed(0)).to(device)
    works = {way: working(model, images, dtype, training) for way, model in models.items()}
    times = interleave(works, rounds, device, by=clock())
    made = []
    for encoding, wanted in _WANTED.items():
        both = {"sightline": times[encoding], "timm": times["timm"]}
        about = {"model": name, "encoding": encoding, "pass": "training step" if training else "forward"}
        one = row(
            "beside_timm", "sightline", "timm", both, {}, device, **about, dtype=_said(dtype), resolution=_SIDE,
            batch=batch, clock=clock().__name__, wanted=wanted,
        )  # fmt: skip
        made.append(one | {"met": one["interval"][1] >= wanted})
    return made


def large(dtype: torch.dtype, rounds: int, device: str) -> list[dict[str, Any]]:
    """The row of ViT-B at 1024 px; in bfloat16 nothing is wanted of it."""
    (one,) = compare("lookhere_90", _LARGE, dtype, False, rounds, device, True, ("sdpa_no_bias",))
    more = None if one["subject_mib"] is None else round(one["subject_mib"] - one["baseline_mib"], 1)
    met = one["interval"][1] > _WANTED_LARGE and (more is None or more <= _MORE_MIB)
    wanted = {"wanted": _WANTED_LARGE, "met": met} if dtype == _FULL else {"wanted": None, "met": None}
    return [one | {"benchmark": "beside_timm", "more_mib": more} | wanted]


def _said(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _check(models: dict[str, nn.Module], device: str) -> None:
    """Ours of timm's own positions must compute what timm's computes."""
    images = torch.randn(2, 3, _SIDE, _SIDE, generator=torch.Generator().manual_seed(1)).to(device)
    with torch.inference_mode():
        theirs, ours = (models[way].eval()(images) for way in ("timm", "learned_1d"))
    far = float((ours - theirs).abs().max() / theirs.abs().max())
    assert far < 1e-3, f"logits differ from timm's by {far:.1e}"


def main() -> None:
    parser = Parser(__doc__)
    parser.usual("beside_timm", "a quarter of the batch, six rounds, two at 1024 px: about three minutes")
    parser.add_argument("--rounds", type=threads, help="timed ones; 12, or 6 if --quick; at least 6 give 95 %%")
    chosen = parser.begin()
    on_cpu, rounds = chosen.device == "cpu", chosen.rounds or (6 if chosen.quick else 12)
    # Without bfloat16 instructions it takes ten times as long as float32 with either model.
    halves = not on_cpu or machine.has_cpu_feature("avx512_bf16")
    dtypes = (_FULL, _HALF) if halves else (_FULL,)
    models: dict[str, nn.Module] | None = None
    rows: list[dict[str, Any]] = []
    for (name, dtype, training), said in counted(list(itertools.product(_MODELS, dtypes, (False, True)))):
        if dtype == _FULL and not training:
            models = None
            gc.collect()
            models = pair(name)
            if models is None:
                print("timm: not measured (pip install timm)")
                break
            models = {way: model.to(chosen.device) for way, model in models.items()}
            _check(models, chosen.device)
        assert models is not None
        batch = _MODELS[name][2 if not on_cpu else chosen.quick]
        print(
            f"{said} {name}, {_said(dtype)}, {'training step' if training else 'forward'}: {batch} images", flush=True
        )
        rows += beside(name, models, dtype, training, batch, rounds, chosen.device)
        print_table(_COLUMNS, rows[-len(_WANTED) :])
    models = None
    gc.collect()
    for dtype in dtypes:
        print(f"vit_base_patch16, {_LARGE} px, {_said(dtype)}, forward", flush=True)
        rows += large(dtype, 2 if chosen.quick else max(6, rounds // 2), chosen.device)
        shown = rows[-1] | {
            "wanted": rows[-1]["wanted"] or "-",
            "met": "-" if rows[-1]["met"] is None else rows[-1]["met"],
        }
        print_table((*_COLUMNS, "more_mib", "subject_mib", "baseline_mib"), [shown])
    parser.save(rows)
    print(f"rows: {parser.path}")


if __name__ == "__main__":
    main()
