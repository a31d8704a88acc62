"""`sightline encodings`."""

from __future__ import annotations

import json as json_module


def encodings(*, json: bool = False) -> None:
    """List the position encodings: what each is, from which paper, its rule for a new grid, its knob.

    Parameters
    ----------
    json
        Print a JSON object a line instead of a table.
    """
    from sightline.encodings import create_encoding
    from sightline.encodings.discovery import registry
    from sightline.reports.tables import print_table

    rows = []
    for name, cls in sorted(registry().items()):
        knob = create_encoding(name, depth=4, heads=12, dim=192, train_grid=(8, 8)).knob
        kind = cls.__module__.split(".")[-2] if cls.__module__.startswith("sightline.encodings.") else "outside"
        shown = f"{knob.name} = {knob.default:g}" if knob else None
        rows.append((name, kind, cls.source, cls.new_grid, shown))
    columns = ("encoding", "kind", "source", "on a new grid", "knob")
    if json:
        for row in rows:
            print(json_module.dumps(dict(zip(columns, row, strict=True))))
        return
    print_table(columns, rows)
    print('Any two can be joined, as "rope_mixed+learned_1d".')
