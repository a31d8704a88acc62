"""What tools around a model find: summaries that look at what modules are given, and weights that come later."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from sightline.encodings import list_encodings
from sightline.models import make_model
from tests.contract.contract import build, images

KINDS = [
    {},
    {"architecture": "axial", "encoding": "rpe_learned", "pool": "mean"},
    {"head": "eomt", "task": "segmentation"},
    {"head": "segmenter", "task": "segmentation"},
]


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_what_a_module_is_given_has_a_shape_where_it_is_a_tensor_alone(options):
    """Lightning's summary takes the `shape` of whatever has one for that of a tensor."""
    options = dict(options)
    model = build(options.pop("encoding", "learned_1d"), options.pop("pool", "cls"), **options)
    seen = []

    def look(module, given, result):
        seen.append(module)
        assert all(isinstance(one, Tensor) for one in tree_leaves((given, result)) if hasattr(one, "shape"))

    for module in model.modules():
        module.register_forward_hook(look)
    model(images((4, 5)))
    assert {id(model), id(model.encoding), id(model.blocks[0].attn)} <= {id(one) for one in seen}


@pytest.mark.parametrize("encoding", [*list_encodings(), "rope_mixed+sincos_2d"])
def test_a_model_of_the_meta_device_takes_weights_for_its_own(encoding):
    model = build(encoding)
    with torch.device("meta"):
        other = make_model(model.config).eval()
    other.load_state_dict(model.state_dict(), assign=True)
    for given in (images((5, 7)), [images((4, 4))[0], images((6, 3))[0]]):
        with torch.no_grad():
            assert torch.equal(other(given), model(given))
