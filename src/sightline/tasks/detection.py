"""Detection: which objects are where, at any size, in pixels of the stored image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from PIL import Image, ImageDraw
from pydantic import Field
from torch import Tensor

from sightline.data.batch import Batch
from sightline.data.source import Example, Source
from sightline.data.targets import Crop, Objects
from sightline.io.config import Depends, NonNegative, Positive, Share, config_dataclass
from sightline.models import ViTConfig
from sightline.models.box_head import BoxHead, BoxOutputs
from sightline.models.boxes import nms
from sightline.models.head import head_classes
from sightline.tasks.base import Task, check_classes, check_head
from sightline.tasks.box_losses import DetectionTargets, concat_padded, dense_loss, pad_stack, set_loss
from sightline.tasks.drawing import ColorKey, class_colours, class_legend
from sightline.tasks.maps import undo_fit
from sightline.tokens.layout import TokenLayout

# Boxes of an image that go into non-maximum suppression, the best first.
_NMS_CANDIDATES = 1000
_ROOM_FOR_WORDS = 96


@config_dataclass
class DetectionOptions:
    """`head`: a head that gives boxes; `head_options`: of its own.

    `threshold`: score of the class of the least sure answer that is measured; `shown`: score of the least that is told
    and drawn; `nms`: IoU beyond which the surer of two of a class hides the other (a head matched as sets needs none,
    and has none); `most`: objects of an image that are measured. `radius`: how far from an object's middle a place
    answers for it, in patches. Weights of the loss: `class_weight` of the focal one, `box_weight` of GIoU,
    `side_weight` of the distance of the sides, which sets have.
    """

    head: str = "fcos"
    head_options: dict[str, Any] = field(default_factory=dict)
    threshold: Share = 0.05
    shown: Share = 0.4
    nms: Share = 0.6
    most: Annotated[int, Field(ge=1, le=10_000)] = 100
    radius: Positive = 1.5
    class_weight: NonNegative = 1.0
    box_weight: NonNegative = 2.0
    side_weight: NonNegative = 2.0


@dataclass(frozen=True, eq=False)
class Detections:
    """What is found in a stored image, the surest first.

    Attributes:
        boxes: float32 [n, 4], (y0, x0, y1, x1) in pixels; labels: int64 [n]; scores: float32 [n], 0 to 1.
    """

    boxes: np.ndarray
    labels: np.ndarray
    scores: np.ndarray

    def at_least(self, score: float) -> Detections:
        """Those of at least this score."""
        sure = self.scores >= score
        return Detections(self.boxes[sure], self.labels[sure], self.scores[sure])

    def as_coco(self, image_id: int | str, category_ids: Sequence[int] | None = None) -> list[dict[str, Any]]:
        """As COCO has results: `bbox` is (x, y, width, height) in pixels.

        Args:
            category_ids: of each class; None numbers them from 1.
        """
        found = []
        for box, label, score in zip(self.boxes.tolist(), self.labels.tolist(), self.scores.tolist(), strict=True):
            y0, x0, y1, x1 = box
            category = label + 1 if category_ids is None else category_ids[label]
            bbox = [x0, y0, x1 - x0, y1 - y0]
            found.append({"image_id": image_id, "category_id": category, "bbox": bbox, "score": score})
        return found


class Detection(Task):
    """Boxes and classes of objects.

    Heads answer in patch units, never in fractions of the image, so that an object at twice the size is twice as many
    patches; `decode` maps that to pixels of the stored image. The loss is that of the head's kind (`dense_loss`,
    `set_loss`), a mean over what answers for an object in the whole batch, whatever the image.
    """

    name: ClassVar[str] = "detection"
    needs: ClassVar[tuple[str, ...]] = ("objects",)
    primary: ClassVar[str] = "box_ap"
    Options: ClassVar[type] = DetectionOptions

    def __init__(self, config: ViTConfig, options: DetectionOptions) -> None:
        super().__init__(config, options)
        head: Any = check_head(config.head, boxes=True)
        self.matching = head.matching

    @classmethod
    def depends(cls) -> Depends:
        heads = head_classes(BoxHead).items()
        places, sets = ([name for name, one in heads if one.matching == kind] for kind in ("places", "sets"))
        return {"radius": ("head", places), "nms": ("head", places), "side_weight": ("head", sets)}

    @classmethod
    def model_options(cls, source: Source, options: DetectionOptions) -> dict[str, Any]:
        names = tuple(source.object_classes)
        check_head(options.head, boxes=True)
        own = dict(options.head_options)
        return {"head": options.head, "head_options": own, "num_classes": len(names), "class_names": names}

    def bind(self, source: Source, data: str) -> Detection:
        check_classes(self, "objects", source.object_classes, data)
        return self

    def targets(self, examples: Sequence[Example]) -> Mapping[str, Any]:
        """Lists of what is said of each image.

        `boxes` float32 [m, 4] in patch units of the objects that are seen, `things` int64 [m], `crowds` float32 [k, 4],
        `known` bool [classes]; for those who measure, `objects` as `Objects`, and `seen` (height, width) in pixels of
        the picture before it was fitted to patches.
        """
        targets: dict[str, list[Any]] = {name: [] for name in ("boxes", "things", "crowds", "known", "objects", "seen")}
        for example in examples:
            target: Any = example.target
            objects: Objects = target.objects
            size = example.image.shape[:2]
            boxes = torch.from_numpy(self._in_patches(objects, size))
            # What is not on the picture any more has no area.
            visible = (boxes[:, 2:] > boxes[:, :2]).all(dim=1)
            crowd = torch.from_numpy(np.asarray(objects.crowd, bool))
            labels = torch.from_numpy(np.asarray(objects.labels, np.int64))
            targets["boxes"].append(boxes[visible & ~crowd])
            targets["things"].append(labels[visible & ~crowd])
            targets["crowds"].append(boxes[visible & crowd])
            targets["known"].append(self._known(objects))
            targets["objects"].append(replace(objects, masks=None))
            targets["seen"].append(size)
        return targets

    def _in_patches(self, objects: Objects, seen: tuple[int, int]) -> np.ndarray:
        """Boxes float32 [n, 4] in patch units of the picture that was seen, cut to its grid."""
        patch, grid = self.config.patch_size, self.config.grid_of(seen)
        # Where answers are measured, objects are those of the stored image.
        sides = [side * patch for side in grid] if self.config.fit == "resize" else seen
        scale = [side / (patch * whole) for side, whole in zip(sides, objects.size, strict=True)]
        return (objects.boxes * (scale * 2)).clip(0, [*grid, *grid]).astype(np.float32)

    def _known(self, objects: Objects) -> Tensor:
        """Of which classes all objects are said, or that there is none: bool [classes] (LVIS, Gupta et al. 2019)."""
        known = torch.full((self.config.num_classes,), objects.negative_classes is None)
        if objects.negative_classes is not None:
            known[list(objects.negative_classes)] = True
            known[objects.labels.tolist()] = True
        known[list(objects.non_exhaustive_classes)] = False
        return known

    def loss(self, outputs: list[BoxOutputs], targets: Mapping[str, Any], layout: TokenLayout) -> tuple[Tensor, int]:
        """The sum over what answers for an object; units are how many do."""
        if not outputs:
            return torch.zeros(()), 0
        options = self.options
        found, real = concat_padded(outputs)
        boxes, valid = pad_stack(targets["boxes"])
        (labels, _), (crowds, _) = pad_stack(targets["things"]), pad_stack(targets["crowds"])
        objects = DetectionTargets(boxes, labels, valid, crowds, torch.stack(targets["known"]))
        weights = {"classes": options.class_weight, "overlap": options.box_weight}
        if self.matching == "places":
            return dense_loss(found, objects, real, radius=options.radius, **weights)
        return set_loss(found, objects, real, sides=options.side_weight, **weights)

    def split_outputs(self, outputs: list[BoxOutputs], layout: TokenLayout) -> list[BoxOutputs]:
        """What is found in each image, without the first axis."""
        return [
            {name: one[row] for name, one in found.items()} for found in outputs for row in range(len(found["logits"]))
        ]

    def decode(self, output: BoxOutputs, crop: Crop) -> Detections:
        """The objects of the stored image, the surest first: scores are sigmoids, or the root of their product with
        `quality`'s where the head says it (as FCOS' centre-ness). What has no area on the image is no object."""
        options, config = self.options, self.config
        patch, grid = config.patch_size, config.grid_of(crop.image_size)
        # In patches, of the picture without what it was padded with.
        sides = [float(side) for side in grid] if config.fit == "resize" else [one / patch for one in crop.image_size]
        limits = torch.tensor(sides * 2)
        boxes = torch.minimum(output["boxes"], limits).clamp_min(0)
        has_area = (boxes[:, 2:] > boxes[:, :2]).all(dim=1)
        scores = output["logits"].sigmoid()
        number, labels = ((scores >= options.threshold) & has_area[:, None]).nonzero(as_tuple=True)
        boxes, scores = boxes[number], scores[number, labels]
        if "quality" in output:
            scores = (scores * output["quality"].sigmoid()[number]).sqrt()
        if self.matching == "places":
            best = nms(boxes, scores, labels, options.nms, _NMS_CANDIDATES)[: options.most]
        else:
            best = scores.argsort(descending=True, stable=True)[: options.most]
        fractions = (boxes[best] / limits).numpy()
        return Detections(stored(fractions, crop), labels[best].numpy(), scores[best].numpy())

    def results(self, outputs: list[BoxOutputs], batch: Batch) -> list[dict[str, np.ndarray]]:
        """The fields of `Detections` of each image, in pixels of the stored one."""
        results, targets = [], batch.targets
        each = zip(self.split_outputs(outputs, batch.layout), targets["objects"], targets["seen"], strict=True)
        for output, objects, size in each:
            found = self.decode(output, Crop((0, 0, *objects.size), tuple(size)))
            results.append(vars(found) | {"boxes": found.boxes + np.array(objects.origin * 2, np.float32)})
        return results

    def pictures(self, decoded: Detections, image: np.ndarray) -> Mapping[str, Image.Image]:
        """The image with the boxes that are sure enough to be shown, and their classes."""
        return {"overlay": self._drawn(image, decoded.at_least(self.options.shown))}

    def comparison_images(
        self, output: BoxOutputs, targets: Mapping[str, Any], number: int, image: np.ndarray
    ) -> tuple[Image.Image, Image.Image, Image.Image]:
        objects: Objects = targets["objects"][number]
        size = tuple(targets["seen"][number])
        found = self.decode(output, Crop((0, 0, *objects.size), size))
        true = Detections(objects.boxes, objects.labels, np.ones(len(objects.boxes)))
        seen = Image.fromarray(undo_fit(self.config, image, size)).resize((objects.size[1], objects.size[0]))
        drawn = (self._drawn(np.asarray(seen), one) for one in (true, found.at_least(self.options.shown)))
        return seen, next(drawn), next(drawn)

    def color_key(self) -> ColorKey:
        return class_legend(self.names, first=1)

    def _drawn(self, image: np.ndarray, sure: Detections) -> Image.Image:
        """An image with boxes, and on one that is large enough for words their classes and scores."""
        picture = Image.fromarray(image)
        draw, colours = ImageDraw.Draw(picture), class_colours(len(self.names) + 1)[1:]
        width = max(1, round(min(image.shape[:2]) / 200))
        # The surest last, over the others.
        for box, thing, score in list(zip(sure.boxes.tolist(), sure.labels, sure.scores, strict=True))[::-1]:
            y0, x0, y1, x1 = box
            colour = tuple(colours[thing].tolist())
            # Pillow's corners are pixels, both inside.
            right, bottom = max(x1 - 1, x0), max(y1 - 1, y0)
            draw.rectangle((x0, y0, right, bottom), outline=colour, width=width)
            if min(image.shape[:2]) >= _ROOM_FOR_WORDS:
                draw.text((x0 + width + 1, y0 + width), f"{self.names[thing]} {score:.2f}", fill=colour)
        return picture

    def to_json(self, output: Detections, image_size: tuple[int, int], topk: int) -> dict[str, Any]:
        """Every object that is sure enough to be shown, whatever `topk`: its class, score and box (x, y, width, height)
        in pixels, as COCO has it."""
        sure = output.at_least(self.options.shown)
        named = zip(sure.labels.tolist(), sure.as_coco(""), strict=True)
        return {"objects": [{"class": self.names[one], "score": it["score"], "box": it["bbox"]} for one, it in named]}

    def describe(self, answer: Mapping[str, Any]) -> str:
        said = [
            f"{one['class']} {one['score']:.2f} at y {y:.0f}-{y + height:.0f}, x {x:.0f}-{x + width:.0f}"
            for one in answer["objects"]
            for x, y, width, height in [one["box"]]
        ]
        return "; ".join(said) or "no object"


def stored(fractions: np.ndarray, crop: Crop) -> np.ndarray:
    """Boxes float32 [n, 4] as fractions of the picture that was shown, in pixels of the one that is stored."""
    if crop.mirrored:
        fractions = fractions[:, [0, 3, 2, 1]] * [1, -1, 1, -1] + [0, 1, 0, 1]
    y0, x0, y1, x1 = crop.box
    return (fractions * ([y1 - y0, x1 - x0] * 2) + [y0, x0] * 2).astype(np.float32)
