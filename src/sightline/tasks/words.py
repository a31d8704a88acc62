"""Names of classes, and the templates in which they are said."""

from __future__ import annotations

from sightline.data.source import Source
from sightline.errors import InputError
from sightline.io.read import RECORD, read_text
from sightline.models.zero_shot import TEMPLATES

IMAGENET = "open_clip:imagenet"


def names_and_templates(
    source: Source, names: str | None = None, templates: str | None = None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of classes, and templates.

    Args:
        source: the data; underscores in its `classes` are read as spaces.
        names: a text file with a name a line, in the order of `classes`, or `open_clip:imagenet` for those of the
            installed open_clip package; None takes the `class_words` of the data, or its `classes`.
        templates: likewise, with `{}` where a name stands; None takes those of the data, or `a photo of a {}.`.

    Raises:
        InputError: a file cannot be read, the package is not installed, or there are not as many names as classes.
    """
    known = source.class_words or tuple(one.replace("_", " ") for one in source.classes)
    found = known if names is None else _lines(names, "names")
    if len(found) != len(source.classes):
        raise InputError(f"names {names}: has {len(found)} names, the data {len(source.classes)} classes")
    return found, (source.templates or TEMPLATES) if templates is None else _lines(templates, "templates")


def _lines(source: str, what: str) -> tuple[str, ...]:
    if source == IMAGENET:
        try:
            import open_clip  # type: ignore[import-not-found]
        except ImportError:
            raise InputError(f"{what} {source}: the package open_clip_torch is not installed") from None
        if what == "names":
            return tuple(open_clip.IMAGENET_CLASSNAMES)
        return tuple(template("{}") for template in open_clip.OPENAI_IMAGENET_TEMPLATES)
    lines = [line.strip() for line in read_text(source, RECORD, f"a text file of {what}, one a line").splitlines()]
    if not (found := tuple(line for line in lines if line)):
        raise InputError(f"{source}: holds no {what} (expected one a line)")
    return found
