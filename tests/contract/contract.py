"""What every position encoding promises, as functions of its name: also for one from outside the package."""

from __future__ import annotations

import copy
import io
import math
import pickle
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from sightline.attention import BiasTerm, Pattern, Rotation, rotate
from sightline.attention.content_bias import TokenPairs, content_of_scores
from sightline.encodings import PositionEncoding, list_encodings
from sightline.errors import InputError
from sightline.models import VisionTransformer, create_model
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from tests.contract.randomise import randomise_parameters

# Trained on 6 x 8 patches: not square, so that swapped axes show there too.
TRAIN = Grid(6, 8)
PATCH = 4
SIZES = [Grid(1, 1), Grid(1, 7), Grid(3, 5), Grid(5, 3), Grid(14, 14)]
LOGITS = 2e-5
GRADIENTS = 1e-4
SPREAD = 0.02


def build(name: str, pool: str = "cls", seed: int = 0, **overrides) -> VisionTransformer:
    """A small model with random values everywhere."""
    torch.manual_seed(seed)
    settings = {"dim": 96, "depth": 2, "image_size": (TRAIN.rows * PATCH, TRAIN.cols * PATCH), **overrides}
    model = create_model("vit_micro_patch4", encoding=name, num_classes=5, pool=pool, **settings)
    return randomise_parameters(model, seed).eval()


def images(grid: tuple[int, int], count: int = 2, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 3, grid[0] * PATCH, grid[1] * PATCH, generator=generator)


def loss_of(logits: Tensor) -> Tensor:
    """A sum over images, so that the loss of a list is the sum of theirs, with another weight for each class."""
    return (logits * torch.linspace(-1, 2, logits.shape[-1])).sum() + logits.square().sum()


def gradients(model: VisionTransformer) -> dict[str, Tensor]:
    found = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    model.zero_grad(set_to_none=True)
    return found


def assert_spread(logits: Tensor) -> None:
    assert logits.isfinite().all()
    assert logits.std() > SPREAD, f"the outputs hardly differ ({logits.std():.1e}): nothing would be shown"


def sees_places(model: VisionTransformer) -> bool:
    return model.config.encoding != "none"


def check_builds_by_name_alone(name: str, pool: str = "cls") -> None:
    assert all(part in list_encodings() for part in name.split("+"))
    model = create_model("vit_micro_patch4", encoding=name, num_classes=5, pool=pool)
    assert isinstance(model.encoding, PositionEncoding)
    assert model.encoding.name == name
    assert model.encoding.source
    assert model.encoding.extrapolation
    randomise_parameters(model).eval()
    with torch.no_grad():
        logits = torch.cat([model(images((8, 8))), model(images((11, 5)))])
    assert logits.shape == (4, 5)
    assert_spread(logits)


def check_any_size_after_training_on_another(name: str, pool: str = "cls") -> None:
    model = build(name, pool).train()
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(2):
        optimiser.zero_grad()
        loss_of(model(images(TRAIN, seed=step))).backward()
        optimiser.step()
    model.eval()
    with torch.no_grad():
        for grid in SIZES:
            given = images(grid)
            features, logits = model.forward_features(given), model(given)
            assert features.shape == (2, model.num_prefix_tokens + grid.cells, 96)
            assert features.isfinite().all()
            assert logits.shape == (2, 5)
            assert_spread(logits)


def check_shape_and_not_count(name: str, pool: str = "cls") -> None:
    """224 x 224 and 112 x 448 have equally many patches: the same patches in another shape are another image."""
    model = build(name, pool)
    patches = torch.randn(2, 196, 3 * PATCH**2)
    results = []
    for grid in [(14, 14), (7, 28), (28, 7), (14, 14)]:
        layout = TokenLayout.uniform(grid, 2, num_prefix_tokens=model.num_prefix_tokens)
        with torch.no_grad():
            results.append(model(patches, layout=layout))
    assert_spread(results[0])
    assert torch.equal(results[0], results[3])
    for other in results[1:3]:
        difference = (results[0] - other).abs().max()
        assert difference > 1e-3 if sees_places(model) else difference < LOGITS


def check_list_equals_batch(name: str, pool: str = "cls") -> None:
    """An image gives the same logits and gradients alone, in a batch and in a list of several sizes."""
    model = build(name, pool)
    grids = [(3, 5), (5, 3), (1, 1), TRAIN, (3, 5), (7, 2)]
    singles = [images(grid, 1, seed) for seed, grid in enumerate(grids)]
    alone = torch.cat([model(image) for image in singles])
    loss_of(alone).backward()
    expected = gradients(model)
    together = model([image[0] for image in singles])
    loss_of(together).backward()
    found = gradients(model)
    assert_spread(alone.detach())
    assert (alone - together).abs().max() < LOGITS
    assert_same_gradients(found, expected)

    batch = images((5, 3), 3)
    assert (model(batch) - model(list(batch))).abs().max() < LOGITS
    features, listed = model.forward_features(batch), model.forward_features(list(batch))
    assert isinstance(listed, list)
    assert (features - torch.stack(listed)).abs().max() < LOGITS


def assert_same_gradients(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, theirs in expected.items():
        assert (found[name] - theirs).norm() <= GRADIENTS * theirs.norm(), name


def check_every_parameter_gets_a_gradient(name: str, pool: str = "cls") -> None:
    for train in (TRAIN, (3, 5)):
        model = build(name, pool).train()
        loss_of(model(images(train, 3))).backward()
        found = gradients(model)
        for parameter, _ in model.named_parameters():
            assert parameter in found, parameter
            assert found[parameter].isfinite().all(), parameter
            assert found[parameter].norm() > 1e-6, parameter
            # A table that is half dead on the grid that it is trained on is not read where it should be. (Of the last
            # layer a CLS token alone reads little: not the scores among patches.)
            if parameter.startswith("encoding") and train == TRAIN and pool != "cls":
                assert (found[parameter] != 0).float().mean() > 0.7, parameter


def check_swapped_patches(name: str, pool: str = "cls") -> None:
    model = build(name, pool)
    layout = TokenLayout.uniform((4, 5), 1, num_prefix_tokens=model.num_prefix_tokens)
    patches = torch.randn(1, 20, 3 * PATCH**2)
    with torch.no_grad():
        before = model(patches, layout=layout)
        for _ in range(3):
            one, other = torch.randperm(20)[:2].tolist()
            swapped = patches.clone()
            swapped[:, [one, other]] = patches[:, [other, one]]
            difference = (model(swapped, layout=layout) - before).abs().max()
            assert difference > 1e-4 if sees_places(model) else difference < LOGITS, (one, other)


def check_rows_are_not_columns(name: str, pool: str = "cls") -> None:
    """The same patches with x and y exchanged, on a square and on a rectangle."""
    model = build(name, pool)
    for rows, cols in [(5, 5), (3, 5), (1, 7)]:
        patches = torch.randn(1, rows, cols, 3 * PATCH**2)
        results = []
        for one in (patches, patches.transpose(1, 2)):
            layout = TokenLayout.uniform(tuple(one.shape[1:3]), 1, num_prefix_tokens=model.num_prefix_tokens)
            with torch.no_grad():
                results.append(model(one.flatten(1, 2), layout=layout))
        difference = (results[0] - results[1]).abs().max()
        assert difference < LOGITS if model.encoding.symmetric else difference > 1e-4, (rows, cols)


def check_shifted_coordinates(name: str, pool: str = "cls") -> None:
    """Rotated scores and patterns of patches depend on their displacements alone: a part of a larger image that
    stands elsewhere gets the same ones."""
    model = build(name, pool)
    encoding, heads = model.encoding, 12
    layout = TokenLayout.uniform((9, 11), 1, num_prefix_tokens=model.num_prefix_tokens)
    kept = layout.keep(torch.tensor([[0, 1, 3, 12, 24, 37]]))
    segment = kept.segments[0]
    moved_segment = replace(segment, coords=segment.coords + torch.tensor([4, 6]))
    moved = TokenLayout((moved_segment,), rows=1, num_prefix_tokens=layout.num_prefix_tokens)
    q, k = torch.randn(2, 1, heads, kept.slots, 96 // heads)
    for layer in range(2):
        first, second = (scores_of(encoding, layer, where, q, k) for where in (kept, moved))
        prefix = layout.num_prefix_tokens
        assert torch.allclose(first[..., prefix:, prefix:], second[..., prefix:, prefix:], rtol=1e-5, atol=1e-4)


def scores_of(encoding: PositionEncoding, layer: int, layout: TokenLayout, q: Tensor, k: Tensor) -> Tensor:
    """Scores before the softmax, written out: [rows, heads, slots, slots]."""
    with torch.no_grad():
        rotation = encoding.rotation(layer, layout)
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        pattern = encoding.pattern(layer, layout)
        if pattern is not None:
            segment, prefix = layout.segments[0], layout.num_prefix_tokens
            scores = scores + pattern.bias(segment, segment, prefix, prefix)
            content = content_of_scores(pattern, q, k, TokenPairs(segment, segment, prefix, prefix))
            scores = scores if content is None else scores + content
    return scores


def check_state_round_trip(name: str, pool: str = "cls") -> None:
    model, other = build(name, pool, seed=1), build(name, pool, seed=2)
    given = [images((3, 5), 1)[0], images((8, 6), 1)[0]]
    with torch.no_grad():
        expected = model(given)
        assert not torch.equal(other(given), expected)
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        file.seek(0)
        other.load_state_dict(torch.load(file, weights_only=True), strict=True)
        assert torch.equal(other(given), expected)
        for clone in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert torch.equal(clone(given), expected)


def check_two_instances_do_not_share(name: str, pool: str = "cls") -> None:
    first = build(name, pool, seed=1)
    second = copy.deepcopy(first)
    randomise_parameters(second.encoding, seed=7)
    knob = second.knob
    if knob is not None:
        second.set_knob(next(value for value in knob.candidates if value != knob.value))
    given = images((5, 4))
    with torch.no_grad():
        one, other, again = first(given), second(given), first(given)
    assert torch.equal(one, again)
    changed = knob is not None or any(True for _ in second.encoding.parameters())
    assert (one - other).abs().max() > 1e-4 if changed else torch.equal(one, other)


def check_order_of_sizes(name: str, pool: str = "cls") -> None:
    grids = [(3, 5), (5, 3), (8, 8), (1, 15), (4, 16), TRAIN]
    model = build(name, pool)
    with torch.no_grad():
        forwards = {grid: model(images(grid)) for grid in grids}
        backwards = {grid: model(images(grid)) for grid in reversed(grids)}
        for grid in grids:
            fresh = build(name, pool)
            assert torch.equal(forwards[grid], backwards[grid])
            assert torch.equal(forwards[grid], fresh(images(grid)))


def check_neighbours_do_not_matter(name: str, pool: str = "cls") -> None:
    """Another order, and other neighbours in the same places, junk and NaN among them."""
    model = build(name, pool)
    given = [images(grid, 1, seed)[0] for seed, grid in enumerate([(3, 5), (2, 2), TRAIN, (5, 3)])]
    with torch.no_grad():
        before = model(given)
        for order in ([2, 0, 3, 1], [3, 2, 1, 0]):
            assert (model([given[index] for index in order]) - before[order]).abs().max() < LOGITS
        for junk in (1e4, math.nan):
            changed = [given[0], torch.full_like(given[1], junk), given[2], torch.full_like(given[3], junk)]
            assert torch.equal(model(changed)[[0, 2]], before[[0, 2]])
        batch = torch.stack([given[0], torch.full_like(given[0], math.nan)])
        assert (model(batch)[0] - before[0]).abs().max() < LOGITS


class _Hidden(BiasTerm):
    """No patch attends to these keys: what dropping tokens means, done by hand on the whole image."""

    def __init__(self, hidden: Tensor, heads: int) -> None:
        self.hidden, self.heads = hidden, heads

    def relative(self, grid: Grid, device: torch.device) -> Tensor:
        return torch.zeros(self.heads, 2 * grid.rows - 1, 2 * grid.cols - 1, device=device)

    def by_key(self, grid: Grid, device: torch.device) -> Tensor:
        return (self.hidden.float() * -1e30).reshape(grid).expand(self.heads, -1, -1)


def check_dropped_tokens(name: str, pool: str = "cls") -> None:
    """Dropping tokens equals masking them by hand; prefix tokens are left out, so that nothing else sees them."""
    model = build(name, "mean")
    whole = TokenLayout.uniform((4, 5), 2, num_prefix_tokens=0)
    patches = torch.randn(2, 20, 3 * PATCH**2)
    kept = torch.stack([torch.randperm(20)[:7] for _ in range(2)])
    dropped = model.forward_features(torch.take_along_dim(patches, kept.unsqueeze(-1), 1), layout=whole.keep(kept))
    pattern = model.encoding.pattern
    for row in range(2):
        hidden = torch.ones(20, dtype=torch.bool).index_fill(0, kept[row], False)

        def hiding(layer, layout, hidden=hidden):
            own = pattern(layer, layout)
            rest = Pattern((_Hidden(hidden, 12),))
            return rest if own is None else own + rest

        model.encoding.pattern = hiding
        one = TokenLayout.uniform((4, 5), 1, num_prefix_tokens=0)
        masked = model.forward_features(patches[row : row + 1], layout=one)[0, kept[row]]
        assert masked.std() > SPREAD
        assert (masked - dropped[row]).abs().max() < LOGITS
    del model.encoding.pattern
    # All of them, in another order, are the whole image.
    order = torch.randperm(20).expand(2, -1)
    shuffled = model(torch.take_along_dim(patches, order.unsqueeze(-1), 1), layout=whole.keep(order))
    assert (shuffled - model(patches, layout=whole)).abs().max() < LOGITS


def check_knob(name: str, pool: str = "cls") -> None:
    model = build(name, pool)
    knob, given = model.knob, images((5, 7))
    if knob is None:
        with pytest.raises(InputError, match="no knob"):
            model.set_knob(1.0)
        return
    assert knob.low <= min(knob.candidates) <= knob.default <= max(knob.candidates) <= knob.high
    assert knob.default in knob.candidates
    assert knob.value == knob.default
    with torch.no_grad():
        before = model(given)
        model.set_knob(knob.candidates[-1])
        assert model.knob.value == knob.candidates[-1]
        assert model.knob.default == knob.default
        assert (model(given) - before).abs().max() > 1e-4
        model.set_knob(knob.default)
        assert torch.equal(model(given), before)
    for wrong in (knob.low - 1, math.nan, math.inf, "1", True):
        with pytest.raises(InputError, match=knob.name):
            model.set_knob(wrong)
    assert model.knob.value == knob.default


def hooks_of(encoding: PositionEncoding, layer: int, layout: TokenLayout) -> list[Tensor]:
    """What the three hooks give, as tensors; of a pattern the tables of its terms."""
    rotation: Rotation | None = encoding.rotation(layer, layout)
    pattern, segment = encoding.pattern(layer, layout), layout.segments[0]
    terms = () if pattern is None else pattern.terms
    found = [encoding.added(layer, layout), None if rotation is None else rotation.angles]
    for term in terms:
        found += [term.relative(segment.grid, layout.device), term.by_key(segment.grid, layout.device), term.prefix()]
    return [one.detach() for one in found if one is not None]


def check_precision_under_autocast(name: str, pool: str = "cls") -> None:
    """Positions, angles and biases are float32 whatever the precision of the activations."""
    model = build(name, pool)
    layout = TokenLayout.uniform((32, 32), 1, num_prefix_tokens=model.num_prefix_tokens)
    for layer in range(2):
        expected = hooks_of(model.encoding, layer, layout)
        with torch.autocast("cpu", torch.bfloat16):
            found = hooks_of(model.encoding, layer, layout)
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == torch.float32
            assert (one - other).abs().max() <= 1e-5


# With each pooling.
FOR_EACH_POOL = [
    check_builds_by_name_alone,
    check_any_size_after_training_on_another,
    check_list_equals_batch,
    check_every_parameter_gets_a_gradient,
]
ONCE = [
    check_shape_and_not_count,
    check_swapped_patches,
    check_rows_are_not_columns,
    check_shifted_coordinates,
    check_state_round_trip,
    check_two_instances_do_not_share,
    check_order_of_sizes,
    check_neighbours_do_not_matter,
    check_dropped_tokens,
    check_knob,
    check_precision_under_autocast,
]
