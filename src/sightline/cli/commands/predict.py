"""`sightline predict`."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def predict(
    model: Annotated[Path, Parameter(help="The folder of a run or of a model.")],
    *images: Annotated[Path, Parameter(help="Image files of any size and shape.")],
    resolution: str = "native",
    max_tokens: int = 1024,
    topk: int = 5,
    device: str = "auto",
    json: bool = False,
) -> int:
    """Say what is in images, of any size and shape.

    A file that cannot be read is named, and the others are still answered; the exit code is then 3.

    Parameters
    ----------
    resolution
        native keeps each image's own aspect ratio and size, or a square side in pixels to resize and crop to.
    max_tokens
        With native, the most patches of an image; larger images are scaled down with their aspect kept.
    topk
        How many classes to name.
    device
        auto, cpu, cuda, cuda:1, mps.
    json
        Print a JSON object a line instead.
    """
    import sys

    import torch

    from sightline import runtime
    from sightline.analysis.memory import refuse_what_cannot_fit
    from sightline.cli.progress import Bars
    from sightline.data.image_file import read_image
    from sightline.data.preprocessing import preprocessing
    from sightline.errors import InputError, NonFiniteError, UnreadableDataError
    from sightline.load import load_model, read_record
    from sightline.reports.series import printable

    if not images:
        raise InputError("predict: expected at least one image")
    if topk < 1 or max_tokens < 1:
        raise InputError("--topk and --max-tokens: expected whole numbers of at least 1")
    if resolution != "native" and not (resolution.isdecimal() and int(resolution) > 0):
        raise InputError(f"--resolution {resolution}: expected native or a side in pixels")
    side = "native" if resolution == "native" else int(resolution)
    where = runtime.resolve_device(device)
    loaded = load_model(model).to(where)
    patch = loaded.config.patch_size
    if isinstance(side, int) and side % patch and loaded.config.fit == "exact":
        below = side // patch * patch
        near = f"{below} or {below + patch}" if below else f"{patch}"
        raise InputError(f"--resolution {side}: must be a multiple of the patch size {patch} (nearest: {near})")
    if isinstance(side, int):
        refuse_what_cannot_fit(loaded.config, side, what=str(model), device=where, loaded=True)
    if loaded.num_classes == 0:
        raise InputError(f"{model}: has no head, so it names no classes")
    names = loaded.config.class_names or tuple(str(index) for index in range(loaded.num_classes))
    # The loss that trained it says what its logits mean.
    sigmoid = read_record(model)["training"].get("config", {}).get("loss") == "bce"
    prepare = preprocessing(loaded)
    answers, unreadable = [], 0
    with Bars() as bars:
        for number, path in enumerate(images, start=1):
            try:
                pixels = read_image(path)
            except UnreadableDataError as error:
                unreadable += 1
                print(f"sightline: error: {' '.join(str(error).split())}", file=sys.stderr)
                continue
            tensor = prepare(pixels, side, max_tokens).to(where)
            with torch.inference_mode():
                logits = loaded([tensor])[0].float()
            if not torch.isfinite(logits).all():
                raise NonFiniteError(f"{path}: the logits are not finite")
            scores = (logits.sigmoid() if sigmoid else logits.softmax(0)).topk(min(topk, len(names)))
            answers.append(
                {
                    "image": str(path),
                    "size": list(pixels.shape[:2]),
                    "seen_size": list(tensor.shape[1:]),
                    "grid": [length // patch for length in tensor.shape[1:]],
                    "top": [
                        {"class": names[index], "score": score}
                        for score, index in zip(scores.values.tolist(), scores.indices.tolist(), strict=True)
                    ],
                }
            )
            bars.move("predicting", number, len(images))
    if json:
        for answer in answers:
            print(json_module.dumps(answer))
    else:
        # Lines rather than a table: paths are long, and a narrow column would cut the answers.
        for answer in answers:
            size, seen, grid = ("x".join(map(str, answer[key])) for key in ("size", "seen_size", "grid"))
            best = ", ".join(f"{one['class']} {one['score']:.2f}" for one in answer["top"])
            print(printable(f"{answer['image']} ({size} px, seen at {seen} as {grid} patches): {best}"))
    if unreadable:
        print(f"sightline: error: {unreadable} of {len(images)} images could not be read", file=sys.stderr)
        return UnreadableDataError.exit_code
    return 0
