"""A hook of mkdocs (mkdocs.yml): pages that are written from the package itself, each time the site is built.

`reference/cli.md` is what the programs say with --help, `reference/configuration.md` the fields of the configurations,
`reference/api/` the public names with their docstrings (mkdocstrings).
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import io
import os
import typing
from typing import Any

SUBCOMMANDS = {"bench": ("attention", "memory", "model"), "data": ("check",), "pack": ("stats",)}
CONFIGURATIONS = (
    "sightline.training.config.TrainConfig",
    "sightline.models.config.ViTConfig",
    "sightline.runs.options.OpenOptions",
    "sightline.runs.options.EvaluateOptions",
    "sightline.runs.options.PredictOptions",
    "sightline.runs.options.AnalyseOptions",
    "sightline.runs.options.CascadeOptions",
)
# Page -> its title, what a reader can do with it, and what stands on it.
API: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "models": ("Models", "make models, change their heads, and read their features", (
        "sightline.models.config.ViTConfig", "sightline.models.model.Model",
        "sightline.models.timm_surface.TimmSurface",
        "sightline.models.create.make_model", "sightline.models.create.model_config",
        "sightline.models.compile.compile_blocks", "sightline.models.patch_size.set_patch_size",
    )),
    "encodings": ("Position encodings", "write and create position encodings", (
        "sightline.encodings.base.PositionEncoding", "sightline.encodings.base.AddedEncoding",
        "sightline.encodings.base.RotaryEncoding", "sightline.encodings.base.PatternEncoding",
        "sightline.encodings.base.TrunkShape", "sightline.encodings.knob.Knob",
    )),
    "attention": ("Attention", "describe the bias of attention, and choose its implementation", (
        "sightline.attention.pattern", "sightline.attention.rotation", "sightline.attention.dispatch",
    )),
    "tokens": ("Tokens", "build the layout of tokens by hand", (
        "sightline.tokens.grid.Grid", "sightline.tokens.layout",
    )),
    "data": ("Data", "read data sets and prepare images as the commands do", (
        "sightline.data.preprocessing", "sightline.data.open", "sightline.data.source.Source", "sightline.data.batch",
    )),
    "training": ("Training", "train from Python and write recipes", (
        "sightline.training.run.TrainResult", "sightline.training.loop.TrainProgress", "sightline.recipes",
    )),
    "evaluation": ("Evaluation", "measure models, tune encodings and read stored logits", (
        "sightline.evaluation.measure.evaluate", "sightline.evaluation.measure.EvaluateConfig",
        "sightline.evaluation.predict.predict_split", "sightline.evaluation.tune.tune_parameter",
        "sightline.evaluation.logits.read_logits",
    )),
    "analysis": ("Analysis", "look inside models; each measure is described in [Looking inside](../analysis.md)", (
        "sightline.analysis.found.Analysis", "sightline.analysis.analyse.analysed_together",
        "sightline.analysis.views.visible_from", "sightline.analysis.measures.cka.cka",
    )),
    "weights": ("Weights", "load, save, convert, export and share weights", (
        "sightline.hub.load", "sightline.hub.push", "sightline.convert", "sightline.export.check_export",
    )),
    "extending": ("Extending", "write tasks, heads, metrics and measures of your own", (
        "sightline.plugins", "sightline.registry", "sightline.tasks.base", "sightline.metrics.base",
        "sightline.models.head", "sightline.models.embedder", "sightline.evaluation.measures.base",
    )),
    "results": ("Results", "read rows of results and test differences", (
        "sightline.results.rows", "sightline.results.statistics",
    )),
    "errors": ("Errors", "handle errors and exit codes", ("sightline.errors",)),
}  # fmt: skip


def on_files(files: Any, config: Any) -> Any:
    """Add the pages to those of docs/."""
    from mkdocs.structure.files import File

    pages = {"reference/cli.md": command_line(), "reference/configuration.md": configurations()}
    pages |= {f"reference/api/{name}.md": page for name, page in api_pages().items()}
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def command_line() -> str:
    """The help of every command."""
    from sightline.cli.app import COMMANDS

    os.environ["COLUMNS"] = "84"
    parts = [
        "# Command line\n\nOn this page you can look up every command and option, as printed with `--help`. "
        "[Models, settings, exit codes](common.md) has what all commands share.\n"
    ]
    for name in COMMANDS:
        for words in [(name,), *((name, verb) for verb in SUBCOMMANDS.get(name, ()))]:
            parts.append(f"## {' '.join(words)}\n\n```text\n{help_of(*words)}\n```\n")
    return "\n".join(parts)


def help_of(*words: str) -> str:
    """What a command prints with --help, without what all of them end with."""
    from sightline.cli.app import main

    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        main([*words, "--help"])
    lines = [line.rstrip() for line in said.getvalue().partition("\n--plugins DIR")[0].splitlines()]
    return "\n".join(lines).strip()


def configurations() -> str:
    """Every field of the configurations, and of those inside them."""
    parts = [
        "# Configuration\n\nOn this page you can look up each field of a configuration: in Python, YAML (`--config`) "
        "and as an option (`--optimizer.lr 1e-3`). Values are checked when a configuration is made.\n"
    ]
    waiting, seen = [load(path) for path in CONFIGURATIONS], set()
    while waiting:
        kind = waiting.pop(0)
        if kind in seen:
            continue
        seen.add(kind)
        inner = [found for hint in typing.get_type_hints(kind).values() for found in dataclasses_in(hint)]
        waiting[:0] = inner
        parts.append(f"## {kind.__name__}\n\n`{kind.__module__}.{kind.__name__}`\n\n{table_of(kind)}\n")
    return "\n".join(parts)


def load(path: str) -> Any:
    """The object of a dotted path."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def dataclasses_in(hint: Any) -> list[Any]:
    """The configurations that a type names."""
    if dataclasses.is_dataclass(hint):
        return [hint] if str(hint.__module__).startswith("sightline") else []
    return [found for inner in typing.get_args(hint) for found in dataclasses_in(inner)]


def table_of(kind: Any) -> str:
    """A table of fields: name, default, meaning."""
    import docstring_parser

    words = {one.arg_name: one.description or "" for one in docstring_parser.parse(kind.__doc__ or "").params}
    lines = ["| field | default | meaning |", "|---|---|---|"]
    for field in dataclasses.fields(kind):
        default = "required"
        if field.default is not dataclasses.MISSING:
            default = f"`{field.default!r}`"
        elif field.default_factory is not dataclasses.MISSING:
            made = field.default_factory()
            default = type(made).__name__ if dataclasses.is_dataclass(made) else f"`{made!r}`"
        cells = (f"`{field.name}`", default, " ".join(words.get(field.name, "").split()))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def api_pages() -> dict[str, str]:
    """A page for each room, and one for the names of `import sightline`."""
    import sightline

    shown = tuple(path for _, _, paths in API.values() for path in paths)
    lines = ["# sightline\n\nOn this page you can look up the public names of `import sightline`.\n"]
    for name in sorted(sightline._HOMES):
        thing = getattr(sightline, name)
        path = f"{thing.__module__}.{thing.__qualname__}"
        if any(path == one or path.startswith(f"{one}.") for one in shown):
            # What stands on a room's page is linked, since a name has one place.
            summary = (thing.__doc__ or "").strip().partition("\n")[0]
            lines.append(f"## {name}\n\n{summary} See [`{path}`][{path}].\n")
        else:
            lines.append(f"::: {path}\n    options:\n      heading: {name}\n")
    pages = {"sightline": "\n".join(lines)}
    for page, (title, use, paths) in API.items():
        entries = "\n".join(f"::: {path}\n    options:\n      show_root_full_path: true\n" for path in paths)
        pages[page] = f"# {title}\n\nWith the names on this page you can {use}.\n\n{entries}"
    return pages
