"""What attention computes (`Pattern`, `Rotation`) and who computes it (`dispatch`, `backends`)."""

from sightline.attention.dispatch import asked_backend, attend, preferred_tile, use_backend
from sightline.attention.pattern import Directed, Pattern, Table, Term, View
from sightline.attention.rotation import Rotation, rotate

__all__ = [
    "Directed",
    "Pattern",
    "Rotation",
    "Table",
    "Term",
    "View",
    "asked_backend",
    "attend",
    "preferred_tile",
    "rotate",
    "use_backend",
]
