"""The viewer on a large cube: ``python tests/bench/view.py [FOLDER] [GIB]``; needs Chromium and playwright.

Writes an int16 scene of 1000 samples and 500 bands, 10 GiB of random numbers (not sparse), by pixel and by band; prints
a line of JSON for each: seconds until the address is printed, until the page in the browser is idle, from a click to
its values on the page, and from a zoom to its finer picture, the median of several. The file was just written, so that
much of it is in the page cache where it fits.
"""

import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

SAMPLES, BANDS = 1000, 500
CLICKS = 8
HEADING = r"/^Line \d+, sample \d+$/"


def write(folder: Path, interleave: str, gib: float) -> Path:
    """Write the scene; every line has other numbers."""
    lines = int(gib * 2**30 / (2 * SAMPLES * BANDS))
    block = np.random.default_rng(0).integers(1, 9999, 2**24, np.int16)
    with (folder / "s.img").open("wb") as file:
        left, k = lines * SAMPLES * BANDS, 0
        while left:
            some, k = np.roll(block, k)[: min(left, len(block))], k + 12345
            file.write(some.tobytes())
            left -= len(some)
    (folder / "s.hdr").write_text(
        f"ENVI\nsamples = {SAMPLES}\nlines = {lines}\nbands = {BANDS}\ndata type = 2\ninterleave = {interleave}\nbyte "
        "order = 0\n"
    )
    return folder / "s.hdr"


def measured(path: Path) -> dict[str, float]:
    """Return the seconds of one session."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "unmix", "view", str(path), "--library", str(path.with_name("none.csv"))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        url = re.search(r"http\S+", process.stdout.readline())
        assert url is not None
        printed = time.perf_counter() - began
        with sync_playwright() as start:
            page = start.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"]).new_page(
                viewport={"width": 1280, "height": 900}
            )
            began = time.perf_counter()
            page.goto(url[0])
            page.wait_for_function("() => window.Bokeh && Bokeh.documents.length && Bokeh.documents[0].is_idle")
            idle, clicks = time.perf_counter() - began, []
            box = page.locator(".parts > div").first.bounding_box()
            assert box is not None
            for k in range(CLICKS):
                page.wait_for_timeout(700)  # two clicks at once are a double click
                page.evaluate(WATCH)
                page.mouse.click(box["x"] + box["width"] * 0.56, box["y"] + box["height"] * (0.4 + 0.04 * k))
                page.wait_for_function("() => window.answered > 0")
                clicks.append(page.evaluate("() => window.answered"))
        return {
            "printed": printed,
            "idle": idle,
            "click": statistics.median(clicks) / 1000,
            "slowest click": max(clicks) / 1000,
        }
    finally:
        process.terminate()
        process.communicate()


# Milliseconds from the next click to the next change of the heading of the pixel, by the page's own clock.
WATCH = """() => {
  const heading = (root) => { for (const e of root.querySelectorAll('*')) {
    if (e.tagName === 'H2' && HEADING.test(e.textContent)) return e.textContent;
    if (e.shadowRoot) { const found = heading(e.shadowRoot); if (found) return found; } } return ''; };
  const old = heading(document); window.answered = 0;
  window.addEventListener('pointerup', () => { const began = performance.now();
    const look = () => { if (heading(document) !== old) window.answered = performance.now() - began;
      else requestAnimationFrame(look); };
    look(); }, { once: true, capture: true });
}""".replace("HEADING", HEADING)


def main(folder: str | None = None, gib: str = "10") -> None:
    for interleave in ("bip", "bsq"):
        with tempfile.TemporaryDirectory(dir=folder) as place:
            path = write(Path(place), interleave, float(gib))
            for again in range(2):
                print(
                    json.dumps({"interleave": interleave, "GiB": float(gib), "again": again} | measured(path)),
                    flush=True,
                )


if __name__ == "__main__":
    main(*sys.argv[1:])
