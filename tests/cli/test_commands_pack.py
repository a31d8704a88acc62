"""`sightline pack stats`: figures, a histogram, and what is refused."""

from __future__ import annotations

import json

import pytest

WORDS = ["pack", "stats", "scenes", "--resolutions", "64..256", "--images", 500]


def test_figures_and_a_histogram(cli):
    code, out, _ = cli(*WORDS)
    assert code == 0
    for words in ("images a sequence", "unused", "padding factor", "tokens of an image", "#"):
        assert words in out
    assert max(map(len, out.splitlines())) <= 80


def test_json_adds_up(cli):
    code, out, _ = cli(*WORDS, "--json", "--drop", 0.5, "--packing", "first_fit", "--most-images", 7)
    assert code == 0
    found = json.loads(out)
    assert found["images"] == 500
    assert found["images_a_sequence"] == pytest.approx(500 / found["sequences"])
    assert found["most_images_a_sequence"] <= 7
    assert found["tokens"] == pytest.approx(found["dropped_tokens"], rel=0.03)
    assert found["tokens"] == pytest.approx(found["tokens_an_image"] * 500)
    costs = [found[f"padding_at_{lengths}"] for lengths in ("1_length", "2_lengths", "4_lengths")]
    assert 0 <= costs[2] < costs[1] < costs[0] < 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--resolutions", "256..64"], "--resolutions 256..64"),
        (["--resolutions", "big"], "--resolutions big"),
        (["--patch-size", "0"], "--patch-size 0"),
        (["--images", "0"], "--images 0"),
        (["--sequence-length", "0"], "0"),
        (["--drop", "1.5"], "1.5"),
        (["--split", "tests"], "did you mean 'test'"),
        (["--packing", "worst_fit"], "worst_fit"),
    ],
)
def test_what_is_refused(words, says, refused):
    refused("pack", "stats", "scenes", *words, says=[says])


def test_no_end_of_images(refused):
    refused("pack", "stats", "scenes", "--images", 10**23, says=["images", "at most 10,000,000"])
