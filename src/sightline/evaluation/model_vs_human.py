"""Error consistency between two models on the images of the suite model-vs-human."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sightline.errors import InputError
from sightline.evaluation.logits import StoredLogits, rescore
from sightline.results.rows import ResultRow

MODEL_VS_HUMAN = "model-vs-human"
"""The suite, and what its rows say they are of."""


def error_consistency(first: StoredLogits, second: StoredLogits) -> list[ResultRow]:
    """Cohen's kappa of what two models name rightly (Geirhos et al. 2020), on the images that both have: as rows of the
    first have it of people, the mean over sets, and of each set the mean over the levels that count.

    Raises:
        InputError: they are not of that suite, or share no image.
    """
    scored = second.scored()[0]
    right = (scored.logits.argmax(axis=1) == scored.labels).tolist()
    signs = {key: str(int(one)) for key, one in zip(map(image_key, second.slices, second.names), right, strict=True)}
    keys = zip(first.slices, map(image_key, first.slices, first.names), strict=True)
    slices = [{**some, "people": signs.get(key, "-")} for some, key in keys]
    rows = [row for row in rescore(replace(first, slices=slices)) if row.metric == "error_consistency"]
    if not rows:
        raise InputError("error consistency: the two files of logits share no image of the suite model-vs-human")
    return rows


def image_key(slices: Mapping[str, str | float], name: str) -> tuple[str | float, ...]:
    """The set and level of an image, and what it is called whoever was shown it: the last two parts of its name where
    the first of these is a synset (n02951358_5952.JPEG), else the last one."""
    *_, before, last = ["", *name.rpartition("/")[2].split("_")]
    called = f"{before}_{last}" if before.startswith("n0") else last
    return slices.get("set", ""), slices.get("level", ""), called
