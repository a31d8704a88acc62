"""A browser that asks nobody but the explorer's server, and that server as a process of its own."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from sightline import create_model, save_model
from tests.contract.randomise import randomise_parameters

# What Chromium asks for by itself is switched off, and no name but loopback's leads anywhere.
FLAGS = [
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run",
    "--disable-default-apps", "--disable-domain-reliability", "--disable-gpu",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]  # fmt: skip
INPUTS = Path(__file__).parents[2] / "faults" / "inputs"
WIDE = {"width": 1280, "height": 900}
SIZES = {"depth": 2, "dim": 48, "num_classes": 6}


def chromium() -> str | None:
    """The system's browser, where there is one."""
    return next(
        (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
    )


def flags() -> list[str]:
    return [*FLAGS, "--no-sandbox"] if os.geteuid() == 0 else FLAGS


def write_models(folder: Path) -> list[Path]:
    """Two tiny classifiers, of other patches, heads, prefix tokens and encodings."""
    first = create_model("vit_micro_patch4", encoding="lookhere_90", heads=12, image_size=32, **SIZES)
    second = create_model(
        "vit_micro_patch4", encoding="rope_axial", heads=4, patch_size=8, image_size=32, num_registers=2, **SIZES
    )
    for seed, (name, model) in enumerate({"first": first, "second": second}.items()):
        randomise_parameters(model, seed=seed)
        # Scores that spread without drowning each other.
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(0.6)
        save_model(model, folder / name)
    return [folder / "first", folder / "second"]


def write_images(folder: Path) -> Path:
    """Three images that are no squares."""
    folder.mkdir(exist_ok=True)
    draws = np.random.default_rng(0)
    for number, (height, width) in enumerate([(40, 64), (96, 32), (64, 64)]):
        small = draws.integers(0, 256, (4, 4, 3), dtype=np.uint8)
        Image.fromarray(small).resize((width, height)).save(folder / f"image {number}.png")
    return folder


@contextmanager
def served(models: list[Path], images: Path) -> Iterator[str]:
    """`sightline explore` at work on a free port; gives the address that it prints."""
    command = [sys.executable, "-m", "sightline", "explore", *map(str, models), "--images", str(images)]
    process = subprocess.Popen(
        [*command, "--no-browser", "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert found, (line, process.communicate())
        yield found[0]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


@contextmanager
def served_here(models: list[Path], images: Path) -> Iterator[str]:
    """The same in a thread of this process, which has torch already."""
    from sightline import load_model
    from sightline.explorer.app import Explorer
    from sightline.explorer.images import ImageStore
    from sightline.explorer.models import ExplorerModel
    from sightline.explorer.serve import listen, serve, url_of

    most_bytes = 64 << 20
    subjects = [ExplorerModel(load_model(model), model.name, most_bytes) for model in models]
    explorer, listening = Explorer(subjects, ImageStore(images), most_bytes), listen(0)
    began, ends = threading.Event(), threading.Event()
    told = {"began": began.set, "ends": ends.is_set}
    at_work = threading.Thread(target=serve, args=(explorer, listening), kwargs=told)
    at_work.start()
    try:
        assert began.wait(60)
        yield url_of(listening).rstrip("/")
    finally:
        ends.set()
        at_work.join(60)


def alike(one: np.ndarray, other: np.ndarray) -> bool:
    """Two drawings of the same: Chromium smooths the ends of lines in two ways, by how often a canvas was read."""
    return one.shape == other.shape and bool((one != other).any(-1).mean() < 1e-3)


def by(rows: int, cols: int) -> str:
    """As the page writes it."""
    return f"{rows} \N{MULTIPLICATION SIGN} {cols}"


class Sight:
    """A page of the explorer, as one who uses it sees it."""

    def __init__(self, page: Any, base: str) -> None:
        self.page, self.base = page, base
        # The machine may be busy; no test waits for a time.
        page.set_default_timeout(120_000)
        self.asked: list[str] = []
        self.faults: list[str] = []
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("pageerror", lambda fault: self.faults.append(str(fault)))
        page.on("console", lambda said: self.faults.append(said.text) if said.type == "error" else None)

    def open(self, link: str = "") -> Sight:
        self.page.goto(f"{self.base}/{link}")
        return self.settle()

    def settle(self) -> Sight:
        """Until nothing is waited for, and what there is to say was said."""
        self.page.wait_for_selector("html[data-busy=false]", state="attached")
        # A sentence is put into the live region with the next frame.
        self.page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return self

    def pane(self, side: str = "left") -> Any:
        return self.page.locator(f".pane[data-side={side}]")

    @property
    def said(self) -> str:
        return self.page.locator("#live").inner_text()

    @property
    def alert(self) -> str:
        return self.page.locator("#alert").inner_text()

    @property
    def link(self) -> dict[str, str]:
        """The words of the link to what is shown."""
        text = self.page.evaluate("location.hash.slice(1)")
        return dict(urllib.parse.parse_qsl(text))

    def numbers(self, side: str = "left") -> dict[str, str]:
        pane = self.pane(side)
        return dict(zip(pane.locator("dt").all_inner_texts(), pane.locator("dd").all_inner_texts(), strict=True))

    def answer(self, side: str = "left") -> list[list[str]]:
        rows = self.pane(side).locator(".answer tbody tr")
        return [row.locator("th, td").all_inner_texts() for row in rows.all()]

    def click_patch(self, row: int, col: int, grid: tuple[int, int], side: str = "left") -> Sight:
        """A click in the middle of a patch of a picture whose shape is its grid's."""
        box = self.pane(side).locator(".picture").bounding_box()
        scale = min((box["width"] - 6) / grid[1], (box["height"] - 6) / grid[0])
        left, top = (box["width"] - scale * grid[1]) / 2, (box["height"] - scale * grid[0]) / 2
        place = {"x": left + (col + 0.5) * scale, "y": top + (row + 0.5) * scale}
        self.pane(side).locator(".picture").click(position=place)
        return self.settle()

    def pixels(self, side: str = "left", what: str = ".picture") -> np.ndarray:
        """What is drawn, uint8 [height, width, 3]."""
        script = "(canvas) => canvas.toDataURL('image/png').split(',')[1]"
        content = base64.b64decode(self.pane(side).locator(f"{what} canvas").evaluate(script))
        return np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))

    def check(self) -> None:
        """Nothing left this machine, and nothing went wrong unseen."""
        allowed = (f"{self.base}/", "data:", f"blob:{self.base}/")
        assert [one for one in self.asked if not one.startswith(allowed)] == []
        assert self.faults == []


def asked(base: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """The server's answer, without a browser."""
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(base + path, content, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read())
