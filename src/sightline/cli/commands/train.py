"""`sightline train`."""

from __future__ import annotations

import dataclasses
import json as json_module
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def train(
    *,
    data: str | None = None,
    encoding: str | None = None,
    model: str | None = None,
    resolution: int | None = None,
    images: int | None = None,
    epochs: float | None = None,
    seed: int | None = None,
    config: Path | None = None,
    settings: Annotated[tuple[str, ...], Parameter(name="--set")] = (),
    out: Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "auto",
    threads: int | None = None,
    json: bool = False,
) -> None:
    """Train a model at one resolution, and test it there.

    Leaves checkpoint/, config.yaml, log.jsonl and results.jsonl in the folder of the run.

    Parameters
    ----------
    data
        scenes, scenes:pairs, digits, or imagefolder:DIR. Each has a recipe; what follows changes it.
    encoding
        A position encoding (see `sightline encodings`), or two joined by +.
    model
        A registered model (see `sightline models`).
    resolution
        Side of the training images in pixels.
    images
        Training images to show in all.
    epochs
        The same in passes over the data.
    seed
        Decides the first weights, the order of the images and their augmentation.
    config
        A YAML file of settings.
    settings
        One more setting, as optimizer.lr=1e-3; may be given many times.
    out
        Folder of the run; runs/DATA_ENCODING unless given.
    resume
        Continue the run in --out from its last checkpoint.
    overwrite
        Delete the run in --out first.
    device
        auto, cpu, cuda, cuda:1, mps.
    threads
        Processor threads; all cores unless given.
    json
        Print the result rows as JSON lines instead of a table.
    """
    import sys

    from sightline import runtime
    from sightline.cli.output import claim_folder, write_text
    from sightline.cli.progress import Bars
    from sightline.cli.run_config import training_config
    from sightline.cli.yaml_text import dump_yaml
    from sightline.evaluation import EvaluateConfig, evaluate
    from sightline.evaluation.accuracy import RunIdentity, planned_images
    from sightline.load import load_model
    from sightline.reports.tables import print_accuracy
    from sightline.results import dump_rows
    from sightline.training.loop import Progress, build_model, open_training_data, resolve
    from sightline.training.loop import train as run

    flags = {
        "data": data, "encoding": encoding, "model": model, "resolution": resolution, "images": images,
        "epochs": epochs, "seed": seed,
    }  # fmt: skip
    asked = training_config(config, flags, settings)
    runtime.set_threads(threads)
    where = runtime.resolve_device(device)
    with Bars() as bars:
        source = open_training_data(
            asked,
            lambda done, total: bars.move("reading images", done, total),
            lambda image: print(f"left out: {image.path}: {image.reason}", file=sys.stderr),
        )
        resolved = resolve(asked, source, where)
        build_model(resolved, source)
        folder = out or Path("runs") / f"{resolved.data.replace(':', '_').replace('/', '_')}_{resolved.encoding}"
        claim_folder(folder, resume=resume, overwrite=overwrite)
        if not (folder / "config.yaml").exists():
            write_text(folder / "config.yaml", dump_yaml(dataclasses.asdict(resolved)))

        def warn(line: str) -> None:
            print(f"sightline: warning: {line}", file=sys.stderr)

        def observe(at: Progress) -> None:
            bars.move(f"training {resolved.encoding}", at.images, at.total, f"loss {at.loss:.3f}")

        run(asked, folder, source=source, device=device, resume=resume, observe=observe, warn=warn)
        trained = load_model(folder).to(where)
        split = next((name for name in ("test", "minival") if name in source.splits), None)
        if split is None:
            print(f"trained; {folder}/checkpoint (the data has no split to test on)")
            return
        assert resolved.resolution is not None
        measured = EvaluateConfig((resolved.resolution,), (split,), images=2000)
        total, done = planned_images(source, trained, measured, resolved.resolution), 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            bars.move("testing", done, total)

        identity = RunIdentity(folder.name, resolved.data, resolved.resolution, resolved.seed)
        rows = evaluate(trained, source, measured, identity, advance=advance)
    write_text(folder / "results.jsonl", dump_rows(rows))
    if json:
        for line in dump_rows(rows).splitlines():
            print(json_module.dumps(json_module.loads(line)))
        return
    print_accuracy(rows)
    print(f"checkpoint: {folder / 'checkpoint'}")
    print(f"next: sightline evaluate {folder} --resolutions 20,32,64")
