"""Tables of labels: FairFace's and CelebA's layouts, the class among several columns, and images without a label."""

from __future__ import annotations

import csv
import itertools

import numpy as np
import pytest
from PIL import Image

from sightline.data.open import open_source, recognise_layout
from sightline.data.targets import Captions, Label, LabelledCaptions, Target
from sightline.errors import InputError, UnreadableDataError
from sightline.recipes import default_recipe
from sightline.recipes.config import TrainingData
from sightline.training.config import TrainConfig
from tests.attribute_data import AGES, GENDERS, RACES, celeba, fairface
from tests.data.dense_folders import picture


def written(folder, text, name="train.csv", images=8):
    for number in range(images):
        picture(folder / f"{number}.png", (12, 16), number)
    (folder / name).write_text(text, encoding="utf-8")
    return f"csv:{folder / name}"


def rows(*lines):
    return "".join(f"{line}\n" for line in lines)


def values(source, split, attribute):
    """What is said of each image, in words."""
    labels = source.attribute_labels[attribute][source.rows_of(split)].tolist()
    return [source.attributes[attribute][number] if number >= 0 else "" for number in labels]


def said(file, column):
    with file.open() as lines:
        return [row[column] for row in csv.DictReader(lines)]


def test_fairface_by_its_folder(tmp_path):
    source = open_source(f"csv:{fairface(tmp_path, 24, 12)}")
    assert (source.task, source.provides, source.classes, source.splits) == (
        "attributes", ("attributes",), (), ("train", "test"),
    )  # fmt: skip
    # As people count them, not by code point; `service_test` is no label.
    assert source.attributes == {"age": AGES, "gender": tuple(sorted(GENDERS)), "race": tuple(sorted(RACES))}
    for split, name in (("train", "train"), ("test", "val")):
        file = tmp_path / f"fairface_label_{name}.csv"
        assert [source.example_name(split, index) for index in range(source.length(split))] == [
            str(tmp_path / one) for one in said(file, "file")
        ]
        for attribute in source.attributes:
            assert values(source, split, attribute) == said(file, attribute)
    assert "" in values(source, "train", "age")
    assert type(source.example("train", 0, (8, 8)).target) is Target
    assert source.check_readable("train")[1] == ()
    assert recognise_layout(str(tmp_path)) == f"csv:{tmp_path}"


def test_fairface_by_one_of_its_tables(tmp_path):
    fairface(tmp_path, 24, 12)
    source = open_source(f"csv:{tmp_path}/fairface_label_val.csv")
    assert source.splits == ("test",)
    assert source.length("test") == 12


def test_celebas_list(tmp_path):
    file, labels, parts = celeba(tmp_path, 20)
    for spec in (f"csv:{file}", f"csv:{tmp_path}"):
        source = open_source(spec)
        assert source.splits == ("train", "minival", "test")
        assert source.attributes == dict.fromkeys(labels, ("-1", "1"))
        for number, split in enumerate(("train", "minival", "test")):
            chosen = np.flatnonzero(parts == number)
            assert source.length(split) == len(chosen)
            assert source.example_name(split, 0) == str(tmp_path / f"img_align_celeba/{chosen[0] + 1:06}.png")
            for name, own in labels.items():
                assert values(source, split, name) == list(map(str, own[chosen]))
    assert recognise_layout(str(file)) == f"csv:{file}"
    (tmp_path / "list_eval_partition.txt").unlink()
    assert open_source(f"csv:{file}").splits == ("train",)


@pytest.mark.parametrize("change", [lambda text: text.rpartition("\n0")[0], lambda text: text.replace(" -1", "", 1)])
def test_a_list_that_is_cut_short(change, tmp_path):
    file, _, _ = celeba(tmp_path, 20)
    file.write_text(change(file.read_text()))
    with pytest.raises(InputError):
        open_source(f"csv:{file}")


def test_one_label_column_is_the_class(tmp_path):
    lines = [f"{number}.png,{'dog' if number % 2 else 'cat'}" for number in range(8)]
    source = open_source(written(tmp_path, rows("file,species", *lines)))
    assert (source.task, source.provides, source.classes) == ("classification", ("label",), ("cat", "dog"))
    assert source.class_attribute == "species"
    assert [source.example("train", index, (8, 8)).target for index in range(3)] == [Label(0), Label(1), Label(0)]
    # A class that is told otherwise is other data.
    digests = [source.fingerprint().digest]
    for change in (("0.png,cat", "0.png,dog"), ("3.png,dog", "3.png,")):
        text = rows("file,species", *lines).replace(*change)
        digests.append(open_source(written(tmp_path, text)).fingerprint().digest)
    assert len(set(digests)) == 3


def test_the_class_among_several(tmp_path):
    root = fairface(tmp_path, 24, 12)
    source = open_source(f"csv:{root},label=age,group=race+gender")
    whole = open_source(f"csv:{root}")
    assert (source.provides, source.classes, source.grouped_by) == (("label",), AGES, ("race", "gender"))
    kept = [index for index, age in enumerate(values(whole, "train", "age")) if age]
    assert len(kept) < 24
    assert [whole.example_name("train", index) for index in kept] == [
        source.example_name("train", index) for index in range(source.length("train"))
    ]
    for attribute in source.attributes:
        everyone = values(whole, "train", attribute)
        assert values(source, "train", attribute) == [everyone[index] for index in kept]
    assert [AGES[label] for label in source.labels_of("train")] == values(source, "train", "age")
    assert [one.path for one in source.skipped] == [str(root)]
    for wrong in ("label=height", "group=height", "group=race+height", "label=service_test"):
        with pytest.raises(InputError):
            open_source(f"csv:{root},{wrong}")
    # What else the table says is of the data too.
    digest = whole.fingerprint().digest
    table = root / "fairface_label_train.csv"
    first, second = sorted(set(said(table, "race")))[:2]
    table.write_text(table.read_text().replace(first, second, 1))
    assert open_source(f"csv:{root}").fingerprint().digest != digest


def test_a_split_without_labels_stays(tmp_path):
    lines = [f"{number}.png,{'' if number > 5 else 'ab'[number % 2]},{'test' if number > 5 else 'train'}"
             for number in range(8)]  # fmt: skip
    source = open_source(written(tmp_path, rows("path,kind,split", *lines)))
    assert source.splits == ("train",)
    assert source.unlabelled == {"test"}


def test_what_is_no_label(tmp_path):
    """A number of each row, one word for all, too many words, and what rows of an image do not agree in."""
    lines = [f"{number},{number // 2}.png,all,w{number},{number},{'ab'[number % 4 // 2]}" for number in range(16)]
    source = open_source(written(tmp_path, rows(",path,one,many,differs,kind", *lines)))
    assert source.attributes == {"kind": ("a", "b")}
    twice = [f"{number}.png,{'ab'[number % 2]}" for number in (*range(8), 3, 4, 4)]
    twice += ["4.png,b", "4.png,", "5.png,"]
    source = open_source(written(tmp_path, rows("path,kind", *twice)))
    # The class of one image is not known, and so it is left out.
    assert [source.example_name("train", index)[-5:] for index in range(source.length("train"))] == [
        f"{number}.png" for number in (0, 1, 2, 3, 5, 6, 7)
    ]
    numbers = [f"{number}.png,{(-1, 10, 9, 2.5)[number % 4]}" for number in range(8)]
    assert open_source(written(tmp_path, rows("path,kind", *numbers))).classes == ("-1", "2.5", "9", "10")
    for text in (rows("path,one", *(f"{number}.png,x" for number in range(8))), rows("species", "a", "b", "a", "b")):
        with pytest.raises(InputError):
            open_source(written(tmp_path, text))
    (tmp_path / "train.csv").unlink()
    with pytest.raises(InputError):
        open_source(f"csv:{tmp_path}")


def test_labels_beside_captions(tmp_path):
    lines = [f"{number}.png,picture {number},{'' if number == 3 else 'ab'[number % 2]}" for number in range(8)]
    spec = written(tmp_path, rows("path,caption,kind", *lines))
    source = open_source(spec)
    assert (source.provides, source.classes) == (("captions",), ())
    assert values(source, "train", "kind") == ["a", "b", "a", "", "a", "b", "a", "b"]
    assert source.example("train", 3, (8, 8)).target == Captions(("picture 3",))
    both = open_source(f"{spec},label=kind")
    assert (both.provides, both.length("train")) == (("label", "captions"), 7)
    assert both.example("train", 1, (8, 8)).target == LabelledCaptions(1, captions=("picture 1",))


def test_an_image_that_is_not_there_cannot_be_read(tmp_path):
    lines = [f"{number}.png,{'ab'[number % 2]}" for number in range(10)]
    source = open_source(written(tmp_path, rows("path,kind", *lines)))
    with pytest.raises(UnreadableDataError):
        source.check_readable("train")
    assert {one.path for one in source.check_readable("train", skip_unreadable=2)[1]} == {
        str(tmp_path / f"{number}.png") for number in (8, 9)
    }


def test_its_recipe_is_that_of_a_folder_of_classes(tmp_path):
    root = fairface(tmp_path, 24, 12)
    (tmp_path / "captions").mkdir()
    captions = written(tmp_path / "captions", rows("path,caption", *(f"{one}.png,a {one}" for one in range(4))))
    found = {}
    for spec in (f"csv:{root},label=race", f"csv:{root}", captions):
        data = TrainingData()
        found[spec] = default_recipe(spec, lambda spec, data=data: data.measure(TrainConfig(data=spec))).task
    assert list(found.values()) == ["classification", "classification", "contrastive"]


def test_each_image_is_paired_with_its_own_row(tmp_path):
    """Whatever the order of the rows."""
    root = fairface(tmp_path, 24, 12)
    before = open_source(f"csv:{root}")
    table = root / "fairface_label_train.csv"
    head, *lines = table.read_text().splitlines()
    table.write_text(rows(head, *reversed(lines)))
    after = open_source(f"csv:{root}")

    def pairs(source, attribute):
        names = [source.example_name("train", index) for index in range(source.length("train"))]
        return dict(zip(names, values(source, "train", attribute), strict=True))

    for attribute in before.attributes:
        assert pairs(before, attribute) == pairs(after, attribute)
    assert len(set(itertools.chain(*(pairs(before, one).values() for one in before.attributes)))) > 6


def test_few_images_of_many_values(tmp_path):
    """FairFace's columns, and those that an option names, may have a value for each image."""
    for number in range(3):
        Image.new("RGB", (4, 4)).save(tmp_path / f"{number}.png")
    lines = ["file,age,mood", *(f"{number}.png,{number}0-{number}9,m{number}" for number in range(3))]
    (tmp_path / "train.csv").write_text("\n".join(lines) + "\n")
    table = f"csv:{tmp_path / 'train.csv'}"
    assert list(open_source(table).attributes) == ["age"]
    assert list(open_source(f"{table},group=mood").attributes) == ["age", "mood"]
