"""Take the pictures of the documentation from the page of a demo, with a headless Chromium.

    make pictures

runs the demo and then this script. images/smaller.png is the figure of the first screen (README and home page),
images/report.png the first screen at 1280 pixels, images/report-phone.png the same on a phone in the dark.
"""

from __future__ import annotations

import base64
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
SHOTS = {"report.png": (1280, 900, False), "report-phone.png": (390, 844, True)}
FIGURE_WIDTH, SHARPNESS = 1140, 1.5  # pixels of the window, and of the picture for each of them
FIGURE = """(() => {
  for (const part of document.querySelectorAll("#hero .tools, #hero label, .modebar-container")) part.remove();
  const hero = document.getElementById("hero");
  Object.assign(hero.style, { border: 0, borderRadius: 0, boxShadow: "none" });
  const box = hero.getBoundingClientRect();
  return { x: box.x, y: box.y + window.scrollY, width: box.width, height: box.height, scale: 1 };
})()"""


def main(report: Path) -> None:
    """Write every picture."""
    sys.path.insert(0, str(ROOT / "tests" / "reporting"))
    from browser import Page, browsing, find_browser

    def first_screen(page: Page, width: int, height: int, dark: bool) -> None:
        page.open(report, width=width, height=height, dark=dark, touch=width < 600, draw_all=False)
        page.wait_for("document.querySelector('#hero .main-svg')")
        page.run("new Promise((done) => setTimeout(done, 500))")

    executable = find_browser()
    if executable is None:
        sys.exit("No Chromium found; install one to take pictures.")
    with tempfile.TemporaryDirectory() as profile, browsing(executable, Path(profile), timeout=240) as page:
        page.call("Emulation.setScrollbarsHidden", hidden=True)  # nor may one vanish between measuring and drawing
        for name, (width, height, dark) in SHOTS.items():
            first_screen(page, width, height, dark)
            page.screenshot(IMAGES / name, whole=False)
        first_screen(page, FIGURE_WIDTH, 900, False)
        size = {"width": FIGURE_WIDTH, "height": 900, "deviceScaleFactor": SHARPNESS, "mobile": False}
        page.call("Emulation.setDeviceMetricsOverride", **size)
        shot = page.call("Page.captureScreenshot", captureBeyondViewport=True, clip=page.run(FIGURE))
        (IMAGES / "smaller.png").write_bytes(base64.b64decode(shot["data"]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
