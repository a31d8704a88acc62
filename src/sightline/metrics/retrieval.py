"""Which texts are found by an image, and which images by a text."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from sightline.data.batch import Batch
from sightline.metrics.base import Metric
from sightline.results.rows import FRACTION, MetricValue

_AT = (1, 5, 10)
_ROWS = 1_024


class Retrieval(Metric):
    """`image_to_text_recall_at_K` and `text_to_image_recall_at_K` for K of 1, 5 and 10: the share of images of which
    one of the K most similar texts is right, and of texts of which one of the K most similar images is (CLIP, Radford
    et al. 2021). Every text and image of the split is a candidate.

    A text is right for an image that has it as a caption, or one of the same words or, where the data says so, of the
    same meaning. Of equal similarities the wrong one counts as the better.
    """

    name: ClassVar[str] = "retrieval"
    tasks: ClassVar[tuple[str, ...]] = ("contrastive",)
    first: ClassVar[str | None] = "image_to_text_recall_at_1"

    def update(self, outputs: Any, batch: Batch) -> None:
        targets = batch.targets
        if "texts" not in targets:
            return
        images, texts = (one.numpy() for one in outputs)
        pairs = zip(targets["texts"], targets["meanings"].tolist(), strict=True)
        names = [str(meaning) if meaning >= 0 else " ".join(map(str, ids)) + "." for ids, meaning in pairs]
        self._records.append((images, texts, targets["owners"].numpy(), names))

    def rows(self) -> list[MetricValue]:
        if not self._records:
            return []
        images, texts = (np.concatenate([record[side] for record in self._records]) for side in (0, 1))
        starts = np.cumsum([0, *(len(record[0]) for record in self._records[:-1])])
        owners = np.concatenate([record[2] + start for record, start in zip(self._records, starts, strict=True)])
        _, codes = np.unique([name for record in self._records for name in record[3]], return_inverse=True)
        said = np.unique(np.stack((owners, codes), 1), axis=0)
        says = csr_array((np.ones(len(said), bool), (said[:, 0], said[:, 1])), (len(images), codes.max() + 1))
        rows = []
        for name, queries, keys, right in (
            ("image_to_text", images, texts, lambda some: says[some][:, codes].toarray()),
            ("text_to_image", texts, images, lambda some: says[:, codes[some]].toarray().T),
        ):
            ranks = np.concatenate(
                [
                    _ranks(queries[first : first + _ROWS] @ keys.T, right(slice(first, first + _ROWS)))
                    for first in range(0, len(queries), _ROWS)
                ]
            )
            for most in _AT:
                value = float((ranks < most).mean())
                metric = f"{name}_recall_at_{most}"
                counted = "images" if queries is images else "texts"
                rows.append(MetricValue(metric, value, FRACTION, len(ranks), better="higher", counted=counted))
        return rows


def _ranks(scores: np.ndarray, right: np.ndarray) -> np.ndarray:
    """How many wrong keys are before the best right one: int64 [queries]."""
    best = np.where(right, scores, -np.inf).max(axis=1, keepdims=True)
    return ((scores >= best) & ~right).sum(axis=1)
