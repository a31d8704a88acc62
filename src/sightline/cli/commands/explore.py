"""`sightline explore`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from sightline.runs.options import Device, Specs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sightline.models import Model

_MOST_MIB = 1 << 20
# Of what is left out of a folder.
_SAID = 5
_TIMM = "timm:"


def explore(
    *models: Annotated[str, Parameter(help="One or two: folders of runs or models, hf-hub:OWNER/NAME, timm:NAME.")],
    images: Path | None = None,
    labels: Specs = (),
    port: int | None = None,
    no_browser: bool = False,
    device: Device = "auto",
    max_mib: int = 512,
    no_pretrained: bool = False,
) -> None:
    """Open a local page that shows where each head of one or two models looks, at any size, from any patch.

    The page is served only to this machine, and loads nothing from elsewhere. Images dropped on it stay in memory.
    Ctrl-C ends it.

    Args:
        images: A folder of images to choose from. Default: some drawn scenes.
        labels: For models that read texts: labels to choose from, for example "a dog,a cat".
        port: Port of the page. Default: 8765, or a free one if that is taken.
        no_browser: Print the page's address without opening it.
        max_mib: Memory in MiB for cached views (queries, keys and tokens of all layers); the oldest are dropped.
        no_pretrained: For timm:NAME: random weights instead of timm's published ones.
    """
    _refuse_options(models, port, max_mib, no_pretrained=no_pretrained)

    from sightline.distributed import machine, signals
    from sightline.explorer.app import Explorer
    from sightline.explorer.images import ImageStore
    from sightline.explorer.models import ExplorerModel
    from sightline.explorer.serve import listen, open_browser, serve, url_of
    from sightline.runs.console import warn

    where = machine.resolve_device(device)
    # Before a model is read, which takes longer.
    pictures, listening = ImageStore(images), listen(port)
    with listening:
        more = len(pictures.left_out) - _SAID
        for line in (*pictures.left_out[:_SAID], *([f"{more} more"] if more > 0 else [])):
            warn(f"left out: {line}")
        most_bytes = max_mib << 20
        loaded = [_loaded(model, labels, pretrained=not no_pretrained).to(where) for model in models]
        named = zip(loaded, _names(models), strict=True)
        explorer = Explorer([ExplorerModel(model, name, most_bytes) for model, name in named], pictures, most_bytes)
        url = url_of(listening)

        def began() -> None:
            print(f"Sightline explorer: {url} (Ctrl-C ends it)", flush=True)
            if not no_browser:
                open_browser(url)

        with signals.defer_interrupts() as told:
            serve(explorer, listening, began=began, ends=told.is_set)


def _refuse_options(models: tuple[str, ...], port: int | None, max_mib: int, *, no_pretrained: bool) -> None:
    from sightline.errors import InputError
    from sightline.io.config import check_value, whole

    missing = [name for name in ("starlette", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(f"explore: needs {' and '.join(missing)}; install: pip install '.[explore]'")
    if not 1 <= len(models) <= 2:
        raise InputError(f"explore: {len(models)} models are given (expected one or two)")
    check_value("--port", port or 0, whole(0, 65535))
    if no_pretrained and not any(model.startswith(_TIMM) for model in models):
        raise InputError(f"--no-pretrained: goes with timm:NAME alone (got {', '.join(models)})")
    check_value("--max-mib", max_mib, whole(1, _MOST_MIB))


def _loaded(model: str, labels: Sequence[str], *, pretrained: bool) -> Model:
    """The model, or what labels make of it; of timm's also without its published weights, and then the same each
    time."""
    from sightline.hub.load import load_model
    from sightline.models.zero_shot import split_labels, zero_shot_model
    from sightline.runs.options import OpenOptions
    from sightline.runs.run import timm_model

    if model.startswith(_TIMM) and not pretrained:
        return timm_model(model.removeprefix(_TIMM), OpenOptions(no_pretrained=True))
    loaded, words = load_model(model), split_labels(labels)
    return zero_shot_model(loaded, words, ("{}",)) if words else loaded


def _names(models: tuple[str, ...]) -> list[str]:
    """What the page calls them: the last part of each, where that tells them apart."""
    short = [Path(model.rstrip("/")).name or model for model in models]
    if len(set(short)) == len(short):
        return short
    return list(models) if len(set(models)) == len(models) else [f"{short[0]} ({number})" for number in (1, 2)]
