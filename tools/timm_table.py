"""Write the table of how-to/weights.md: which of timm's vision transformers are supported, and why the rest is not.

Every name of these modules is built without memory and read as `import_weights("timm", ...)` reads it:

    python tools/timm_table.py          (about a minute; rewrites the lines between the two markers)
"""

from __future__ import annotations

from pathlib import Path

from sightline.convert.timm import Timm
from sightline.convert.timm_build import import_timm
from sightline.errors import InputError

PAGE = Path(__file__).resolve().parents[1] / "docs" / "how-to" / "weights.md"
BEGIN, END = "<!-- written by tools/timm_table.py: begin -->", "<!-- end -->"
MODULES = (
    *("vision_transformer", "eva", "beit", "deit", "naflexvit"),
    *("vision_transformer_hybrid", "vision_transformer_relpos", "vision_transformer_sam"),
    *("vitamin", "cait", "xcit", "crossvit", "tnt", "swin_transformer", "swin_transformer_v2"),
)
"""timm's modules with transformers on patches; a name of any other is refused as the class that it is."""


def reason(name: str) -> str | None:
    """Why a name of timm is refused, or None where it is supported."""
    try:
        Timm().import_config({"model": name}, {})
    except InputError as error:
        return str(error).removeprefix("timm: this model cannot be ours: ").split(" (expected ")[0]
    return None


def table(names: dict[str, list[str]]) -> str:
    """The lines between the markers, for names by module."""
    found = {module: {name: reason(name) for name in some} for module, some in names.items()}
    lines = ["| timm module | supported | refused |", "|---|---|---|"]
    for module, some in found.items():
        refused = sum(why is not None for why in some.values())
        lines.append(f"| `{module}` | {len(some) - refused} | {refused} |")
    lines += ["", "Supported:", ""]
    for module, some in found.items():
        good = [name for name, why in some.items() if why is None]
        if good:
            lines.append(f"- `{module}`: {', '.join(good)}")
    lines += ["", "| refused because | names |", "|---|---|"]
    by_reason: dict[str, list[str]] = {}
    for some in found.values():
        for name, why in some.items():
            if why is not None:
                by_reason.setdefault(why, []).append(name)
    lines += [f"| {why} | {', '.join(some)} |" for why, some in by_reason.items()]
    return "\n".join(lines)


def every_name() -> dict[str, list[str]]:
    """All names of `MODULES` in the installed timm."""
    timm = import_timm()
    return {module: timm.list_models(module=module) for module in MODULES}


def write(page: Path, text: str) -> None:
    """Put `text` between the markers of a page."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"{page}: has no lines {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    write(PAGE, f"timm {import_timm().__version__}.\n\n{table(every_name())}")
