"""A model as one file for other programs: ONNX, or torch's own exported program, for any batch, height and width.

The program takes normalised float32 images [batch, channels, height, width] whose sides are multiples of the patch, two
patches and more. torch traces it with sizes as symbols; what holds for one size alone is not in it.
"""

from sightline.export.compare import LIMIT, CheckRow, check_export
from sightline.export.program import METADATA, export_model
from sightline.export.refusals import (
    SUFFIXES,
    check_exportable,
    check_memory,
    check_sizes,
    check_target,
    default_sizes,
)

__all__ = [
    "LIMIT",
    "METADATA",
    "SUFFIXES",
    "CheckRow",
    "check_export",
    "check_exportable",
    "check_memory",
    "check_sizes",
    "check_target",
    "default_sizes",
    "export_model",
]
