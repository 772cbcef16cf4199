"""What a reader does with any report: go through its sections, point, sort and download."""

from __future__ import annotations

import time
from itertools import cycle
from pathlib import Path

import pandas as pd
from browser import Page

READERS = [(1280, False), (1280, True), (390, False), (390, True)]
"""Width of the window, and whether the system is dark."""

SEEN = """((section) => Array.from(section.querySelectorAll('.plot'))
  .filter((plot) => plot.getBoundingClientRect().top < window.innerHeight))"""
# The controls, texts and figures that reach beyond the card they stand in.
TOO_WIDE = """((section) => Array.from(section.querySelectorAll('.card'), (card) =>
  Array.from(card.querySelectorAll('select, h3, p, dd, figcaption, .plot, .scroll'))
    .filter((one) => one.getBoundingClientRect().right > card.getBoundingClientRect().right + 1)
    .map((one) => one.outerHTML.slice(0, 80))).flat())"""
# Figures without anything in them: no line, dot, bar or cell.
EMPTY = """((section) => Array.from(section.querySelectorAll('.plot'))
  .filter((plot) => !plot.querySelector('.trace, .heatmaplayer image, .points, .bars, .boxes'))
  .map((plot) => plot.closest('.panel').id + ' ' + plot.closest('.panel').querySelector('h3').textContent))"""
# Tables whose first column of numbers is not in order after a click on its head, or not turned round after another.
UNSORTED = """Array.from(document.querySelectorAll('details.table')).filter((table) => {
  const place = Array.from(table.querySelectorAll('th')).findIndex((head) => head.classList.contains('number'));
  if (place < 0) return false;
  const click = () => {
    table.querySelectorAll('thead button')[place].click();
    const cells = Array.from(table.querySelectorAll('tbody tr'), (row) => row.cells[place].textContent);
    const known = cells.filter((text) => text !== '–');
    return cells.slice(known.length).every((text) => text === '–') ? known.map(Number) : [NaN];
  };
  const inOrder = (values) => values.every((value, i) => i === 0 || values[i - 1] <= value);
  return !(inOrder(click()) && inOrder(click().reverse()));
}).map((table) => table.id + ' ' + table.dataset.name)"""
MAP = "document.querySelector('.square')"


def reader_name(reader: tuple[int, bool]) -> str:
    return f"{reader[0]} {'dark' if reader[1] else 'light'}"


def open_as(page: Page, path: Path, reader: tuple[int, bool], *, draw_all: bool = False) -> None:
    width, dark = reader
    page.errors.clear()
    page.open(path, width=width, dark=dark, touch=width < 600, draw_all=draw_all)


def read_through(page: Page, folder: Path, *, has_map: bool = True) -> int:
    """Do all that a reader does, with files into an empty folder; how many sections there are, front and settings too.

    Nothing that is done may be complained about.
    """
    links = page.run("Array.from(document.querySelectorAll('.bar nav a'), (link) => link.getAttribute('href'))")
    for link in links:
        click_through(page, link)
    see_every_figure(page)
    if has_map:
        hover_a_map(page)
    assert page.run(UNSORTED) == []
    download_a_figure(page, folder)
    assert page.errors == []
    return len(links)


def click_through(page: Page, link: str) -> None:
    """The section comes under the bar, what is seen of its figures is drawn, and nothing is wider than the window."""
    page.run(f"document.querySelector('.bar nav a[href=\"{link}\"]').click()")
    section = f"document.querySelector('{link}')"
    page.wait_for(f"!{section}.closest('main > section').hidden")
    page.wait_for(f"{section}.getBoundingClientRect().top < window.innerHeight")
    page.wait_for(f"{SEEN}({section}).every((plot) => plot.querySelector('.main-svg'))")
    assert page.run(f"{section}.getBoundingClientRect().top") >= 0
    assert page.run("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.run(f"{TOO_WIDE}({section})") == []


def see_every_figure(page: Page) -> None:
    """Sections that have no link of their own, such as the steps of studies, are scrolled to."""
    for number in range(page.run("document.querySelectorAll('section.run').length")):
        section = f"document.querySelectorAll('section.run')[{number}]"
        page.run(f"location.hash = {section}.id")
        page.wait_for(f"!{section}.hidden")
        drawn = f"Array.from({section}.querySelectorAll('.plot')).map((plot) => plot.closest('.panel'))"
        page.run(f"Promise.all({drawn}.map((panel) => draw(figures.find((one) => one.panel === panel)))).then(() => 0)")
        assert page.run(f"{EMPTY}({section})") == []
        assert page.run(f"{TOO_WIDE}({section})") == []
    assert page.run("document.documentElement.scrollWidth <= window.innerWidth")


def hover_a_map(page: Page) -> None:
    """A cell of the first map of layers tells both layers and the value."""
    page.run(f"location.hash = {MAP}.closest('section').id")
    page.wait_for(f"!{MAP}.closest('section').hidden")
    page.run(f"{MAP}.querySelector('.plot').scrollIntoView({{block: 'center', behavior: 'instant'}})")
    page.wait_for(f"{MAP}.querySelector('.nsewdrag')")
    shares = cycle((0.1, 0.11))  # a hand is never still; a page that was busy sees the next move

    def point() -> None:
        share = next(shares)
        place = page.run(
            f"(() => {{ const box = {MAP}.querySelector('.nsewdrag').getBoundingClientRect();"
            f"return [box.x + box.width * {share}, box.y + box.height * {share}] }})()"
        )
        page.point_at(*place)

    told = rf"/, layer \d+.*, layer \d+value [\d.]+/.test({MAP}.querySelector('.hoverlayer').textContent)"
    page.wait_for(told, after=point)


def download_a_figure(page: Page, folder: Path) -> None:
    """The first figure of the page as SVG, PNG and CSV, which has the rows that it draws."""
    page.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
    starts = {"svg": b"<svg", "png": b"\x89PNG", "csv": b""}
    for kind, start in starts.items():
        page.run(f"document.querySelector('.panel [data-format={kind}]').click()")
        assert wait_for_file(folder, kind).read_bytes().startswith(start)
    rows = page.run("rowsOf(viewOf(figures[0])).rows.length")
    assert len(pd.read_csv(wait_for_file(folder, "csv"))) == rows > 0


def wait_for_file(folder: Path, kind: str) -> Path:
    """The one file of a kind, once it is whole."""
    deadline = time.monotonic() + 300
    while not (found := [path for path in folder.glob(f"*.{kind}") if path.stat().st_size]):
        assert time.monotonic() < deadline, list(folder.iterdir())
        time.sleep(0.05)
    return found[0]
