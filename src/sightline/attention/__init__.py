"""What attention computes (`Pattern`, `Rotation`), and who computes it (`dispatch`)."""

from sightline.attention.dispatch import (
    AttentionCall,
    AttentionRecord,
    AttentionSpec,
    attend,
    plan_attention,
    preferred_tile,
    record_attention,
    use_backend,
)
from sightline.attention.pattern import BiasTerm, DirectedBias, FieldOfView, Pattern, TableBias
from sightline.attention.rotation import Rotation, RotationTensors, rotate

__all__ = [
    "AttentionCall",
    "AttentionRecord",
    "AttentionSpec",
    "BiasTerm",
    "DirectedBias",
    "FieldOfView",
    "Pattern",
    "Rotation",
    "RotationTensors",
    "TableBias",
    "attend",
    "plan_attention",
    "preferred_tile",
    "record_attention",
    "rotate",
    "use_backend",
]
