"""`sightline models`."""

from __future__ import annotations

import json as json_module

from sightline.runs.options import Json


def models(*, json: Json = False) -> None:
    """List the registered models: width, depth, heads, parameters and training resolution."""
    import torch

    from sightline.cli.next_step import say_next
    from sightline.models import create_model, list_models
    from sightline.reports.tables import print_table

    rows = []
    for name in list_models():
        with torch.device("meta"):
            model = create_model(name, encoding="none")
        one, millions = model.config, sum(parameter.numel() for parameter in model.parameters()) / 1e6
        rows.append((name, one.dim, one.depth, one.heads, one.patch_size, one.image_size, f"{millions:.1f} M"))
    columns = ("model", "dim", "depth", "heads", "patch", "trained at, px", "parameters")
    if json:
        for row in rows:
            print(json_module.dumps(dict(zip(columns, row, strict=True))))
        return
    print_table(columns, rows)
    print("Parameters are counted without a position encoding, with 1,000 classes. Any size of image runs.")
    say_next("bench", "memory", "--model", "vit_tiny_patch16", "--resolution", 224)
