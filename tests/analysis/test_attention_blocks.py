"""Blocks of attention: as large as was said, of those who ask alone, and of any scores."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sightline.analysis import analyse
from sightline.analysis.analyse import run_pass
from sightline.analysis.attention_blocks import AttentionBlock, attention_blocks
from sightline.analysis.measures.attention_maps import AttentionRollout
from sightline.analysis.measures.heads import AttentionDistance
from sightline.attention import AttentionRecord
from tests.analysis.measures import explicit
from tests.analysis.measures.explicit import recorded, tiny


@pytest.mark.parametrize("encoding", ["none", "lookhere_90", "rpe_learned"])
@pytest.mark.parametrize("make", [explicit.plain, explicit.packed, explicit.dropped])
def test_those_who_ask_alone_are_shown_as_all_are(encoding: str, make) -> None:
    model = tiny(encoding, num_registers=1)
    call = recorded(model, make(model))[1]
    whole: dict[int, tuple[Tensor, Tensor]] = {}
    for block in attention_blocks(call, 1 << 20):
        rows = zip(block.attention, block.entropy, strict=True)
        whole |= dict(zip(block.images.tolist(), rows, strict=True))
    for asking in ([0], [4, 2, 4], [1, 3]):
        some = list(attention_blocks(call, 1 << 20, lambda *_, asking=asking: asking))
        # Prefix tokens are shown together, by the first of them.
        expected = sorted({0 if slot < 2 else slot for slot in asking})
        for image in range(call.keys.images):
            shown = [block for block in some if image in block.images]
            assert [block.first for block in shown] == expected
            for block in shown:
                row, count = block.images.tolist().index(image), 2 if block.first == 0 else 1
                assert block.attention.shape[2] == count
                attention, entropy = (one[:, block.first : block.first + count] for one in whole[image])
                torch.testing.assert_close(block.attention[row], attention, rtol=1e-5, atol=1e-6)
                torch.testing.assert_close(block.entropy[row], entropy, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("block_bytes", [1, 2_000, 5_000, 100_000])
def test_a_block_is_as_large_as_was_said_and_all_queries_are_in_one(block_bytes: int) -> None:
    model = tiny("lookhere_90")
    for make in (explicit.plain, explicit.packed, explicit.padded):
        call = recorded(model, make(model))[0]
        seen: list[tuple[int, int]] = []
        for block in attention_blocks(call, block_bytes):
            rows, _, queries, keys = block.attention.shape
            assert rows * queries == 1 or block.attention.numel() * 4 <= block_bytes
            torch.testing.assert_close(block.attention.sum(-1), torch.ones(rows, 4, queries))
            assert block.distance.shape[1:] == (queries - block.prefix_queries, keys - 1)
            seen += [(int(image), block.first + one) for image in block.images for one in range(queries)]
        slots = enumerate(call.keys.seqlens * call.keys.rows)
        assert sorted(seen) == [(image, slot) for image, count in slots for slot in range(count)]


@pytest.mark.parametrize("encoding", ["none", "rope_axial"])
def test_what_is_kept_holds_no_memory_but_its_own(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries that are views of queries, keys and values together would keep all three."""
    model = tiny(encoding)
    held: list[Tensor] = []
    real = attention_blocks

    def blocks(call: AttentionRecord, *args):
        # The last layer is shown as it is computed, and not kept.
        if call.layer == len(model.blocks) - 1:
            assert call.v.shape == call.q.shape
        else:
            held.extend((call.q, call.k))
            assert call.v.untyped_storage().nbytes() == 0
        return real(call, *args)

    monkeypatch.setattr(analyse, "attention_blocks", blocks)
    layers: list[int | None] = []

    class Order(AttentionDistance):
        def attention(self, block: AttentionBlock) -> None:
            layers.append(block.layer)

    run_pass(model, explicit.plain(model), [AttentionRollout(model), Order(model)])
    assert layers == [2, 1, 0]
    assert len(held) == 4
    storages = {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in held}
    assert sum(storages.values()) == sum(one.numel() * 4 for one in held)
    assert len({one.data_ptr() for one in held}) == 4
