"""`sightline analyse` of several models: the layers of each two beside each other, and never of one alone."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from sightline.analysis.found import Analysis
from sightline.analysis.images import NATIVE
from sightline.analysis.labels import split_batches
from sightline.analysis.measures.cka import cka
from sightline.data.open import open_source
from sightline.hub.load import load_model, save_model
from sightline.models import create_model
from sightline.runs import analysis_folder, analysis_pairs
from sightline.runs.analysis_folder import array_names
from tests.contract.randomise import randomise_parameters
from tests.tiny import pictures

CKA = ("--measures", "cka", "--images", "5", "--resolutions", "16,24x16")
SIZES = ((16, 16), (24, 16))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Three small classifiers of the glyphs, saved, whose depths, dimensions and patches are not alike."""
    folder = tmp_path_factory.mktemp("models")
    shapes = {"a": (2, 24, 4), "b": (3, 16, 4), "c": (2, 16, 8)}
    for seed, (name, (depth, dim, patch)) in enumerate(shapes.items()):
        model = create_model(
            "vit_micro_patch4", encoding="rope_axial", depth=depth, dim=dim, heads=2, patch_size=patch,
            image_size=16, num_classes=24,
        )  # fmt: skip
        save_model(randomise_parameters(model, seed), folder / name)
    return folder


@pytest.fixture
def analysed(cli, models, tmp_path):
    """The folder, and what was said on stderr, of models by name."""

    def run(names, *words):
        out = tmp_path / "inside"
        code, _, err = cli("analyse", *(models / name for name in names), *words, "--out", out)
        assert code == 0, err
        return out, err

    return run


def files(out):
    return sorted(file.name for file in out.glob("*.npz"))


def test_each_two_of_three_models_are_compared_on_the_same_images(analysed, models):
    out, err = analysed("abc", *CKA)
    assert "; cka, of 3 pairs of models too" in err
    assert files(out) == ["a+b.cka.npz", "a+c.cka.npz", "a.cka.npz", "b+c.cka.npz", "b.cka.npz", "c.cka.npz"]
    source, loaded = open_source("scenes"), {name: load_model(models / name) for name in "abc"}
    shown = {
        name: {size: split_batches(model, source, "test", range(5), size) for size in SIZES}
        for name, model in loaded.items()
    }
    for one, two in itertools.combinations("abc", 2):
        found = Analysis.read(out / f"{one}+{two}.cka.npz")
        expected = cka(loaded[one], loaded[two], shown[one], others=shown[two])
        assert (found.model, found.about["other"], found.sizes) == (one, two, SIZES)
        for size in SIZES:
            assert len(found.names[size]) == 5
            np.testing.assert_array_equal(found.arrays[size]["cka"], expected.arrays[size]["cka"])
    # Models of one patch may be shown the same batches: what was always compared in Python.
    same = cka(loaded["a"], loaded["b"], shown["a"])
    found = Analysis.read(out / "a+b.cka.npz")
    assert found.arrays[24, 16]["cka"].shape == (3, 4)
    np.testing.assert_allclose(found.arrays[24, 16]["cka"], same.arrays[24, 16]["cka"])
    page = (out / "analysis.html").read_text()
    for said in ("CKA, a<", "CKA of a (down) with b (across)<", "CKA of b (down) with c (across)<",
                 "Layers of a down, layers of b across;"):  # fmt: skip
        assert said in page
    assert {"cka.cka.0.svg", "cka.cka.0+1.svg", "cka.cka.1+2.svg"} <= {file.name for file in out.glob("figures/*")}
    svg = (out / "figures/cka.cka.1+2.svg").read_text()
    assert "layer of b" in svg
    assert "layer of c" in svg


@pytest.fixture
def undrawn(monkeypatch):
    """The page, which takes longest, is not looked at."""
    monkeypatch.setattr(analysis_folder.analysis_page, "render", lambda *_, **__: "")


@pytest.mark.usefixtures("undrawn")
def test_one_model_has_no_pair_nor_have_measures_without_cka(analysed):
    out, err = analysed("a", *CKA)
    assert files(out) == ["a.cka.npz"]
    assert "pair" not in err
    out, err = analysed("ab", "--measures", "token_norms", "--images", "4", "--resolutions", "16", "--overwrite")
    assert files(out) == ["a.token_norms.npz", "b.token_norms.npz"]
    assert "pair" not in err


@pytest.mark.usefixtures("undrawn")
def test_images_of_their_own_sizes_are_matched_whatever_grids_come_first(analysed, models, tmp_path):
    data = pictures(tmp_path / "photos")
    out, _ = analysed("ac", "--data", data, "--measures", "cka", "--images", "6", "--resolutions", "native")
    found = Analysis.read(out / "a+c.cka.npz")
    assert found.sizes == (NATIVE,)
    assert sorted(found.names[NATIVE]) == sorted(Analysis.read(out / "c.cka.npz").names[NATIVE])
    assert np.isfinite(found["cka"]).all()


@pytest.mark.usefixtures("undrawn")
def test_too_few_images_are_said_and_the_rest_stands(analysed):
    out, err = analysed("ab", "--measures", "cka", "--images", "3", "--resolutions", "16")
    assert "left out: cka of models with each other: 3 images (expected 4 or more)" in err
    assert files(out) == ["a.cka.npz", "b.cka.npz"]
    # A folder with pairs is replaced as any other.
    analysed("ab", *CKA, "--overwrite")
    analysed("a", *CKA, "--overwrite")
    assert files(out) == ["a.cka.npz"]


@pytest.mark.usefixtures("undrawn")
def test_of_patches_models_of_one_grid_are_compared(analysed):
    out, err = analysed("abc", *CKA, "--options.cka.of=patches")
    assert files(out) == ["a+b.cka.npz", "a.cka.npz", "b.cka.npz", "c.cka.npz"]
    assert "left out: cka of a with c: no size of one grid that both take" in err
    assert Analysis.read(out / "a+b.cka.npz").about["options"] == {"of": "patches"}


@pytest.mark.usefixtures("undrawn")
def test_of_many_models_the_first_are_compared_and_it_is_said(analysed, monkeypatch):
    monkeypatch.setattr(analysis_pairs, "MOST", 2)
    out, err = analysed("abc", *CKA)
    assert files(out) == ["a+b.cka.npz", "a.cka.npz", "b.cka.npz", "c.cka.npz"]
    assert "left out: cka of models with each other beyond the first 2 of 3" in err


@pytest.mark.usefixtures("undrawn")
def test_progress_and_the_estimate_count_the_passes_of_pairs(analysed, monkeypatch):
    from sightline.cli.progress import Bars

    moved = []
    monkeypatch.setattr(Bars, "move", lambda _, name, done, total, *notes: moved.append((name, done, total)))
    analysed("ac", *CKA)
    steps = [(done, total) for name, done, total in moved if name.startswith("analysing")]
    # 5 images of (16 + 24) patches and of (4 + 6), each once by itself and once beside the other.
    assert steps[-1] == (500, 500)


def test_names_of_files_of_two_models():
    def named(model, other=""):
        return SimpleNamespace(model=model, measure="cka", about={"other": other} if other else {})

    found = [named("x/y"), named("x y"), named("p+q"), named("x/y", "x y"), named("x y", "p+q")]
    assert array_names(found)[3:] == ["x_y-0+x_y-1.cka.npz", "x_y-1+p_q.cka.npz"]
    # Of letters of several bytes two names are too long for one of a file.
    (name,) = array_names([named("\N{GREEK SMALL LETTER ALPHA}" * 70, "\N{GREEK SMALL LETTER BETA}" * 70)])
    assert name == "model-0+model-1.cka.npz"
