"""`sightline pack stats`: figures, a histogram, and what is refused."""

from __future__ import annotations

import json

import pytest

from tests.cli.test_next_step import following

WORDS = ["pack", "stats", "scenes", "--resolutions", "64..256", "--images", 500]


def test_the_next_command_has_the_options_that_were_given(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = ["--sequence-length", 256, "--packing", "best_fit", "--drop", 0.5, "--most-images", 9, "--seed", 3]
    asked += ["--patch-size", 8]
    code, out, err = cli("pack", "stats", "scenes:pairs", "--images", 50, "--resolutions", "16..32", *asked)
    assert code == 0, err
    words = following(out)
    code, out, err = cli(*words, "--dry-run", "--json", "--threads", 1)
    assert code == 0, err
    config = json.loads(out)["config"]
    assert (config["data"], config["seed"], config["model_options"]["patch_size"]) == ("scenes:pairs", 3, 8)
    expected = {"tokens": 256, "algorithm": "best_fit", "most_images": 9, "resolutions": [16, 32], "drop": "constant"}
    assert expected.items() <= config["packing"].items()
    assert config["packing"]["drop_options"] == {"drop": 0.5}
    (tmp_path / words[words.index("--out") + 1]).mkdir(parents=True)
    assert following(cli("pack", "stats", "scenes:pairs", "--images", 9)[1])[-1] == "runs/scenes_pairs_packed_2"


def test_json_adds_up(cli):
    code, out, _ = cli(*WORDS, "--json", "--drop", 0.5, "--packing", "first_fit", "--most-images", 7)
    assert code == 0
    found = json.loads(out)
    assert found["images"] == 500
    assert found["mean_images_per_sequence"] == pytest.approx(500 / found["sequences"])
    assert found["max_images_per_sequence"] <= 7
    assert found["tokens"] == pytest.approx(found["dropped_tokens"], rel=0.03)
    assert found["tokens"] == pytest.approx(found["mean_tokens_per_image"] * 500)
    costs = [found[f"padding_to_{lengths}"] for lengths in ("1_length", "2_lengths", "4_lengths")]
    assert 0 <= costs[2] < costs[1] < costs[0] < 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--resolutions", "256..64"], "--resolutions 256..64"),
        (["--patch-size", "0"], "--patch-size 0"),
        (["--drop", "1.5"], "1.5"),
        (["--split", "tests"], "did you mean 'test'"),
    ],
)
def test_what_is_refused(words, says, refused):
    refused("pack", "stats", "scenes", *words, says=[says])


def test_no_end_of_images(refused):
    refused("pack", "stats", "scenes", "--images", 10**23, says=["images", "at most 10,000,000"])
