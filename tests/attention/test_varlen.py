"""Variable-length attention: where images start is tested here, the kernel where a GPU is at hand."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from sightline.attention import AttentionSpec, attend, plan_attention, use_backend
from sightline.attention.dispatch import choose_backend, supports
from sightline.attention.varlen import VarlenCall, plan_varlen
from sightline.attention.varlen import _cumulative_lengths as cumulative_lengths
from sightline.encodings import create_encoding
from sightline.tokens.layout import TokenLayout


def supports_varlen(pattern, layout: TokenLayout, q: torch.Tensor) -> bool:
    return supports("varlen", pattern, layout, layout, AttentionSpec.of_values(q))


needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="the kernel runs on a GPU alone")


def test_where_images_start() -> None:
    layout = TokenLayout.packed([(3, 5), (1, 1), (2, 4)], num_prefix_tokens=2)
    ends = cumulative_lengths(layout)
    assert ends.dtype == torch.int32
    assert ends.tolist() == [0, 17, 20, 30]
    assert cumulative_lengths(layout) is ends
    assert cumulative_lengths(layout.query_layout(1)).tolist() == [0, 1, 2, 3]
    assert cumulative_lengths(layout.keep([torch.arange(4), torch.arange(1), torch.arange(3)])).tolist() == [
        0,
        6,
        9,
        14,
    ]


def test_padding_is_one_more_image_and_lengths_are_rounded_up() -> None:
    layout = TokenLayout.packed([(3, 5), (1, 1), (2, 4)], num_prefix_tokens=2).pad_to(40)
    call = plan_varlen(layout.query_layout(1), layout)
    assert call.query_ends.tolist() == [0, 1, 2, 3]
    assert call.key_ends.tolist() == [0, 17, 20, 30, 40]
    assert (call.max_queries, call.max_keys) == (1, 32)
    spec = AttentionSpec(torch.device("cuda"), torch.bfloat16, 3, 16)
    call = plan_attention(None, layout, spec=spec, compiled=True)
    assert isinstance(call, VarlenCall)
    assert call.key_ends._dynamo_weak_dynamic_indices == {0}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_not_on_a_cpu(dtype: torch.dtype) -> None:
    layout = TokenLayout.packed([(3, 5), (2, 2)])
    q = torch.zeros(1, 3, layout.slots, 16, dtype=dtype)
    assert not supports_varlen(None, layout, q)
    with use_backend("varlen"):
        assert choose_backend(None, layout, layout, AttentionSpec.of_values(q)) == "auto"
        assert attend(q, q, q, None, layout).shape == q.shape


@pytest.mark.slow
def test_the_kernel_is_not_imported_before_it_is_needed() -> None:
    """It brings torch's compiler along, which takes seconds."""
    heavy = ["torch._dynamo", "torch.nn.attention.varlen"]
    code = f"import sys, sightline.attention; print(*(name in sys.modules for name in {heavy}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.gpu
@needs_cuda
def test_what_is_supported() -> None:
    pack, single = TokenLayout.packed([(3, 5), (2, 2)], device="cuda"), TokenLayout.uniform((3, 5), 2, device="cuda")
    pattern = create_encoding("alibi_2d", depth=1, heads=3, dim=48).layer_pattern(0)

    def q(layout: TokenLayout, dtype: torch.dtype = torch.bfloat16, head_dim: int = 16) -> torch.Tensor:
        return torch.zeros(layout.rows, 3, layout.slots, head_dim, dtype=dtype, device="cuda")

    assert supports_varlen(None, pack, q(pack))
    assert not supports_varlen(pattern, pack, q(pack))
    assert not supports_varlen(None, single, q(single))
    assert not supports_varlen(None, pack, q(pack, torch.float32))
    assert not supports_varlen(None, pack, q(pack, head_dim=12))
    assert not supports_varlen(None, pack, q(pack, head_dim=264))


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_kernel_equals_dense(dtype: torch.dtype) -> None:
    """Forward and backward; with queries of their own too, as attention pooling has."""
    keys = TokenLayout.packed([(9, 17), (14, 14), (1, 1), (3, 5)], device="cuda")
    for queries in (keys, keys.query_layout(1)):
        results = []
        for backend in ("sdpa", "varlen"):
            torch.manual_seed(0)
            q, k, v = (
                torch.randn(1, 3, layout.slots, 64, device="cuda", dtype=dtype).requires_grad_()
                for layout in (queries, keys, keys)
            )
            with use_backend(backend):
                assert choose_backend(None, queries, keys, AttentionSpec.of_values(q)) == backend
                out = attend(q, k, v, None, keys, queries)
            out.float().square().sum().backward()
            results.append((out, q.grad, k.grad, v.grad))
        for one, other in zip(*results, strict=True):
            assert (one.float() - other.float()).norm() < 0.03 * one.float().norm()
