"""The fast gradient sign method: one step to the edge of the ball."""

from __future__ import annotations

from typing import ClassVar

from sightline.evaluation.attacks import Attack, AttackMeasure


class FGSM(AttackMeasure):
    """`fgsm_top1` and `fgsm_top5` (Goodfellow et al. 2015, section 4), as LookHere's section 4.1 measures them."""

    name: ClassVar[str] = "fgsm"
    attack: ClassVar[Attack] = Attack("fgsm")
    cost: ClassVar[int] = 5
