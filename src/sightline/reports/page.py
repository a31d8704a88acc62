"""How every page is made: one look, one head, and a file that needs nothing else: no network, no script."""

from __future__ import annotations

import base64
import re
from importlib.resources import files
from io import BytesIO

import numpy as np
from markupsafe import Markup, escape

from sightline.reports.content import Sample


def render(template: str, **values: object) -> str:
    """The text of a page; equal values give equal text, and in HTML a value is text, whatever it looks like.

    Args:
        template: a file of this folder; one in HTML fills the blocks of `page.html`, which wants a `title` and the
            `command` that makes the page again.
        **values: what the template names; the filters are `as_png` and `breakable`.
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    folder = files("sightline.reports")
    environment = Environment(
        loader=FunctionLoader(lambda name: folder.joinpath(name).read_text("utf-8")),
        autoescape=template.endswith(".html"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"png": as_png, "breakable": breakable}
    return environment.get_template(template).render(**values)


def breakable(text: str) -> Markup:
    """A name whose line may break behind `:`, `/` and `_`, in place of inside a word."""
    return Markup(re.sub("([:/_])(?=[^:/_ ])", r"\1<wbr>", str(escape(text))))


def as_png(sample: Sample) -> str:
    """A picture as a data URI."""
    from PIL import Image

    buffer = BytesIO()
    Image.fromarray(np.ascontiguousarray(sample.image)).save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
