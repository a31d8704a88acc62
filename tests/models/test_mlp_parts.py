"""Hidden channels of many tokens on a CPU: in parts where nobody asks for them later, at once everywhere else."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from sightline import create_model
from sightline.models import block
from sightline.models.block import Mlp, SwiGlu

TOKENS, BYTES_EACH = 7 * 40, 4 * 4 * 64


@pytest.fixture
def of_model(monkeypatch):
    """The first block's MLP in float64 of a model that is made as asked, and the numbers of tokens that its activation
    is given at a time; more than 128 are too many."""
    seen = []
    monkeypatch.setattr(block, "LARGEST_BYTES", 128 * BYTES_EACH)
    monkeypatch.setattr(block, "_PART_BYTES", 128 * BYTES_EACH)

    def made(**options):
        model = create_model("vit_micro_patch4", num_classes=3, dim=64, heads=2, depth=1, **options).double().eval()
        mlp = model.blocks[0].mlp
        kind = type(mlp)
        activated = kind._activated
        monkeypatch.setattr(kind, "_activated", lambda self, x: seen.append(x.shape[:-1].numel()) or activated(self, x))
        return mlp, seen

    torch.manual_seed(0)
    return made


@pytest.mark.parametrize("options", [{}, {"mlp": "swiglu", "mlp_ratio": 2.0}, {"mlp_norm": True}, {"gelu": "tanh"}])
@pytest.mark.parametrize("shape", [(7, 40, 64), (1, TOKENS, 64), (TOKENS, 64)])
def test_the_same(options, shape, of_model):
    mlp, seen = of_model(**options)
    assert type(mlp) is (SwiGlu if options.get("mlp") == "swiglu" else Mlp)
    x = torch.randn(shape, dtype=torch.float64)
    whole = mlp(x)
    assert seen == [TOKENS]
    with torch.inference_mode():
        apart = mlp(x)
    assert seen[1:] == [128, 128, 24]
    assert apart.shape == shape
    assert apart.std() > 0.01
    torch.testing.assert_close(apart, whole, rtol=1e-13, atol=1e-13)


def test_few_tokens_go_at_once(of_model):
    mlp, seen = of_model()
    with torch.inference_mode():
        mlp(torch.randn(2, 64, 64, dtype=torch.float64))
    assert seen == [128]


def test_frozen_weights_forget(of_model):
    """Gradients are on, and nothing that is here has any; then the inputs have."""
    mlp, seen = of_model()
    mlp.requires_grad_(False)
    x = torch.randn(7, 40, 64, dtype=torch.float64)
    mlp(x)
    assert seen == [128, 128, 24]
    mlp(x.requires_grad_()).sum().backward()
    assert seen[3:] == [TOKENS]
    assert x.grad.shape == x.shape


def test_whoever_looks_sees_all_at_once(of_model):
    mlp, seen = of_model()
    x, given = torch.randn(7, 40, 64, dtype=torch.float64), []
    handle = mlp.fc2.register_forward_pre_hook(lambda _, arguments: given.append(arguments[0].shape))
    with torch.inference_mode():
        mlp(x)
        assert given == [(7, 40, 256)]
        assert seen == [TOKENS]
        handle.remove()
        mlp(x)
    assert seen[1:] == [128, 128, 24]
    assert len(given) == 1


def test_what_is_done_between_is_done_to_all(of_model):
    """Dropout without gradients draws by where a token stands."""
    mlp, seen = of_model()
    with torch.inference_mode():
        out = mlp(torch.randn(7, 40, 64, dtype=torch.float64), lambda hidden: seen.append(hidden.shape) or 0 * hidden)
    assert seen == [TOKENS, (7, 40, 256)]
    assert torch.equal(out, mlp.fc2.bias.expand_as(out))


class Among(torch.nn.Linear):
    """One that looks at all tokens, as a quantised one does that has one scale a call."""

    def forward(self, x):
        return super().forward(x - x.mean(dim=-2, keepdim=True))


class OverTokens(torch.nn.Module):
    def forward(self, x):
        return x / x.norm(dim=-2, keepdim=True)


class Others(Mlp):
    def _activated(self, x):
        return super()._activated(x) - x.mean(dim=-2, keepdim=True)


@pytest.mark.parametrize("where", ["fc1", "fc2", "norm", "mlp"])
def test_others_in_place_of_a_part(where, of_model):
    """Which need not take each token by itself."""
    mlp, seen = of_model()
    if where == "norm":
        mlp.norm = OverTokens()
    elif where == "mlp":
        mlp.__class__ = Others
    else:
        getattr(mlp, where).__class__ = Among
    x = torch.randn(1, TOKENS, 64, dtype=torch.float64)
    whole = mlp(x)
    with torch.inference_mode():
        assert torch.equal(mlp(x), whole)
    assert seen == [TOKENS, TOKENS]


def test_an_mlp_with_other_outputs(of_model):
    mlp, seen = of_model()
    mlp.fc2 = torch.nn.Linear(256, 5).double()
    x = torch.randn(7, 40, 64, dtype=torch.float64)
    with torch.inference_mode():
        torch.testing.assert_close(mlp(x), mlp.fc2(mlp._activated(mlp.fc1(x))), rtol=1e-12, atol=1e-12)
    assert seen == [128, 128, 24, TOKENS]


def test_one_token_beyond_the_bound(monkeypatch, of_model):
    """So wide that no part is within it: each goes as it is."""
    mlp, seen = of_model()
    for name in ("LARGEST_BYTES", "_PART_BYTES"):
        monkeypatch.setattr(block, name, 8)
    with torch.inference_mode():
        mlp(torch.randn(2, 50, 64, dtype=torch.float64))
    assert seen == [64, 36]


def test_parts_are_of_so_many_times_64(monkeypatch, of_model):
    mlp, seen = of_model()
    monkeypatch.setattr(block, "_PART_BYTES", 100 * BYTES_EACH)
    with torch.inference_mode():
        mlp(torch.randn(7, 40, 64, dtype=torch.float64))
    assert seen == [64, 64, 64, 64, 24]


class Kind(torch.Tensor):
    """A tensor with operators of its own."""


class Following(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **kwargs or {})


def test_whatever_follows_operators_sees_all_at_once(of_model):
    mlp, seen = of_model()
    x = torch.randn(1, TOKENS, 64, dtype=torch.float64)
    with torch.no_grad():
        with Following():
            mlp(x)
        torch.vmap(mlp)(x)
        mlp(x.as_subclass(Kind))
    assert seen == [TOKENS] * 3


def test_a_compiled_one_is_one_graph_of_all(monkeypatch):
    monkeypatch.setattr(block, "LARGEST_BYTES", 128 * BYTES_EACH)
    mlp = create_model("vit_micro_patch4", num_classes=3, dim=64, heads=2, depth=1).blocks[0].mlp.requires_grad_(False)
    graphs = []
    compiled = torch.compile(mlp, backend=lambda graph, _: graphs.append(graph) or graph, fullgraph=True)
    x = torch.randn(7, 40, 64)
    torch.testing.assert_close(compiled(x), mlp(x), rtol=1e-5, atol=1e-5)
    calls = [node.target for node in graphs[0].graph.nodes if node.op == "call_function"]
    assert calls.count(torch._C._nn.linear) == 2
    assert torch.cat not in calls


def test_an_exported_one_is_of_any_size(monkeypatch):
    """No size is that of a part."""
    monkeypatch.setattr(block, "LARGEST_BYTES", 128 * BYTES_EACH)
    mlp = create_model("vit_micro_patch4", num_classes=3, dim=64, heads=2, depth=1).blocks[0].mlp.requires_grad_(False)
    x = torch.randn(7, 40, 64)
    exported = torch.export.export(mlp, (x,), dynamic_shapes=({0: torch.export.Dim("rows", min=2, max=99)},))
    for other in (x[:2], torch.cat([x] * 4)):
        torch.testing.assert_close(exported.module()(other), mlp(other), rtol=1e-5, atol=1e-5)


def test_none_is_done_between(of_model):
    mlp, _ = of_model()
    x = torch.randn(2, 3, 64, dtype=torch.float64)
    assert torch.equal(mlp(x, None), mlp(x))


def test_of_autocast_too(of_model):
    mlp, seen = of_model()
    mlp.float()
    x = torch.randn(7, 40, 64)
    with torch.autocast("cpu", torch.bfloat16):
        whole = mlp(x)
        with torch.inference_mode():
            apart = mlp(x)
    assert seen == [TOKENS, 128, 128, 24]
    assert apart.dtype == whole.dtype == torch.bfloat16
    torch.testing.assert_close(apart, whole, rtol=0.02, atol=0.02)
