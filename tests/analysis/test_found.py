"""What was found is told in a line where it is printed, and read again from its file."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pytest

from sightline.analysis import attention_distance
from sightline.analysis.found import Analysis
from sightline.errors import InputError
from sightline.models import create_model
from sightline.reports.analysis_plots import heads_of

# An array whose header ends in the middle of its shape.
_CUT_HEADER = b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f8',\n"


@pytest.fixture(scope="module")
def found():
    model = create_model("vit_micro_patch4", encoding="lookhere_90", depth=2, image_size=16).eval()
    images = [np.full((20, 30, 3), 9, np.uint8), np.zeros((16, 16, 3), np.uint8)]
    return attention_distance(model, images, [16, (16, 24)])


def test_it_is_one_line_where_it_is_printed(found):
    assert repr(found) == "Analysis(attention_distance of lookhere_90, 2 images at 16x16, 16x24)"


def test_it_comes_back_from_its_file(found, tmp_path):
    np.savez_compressed(tmp_path / "one.npz", **found.flat())
    again = Analysis.read(tmp_path / "one.npz")
    assert (again.sizes, again.names, again.about) == (found.sizes, found.names, found.about)
    for size, arrays in found.arrays.items():
        for name, array in arrays.items():
            assert np.array_equal(again.arrays[size][name], array), name


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 cut off"])
def test_a_file_that_is_none_is_refused_in_a_line(content, tmp_path):
    file = tmp_path / "bad.npz"
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"bad\.npz"):
        Analysis.read(file)


def test_a_record_that_does_not_fit_is_refused_in_a_line(found, tmp_path):
    np.savez_compressed(tmp_path / "other.npz", **{**found.flat(), "record": np.array("[1, 2]")})
    with pytest.raises(InputError, match="is not an analysis"):
        Analysis.read(tmp_path / "other.npz")


@pytest.mark.parametrize(
    "told",
    [
        {"measure": ["attention_distance"]},
        {"model": ["a", "b"]},
        {"encoding": None},
        {"about": None},
        {"sizes": [[float("inf"), 16], [16, 24]]},
        {"about": {"depth": "two"}},
        "[" * 100_000,
    ],
    ids=["measure", "model", "encoding", "about", "size", "depth", "deep"],
)
def test_a_record_of_other_kinds_is_refused_in_a_line(told, found, tmp_path):
    flat = found.flat()
    text = told if isinstance(told, str) else json.dumps({**json.loads(str(flat["record"])), **told})
    np.savez_compressed(tmp_path / "other.npz", **{**flat, "record": np.array(text)})
    with pytest.raises(InputError, match=r"other\.npz: is not an analysis"):
        Analysis.read(tmp_path / "other.npz")


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("distance", np.array([["far"]])),
        ("distance", np.array(1.0)),
        ("distance", np.zeros((1, 2, 12))),
        ("distance", np.zeros((2, 2, 12), complex)),
        ("distanse", np.zeros((2, 2, 12))),
    ],
    ids=["text", "one number", "of fewer images", "complex", "of no quantity"],
)
def test_an_array_that_is_none_of_the_measure_is_refused_in_a_line(name, array, found, tmp_path):
    """It would be drawn wrongly, or end a notebook's cell with a traceback."""
    np.savez_compressed(tmp_path / "other.npz", **{**found.flat(), f"{name}@16x16": array})
    with pytest.raises(InputError, match=rf"other\.npz: .*{name}"):
        Analysis.read(tmp_path / "other.npz")


def test_a_file_without_an_array_by_head_is_drawn_without_it(found, tmp_path):
    flat = {key: array for key, array in found.flat().items() if not key.startswith("distance@")}
    np.savez_compressed(tmp_path / "less.npz", **flat)
    assert heads_of([Analysis.read(tmp_path / "less.npz")], "attention_distance", "distance") == {}
    assert len(heads_of([found], "attention_distance", "distance")) == 2


@pytest.mark.parametrize(
    ("entry", "content"), [("distance@16x16.npy", _CUT_HEADER), ("distance@16x16", b"no array")], ids=["cut", "bytes"]
)
def test_an_entry_that_is_no_array_is_refused_in_a_line(entry, content, found, tmp_path):
    file = tmp_path / "bad.npz"
    np.savez(file, record=found.flat()["record"])
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr(entry, content)
    with pytest.raises(InputError, match=r"bad\.npz: is not an analysis"):
        Analysis.read(file)
