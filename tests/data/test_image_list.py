"""Words of a command line as image files: files, folders, patterns, a list on standard input."""

from __future__ import annotations

import io
import os

import pytest

from sightline.data.image_list import list_images, natural_key
from sightline.data.skip_policy import Unreadable
from sightline.errors import InputError


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """A folder, as "photos" from where the test stands, of empty files: no image is opened here."""
    monkeypatch.chdir(tmp_path)
    for name in (
        "img10.jpg", "img2.JPG", "img1.png", "notes.txt", ".hidden.jpg", "._img1.png",
        "deep/er/a.webp", "deep/b.gif", "deep/c.py", ".thumbs/d.jpg",
    ):  # fmt: skip
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "photos" / name).touch()
    (tmp_path / "photos" / "dangling.png").symlink_to("nowhere.png")
    (tmp_path / "photos" / "ring").symlink_to(tmp_path / "photos")
    return tmp_path / "photos"


BELOW = [
    "photos/dangling.png", "photos/deep/b.gif", "photos/deep/er/a.webp", "photos/img1.png", "photos/img2.JPG",
    "photos/img10.jpg",
]  # fmt: skip


def test_a_folder_gives_its_images_in_natural_order(photos):
    """Those below it as well; neither hidden ones, nor other endings, nor a folder again by a link in it."""
    assert list_images(["photos"]) == BELOW
    assert list_images(["photos/"]) == BELOW


def test_found_33_a_folder_with_an_image_s_name_is_named(photos):
    """Unless it holds images, as any folder may."""
    (photos / "img3.jpg").mkdir()
    (photos / "img4.jpg").mkdir()
    (photos / "img4.jpg" / "a.png").touch()
    folder = Unreadable("photos/img3.jpg", "a folder, not an image file")
    assert list_images(["photos"]) == [*BELOW[:5], folder, "photos/img4.jpg/a.png", BELOW[5]]


def test_words_keep_their_order_and_repeat(photos):
    """A file is taken whatever it is called, there or not."""
    words = ["photos/img10.jpg", "photos/notes.txt", "missing", "./x.jpg", "photos/img10.jpg"]
    assert list_images(words) == words


def test_patterns_that_no_shell_expanded(photos):
    assert list_images(["photos/*.[jJ]*"]) == ["photos/img2.JPG", "photos/img10.jpg"]
    assert list_images(["photos/img?.*"]) == ["photos/img1.png", "photos/img2.JPG"]
    # Whatever they end in, since the pattern may say; folders among the matches are no files.
    assert list_images(["photos/deep/**"]) == ["photos/deep/b.gif", "photos/deep/c.py", "photos/deep/er/a.webp"]


def test_patterns_that_walk(photos):
    """Into folders of any depth, each file once though a link is a ring; from here, from above, and from the top."""
    webp = ["photos/deep/er/a.webp"]
    for pattern in ("photos/**/*.webp", "ph*/**/er/*.webp", "**/*.webp", "**/**/*.webp", "**/deep/**/a.*"):
        assert list_images([pattern]) == webp
    assert list_images([f"{photos}/**/*.webp"]) == [str(photos / "deep" / "er" / "a.webp")]
    (photos / "img[1]").mkdir()
    (photos / "img[1]" / "b.webp").touch()
    assert list_images(["**/*.webp"]) == [*webp, "photos/img[1]/b.webp"]


def test_a_file_whose_name_is_a_pattern_wins(photos):
    (photos / "img[1].png").touch()
    (photos / "what[x]").symlink_to("nowhere")
    assert list_images(["photos/img[1].png", "photos/what[x]"]) == ["photos/img[1].png", "photos/what[x]"]
    (photos / "img[1].png").unlink()
    assert list_images(["photos/img[1].png"]) == ["photos/img1.png"]


def test_a_list_on_standard_input(photos):
    """In its place among the words; what a line says is taken as it is; blank lines are none; CR LF ends a line."""
    lines = b"photos/img1.png\n\n  a b.jpg\r\n\xff.png\n   \ngr\xc3\xbcn*.jpg\nphotos\nphotos/img1.png"
    assert list_images(["first", "-", "last"], io.BytesIO(lines)) == [
        "first", "photos/img1.png", "  a b.jpg", os.fsdecode(b"\xff.png"), os.fsdecode(b"gr\xc3\xbcn*.jpg"), "photos",
        "photos/img1.png", "last",
    ]  # fmt: skip


def test_names_in_no_encoding_survive(photos):
    (photos / "deep" / os.fsdecode(b"\xff \xe4.png")).touch()
    assert os.fsencode(list_images(["photos/deep/*.png"])[0]) == b"photos/deep/\xff \xe4.png"
    assert b"photos/deep/\xff \xe4.png" in [os.fsencode(path) for path in list_images(["photos"])]


@pytest.mark.parametrize(("word", "stdin"), [
    ("photos/empty", None), ("photos/*.bmp", None), ("photos/d*p", None), ("-", b"\n \n\r\n"), ("-", None),
])  # fmt: skip
def test_what_is_refused(word, stdin, photos):
    (photos / "empty" / "er").mkdir(parents=True)
    (photos / "empty" / "notes.txt").touch()
    with pytest.raises(InputError) as caught:
        list_images(["a.jpg", word], None if stdin is None else io.BytesIO(stdin))
    assert str(caught.value).startswith(f"{word}: ")


def test_a_folder_that_may_not_be_read_loses_no_others(photos, monkeypatch):
    """It stands in its place with the reason. The permissions are feigned: root may read everything."""
    real = os.scandir

    def scandir(path):
        if os.fspath(path) == "photos/deep":
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    expected = [path for path in BELOW if "deep" not in path]
    expected.insert(1, Unreadable("photos/deep", "Permission denied"))
    assert list_images(["photos"]) == expected
    assert list_images(["photos/deep"]) == [Unreadable("photos/deep", "Permission denied")]


def test_natural_order_compares_anything():
    names = ["", "2", "9/1", "10", "10/0", "a", "a02", "a2", "a10", "a10b", "ä1", "\udcff"]
    assert sorted(names[::2] + names[1::2], key=natural_key) == names
    assert sorted(["x10y2", "x9y10", "x9y9", "x"], key=natural_key) == ["x", "x9y9", "x9y10", "x10y2"]
