"""A model as one file for other programs: ONNX, or torch's own exported program, for any batch, height and width.

The program takes normalised float32 images [batch, channels, height, width] whose sides are multiples of the patch, two
patches and more. torch traces it with sizes as symbols; what holds for one size alone is not in it.
"""

from sightline.export.checks import SUFFIXES as SUFFIXES
from sightline.export.checks import check_exportable as check_exportable
from sightline.export.checks import check_sizes as check_sizes
from sightline.export.checks import check_target as check_target
from sightline.export.checks import default_sizes as default_sizes
from sightline.export.compare import LIMIT as LIMIT
from sightline.export.compare import CheckRow as CheckRow
from sightline.export.compare import check_export as check_export
from sightline.export.program import METADATA as METADATA
from sightline.export.program import export_model as export_model
