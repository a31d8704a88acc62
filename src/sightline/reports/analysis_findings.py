"""Whether LookHere's heads are as its paper found them, from rows; no verdict where models cannot be compared."""

from __future__ import annotations

from collections.abc import Sequence

from sightline.reports.analysis_plots import sizes_of
from sightline.reports.analysis_words import DIVERSITY, LENS_MIOU, ReachedExtreme, is_lookhere, lookhere_sentence
from sightline.results.analysis import AnalysisRow

# What is compared, (measure, quantity), and in whose words.
_DIVERSITY, _MIOU = ("head_diversity", "jsd"), ("lens_miou", "miou")


def findings(rows: Sequence[AnalysisRow]) -> list[str]:
    """A sentence for each size on head diversity (the mean over layers) and on the logit lens's mIoU (of the last
    layer), where models with LookHere and with another encoding were measured there on as many images.

    Of models that differ in layers, heads or patches it says that alone: the diversity of more heads has another
    ceiling, and smaller patches draw finer maps.
    """
    said = []
    for group, told in ((_DIVERSITY, DIVERSITY), (_MIOU, LENS_MIOU)):
        some = [row for row in rows if (row.measure, row.metric) == group and _is_compared(row)]
        for size in sizes_of(some):
            here = [row for row in some if row.size == size]
            if len({is_lookhere(row.encoding) for row in here}) < 2 or len({row.count for row in here}) > 1:
                continue
            if len({(row.depth, row.heads, row.patch_size) for row in here}) > 1:
                said.append(
                    f"At {here[0].shown}, no verdict on {told[0]}: the models differ in layers, heads or patches."
                )
                continue
            found = [ReachedExtreme(row.encoding, row.value, row.interval, row.run) for row in here]
            said.append(lookhere_sentence(found, *told, unit=here[0].unit, at=here[0].shown))
    return said


def _is_compared(row: AnalysisRow) -> bool:
    return row.of_all_layers if (row.measure, row.metric) == _DIVERSITY else row.layer == row.depth - 1
