"""A training step on pairs of images and texts, packed and padded; and the memory of the chunked loss.

    python benchmarks/contrastive.py [--quick] [--depth 4] [--pairs 64] [--out OUT] [--threads 1] [--device cpu|cuda]

The subject `packed` is our two towers of ViT-S width: all images in one row and all texts in another, no token padded.
The baseline `padded` has the same blocks, and pads images and texts to the longest of each with a mask. `texts` are
the text towers alone. A ratio is the baseline's time over the subject's; `padding_factor` is the tokens of the baseline
over the subject's, and `wanted` .95 of it for pairs and .75 for texts. `loss` is the softmax loss of 8,192 pairs with
its gradients (2,048 if --quick): `memory_ratio` is the peak of the whole matrix of scores over that of chunks.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from measure import Parser, Work, clock, interleave, peak_bytes, print_table, row, threads
from packing import _COUNTS, _PATCH, Block, Plain, _run_padded, grid_of
from torch import Tensor, nn

from sightline.models import create_model
from sightline.tasks.pair_losses import pair_loss
from sightline.tokens.layout import TokenLayout

_DIM, _EMBED, _VOCABULARY, _LENGTH = 384, 256, 8_000, 24
_CHUNK = 1_024


class PaddedTexts(nn.Module):
    """A plain text tower on texts that are padded to the longest, pooled at their last tokens."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(_VOCABULARY, _DIM)
        self.table = nn.Parameter(0.02 * torch.randn(_LENGTH, _DIM))
        self.blocks, self.norm = nn.ModuleList(Block() for _ in range(depth)), nn.LayerNorm(_DIM, eps=1e-6)
        self.proj = nn.Linear(_DIM, _EMBED, bias=False)

    def forward(self, texts: list[list[int]]) -> Tensor:
        lengths, longest = torch.tensor([*map(len, texts)]), max(map(len, texts))
        device = self.table.device
        ids = torch.tensor([one + [0] * (longest - len(one)) for one in texts], device=device)
        mask = (torch.arange(longest) < lengths[:, None])[:, None, None].to(device)
        x = self.embed(ids) + self.table[:longest]
        for block in self.blocks:
            x = block(x, lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
        return self.proj(self.norm(x)[torch.arange(len(texts), device=device), (lengths - 1).to(device)])


def steps(pairs: int, depth: int, device: str) -> tuple[dict[str, dict[str, Work]], dict[str, float]]:
    """Training steps of pairs and of texts alone, each of both ways; and the padding factors."""
    counts = [_COUNTS[number % len(_COUNTS)] for number in range(pairs)]
    lengths = torch.randint(5, _LENGTH + 1, (pairs,)).tolist()
    texts = [[*torch.randint(2, _VOCABULARY, (length - 1,)).tolist(), 1] for length in lengths]
    grids = [grid_of(count) for count in counts]
    images = [torch.randn(count, 3 * _PATCH**2, device=device) for count in counts]
    places = [torch.cartesian_prod(torch.arange(g.rows), torch.arange(g.cols)).to(device) for g in grids]
    text = {"vocab_size": _VOCABULARY, "length": _LENGTH, "dim": _DIM, "depth": depth, "heads": 6, "end_id": 1}
    ours = create_model(
        "vit_small_patch16", depth=depth, encoding="factorized", encoding_options={"max_side": 256}, num_classes=0,
        pool="mean", head="contrastive", head_options={"embed_dim": _EMBED, "text": text},
    ).to(device)  # fmt: skip
    row_of_all, layout = torch.cat(images).unsqueeze(0), TokenLayout.packed(grids, num_prefix_tokens=0, device=device)
    plain, padded_texts = Plain(depth).to(device), PaddedTexts(depth).to(device)
    plain.head = nn.Linear(_DIM, _EMBED, bias=False).to(device)
    scale = torch.tensor(1 / 0.07, device=device)

    def work(modules: nn.ModuleList, run: Any) -> Work:
        optimizer = torch.optim.AdamW(modules.parameters(), lr=1e-4)

        def one() -> None:
            optimizer.zero_grad()
            found = run()
            loss = pair_loss("softmax", *found, scale) if isinstance(found, tuple) else found.square().mean()
            loss.backward()
            optimizer.step()

        return one

    def padded() -> tuple[Tensor, Tensor]:
        return F.normalize(_run_padded(plain, images, places), dim=-1), F.normalize(padded_texts(texts), dim=-1)

    both = {
        "packed": work(nn.ModuleList([ours]), lambda: ours(row_of_all, layout=layout, texts=texts)),
        "padded": work(nn.ModuleList([plain, padded_texts]), padded),
    }
    alone = {
        "packed": work(nn.ModuleList([ours]), lambda: ours.encode_text(texts)),
        "padded": work(nn.ModuleList([padded_texts]), lambda: padded_texts(texts)),
    }
    used, most = sum(counts) + sum(lengths), pairs * (max(counts) + max(lengths))
    factors = {"pairs": most / used, "texts": pairs * max(lengths) / sum(lengths)}
    return {"pairs": both, "texts": alone}, factors


def losses(pairs: int, device: str) -> dict[str, Work]:
    """The softmax loss of so many pairs with its gradients: in chunks, and of all scores at once."""
    sides = [F.normalize(torch.randn(pairs, 512, device=device), dim=-1).requires_grad_() for _ in range(2)]
    scale = torch.tensor(1 / 0.07, device=device, requires_grad=True)

    def whole() -> None:
        scores, right = scale * sides[0] @ sides[1].T, torch.arange(pairs, device=device)
        (F.cross_entropy(scores, right) + F.cross_entropy(scores.T, right)).backward()

    return {"chunked": lambda: pair_loss("softmax", *sides, scale, chunk=_CHUNK).backward(), "whole": whole}


def main() -> None:
    parser = Parser(__doc__)
    parser.usual("contrastive", "one block, three rounds, the loss of 2,048 pairs: a minute")
    parser.add_argument("--pairs", type=threads, default=64, help="of a step; 64")
    parser.add_argument("--depth", type=threads, help="blocks of each tower; 4, or 1 if --quick")
    chosen = parser.begin()
    torch.manual_seed(0)
    rounds, depth = (3, chosen.depth or 1) if chosen.quick else (6, chosen.depth or 4)
    every, factors = steps(chosen.pairs, depth, chosen.device)
    rows = []
    for name, works in every.items():
        about = {"pairs": chosen.pairs, "depth": depth, "padding_factor": round(factors[name], 3)}
        times = interleave(works, rounds, chosen.device, by=clock())
        wanted = round((0.95 if name == "pairs" else 0.75) * factors[name], 3)
        rows.append(
            row("contrastive", "packed", "padded", times, {}, chosen.device, inputs=name, **about, wanted=wanted)
        )
    count = 2_048 if chosen.quick else 8_192
    works = losses(count, chosen.device)
    times = interleave(works, 1, chosen.device, by=clock())
    peaks = {name: peak_bytes(work, chosen.device) for name, work in works.items()}
    rows.append(row("contrastive", "chunked", "whole", times, peaks, chosen.device, inputs="loss", pairs=count))
    columns = ("inputs", "pairs", "padding_factor", "ratio", "interval", "wanted", "memory_ratio", "subject_ms")
    print_table(columns, rows)
    parser.save(rows)
    print(f"rows: {parser.path}")


if __name__ == "__main__":
    main()
