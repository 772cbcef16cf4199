"""Take the pictures of the documentation from the page of a demo, with a headless Chromium.

    make demo
    python docs/picture.py demo/report.html

images/report.png is the first screen at 1280 pixels (README and home page), images/report-phone.png the same on a phone
in the dark.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHOTS = {"report.png": (1280, 900, False), "report-phone.png": (390, 844, True)}


def main(page: Path) -> None:
    """Write every picture."""
    sys.path.insert(0, str(ROOT / "tests" / "reporting"))
    from browser import browsing, find_browser

    executable = find_browser()
    if executable is None:
        sys.exit("No Chromium found; install one to take pictures.")
    with tempfile.TemporaryDirectory() as profile, browsing(executable, Path(profile), timeout=240) as shown:
        for name, (width, height, dark) in SHOTS.items():
            shown.open(page, width=width, height=height, dark=dark, touch=width < 600, draw_all=False)
            shown.wait_for("document.querySelector('#hero .main-svg') || !document.querySelector('#hero')")
            shown.run("new Promise((done) => setTimeout(done, 500))")
            shown.screenshot(ROOT / "docs" / "images" / name, whole=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
