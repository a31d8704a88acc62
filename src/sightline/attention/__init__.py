"""What attention computes (`Pattern`, `Rotation`) and who computes it (`dispatch`, `backends`)."""

from sightline.attention.dispatch import (
    AttentionRecord,
    asked_backend,
    attend,
    computed_again,
    preferred_tile,
    record_attention,
    use_backend,
)
from sightline.attention.pattern import BiasTerm, DirectedBias, FieldOfView, Pattern, TableBias
from sightline.attention.rotation import Rotation, rotate

__all__ = [
    "AttentionRecord",
    "BiasTerm",
    "DirectedBias",
    "FieldOfView",
    "Pattern",
    "Rotation",
    "TableBias",
    "asked_backend",
    "attend",
    "computed_again",
    "preferred_tile",
    "record_attention",
    "rotate",
    "use_backend",
]
