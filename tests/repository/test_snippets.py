"""Every snippet of README and of the tutorials runs, and prints what the page shows."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sightline import recipes
from sightline.distributed.machine import import_timm
from sightline.evaluation import measure
from sightline.training import run
from tests.repository import snippets

if TYPE_CHECKING:
    from sightline.data.source import Source

ROOT = Path(__file__).parents[2]
RECIPE = recipes.recipe
PAGES = [ROOT / "README.md", ROOT / "docs/index.md", *sorted((ROOT / "docs/tutorials").glob("*.md"))]


def small_recipe(*words: Any, **options: Any) -> Any:
    """A recipe of a folder as two steps of a small model: what `SMALL` is for commands."""
    config = RECIPE(*words, **options)
    model = {"model": "vit_tiny_patch16", "model_options": {**config.model_options, "depth": 1}, "resolution": 32}
    return dataclasses.replace(config, **model, epochs=None, images=16, batch_size=8)


def drawn_image_count(source: Source) -> int | None:
    """A test of images that are drawn takes 16."""
    return 16 if source.is_synthetic else None


# Processes of torchrun, ONNX and heads take a minute.
SLOW = {"README", "dense", "several_gpus"}


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.stem, marks=pytest.mark.slow if page.stem in SLOW else ()) for page in PAGES],
)
def test_every_snippet_of_a_page_runs(page, tmp_path, monkeypatch):
    # Where torchvision does not fit torch, what it lacks is put in its place; transformers imports it.
    import_timm()
    monkeypatch.chdir(tmp_path)
    for module in (measure, run):
        monkeypatch.setattr(module, "default_image_count", drawn_image_count)
    snippets.make_data(tmp_path)
    given: dict[str, Any] = {"__name__": "__main__"}
    said = ""
    for language, text in snippets.blocks(page):
        if language == "python":
            with monkeypatch.context() as patch:
                patch.setattr(recipes, "recipe", small_recipe)
                said = snippets.run_python(text, given, page.name)
        elif language == "bash":
            said = "".join(snippets.run_command(command) for command in snippets.commands(text))
        elif language == "text":
            assert snippets.agrees(text, said), said
        else:
            pytest.fail(f"{page.name}: a block in {language}, which nothing runs")


def test_shown_output_may_differ_in_numbers_alone():
    said = "top1  0.912 of 300\nwrote runs/a/results.jsonl\n"
    assert snippets.agrees("top1 0.8 of 20\nwrote ...\n", said)
    assert snippets.agrees("wrote ...", said)
    assert not snippets.agrees("top5 0.8 of 20", said)
    assert not snippets.agrees("wrote ...\ntop1 0.1 of 3", said)
