"""YAML: plain values as version 1.2 has them, and every way to hide something refused with its line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.errors import InputError
from sightline.io.yaml import dump_yaml, parse_yaml, read_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("1E5", 1e5),
        ("-.5", -0.5),
        (".5e3", 500.0),
        ("1.e3", 1000.0),
        ("-.INF", float("-inf")),
        ("1.", 1.0),
        ("+3", 3),
        ("010", 10),
        ("0x10", 16),
        ("0o10", 8),
        # Python writes no number of so many digits.
        ("0x" + 5000 * "f", "0x" + 5000 * "f"),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("no", "no"),
        ("on", "on"),
        ("True", True),
        ("false", False),
        ("~", None),
        ("", None),
        ("2020-01-01", "2020-01-01"),
        ("1.2.3", "1.2.3"),
        ("[1, a, null]", [1, "a", None]),
        ("{a: 1e-3}", {"a": 1e-3}),
        ("'1'", "1"),
        ("ä", "ä"),
    ],
)
def test_plain_values(text, value):
    parsed = parse_yaml(text, "here")
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", [":3:", "key 'a' stands twice"]),
        ("a:\n  b: 1\n  b: 2\n", [":3:", "key 'b' stands twice"]),
        ("a: &x 1\nb: *x\n", [":2:", "aliases are not allowed"]),
        ("a: &x [*x]\n", ["aliases are not allowed"]),
        ("a: !!python/object/apply:os.system [ls]\n", ["not valid YAML"]),
        ("? [1, 2]\n: 3\n", ["a key must be one word"]),
        ("a: [1\n", ["not valid YAML"]),
        ("a: b: c\n", ["not valid YAML"]),
        ("a: 1\n---\nb: 2\n", ["not valid YAML"]),
        ("\ta: 1\n", ["not valid YAML"]),
        ("- 1\n", ["holds a list"]),
        ("word\n", ["holds a str"]),
        ("", ["is empty"]),
        ("# only a comment\n", ["is empty"]),
        ("a: " + "9" * 5000, ["not valid YAML"]),
        ("a: " + "[" * 1200, ["not valid YAML"]),
        ("a: " + "b" * (1 << 20), ["is larger than"]),
    ],
)
def test_what_is_refused(text, words, tmp_path):
    file = tmp_path / "train.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as error:
        read_yaml(file)
    message = str(error.value)
    assert message.startswith(str(file))
    assert "\n" not in message
    assert len(message) < 400
    for word in words:
        assert word in message, message


WORDS = st.text() | st.sampled_from(["no", "1e-3", "010", "2020-01-01", "1_000", "~", "", "null", "&a", "- x", "a: b"])
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.none() | st.booleans() | NUMBERS | WORDS | st.lists(NUMBERS | WORDS) | st.dictionaries(WORDS, NUMBERS)


@given(st.dictionaries(WORDS, VALUES))
def test_what_is_written_is_read_back_equal(values):
    assert parse_yaml(dump_yaml(values), "here") == values


def test_a_good_file_with_a_mark_at_its_start(tmp_path):
    (tmp_path / "a.yaml").write_bytes("\ufeffa: 1e-3\nb: {c: [x]}\n".encode())
    assert read_yaml(tmp_path / "a.yaml") == {"a": 1e-3, "b": {"c": ["x"]}}
