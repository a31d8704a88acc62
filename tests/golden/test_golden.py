"""Numbers are what they were: every golden record again, within what a processor may change."""

from __future__ import annotations

import json

import pytest

from tests.golden import data_cases, records, result_cases

GROUPS = {**data_cases.GROUPS, **result_cases.GROUPS}
EXACT = {"scenes", "batches", "plans", "recipes", "metrics", "stored_logits"}


@pytest.mark.parametrize("group", GROUPS)
def test_records(group: str) -> None:
    recorded = records.read(group)
    found = json.loads(json.dumps(records.plain(GROUPS[group]())))
    assert recorded
    assert recorded.keys() == found.keys()
    tolerance = records.EXACT_TOLERANCE if group in EXACT else records.PASS_TOLERANCE
    assert list(records.differences(recorded, found, tolerance)) == []


@pytest.mark.parametrize("group", GROUPS)
def test_a_changed_record_is_found(group: str) -> None:
    recorded = records.read(group)
    changed, count = _changed(recorded)
    assert count
    tolerance = records.EXACT_TOLERANCE if group in EXACT else records.PASS_TOLERANCE
    assert len(list(records.differences(recorded, changed, tolerance))) == count


def _changed(value: object) -> tuple[object, int]:
    """Every float off by a ten-thousandth and every text by a letter, and how many."""
    if isinstance(value, dict):
        if "sums" in value:
            return {**value, "norm": value["norm"] * 1.001 + 1e-3}, 1
        every = {key: _changed(one) for key, one in value.items()}
        return {key: one for key, (one, _) in every.items()}, sum(count for _, count in every.values())
    if isinstance(value, list):
        every = [_changed(one) for one in value]
        return [one for one, _ in every], sum(count for _, count in every)
    if isinstance(value, float) and value == value:
        return value + 1e-3 * max(1.0, abs(value)), 1
    return (value + "x", 1) if isinstance(value, str) else (value, 0)
