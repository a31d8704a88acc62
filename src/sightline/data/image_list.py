"""Which image files a command line means: files, folders, patterns that no shell expanded, a list on standard input;
and which a folder of a data set holds, under which split and class."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from sightline.data.folders import entries_of, folders_in, is_folder, split_by_name, split_folders, walk
from sightline.data.image_file import EncodedImage
from sightline.data.image_index import NOT_A_FILE, ImageIndex, Stamp, stamp_of
from sightline.data.skip_policy import Unreadable
from sightline.errors import InputError, UnreadableDataError
from sightline.io.read import ROWS

STDIN = "-"
IMAGE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
NO_LABEL, NO_CLASS = -1, "?"
"""The label of an image that has none, and what stands for its class in the image's name."""
ANIMATIONS = (".gif", ".webp")
"""How files are called that may hold many frames."""
Listed = str | EncodedImage | Unreadable


def list_images(
    given: Iterable[str],
    stdin: BinaryIO | None = None,
    skipped: list[Unreadable] | None = None,
    clips: bool = False,
) -> list[Listed]:
    """The image files that words name, in the order of the words, and in their place the folders that could not be
    read. Raises InputError for a folder without an image, a pattern without a match, or an empty list.

    A folder stands for the files in and below it that end in `IMAGE_SUFFIXES` (`folders.walk`), in natural order (2
    before 10). A word with `*`, `?` or `[` that is no path itself stands for the files that match, whatever they end
    in; `**` stands for any folders. `-` stands for a list on standard input, a path a line, each taken as it is. A data
    set of files, as `wds:SHARDS` or a folder with the layout of one, stands for all its images. Any other word is a
    file, there or not.

    Args:
        skipped: what is passed over in folders and data sets is added.
        clips: a folder of images is one clip, of whose GIF and WebP files alone each is one; what a pattern matches in
            a folder that it matches too is a part of that.
    """
    passed_over = [] if skipped is None else skipped
    found: list[Listed] = []
    for word in given:
        if word == STDIN:
            found += _listed(stdin)
        elif images := images_of_word(word, passed_over):
            found += images
        elif os.path.isdir(word):
            if not (inside := _in_folder(word, passed_over, clips)):
                expected = f"files ending in {', '.join(IMAGE_SUFFIXES)}{' or folders of them' if clips else ''}"
                raise InputError(f"{word}: no {'clips' if clips else 'images'} in this folder (expected: {expected})")
            found += inside
        elif not glob.has_magic(word) or os.path.lexists(word):
            found.append(word)
        elif matched := _matched(word, passed_over, clips):
            found += matched
        else:
            raise InputError(f"{word}: no file matches this pattern")
    return found


def images_of_set(word: str, skipped: list[Unreadable] | None = None) -> list[str | EncodedImage]:
    """All images of the data set of files that a word names, as `wds:SHARDS`; none where it names none; `skipped` is as
    `list_images`. Raises InputError where its images are no files, or as it is opened."""
    # They find their files by this module.
    from sightline.data.open import list_sources, open_source, parse_spec
    from sightline.data.stored import FileSource

    name, argument, _ = parse_spec(word)
    if os.path.lexists(word) or not argument or name not in list_sources():
        return []
    source = open_source(word)
    if not isinstance(source, FileSource):
        raise InputError(f"{word}: its images are drawn, and are no files (expected a data set of files, or files)")
    found = [(row, source.listing.image(row)) for row in source.images]
    for row, image in found:
        if isinstance(image, EncodedImage):
            image.stamp = tuple(source.listing.stats[row].tolist())
    if skipped is not None:
        # What is only not measured is among them.
        shown = {*(str(one) for _, one in found), *(str(source.place_of(split)) for split in source.unlabelled)}
        skipped += [one for one in source.skipped if one.path not in shown]
    return [one if isinstance(one, EncodedImage) else os.fspath(one) for _, one in found]


def images_of_word(word: str, skipped: list[Unreadable] | None = None) -> list[str | EncodedImage]:
    """As `images_of_set`; also of a folder without images of its own that has the layout of shards, of tables, or of
    images beside their masks or objects."""
    from sightline.data.open import recognise_layout

    if not os.path.isdir(word):
        return images_of_set(word, skipped)
    try:
        if held_in(Path(word)) == "files":
            return []
    except UnreadableDataError:
        # Named with the others where it is listed.
        return []
    spec = recognise_layout(word)
    return [] if spec.partition(":")[0] in ("imagefolder", "images") else images_of_set(spec, skipped)


def _listed(stdin: BinaryIO | None) -> list[str]:
    content = b"" if stdin is None else stdin.read(ROWS + 1)
    # As bytes: a file's name may be in no encoding at all.
    paths = [os.fsdecode(line.rstrip(b"\r")) for line in content.split(b"\n") if line.strip()]
    if not paths or len(content) > ROWS:
        found = f"more than {ROWS} bytes" if paths else "no paths"
        raise InputError(f"{STDIN}: standard input holds {found} (expected: one a line)")
    return paths


def _in_folder(folder: str, skipped: list[Unreadable], clips: bool) -> list[Listed]:
    """What a folder and those below it hold, in natural order, and in their place those that cannot be read."""
    closed: list[Unreadable] = []
    found: dict[str, Listed] = {path: path for path in images_below(folder, skipped, closed=closed, clips=clips)}
    for path in found:
        if path.lower().endswith(IMAGE_SUFFIXES) and os.path.isdir(path) and not held_in(Path(path)):
            found[path] = Unreadable(path, "a folder, not an image file")
    found |= {one.path: one for one in closed}
    return [found[path] for path in sorted(found, key=natural_key)]


def _matched(pattern: str, skipped: list[Unreadable], clips: bool) -> list[Listed]:
    """The files that match, or with `clips` what is in the outermost folders that do too."""
    matched = sorted(_glob(pattern), key=natural_key)
    folders = [path for path in matched if os.path.isdir(path)]
    if not clips:
        return [path for path in matched if path not in folders]
    inside = tuple(os.path.join(path, "") for path in folders)
    outer = [path for path in matched if not path.startswith(inside)]
    # A folder without a clip is told when it is read.
    each = ((path in folders and _in_folder(path, skipped, clips)) or [path] for path in outer)
    return [one for some in each for one in some]


def _glob(pattern: str) -> set[str]:
    """As glob.glob, which in a ring of links never ends for `**`."""
    deep = re.search(r"(^|/)\*\*(/|$)", pattern)
    if deep is None:
        return set(glob.glob(pattern))
    head, rest = pattern[: deep.end(1)], pattern[deep.end() :] or "*"
    found: set[str] = set()
    for root in glob.glob(head) if head else [os.curdir]:
        for parent, _, _ in walk(root, [], []):
            inside = parent if head else os.path.relpath(parent).removeprefix(os.curdir)
            found |= _glob(os.path.join(glob.escape(inside), rest))
    return found


def natural_key(path: str) -> tuple[list[str | int], str]:
    """A key that sorts as people count: `img2` before `img10`; equal ones (`img2`, `img02`) by their characters."""
    # Texts and numbers take turns, beginning with a text, so that like is compared with like.
    return [int(part) if index % 2 else part for index, part in enumerate(re.split("([0-9]+)", path))], path


def images_below(
    folder: str | Path,
    skipped: list[Unreadable],
    suffixes: tuple[str, ...] = IMAGE_SUFFIXES,
    closed: list[Unreadable] | None = None,
    clips: bool = False,
) -> list[str]:
    """The images in a folder and the folders in it, and folders of an image's name that hold none, which are faults.

    Args:
        skipped: what is passed over is added, also files that end in none of `suffixes`.
        closed: as `folders.walk`, as which this raises.
        clips: as `list_images`.
    """
    found, named_so = list[str](), list[str]()
    for place, folders, files in walk(folder, skipped, closed):
        images = [entry.path for entry in files if entry.name.lower().endswith(suffixes)]
        for path in (entry.path for entry in files if not entry.name.lower().endswith(suffixes)):
            reason = "unknown extension" if os.path.exists(path) else "a link to what is not there"
            skipped.append(Unreadable(path, reason))
        framed = clips and not all(path.lower().endswith(ANIMATIONS) for path in images)
        found += [place] if framed else images
        named_so += [entry.path for entry in folders if entry.name.lower().endswith(suffixes)]
    return found + [path for path in named_so if not any(one.startswith((f"{path}/", path)) for one in found)]


def is_frame(name: str) -> bool:
    """Whether a file of this name in a folder is a frame of a clip."""
    return name.lower().endswith(IMAGE_SUFFIXES) and not name.startswith(".")


def clips_below(folder: Path, skipped: list[Unreadable]) -> Iterator[str]:
    """The clips of a class folder: its own image files, one each, and every folder below it that holds image files (by
    `folders.walk`, as which it raises). What is passed over is added to `skipped`."""
    for place, folders, files in walk(folder, skipped):
        others, reason = files, "unknown extension"
        if place == str(folder):
            yield from (entry.path for entry in files if is_frame(entry.name))
        elif any(is_frame(entry.name) for entry in (*files, *folders)):
            yield place
            others, reason = [*files, *folders], "no frame, in a folder of frames"
            folders.clear()
        elif not folders:
            skipped.append(Unreadable(place, "a folder without frames"))
        skipped += [Unreadable(entry.path, reason) for entry in others if not is_frame(entry.name)]


def clip_stamp(path: str) -> Stamp:
    """As `stamp_of`; of a folder of frames all their bytes, and when they, or their names, last changed."""
    if not os.path.isdir(path):
        return stamp_of(path)
    try:
        frames = [entry.stat() for entry in entries_of(path) if is_frame(entry.name)]
        every = [os.stat(path), *frames]
    # A link to a missing file among them: reading says which.
    except (OSError, ValueError):
        return NOT_A_FILE
    size = sum(one.st_size for one in frames)
    return size, max(one.st_mtime_ns for one in every), max(one.st_ctime_ns for one in every)


def held_in(folder: Path, clips: bool = False) -> str:
    """As what images, or clips, stand in a folder directly: "files", "folders" of frames, or "" where none does."""
    if any(is_frame(entry.name) and not is_folder(entry) for entry in entries_of(folder)):
        return "files"
    inside = [folder / name for name in folders_in(folder)] if clips else []
    moving = any(entry.name.lower().endswith(ANIMATIONS) for one in inside for entry in entries_of(one))
    return "folders" if inside and not moving and all(map(held_in, inside)) else ""


def scan_class_folders(
    root: Path, clips: bool = False
) -> tuple[tuple[str, ...], ImageIndex, list[int], tuple[Unreadable, ...], dict[str, Path]]:
    """Find the images, or clips, of `root/SPLIT/CLASS/**` or of `root/CLASS/**`, by their extensions; none is opened.

    The classes are those of `train`, or where there is no `train` those of all splits together. A split to measure on
    that holds images and no class folders, beside one that has class folders or without `train`, has no labels.

    Returns:
        The names of the classes, sorted; the images, split by split, sorted by path, and the label of each, `NO_LABEL`
        where it has none; what was passed over; split -> its folder.

    Raises:
        InputError: the folder is not so, a class folder is empty, a class is not in `train`, or names may mean splits
            and classes alike.
    """
    things, below, stamp = ("clips", clips_below, clip_stamp) if clips else ("images", images_below, stamp_of)
    if not root.is_dir():
        raise InputError(f"{root}: no such folder (expected: SPLIT/CLASS/{things} or CLASS/{things} in it)")
    skipped: list[Unreadable] = []
    places = _class_folders(root, clips, skipped)
    held = {split: held_in(folder, clips) for split, folder in places.items()}
    inside = {split: folders_in(folder) for split, folder in places.items()}
    withheld = any(inside.values()) or not ("train" in places or root in places.values())
    names, paths, told = list[str](), list[str](), list[tuple[str, str]]()
    for split, folder in places.items():
        # A clip may be a folder: where others hold class folders of such, this one holds clips.
        loose = held[split] == "folders" and "" in held.values()
        if split != "train" and held[split] and withheld and (loose or not inside[split]):
            inside[split] = [NO_CLASS]
        elif inside[split]:
            strays = (entry for entry in entries_of(folder) if not is_folder(entry))
            skipped += [Unreadable(entry.path, "not in a class folder") for entry in strays]
        else:
            hint = f"; images without labels are images:{root}" if held[split] and not clips else ""
            raise InputError(f"{folder}: no class folders in it (expected: CLASS/{things}{hint})")
        of_class = {name: folder if name == NO_CLASS else folder / name for name in inside[split]}
        found = sorted((path, name) for name, place in of_class.items() for path in below(place, skipped))
        full = {name for _, name in found}
        if empty := [name for name in of_class if name not in full]:
            said = f"no {things} in this class folder ({len(empty)} of {len(of_class)} class folders are empty"
            raise InputError(f"{of_class[empty[0]]}: {said}; expected: files ending in {', '.join(IMAGE_SUFFIXES)})")
        paths += [path for path, _ in found]
        names += [f"{split}/{name}{path[len(str(of_class[name])) :]}" for path, name in found]
        told += [(split, name) for _, name in found]
    classes = sorted({name for split, name in told if split == "train" or "train" not in places} - {NO_CLASS})
    numbers = {NO_CLASS: NO_LABEL} | {name: label for label, name in enumerate(classes)}
    for split, folder in places.items():
        if unknown := [name for name in inside[split] if name not in numbers]:
            said = f"{', '.join(unknown[:5])} ({len(unknown)} in all; expected: the same names or fewer)"
            raise InputError(f"{folder}: class folders that {places['train']} lacks: {said}")
    labels = [numbers[name] for _, name in told]
    return tuple(classes), ImageIndex.of_files(names, paths, stamp), labels, tuple(skipped), places


def _class_folders(root: Path, clips: bool, skipped: list[Unreadable]) -> dict[str, Path]:
    """Split -> the folder of its class folders; `test` is the whole where they stand in it directly. A folder of a
    split's name that holds class folders is that split; one that holds images directly, beside others that do, is a
    class."""
    names = folders_in(root)
    known = [name for name in names if split_by_name(name) is not None]
    held = {name: held_in(root / name, clips) for name in names} if known else {}
    flat = {kind: name for name, kind in reversed(held.items()) if kind and name not in known}
    # A clip may be a folder, and stands in a class folder as that does in a split.
    classes = [name for name in known if flat and held[name] in ("files", *flat)]
    splits = [name for name in known if folders_in(root / name) and (name not in classes or not clips)]
    if classes and splits:
        said = f"{splits[0]} holds folders, as a split does, and {classes[0]} none, as the class {min(flat.values())}"
        raise InputError(f"{root}: {said} (expected: splits that hold class folders, or class folders alone)")
    return {"test": root} if classes else split_folders(root, "test", skipped)
