"""How long the explorer's page waits for a click: over HTTP, from a server in a process of its own.

    OMP_NUM_THREADS=1 python benchmarks/explorer.py [--model RUN] [--beside WORDS] [--quick] [--out OUT]

A click asks for one patch's attention in all layers and heads, and for its field of view; both answers are read
whole: one after the other (`click_ms`), and as a page asks, at once, in two connections (`together_ms`). Patches are
drawn. `wanted_ms` is what was promised: 50 ms for the demonstration's model (`--model`, the folder of its run with
lookhere_90; a model of its shape with drawn weights where none is given), and 250 ms for a ViT-S with lookhere_90 at
512 px. `view_ms` is a pass at a new image, from the question to the answer; `first_byte_ms` that of the page itself,
`page_ms` the page with all of its files, one after the other. `--beside` says what else the machine did meanwhile.
What a browser adds is measured by explorer_page.py.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from measure import Parser, counted, print_table

from sightline.distributed import machine
from sightline.hub.load import load_model, save_model
from sightline.models import create_model

_COLUMNS = ("model", "size", "tokens", "click_ms", "together_ms", "wanted_ms", "view_ms", "first_byte_ms", "page_ms")
_DEMO = {"depth": 4, "heads": 12, "dim": 96, "image_size": 32, "num_classes": 24}


class Page:
    """A browser's side of it: one connection that is kept."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)

    def ask(self, path: str, given: dict[str, Any] | None = None) -> tuple[bytes, float, float]:
        """The answer, and the milliseconds to its first byte and to its last."""
        started = time.perf_counter()
        body = None if given is None else json.dumps(given).encode()
        self.connection.request("GET" if body is None else "POST", path, body)
        response = self.connection.getresponse()
        first = time.perf_counter()
        content = response.read()
        if response.status != 200:
            raise RuntimeError(f"{path}: {response.status} {content[:200]!r}")
        return content, (first - started) * 1e3, (time.perf_counter() - started) * 1e3


@contextlib.contextmanager
def serving(model: Path | str, threads: int, device: str, *options: str) -> Iterator[int]:
    """The port of `sightline explore MODEL` in a process of its own."""
    command = [sys.executable, "-m", "sightline", "explore", str(model), *options, "--port", "0", "--no-browser"]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    server = subprocess.Popen(
        [*command, "--device", device], stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    try:
        assert server.stdout is not None
        yield int(server.stdout.readline().split(":")[3].split("/")[0])
    finally:
        server.terminate()
        server.wait()


def measured(called: str, model: Path, side: int, clicks: int, threads: int, device: str) -> dict[str, Any]:
    """One model at one size."""
    loaded = load_model(model)
    with serving(model, threads, device) as port:
        page, other = Page(port), Page(port)
        _, first_byte, _ = page.ask("/")
        session = json.loads(page.ask("/api/session")[0])
        files = ["/", *(f"/page/{name}" for name in page_files())]
        whole = sum(page.ask(path)[2] for path in files)
        views, view = [], {}
        for image in session["images"][:4]:
            given = {"client": "benchmark", "pane": "left", "model": 0, "image": image["id"], "size": side}
            content, _, milliseconds = page.ask("/api/views", given)
            views.append(milliseconds)
            view = json.loads(content)
        cells = view["grid"][0] * view["grid"][1]
        asked = random.Random(0)
        click, together, sizes = [], [], []
        with ThreadPoolExecutor(2) as pool:
            for number in range(clicks + 2):
                parts = [
                    f"/api/views/{view['view']}/{part}?query={asked.randrange(cells)}"
                    for part in ("attention", "field")
                ]
                answers = [page.ask(part) for part in parts]
                started = time.perf_counter()
                both = [pool.submit(one.ask, part) for one, part in zip((page, other), parts, strict=True)]
                for one in both:
                    one.result()
                # The first ones make tables that are kept.
                if number >= 2:
                    click.append(sum(milliseconds for _, _, milliseconds in answers))
                    together.append((time.perf_counter() - started) * 1e3)
                    sizes.append(sum(len(content) for content, _, _ in answers))
    config = loaded.config
    return {
        "benchmark": "explorer",
        "model": called,
        "encoding": config.encoding,
        "layers": config.depth,
        "heads": config.heads,
        "size": side,
        "tokens": view["tokens"],
        "clicks": clicks,
        "click_ms": round(statistics.median(click), 2),
        "click_ms_p90": round(p90(click), 2),
        "together_ms": round(statistics.median(together), 2),
        "kilobytes": round(statistics.median(sizes) / 1e3, 1),
        "view_ms": round(statistics.median(views), 2),
        "first_byte_ms": round(first_byte, 2),
        "page_ms": round(whole, 2),
        "page_files": len(files),
    }


def p90(milliseconds: Sequence[float]) -> float:
    """The time that nine of ten keep to."""
    return statistics.quantiles(milliseconds, n=10, method="inclusive")[-1]


def page_files() -> list[str]:
    """Of the page, beside index.html, which is served at the root."""
    import sightline

    folder = Path(str(sightline.__file__)).parent / "explorer" / "page"
    return sorted(file.name for file in folder.iterdir() if file.suffix in (".js", ".css") and file.is_file())


def explorer_options(parser: Parser, quick: str) -> argparse.Namespace:
    """What was chosen of the options that both scripts have."""
    parser.usual("explorer", quick)
    parser.add_argument("--model", type=Path, help="the demonstration's run with lookhere_90")
    parser.add_argument("--beside", default="nothing else", help="what else the machine does meanwhile")
    return parser.begin()


def demo_model(asked: argparse.Namespace, folder: Path) -> Path:
    """The demonstration's model, or one of its shape with drawn weights, written into `folder`."""
    if asked.model is not None:
        return asked.model
    torch.manual_seed(0)
    save_model(create_model("vit_micro_patch4", encoding="lookhere_90", **_DEMO), folder / "demo")
    return folder / "demo"


def circumstances(asked: argparse.Namespace) -> dict[str, Any]:
    """What a row says of the machine."""
    about = {"threads": asked.threads, "device": asked.device, "hardware": machine.hardware_name(asked.device)}
    return {**about, "torch": torch.__version__, "commit": machine.git_commit(), "beside": asked.beside}


def main() -> None:
    asked = explorer_options(parser := Parser(__doc__), "tiny models and few clicks, in seconds")
    with tempfile.TemporaryDirectory() as folder:
        demo = demo_model(asked, Path(folder))
        torch.manual_seed(0)
        small = {"depth": 2, "heads": 4, "dim": 64} if asked.quick else {}
        save_model(create_model("vit_small_patch16", encoding="lookhere_90", **small), Path(folder) / "vit_small")
        cases = [
            ("demo", demo, 32, 50),
            ("demo", demo, 128, None),
            ("vit_small_patch16", Path(folder) / "vit_small", 224, None),
            ("vit_small_patch16", Path(folder) / "vit_small", 512, 250),
        ]
        rows = []
        for (called, model, side, wanted), said in counted(cases):
            row = measured(called, model, side, 4 if asked.quick else 50, asked.threads, asked.device)
            rows.append({**row, "wanted_ms": wanted, **circumstances(asked)})
            print(f"{said} {called} at {side} px", flush=True)
    print_table(_COLUMNS, rows)
    parser.save(rows)


if __name__ == "__main__":
    main()
