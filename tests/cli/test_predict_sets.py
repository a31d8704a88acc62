"""`sightline predict RUN wds:SHARDS`: the images of a data set, as files are answered."""

from __future__ import annotations

import json
import os

import pytest
import torch

from sightline.distributed.ranks import Ranks
from sightline.hub.load import load_model
from sightline.runs import predict as answers
from sightline.runs.predict import PredictRequest, list_inputs, write_answers
from sightline.runs.progress import Progress
from sightline.tasks.base import task_of
from tests.data.three_kinds import images, made
from tests.ranks import together


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    with made(tmp_path_factory.mktemp("sets"), images(count=6)) as data:
        yield data


def said(out):
    """What is said of each image, but for its name."""
    lines = [json.loads(line) for line in out.splitlines()]
    names = [line.pop("image") for line in lines]
    return names, sorted(json.dumps(line) for line in lines)


def test_every_kind_is_answered_as_its_files(cli, tiny_run, sets):
    answered = {}
    for kind, spec in sets.items():
        code, out, err = cli("predict", tiny_run, spec, "--json", "--precision", "float32")
        assert code == 0, err
        answered[kind] = said(out)
    files = [name for name in answered["imagefolder"][0] if os.path.isfile(name)]
    assert len(files) == len(answered["imagefolder"][0]) > 10
    code, out, _ = cli("predict", tiny_run, *files, "--json", "--precision", "float32")
    assert code == 0
    assert said(out) == answered["imagefolder"]
    for kind, (names, lines) in answered.items():
        assert len(set(names)) == len(files), kind
        assert lines == answered["imagefolder"][1], kind
    assert all(":" in name for name in answered["wds"][0])


def shared(ranks: Ranks, run, spec, out):
    """As the command does: the first lists, the others find the bytes by what it says."""
    torch.set_num_threads(1)
    answers._PARTS = 4
    files = list_inputs(run, (spec,), Progress(), ranks)
    model = load_model(run)
    asked = PredictRequest(model, task_of(model), "native", None, "float32", 10**6, 3)
    return write_answers(asked, files, out, ranks, lambda _: None)


@pytest.mark.slow
def test_ranks_share_the_images_of_shards(tiny_run, sets, tmp_path):
    shared(Ranks(), tiny_run, sets["wds"], tmp_path / "one.jsonl")
    assert together(2, shared, tiny_run, sets["wds"], tmp_path / "two.jsonl") == [[], []]
    content = (tmp_path / "one.jsonl").read_bytes()
    assert (tmp_path / "two.jsonl").read_bytes() == content
    assert b"error" not in content
    assert len(content.splitlines()) > 10
