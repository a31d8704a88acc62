"""The Python examples of README and docs run as they are printed; those of export.md run in tests/export."""

import re
from pathlib import Path

import pytest
import torch
from PIL import Image

import sightline
from sightline.convert import export_weights
from sightline.distributed.machine import import_timm
from tests.compared import made_run, share

ROOT = Path(__file__).parents[2]
# Those of README and of the tutorials run whole, in test_snippets.py.
PAGES = [
    str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md")) if path.parent.name != "tutorials"
]
TESTED = {
    "docs/how-to/weights.md": 3,
    "docs/explanation/packing.md": 1,
    "docs/how-to/timm.md": 1,
    "docs/how-to/export.md": 2,
    "docs/how-to/encoding.md": 1,
}
TESTED |= {"docs/how-to/compare.md": 1, "docs/reference/analysis.md": 2, "docs/reference/models.md": 1}


def examples(page):
    return [part.split("```")[0] for part in (ROOT / page).read_text(encoding="utf-8").split("```python\n")[1:]]


def run(page, number, **given):
    """What an example leaves, beside what it takes for granted. Narrow models stand for wide ones."""
    code = re.sub(r'"(sightline_)?vit_(base|small)_patch16"', r'"\1vit_tiny_patch16"', examples(page)[number])
    exec(compile(code, page, "exec"), given)
    return given


def tiny(encoding="learned_1d", **options):
    options = {"depth": 4, "dim": 48, "heads": 4, "image_size": 32, "num_classes": 5} | options
    return sightline.create_model("vit_micro_patch4", encoding=encoding, **options).eval()


def images(*sizes, patch=16):
    return [torch.randn(3, rows * patch, cols * patch) for rows, cols in sizes]


@pytest.fixture
def at_home(tmp_path, monkeypatch):
    """A folder with a photo, a run, and no network: what is published elsewhere is made anew here."""
    monkeypatch.chdir(tmp_path)
    Image.effect_noise((70, 45), 90).convert("RGB").save("photo.jpg")
    sightline.save_model(tiny(), "runs/digits")
    fetch = sightline.load_model

    def load_model(source, **arguments):
        if source.startswith("hf-hub:") or Path(source).is_dir():
            return fetch("runs/digits")
        name = source.removeprefix("timm:").partition(".")[0]
        return fetch(f"timm:{name}", pretrained=False, depth=2, embed_dim=48, num_heads=4, **arguments)

    monkeypatch.setattr(sightline, "load_model", load_model)
    return tmp_path


def test_every_example_is_run_by_a_test():
    assert {page: len(examples(page)) for page in PAGES if examples(page)} == TESTED


def test_the_example_of_clips(at_home):
    clip, other_clip, image = torch.randn(3, 5, 32, 48), torch.randn(3, 2, 16, 16), torch.randn(3, 32, 16)
    found = run("docs/reference/models.md", 0, clip=clip, other_clip=other_clip, image=image)
    assert found["logits"].shape == (3, 1000)
    assert found["begun"].config.train_grid == (8, 8, 8)


def test_the_example_of_timm_md():
    found = run("docs/how-to/timm.md", 0, images=torch.randn(1, 3, 32, 48))
    assert found["logits"].shape == (1, 10)
    assert [tuple(values.shape[2:]) for values in found["maps"]] == [(2, 3)] * 2


def test_the_examples_of_analysis_md(at_home):
    found = run("docs/reference/analysis.md", 0)
    assert found["distance"].shape == (1, 4, 4)
    assert "prefix tokens" in found["words"]
    assert found["similarity"].shape == (12, 12, 12, 12)
    found = run("docs/reference/analysis.md", 1, model=tiny("lookhere_90"))
    assert found["distances"].arrays[64, 64]["distance"].shape == (1, 4, 4)
    assert found["filters"].arrays[32, 32]["filters"].shape == (28, 4, 4, 3)
    assert found["visible"].shape == found["bias"].shape == (4, 4, 6, 9)


def test_the_example_of_compare_md(tmp_path, capsys):
    """19 and 12 of the same 20 images: 7 that one alone names rightly."""
    runs = [
        made_run(tmp_path / name, name, 0, {("test", 32): share(count, 20)}) for name, count in (("a", 19), ("b", 12))
    ]
    run("docs/how-to/compare.md", 0, paths=[next((one.folder / "logits").iterdir()) for one in runs])
    assert capsys.readouterr().out.startswith(f"{2 / 2**7} [(0.15")


def test_the_example_of_encoding_md():
    found = run("docs/how-to/encoding.md", 0)
    shape = sightline.encodings.TrunkShape(2, 3, 6, sightline.Grid(4, 4), 1)
    encoding = found["Ramp"](found["Ramp"].Config(), shape)
    assert encoding.embedding_on((3, 5), "cpu")[-1].tolist() == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]


def test_the_examples_of_packing_md():
    run("docs/explanation/packing.md", 0, sightline=sightline)


@pytest.mark.slow
def test_the_examples_of_convert_md(at_home):
    timm = import_timm()
    weights = timm.create_model("vit_tiny_patch16_224", img_size=64, depth=2).state_dict()
    deit = timm.create_model("vit_small_patch16_224", class_token=True).state_dict()
    found = run("docs/how-to/weights.md", 0, timm_weights=weights, deit_weights=deit)
    assert all(torch.equal(found["state_dict"][name], deit[name]) for name in deit)
    run(
        "docs/how-to/weights.md",
        2,
        model=tiny(encoding_options={"interpolation": "bicubic_antialias"}),
        export_weights=export_weights,
        timm=timm,
    )
