"""Words of a command line as image files: files, folders, patterns, a list on standard input."""

from __future__ import annotations

import io
import os

import pytest

from sightline.data.image_list import list_images
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


def test_a_folder_with_an_image_s_name_is_named(photos):
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


def test_a_list_on_standard_input(photos):
    """In its place among the words; what a line says is taken as it is; blank lines are none; CR LF ends a line."""
    lines = b"photos/img1.png\n\n  a b.jpg\r\n\xff.png\n   \ngr\xc3\xbcn*.jpg\nphotos\nphotos/img1.png"
    assert list_images(["first", "-", "last"], io.BytesIO(lines)) == [
        "first", "photos/img1.png", "  a b.jpg", os.fsdecode(b"\xff.png"), os.fsdecode(b"gr\xc3\xbcn*.jpg"), "photos",
        "photos/img1.png", "last",
    ]  # fmt: skip


@pytest.mark.parametrize(("word", "stdin"), [
    ("photos/empty", None), ("photos/*.bmp", None), ("photos/d*p", None), ("-", b"\n \n\r\n"), ("-", None),
])  # fmt: skip
def test_what_is_refused(word, stdin, photos):
    (photos / "empty" / "er").mkdir(parents=True)
    (photos / "empty" / "notes.txt").touch()
    with pytest.raises(InputError) as caught:
        list_images(["a.jpg", word], None if stdin is None else io.BytesIO(stdin))
    assert str(caught.value).startswith(f"{word}: ")
