"""How long one who looks at the explorer's page waits: in headless Chromium, from a server in a process of its own.

    OMP_NUM_THREADS=1 python benchmarks/explorer_page.py [--model RUN] [--beside WORDS] [--quick] [--out OUT]

`answered_ms` is what lies between an arrow key's event, which moves the patch that is looked from, and the last byte
of the server's answers; `press_ms` ends with the first frame after the page has drawn them: all maps (without a GPU by
the processor), and the wait for that frame (at 60 frames a second up to 17 ms of it). No patch is asked for twice.
`wanted_ms` is what was promised for an answer: 50 ms for the demonstration's model at 32 px, 250 ms for timm's ViT-S at
512 px (drawn weights).
`first_paint_ms` is the first contentful paint, counted by the browser from the start of a load whose cache is empty
(median; `first_paint_ms_most` the longest; 1 s was promised), `first_map_ms` the first map of the first load, with the
pass at a new image. `--beside` says what else the machine did meanwhile; browser and server share its cores in any
case. Where there is no Chromium, or no Playwright to lead it, no rows are made, and a line says so.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from explorer import Page, circumstances, demo_model, explorer_options, p90, serving
from measure import Parser, counted, print_table

_COLUMNS = ("model", "size", "tokens", "answered_ms", "press_ms", "press_ms_p90", "wanted_ms", "first_paint_ms")
_WANTED_PAINT_MS = 1000
_WARM = 2
# `drawn` becomes the milliseconds from the last key, or from the start of the load, to the end of the frame that
# follows the page's own word that nothing is waited for: a message that a frame's callback sends arrives behind it.
_WATCH = """
let tell;
window.since = 0;
addEventListener("keydown", (event) => (since = event.timeStamp), true);
window.await_drawn = () => {
  performance.clearResourceTimings();
  window.drawn = new Promise((done) => (tell = done));
};
await_drawn();
new MutationObserver(() => {
  if (document.documentElement?.dataset.busy !== "false") return;
  requestAnimationFrame(() => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => tell(performance.now() - since);
    port2.postMessage(null);
  });
}).observe(document, { subtree: true, attributeFilter: ["data-busy"] });
"""
_ANSWERED = "Math.max(...performance.getEntriesByType('resource').map((one) => one.responseEnd)) - since"
_PAINT = "performance.getEntriesByType('paint').find((one) => one.name === 'first-contentful-paint').startTime"


def absent() -> str | None:
    """What of a browser is not here, or None."""
    if importlib.util.find_spec("playwright") is None:
        return "Playwright (pip install '.[test]')"
    return None if browsing().chromium() else "Chromium (make browser)"


def browsing() -> Any:
    """How the tests of the page find and lead a browser."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from tests.explorer.page import browsing as found

    sys.path.pop(0)
    return found


def across(columns: int) -> Iterator[str]:
    """Arrow keys from the first patch over each row, to and fro: no patch comes twice."""
    while True:
        yield from ["ArrowRight"] * (columns - 1) + ["ArrowDown"] + ["ArrowLeft"] * (columns - 1) + ["ArrowDown"]


def paints(chromium: Any, port: int, link: str, loads: int) -> tuple[list[float], float]:
    """The first contentful paint of each load, and the first map of the first one, in milliseconds."""
    shown, maps = [], []
    for _ in range(loads):
        # A context of its own: nothing of the page is kept from the load before.
        context = chromium.new_context(viewport=browsing().WIDE)
        sight = browsing().Sight(context.new_page(), f"http://127.0.0.1:{port}")
        sight.page.add_init_script(_WATCH)
        sight.open(link)
        maps.append(sight.page.evaluate("drawn"))
        shown.append(sight.page.evaluate(_PAINT))
        sight.check()
        context.close()
    return shown, maps[0]


def presses(chromium: Any, port: int, link: str, count: int) -> tuple[list[tuple[float, float]], int]:
    """Milliseconds from each of `count` keys to the answers and to the drawn map, and how many tokens the view has."""
    context = chromium.new_context(viewport=browsing().WIDE)
    sight = browsing().Sight(context.new_page(), f"http://127.0.0.1:{port}")
    sight.page.add_init_script(_WATCH)
    sight.open(link).pane().locator(".picture").focus()
    numbers, waits = sight.numbers(), []
    columns = int(numbers["Grid"].split()[-1])
    for key in islice(across(columns), _WARM + count):
        sight.page.evaluate("void await_drawn()")
        sight.page.keyboard.press(key)
        drawn = sight.page.evaluate("drawn")
        waits.append((sight.page.evaluate(_ANSWERED), drawn))
        before, numbers = numbers, sight.numbers()
        if numbers["From"] == before["From"]:
            raise RuntimeError(f"{key}: still {before['From']}")
    sight.check()
    context.close()
    # The first ones make tables that are kept.
    return waits[_WARM:], int(numbers["Tokens"])


def measured(chromium: Any, case: tuple[str, Path | str, int, int], quick: bool, asked: Any) -> dict[str, Any]:
    """One model at one size."""
    called, model, side, wanted = case
    options = ["--no-pretrained"] if str(model).startswith("timm:") else []
    with serving(model, asked.threads, asked.device, *options) as port:
        about = json.loads(Page(port).ask("/api/session")[0])["models"][0]
        link = f"#compare=none&left.model=0&left.size={side}&at=0,0"
        shown, first_map = paints(chromium, port, link, 2 if quick else 10)
        waits, tokens = presses(chromium, port, link, 4 if quick else 50)
    answered, drawn = zip(*waits, strict=True)
    return {
        "benchmark": "explorer_page",
        "model": called,
        "encoding": about["encoding"],
        "layers": about["depth"],
        "heads": about["heads"],
        "size": side,
        "tokens": tokens,
        "presses": len(waits),
        "answered_ms": round(statistics.median(answered), 2),
        "answered_ms_p90": round(p90(answered), 2),
        "press_ms": round(statistics.median(drawn), 2),
        "press_ms_p90": round(p90(drawn), 2),
        "wanted_ms": wanted,
        "loads": len(shown),
        "first_paint_ms": round(statistics.median(shown), 2),
        "first_paint_ms_most": round(max(shown), 2),
        "wanted_first_paint_ms": _WANTED_PAINT_MS,
        "first_map_ms": round(first_map, 2),
        "browser": f"Chromium {chromium.version}",
        **circumstances(asked),
    }


def main() -> None:
    asked = explorer_options(parser := Parser(__doc__), "a tiny model of timm's, few loads and presses")
    missing = absent()
    if missing:
        print(f"no rows: there is no {missing} here")
        return
    from playwright.sync_api import sync_playwright

    timm = ("test_vit", "timm:test_vit", 160) if asked.quick else ("vit_small", "timm:vit_small_patch16_224", 512)
    rows = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        cases = [("demo", demo_model(asked, Path(folder)), 32, 50), (*timm, 250)]
        chromium = started.chromium.launch(executable_path=browsing().chromium(), args=browsing().flags())
        for case, said in counted(cases):
            rows.append(measured(chromium, case, asked.quick, asked))
            print(f"{said} {case[0]} at {case[2]} px", flush=True)
        chromium.close()
    print_table(_COLUMNS, rows)
    parser.save(rows)


if __name__ == "__main__":
    main()
