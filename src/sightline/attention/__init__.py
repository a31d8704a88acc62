"""What attention computes (`Pattern`, `Rotation`) and who computes it (`dispatch`, `backends`)."""

from sightline.attention.dispatch import attend
from sightline.attention.pattern import Directed, Pattern, Table, Term, View
from sightline.attention.rotation import Rotation, rotate

__all__ = ["Directed", "Pattern", "Rotation", "Table", "Term", "View", "attend", "rotate"]
