"""`sightline encodings`."""

from __future__ import annotations

import json as json_module

from sightline.runs.options import Json


def encodings(name: str | None = None, /, *, json: Json = False) -> None:
    """List the position encodings, or show one with its paper and its rule for a new grid.

    The parameter is the number that `evaluate --tune` searches at each size (docs/reference/glossary.md).

    Args:
        name: Show only this encoding, in full.
    """
    from sightline.encodings import create_encoding
    from sightline.encodings.base import AddedEncoding, PatternEncoding, RotaryEncoding
    from sightline.encodings.discovery import first_line, registry, unknown_encoding_error
    from sightline.hub.model_card import describe_encoding
    from sightline.reports.tables import print_table

    known = registry()
    if name is not None and name not in known:
        raise unknown_encoding_error(name)
    bases = {AddedEncoding: "added", RotaryEncoding: "rotation", PatternEncoding: "pattern"}
    rows = []
    for each, cls in sorted(known.items()) if name is None else [(name, known[name])]:
        knob = create_encoding(each, depth=4, heads=12, dim=192, train_grid=8).knob
        kind = cls.__module__.split(".")[-2]
        if not cls.__module__.startswith("sightline.encodings."):
            kind = f"{next((said for base, said in bases.items() if issubclass(cls, base)), 'other')}, a plug-in"
        shown = f"{knob.name} = {knob.default:g}" if knob else None
        rows.append((each, kind, cls.source, cls.extrapolation, shown))
    columns = ("encoding", "kind", "source", "on a new grid", "knob")
    if json:
        for row in rows:
            print(json_module.dumps(dict(zip(columns, row, strict=True))))
        return
    if name is not None:
        said = ("what it does", describe_encoding(name) or first_line(name))
        print_table(("", name), [said, *list(zip((*columns[:-1], "parameter"), rows[0], strict=True))[1:]])
        return
    print_table(("encoding", "kind", "parameter"), [(row[0], row[1], row[4]) for row in rows])
    print("One with its paper and its rule for a new grid: sightline encodings NAME")
    print('Any two can be joined, as "rope_mixed+learned_1d".')
