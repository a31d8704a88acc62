"""How many tests compare sentences: an assert, or a `match=`, with a text of three words or more.

    python tools/wordings.py [--files]

Refusals assert type, field and value; a sentence that is compared keeps its words from being mended.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

WORDS = 3


def is_sentence(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value.split()) >= WORDS


def compares_sentences(test: ast.AST) -> bool:
    for node in ast.walk(test):
        if isinstance(node, ast.Assert):
            compared = [node.test]
        elif isinstance(node, ast.keyword) and node.arg in ("match", "says"):
            compared = [node.value]
        else:
            continue
        # The message of an assert is no comparison.
        if any(is_sentence(one) for part in compared for one in ast.walk(part)):
            return True
    return False


def main() -> None:
    found: dict[str, int] = {}
    for file in sorted(Path(__file__).parents[1].joinpath("tests").rglob("test_*.py")):
        tree = ast.parse(file.read_text())
        tests = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef) and one.name.startswith("test_")]
        if count := sum(map(compares_sentences, tests)):
            found[str(file.relative_to(Path(__file__).parents[1]))] = count
    if "--files" in sys.argv:
        for name, count in sorted(found.items(), key=lambda one: -one[1]):
            print(f"{count:5} {name}")
    print(sum(found.values()))


if __name__ == "__main__":
    main()
