"""Sources by name: every file in `sources/` is one, and so may a plug-in be."""

from __future__ import annotations

import contextlib
import math
import re
from pathlib import Path

from sightline import registry
from sightline.data.skip_policy import Progress
from sightline.data.source import Source
from sightline.data.stored import FileSource
from sightline.errors import InputError, near, require_known

_SOURCES = "sightline.data.sources"
# Among options, which end with a comma or with all.
_HELD_OUT = re.compile(r",(minival|test)=([^,/]*)(?=,|$)")
# What is in a folder, all of it -> the data set; the first that fits is meant.
_LAYOUTS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("train800*.txt", "test.txt"), "vtab"), (("*/train800*.txt", "*/test.txt"), "vtab"),
    (("*.tar",), "wds"), (("dataset_dict.json",), "hf"), (("state.json",), "hf"), (("*.parquet",), "hf"),
    (("data/*.parquet",), "hf"), (("annotations/instances_*.json",), "coco"),
    (("annotations/captions_*.json",), "coco-captions"), (("lvis_v1_*.json",), "lvis"),
    (("list_attr_celeba.txt",), "csv"), (("fairface_label_*.csv",), "csv"),
    (("images/*", "annotations/training"), "ade20k"), (("images/*", "annotations/validation"), "ade20k"),
    (("leftImg8bit/*", "gtFine/*"), "cityscapes"), (("JPEGImages/*", "SegmentationClass/*"), "voc"),
    (("images/*", "masks/*"), "masks"), (("*/*",), "imagefolder"),
)  # fmt: skip


def list_sources() -> tuple[str, ...]:
    """The names of all data sets, sorted."""
    return tuple(sorted(registry.classes(Source, _SOURCES)))


def source_class(name: str) -> type[Source]:
    """The class of a data set; raises InputError where none has this name."""
    found = registry.classes(Source, _SOURCES)
    require_known("data set", name, found)
    return found[name]


def parse_spec(spec: str) -> tuple[str, str, dict[str, str]]:
    """The name of a data set, what follows its colon, and the shares that `,test=SHARE` and `,minival=SHARE` in that
    ask for, by split."""
    name, _, argument = spec.partition(":")
    return name, _HELD_OUT.sub("", argument), dict(_HELD_OUT.findall(argument))


def parse_share(spec: str, split: str, share: str) -> float:
    """The share of a split that a data set's spec asks for; raises InputError where it is none between 0 and 1."""
    try:
        part = float(share)
    except ValueError:
        part = math.nan
    if not 0 < part < 1:
        example = f"{split}={0.2 if split == 'test' else 0.01}"
        raise InputError(f"data {spec}: {split}={share} (expected a share between 0 and 1, as {example})")
    return part


def open_source(spec: str, progress: Progress | None = None) -> Source:
    """A data set from `name` or `name:argument`: "scenes", "scenes:pairs", "digits", "imagefolder:DIR"; with
    `,test=0.2` or `,minival=0.01` behind it, that share of `train` is held out (`FileSource.hold_out`), the test
    first. Raises InputError where the name or the argument is not known, or nothing can be held out; `progress` is as
    `Source.open`."""
    name, argument, shares = parse_spec(spec)
    if name not in list_sources() and (kind := _kind_of(spec)):
        raise InputError(f"data {spec}: a path alone; did you mean {kind}:{spec}?")
    if name not in list_sources() and ":" not in spec:
        _refuse_no_folder(_HELD_OUT.sub("", spec))
    source = source_class(name).open(argument, progress)
    for split, share in sorted(shares.items(), reverse=True):
        part = parse_share(spec, split, share)
        if not isinstance(source, FileSource):
            said = f"has a split {split} of its own" if split in source.splits else "has no files to hold out"
            raise InputError(f"data {name}: {said} (expected no {split}={share})")
        source = source.hold_out(part, split)
    return source


def recognise_layout(spec: str) -> str:
    """A data set as `open_source` takes it: before a path alone stands what its layout is of, as `coco:DIR`."""
    kind = None if parse_spec(spec)[0] in list_sources() else _kind_of(spec)
    return f"{kind}:{spec}" if kind else spec


def _refuse_no_folder(spec: str) -> None:
    """Say so of a path that does not exist: of what is written as one, or is nearer to a folder than to a data set."""
    path, beside, known = Path(spec), list[str](), list_sources()
    with contextlib.suppress(OSError):
        beside = [one.name for one in path.parent.iterdir() if one.is_dir() and one.name[0] != "."]
    written = path.is_absolute() or len(path.parts) > 1 or spec[:1] in (".", "~")
    found = near(path.name, beside if written else [*known, *(one for one in beside if one not in known)])
    found = [one for one in found if one in beside]
    if written or found:
        hint = f"; did you mean {' or '.join(str(path.parent / one) for one in found)}?" if found else ""
        raise InputError(f"data {spec}: no such folder{hint}")


def _kind_of(spec: str) -> str | None:
    """The data set that a path looks like; None for what is no path."""
    path = Path(_HELD_OUT.sub("", spec))
    if not spec or not path.exists():
        return None
    found = (kind for patterns, kind in _LAYOUTS if all(any(path.glob(one)) for one in patterns))
    known = {".tar": "wds", ".csv": "csv", ".tsv": "csv"}.get(path.suffix) if path.is_file() else None
    known = "csv" if path.name == "list_attr_celeba.txt" else known
    return known or next(found, "images")
