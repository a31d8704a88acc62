"""The page's own files: small, without addresses of others, and such that an exported page can hold them as one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import sightline

PAGE = Path(sightline.__file__).parent / "explorer" / "page"
FILES = sorted(PAGE.iterdir())
SCRIPTS = {file.stem: file.read_text(encoding="utf-8") for file in FILES if file.suffix == ".js"}
IMPORT = re.compile(r'^import \{([^}]*)\} from "\./(\w+)\.js";$', re.M)


def _order() -> list[str]:
    found = re.search(r"export const MODULES = \[([^\]]*)\]", SCRIPTS["saving"])
    assert found
    return re.findall(r'"(\w+)"', found[1])


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_small_and_asks_nobody_else(file):
    text = file.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
    assert file.stem not in {"utils", "util", "helpers", "helper", "misc", "common"}
    assert not re.search(r"(https?:)?//[a-z0-9-]+\.[a-z]", text.replace("// ", "")), "an outside address"


def test_nothing_that_the_policy_forbids_is_in_the_page():
    text = (PAGE / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"\sstyle=|\son\w+=|<style|javascript:", text)
    assert re.findall(r"<script[^>]*>", text) == ['<script type="module" src="/page/explorer.js">']
    forbidden = r"\beval\(|new Function|innerHTML|outerHTML|document\.write|setAttribute\(\"style"
    assert [name for name, script in SCRIPTS.items() if re.search(forbidden, script)] == []


def test_every_module_stands_after_those_it_imports():
    """What `joined` of saving.js relies on: imports can go, since names stand once and in order."""
    order = _order()
    assert sorted(order) == sorted(SCRIPTS)
    names: list[str] = []
    for place, name in enumerate(order):
        script = SCRIPTS[name]
        assert len(re.findall(r"^import ", script, re.M)) == len(IMPORT.findall(script)), name
        for taken, source in IMPORT.findall(script):
            assert source in order[:place], (name, source)
            for one in taken.split(","):
                given = rf"^export (async )?(class|function|const) {one.strip()}\b"
                assert re.search(given, SCRIPTS[source], re.M), (name, one)
        assert not re.search(r"^export (default|\{|\*)", script, re.M), name
        names += re.findall(r"^(?:export )?(?:async )?(?:class|function|const|let) (\w+)", script, re.M)
    assert sorted(names) == sorted(set(names))
    assert not any("</script" in script for script in SCRIPTS.values())


def test_what_the_export_replaces_is_there_once():
    text = (PAGE / "index.html").read_text(encoding="utf-8")
    for part in (
        '<meta charset="utf-8">', '<link rel="stylesheet" href="/page/explorer.css">',
        '<script type="module" src="/page/explorer.js"></script>',
    ):  # fmt: skip
        assert text.count(part) == 1
