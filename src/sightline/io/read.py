"""What is read from outside, in one place: regular files alone, with a bound on their size before anything is read.

A pipe or a device would wait for ever or never end, and a number beyond floating point becomes infinity without a word.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

from sightline.errors import InputError, did_you_mean

CONFIGURATION = 1 << 20
"""Bytes that a configuration written by hand may have."""
RECORD = 16 << 20
"""Bytes that a file of JSON about a model may have: names of half a million classes."""
ROWS = 1 << 29
"""Bytes that a file of rows or a log may have: some millions of lines."""

# By the letter with which `ls -l` shows them.
_KINDS = {"d": "a folder", "p": "a pipe", "s": "a socket", "c": "a device", "b": "a device"}


def check_file(path: str | Path, expected: str = "a file") -> int:
    """The size in bytes of a regular file, links followed; nothing is opened.

    Args:
        expected: what the file should be, for the message.

    Raises:
        InputError: it is missing (names the nearest one), cannot be reached, or is no regular file.
    """
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{path}: no such file{similar_file_hint(path)}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise InputError(f"{path}: is no path ({error})") from None
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.filemode(status.st_mode)[0], "no regular file")
        raise InputError(f"{path}: is {kind}, expected {expected}")
    return status.st_size


def read_bytes(path: str | Path, most: int, expected: str) -> bytes:
    """The content of a regular file of at most `most` bytes; see `check_file`.

    Raises:
        InputError: as `check_file`; or it is larger, or cannot be read.
    """
    size = check_file(path, expected)
    try:
        # What was a file a moment ago may be a pipe now: opened so, it does not wait.
        with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as stream:
            content = stream.read(most + 1) if size <= most else b""
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    if max(size, len(content)) > most:
        raise InputError(f"{path}: is larger than {most} bytes, expected {expected}")
    return content


def read_text(path: str | Path, most: int, expected: str) -> str:
    """As `read_bytes`, as text in UTF-8, with or without a byte order mark.

    Raises:
        InputError: as `read_bytes`; or it is no such text.
    """
    content = read_bytes(path, most, expected)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not UTF-8 text, expected {expected}") from None


def read_json(path: str | Path, expected: str, *, most: int = RECORD) -> Any:
    """The value in a file of JSON; see `parse_json`.

    Raises:
        InputError: as `read_text`; or it is not JSON.
    """
    text = read_text(path, most, expected)
    try:
        return parse_json(text)
    except ValueError as error:
        raise InputError(f"{path}: is not JSON ({error}), expected {expected}") from None


def read_jsonl(path: str | Path, expected: str) -> list[tuple[int, Any]]:
    """(number, value) of each line of a file of JSON lines, counted from 1; empty lines are passed over.

    Raises:
        InputError: as `read_text`; or a line is not JSON; names its number.
    """
    values = []
    # Not `splitlines`, which knows line ends that JSON writes as they are.
    for number, line in enumerate(read_text(path, ROWS, expected).split("\n"), start=1):
        if line.strip():
            try:
                values.append((number, parse_json(line)))
            except ValueError as error:
                raise InputError(f"{path}:{number}: not JSON ({error}), expected {expected}") from None
    return values


def parse_json(text: str | bytes) -> Any:
    """As `json.loads`, but numbers are finite.

    Raises:
        ValueError: it is not JSON, a number is NaN, infinite or too large for a floating point number, or it is nested
            too deep.
    """
    try:
        return json.loads(text, parse_float=_finite, parse_int=_whole, parse_constant=_refuse_number)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _finite(digits: str) -> float:
    value = float(digits)
    return value if math.isfinite(value) else _refuse_number(digits)


def _whole(digits: str) -> int:
    _finite(digits)
    return int(digits)


def _refuse_number(digits: str) -> NoReturn:
    raise ValueError(f"{digits[:40]} is no finite number")


def similar_file_hint(path: str | Path, *, folder: bool = False) -> str:
    """The end of a message that names what was probably meant, as `errors.nearest`, of the files, or of the folders,
    beside `path`."""
    place = Path(path)
    try:
        names = [entry.name for entry in os.scandir(place.parent) if entry.is_dir() or not folder]
    except OSError as error:
        return f" (nor the folder {place.parent})" if error.errno == errno.ENOENT else ""
    return did_you_mean(place.name, names)


def format_bytes(count: int) -> str:
    """Bytes as people read them: "512 B", "21 GiB", "1.2 TiB"; any size."""
    # Decimal, because a float ends at 10**308.
    value, units = Decimal(count), ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]
    while value >= 1000 and len(units) > 1:
        value /= 1024
        units.pop(0)
    digits = ".2g" if value >= 10000 else ".0f" if value >= 10 or value == count else ".1f"
    return f"{value:{digits}} {units[0]}"
