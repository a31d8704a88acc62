"""Large files of JSON whose top level holds long lists: each element is handed on as it is read, and not kept.

As one value, the annotations of COCO's training images (450 MB of text, 1.1 GB of LVIS's) would take ten times that in
memory. So the text is there once, and of its elements one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sightline.errors import InputError
from sightline.reading import read_bytes

ANNOTATIONS = 1 << 31
"""Bytes that a file of annotations may have: twice LVIS's largest."""

_SPACE = re.compile(r"[ \t\n\r]*")
Element = Callable[[int, dict[str, Any]], None]
"""What is called with the number of an element, from 0, and the element."""


def read_lists(path: str | Path, expected: str, lists: Mapping[str, Element], *, most: int = ANNOTATIONS) -> str:
    """Hand on the elements of some lists at the top of a file of JSON, in the order in which they stand there.

    Numbers that are not finite are handed on as such: who takes an element can say whose they are.

    Args:
        expected: what the file should be, for messages.
        lists: key -> what takes its elements, which are objects; all must be there, others are passed over.
        most: bytes that the file may have.

    Returns:
        Half of the SHA-256 of the file, in hexadecimal.

    Raises:
        InputError: as `reading.read_bytes`; or it is not JSON in UTF-8, a key is missing or there twice, its value is
            no list, or an element no object.
    """
    content = read_bytes(path, most, expected)
    digest = hashlib.sha256(content).hexdigest()[:32]
    try:
        text = content.decode("utf-8-sig")
        del content
        found = _Reader(str(path), text).keys(lists)
    except InputError:
        raise
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not UTF-8 text, expected {expected}") from None
    except (ValueError, RecursionError) as error:
        said = "it is nested too deep" if isinstance(error, RecursionError) else error
        raise InputError(f"{path}: is not JSON ({said}), expected {expected}") from None
    if missing := [key for key in lists if key not in found]:
        raise InputError(f"{path}: has no {missing[0]!r} (expected: {expected}, with {', '.join(lists)})")
    return digest


class _Reader:
    """A place in a text of JSON."""

    def __init__(self, where: str, text: str) -> None:
        self.where, self.text, self.at = where, text, 0
        self.value_at = json.JSONDecoder().raw_decode

    def keys(self, lists: Mapping[str, Element]) -> set[str]:
        """Read the object that the text is; returns its keys."""
        found: set[str] = set()
        self.take("{")
        while not self.comes("}"):
            if found:
                self.take(",")
            self.skip()
            key = self.value()
            if not isinstance(key, str):
                self.refuse("a key in quotes")
            if key in found:
                raise InputError(f"{self.where}: the key {key!r} is there twice")
            found.add(key)
            self.take(":")
            if key in lists:
                self.elements(key, lists[key])
            else:
                self.value()
        self.take("}")
        if self.skip() < len(self.text):
            self.refuse("its end")
        return found

    def elements(self, key: str, take: Element) -> None:
        if not self.comes("["):
            raise InputError(f"{self.where}: {key} is no list (expected: a list of objects)")
        self.take("[")
        number = 0
        while not self.comes("]"):
            if number:
                self.take(",")
            one = self.value()
            if not isinstance(one, dict):
                raise InputError(f"{self.where}: {key}[{number}] is {str(one)[:40]!r} (expected: an object)")
            take(number, one)
            number += 1
        self.take("]")

    def value(self) -> Any:
        value, self.at = self.value_at(self.text, self.skip())
        return value

    def skip(self) -> int:
        """Pass over white space; returns where it ends."""
        match = _SPACE.match(self.text, self.at)
        assert match is not None
        self.at = match.end()
        return self.at

    def comes(self, letter: str) -> bool:
        return self.text.startswith(letter, self.skip())

    def take(self, letter: str) -> None:
        if not self.comes(letter):
            self.refuse(repr(letter))
        self.at += 1

    def refuse(self, expected: str) -> None:
        """Raise ValueError for what stands here."""
        raise json.JSONDecodeError(f"Expecting {expected}", self.text, self.at)
