"""Matrix products by oneDNN, and by torch's public one where a release of torch has no other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from sightline.attention import products
from sightline.attention.products import matmul_t
from sightline.tokens.layout import TokenLayout
from tests.attention.given import assert_close, pattern, random_qkv, with_gradients


@pytest.fixture
def asked_again() -> Iterator[None]:
    products._onednn.cache_clear()
    yield
    products._onednn.cache_clear()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 7), (64, 33, 200), (0, 4, 3)])
def test_times_transposed(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    m, k, n = shape
    a, b = torch.randn(m, k).to(dtype), torch.randn(n, k).to(dtype)
    exact = a.double() @ b.double().T
    bound = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 1e-2}[dtype]
    for one, other in ((a, b), (a.t().contiguous().t(), b), (a, b.t().contiguous().t())):
        found = matmul_t(one, other)
        assert found.dtype == dtype
        assert found.shape == (m, n)
        assert (found - exact).norm() <= bound * exact.norm()


def test_slices_of_a_larger_tensor() -> None:
    a, b = torch.randn(40, 24)[3:30, 2:20], torch.randn(60, 50)[7:52, 5:23]
    assert (matmul_t(a, b) - a @ b.T).abs().max() < 1e-5


def _agrees_with_dense() -> None:
    for layout in (TokenLayout.uniform((18, 17), 1), TokenLayout.packed([(3, 5), (17, 9)])):
        qkv = random_qkv(layout)
        found, expected = (with_gradients(name, qkv, pattern(), layout) for name in ("tiles", "dense"))
        assert_close(found, expected, 1e-5, 1e-4)


def test_tiles_without_the_private_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_onednn", lambda: None)
    _agrees_with_dense()


class _Gone:
    """torch.ops.mkldnn of a release of torch that has changed."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error

    def __getattr__(self, name: str):
        if self.error is None:
            return lambda *_: torch.zeros(2, 4)
        raise self.error


def _raises(error: Exception) -> object:
    def operator(*_: object) -> None:
        raise error

    return type("Ops", (), {"_linear_pointwise": staticmethod(operator)})()


CHANGED = {
    "no such operator": lambda: _Gone(AttributeError("'_OpNamespace' 'mkldnn' has no attribute")),
    "not built in": lambda: _Gone(RuntimeError("no mkldnn")),
    "other arguments": lambda: _raises(TypeError("takes 5 positional arguments")),
    "refuses": lambda: _raises(RuntimeError("schema")),
    "refuses the kind of tensor": lambda: _raises(NotImplementedError("Could not run on CPU")),
    "another meaning": lambda: _Gone(None),
}


@pytest.mark.usefixtures("asked_again")
@pytest.mark.parametrize("change", CHANGED)
def test_where_the_operator_has_changed(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.ops, "mkldnn", CHANGED[change](), raising=False)
    assert products._onednn() is None
    _agrees_with_dense()


@pytest.mark.usefixtures("asked_again")
def test_where_torch_has_no_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert products._onednn() is None


@pytest.mark.usefixtures("asked_again")
def test_this_torch_has_it() -> None:
    """Without it tiles are slower on AMD processors: a new release of torch that lost it is to be noticed."""
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this torch is built without oneDNN")
    assert products._onednn() is not None


def test_ever_new_shapes_are_torchs_own_products_and_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    called = []

    def operator(a, b, *_):
        called.append(a.shape)
        return a @ b.t()

    monkeypatch.setattr(products, "_onednn", lambda: operator)
    a, b = torch.randn(3, 4), torch.randn(5, 4)
    with products.expected_shapes(ever_new=True):
        assert torch.equal(products.matmul_t(a, b), torch.mm(a, b.t()))
        assert not called
    products.matmul_t(a, b)
    assert len(called) == 1
