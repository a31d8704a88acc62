"""The part of a page on attributes: which runs and sizes stand beside each other."""

from __future__ import annotations

import pytest

from sightline.reports.attributes_part import attributes_parts
from sightline.reports.series import Study
from tests.reports.synthetic import row

RIGHT = "1101-0111"


def rows(run, resolution=32, **changes):
    given = {"run": run, "resolution": resolution, "count": 8, **changes}
    own = [row(metric="linear_probe_mean", value=0.75, **given)]
    for name in ("age", "race"):
        said = {"metric": "linear_probe_top1", "value": 0.75, "slices": {"attribute": name}, "right": RIGHT}
        own.append(row(**{**given, **said}))
    return own


@pytest.mark.parametrize(("other", "shown", "tables"), [
    ({}, ["32 px"], [2]),
    # Each was shown in one way: they stand beside each other.
    ({"resolution": None, "view": "native", "grid": None, "patches": 9.0}, ["32 px and native"], [2]),
    ({"patch_size": 8}, ["32 px and 32 px in patches of 8 px"], [2]),
], ids=["same", "native", "patches"])  # fmt: skip
def test_two_runs_stand_beside_each_other(other, shown, tables):
    study = Study.of([*rows("one"), *rows("two", **other)])
    parts = attributes_parts(study)
    assert ([part.shown for part in parts], [len(part.tables) for part in parts]) == (shown, tables)
    assert [head.title.partition(",")[0] for head in parts[0].tables[0].columns] == ["one", "two", "images"]
    assert not any("attribute" in one.slices for one in study.rows)


def test_sizes_that_not_both_have_are_not_paired():
    study = Study.of([*rows("one"), *rows("one", 64), *rows("two", 64), *rows("two", 48)])
    parts = {part.shown: len(part.tables) for part in attributes_parts(study)}
    # That of the training first.
    assert next(iter(parts.items())) == ("32 px", 1)
    assert parts == {"32 px": 1, "64 px": 2, "48 px": 1}


def test_runs_of_other_images_are_said_to_be_so():
    two = [one if not one.right else row(**{**vars(one), "right": "11-1101110"}) for one in rows("two")]
    (part,) = attributes_parts(Study.of([*rows("one"), *two]))
    assert (len(part.tables), len(part.said)) == (1, 1)
