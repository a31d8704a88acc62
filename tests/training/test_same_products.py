"""A step of training computes the same whatever the process did before."""

from __future__ import annotations

from sightline.attention import products
from sightline.training import loop
from tests.tiny import tiny_config


def test_found_23_a_step_of_training_takes_one_product(monkeypatch, tmp_path):
    seen = []
    take = loop.train_step

    def watched(*arguments):
        seen.append(products.product_of({(1, 2, 3)}))
        return take(*arguments)

    monkeypatch.setattr(products, "_SHAPES", products._Shapes(full=True))
    monkeypatch.setattr(loop, "train_step", watched)
    loop.train(tiny_config(), tmp_path / "run", device="cpu")
    assert seen
    assert set(seen) == {products.matmul_t}
