"""Long lists in a file of JSON, an element at a time."""

from __future__ import annotations

import hashlib
import json
import math

import pytest

from sightline.data.json_lists import read_lists
from sightline.errors import InputError


def read(path, **options):
    found = []
    digest = read_lists(path, "lists", {"a": lambda number, one: found.append((number, one))}, **options)
    return digest, found


@pytest.mark.parametrize("indent", [None, 2])
def test_elements_come_in_order_and_other_keys_are_passed_over(tmp_path, indent):
    path, said = tmp_path / "x.json", {"info": {"a": [1]}, "a": [{"n": 1}, {"n": [2, "ü"]}], "z": [1, {}]}
    path.write_text(json.dumps(said, indent=indent, ensure_ascii=False), encoding="utf-8")
    digest, found = read(path)
    assert found == [(0, {"n": 1}), (1, {"n": [2, "ü"]})]
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()[:32]
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes() + b" \n")
    assert read(path)[1] == found
    path.write_text('{"a": []}')
    assert read(path)[1] == []


def test_numbers_that_are_not_finite_are_left_to_who_takes_them(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{"a": [{"n": NaN}, {"n": 1e999}]}')
    (_, first), (_, second) = read(path)[1]
    assert math.isnan(first["n"])
    assert math.isinf(second["n"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("[]", "not JSON"),
        ('{"a": [{"n": 1}', "not JSON"),
        ('{"a": [{"n": 1} {"n": 2}]}', "not JSON"),
        ('{"a": [{"n": 1},]}', "not JSON"),
        ('{"a": [], }', "not JSON"),
        ('{"a": []} 1', "not JSON"),
        ("{1: []}", "not JSON"),
        ('{"a" []}', "not JSON"),
        ('{"b": ' + "[" * 100_000 + "}", "nested too deep"),
        ('{"a": [{"n": 1' + "0" * 5000 + "}]}", "not JSON"),
        ('{"a": {}}', "a is no list"),
        ('{"a": [{}, 3]}', r"a\[1\] is '3'"),
        ('{"b": []}', "has no 'a'"),
        ('{"a": [], "a": []}', "there twice"),
        ('{"a": [{"n": 1}]}' + " " * 200, "larger than 100 bytes"),
    ],
)
def test_files_that_are_none(tmp_path, text, said):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(InputError, match=said) as caught:
        read(path, most=10**6 if len(text) > 300 else 100)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_no_text_at_all(tmp_path):
    (tmp_path / "x.json").write_bytes(b'{"a": [{"n": "\xff"}]}')
    with pytest.raises(InputError, match="not UTF-8"):
        read(tmp_path / "x.json")
    with pytest.raises(InputError, match="no such file"):
        read(tmp_path / "y.json")
