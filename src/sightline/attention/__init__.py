"""What attention computes (`Pattern`, `Rotation`) and who computes it (`dispatch`, `backends`)."""

from sightline.attention.dispatch import (
    Recorded,
    asked_backend,
    attend,
    computed_again,
    is_recorded,
    preferred_tile,
    recording,
    use_backend,
)
from sightline.attention.pattern import Directed, Pattern, Table, Term, View
from sightline.attention.rotation import Rotation, rotate

__all__ = [
    "Directed",
    "Pattern",
    "Recorded",
    "Rotation",
    "Table",
    "Term",
    "View",
    "asked_backend",
    "attend",
    "computed_again",
    "is_recorded",
    "preferred_tile",
    "recording",
    "rotate",
    "use_backend",
]
