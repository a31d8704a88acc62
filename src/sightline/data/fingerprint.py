"""What tells a data set from another: a run that goes on must see what it saw before."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sightline.errors import InputError

_SHOWN = 3
File = tuple[str, int, str]
Stamp = tuple[int, str]


@dataclass(frozen=True)
class Fingerprint:
    """Of what a run trains on.

    Attributes:
        digest: of classes and files; equal for equal data, and for a copy of it elsewhere.
        files: (path below the folder, size in bytes, digest of a sample of its content) of each image, in order.
        stamps: (time of change in ns, digest of the whole content or "" where it is not known) of each.
    """

    digest: str
    classes: tuple[str, ...]
    files: tuple[File, ...] = ()
    stamps: tuple[Stamp, ...] = ()

    @classmethod
    def of(
        cls, kind: str, classes: Sequence[str], files: Iterable[File] = (), stamps: Iterable[Stamp] = ()
    ) -> Fingerprint:
        """The fingerprint of these classes and files; `kind` is the data set's name, with a version."""
        listed = tuple(files)
        seen = hashlib.sha256(json.dumps([kind, *classes]).encode())
        for name, size, sample in listed:
            seen.update(f"{name}\0{size}\0{sample}\n".encode(errors="surrogateescape"))
        return cls(seen.hexdigest()[:32], tuple(classes), listed, tuple(stamps))

    def pack(self) -> bytes:
        """All of it, compressed."""
        return zlib.compress(json.dumps(vars(self)).encode(), 1)

    @classmethod
    def unpack(cls, content: bytes, where: str) -> Fingerprint:
        """The inverse of `pack`; raises InputError where it is damaged."""
        try:
            said = json.loads(zlib.decompress(content))
            files = tuple((name, int(size), sample) for name, size, sample in said["files"])
            stamps = tuple((int(changed), whole) for changed, whole in said["stamps"])
            return cls(said["digest"], tuple(said["classes"]), files, stamps)
        except (zlib.error, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{where}: cannot be read as the listing of a data set ({error})") from None


def describe_differences(before: Fingerprint, now: Fingerprint) -> list[str]:
    """What differs, in words, the first names of each kind; empty where nothing does."""
    if before.digest == now.digest:
        return []
    there, here = ({name: (size, sample) for name, size, sample in one.files} for one in (before, now))
    kinds = {
        "added": [name for name in here if name not in there],
        "removed": [name for name in there if name not in here],
        "replaced": [name for name in here if name in there and here[name] != there[name]],
    }
    said = _class_differences(before, now) + [counted(kind, names) for kind, names in kinds.items() if names]
    return said or ["another data set"]


def counted(kind: str, names: Sequence[str]) -> str:
    """How many files something is said of, and the first of them."""
    return f"{len(names)} {kind} ({_first(names)})"


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


def _class_differences(before: Fingerprint, now: Fingerprint) -> list[str]:
    """Classes that were renamed, exchanged, added or removed: told by the sizes and samples of their files."""
    there, here = _contents(before), _contents(now)
    named = {content: name for name, content in there.items()}
    was = {name: named.get(content, name) for name, content in here.items()}
    renamed = {name: old for name, old in was.items() if old != name and here.get(old) != here[name]}
    said = [f"class {name} is what {old} was" for name, old in renamed.items()]
    new = [name for name in now.classes if name not in before.classes and name not in renamed]
    gone = [name for name in before.classes if name not in now.classes and not renamed]
    said += [f"{words} {_first(names)}" for words, names in (("new class", new), ("class gone", gone)) if names]
    if not said and before.classes != now.classes:
        said.append("other classes, or in another order")
    return said[: 2 * _SHOWN]


def _contents(one: Fingerprint) -> dict[str, tuple[tuple[int, str], ...]]:
    found: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for name, size, sample in one.files:
        found[f"{name}/".split("/", 2)[1]].append((size, sample))
    return {label: tuple(sorted(files)) for label, files in found.items()}
