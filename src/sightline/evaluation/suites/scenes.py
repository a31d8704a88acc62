"""The embedded scenes as a suite: what a model that was trained on them is tested on, with no file at all."""

from __future__ import annotations

from typing import ClassVar

from sightline.evaluation.suites.base import OpenedSuite, Suite, of_source


class ScenesSuite(Suite):
    """`scenes`, or `scenes:pairs` and the like: the test split, and of glyphs the fonts that were held out."""

    name: ClassVar[str] = "scenes"

    @classmethod
    def open(cls, argument: str) -> OpenedSuite:
        return of_source(f"scenes:{argument}" if argument else "scenes")
