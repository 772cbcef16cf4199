"""Execute the tutorials: every docs/tutorials/NAME.py becomes a notebook and a page with the same outputs.

    python docs/tutorials.py [NAME …]

Cells begin with `# %%`, text with `# %% [markdown]`. They run in one temporary folder per tutorial; what they print is
kept in NAME.ipynb and NAME.md, which are committed, so that the documentation builds without running anything.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent / "tutorials"
TEXT, CODE = "markdown", "code"


def main(names: list[str]) -> None:
    """Execute some tutorials, or all."""
    for script in sorted(FOLDER.glob("*.py")):
        if not names or script.stem in names:
            cells = executed(cells_of(script.read_text(encoding="utf-8")))
            script.with_suffix(".md").write_text(page(cells, script.stem), encoding="utf-8")
            script.with_suffix(".ipynb").write_text(notebook(cells), encoding="utf-8")


def cells_of(source: str) -> list[dict[str, str]]:
    """Kind and source of each cell."""
    cells = []
    for part in source.split("# %%")[1:]:
        head, _, body = part.partition("\n")
        kind = TEXT if "[markdown]" in head else CODE
        lines = [line.removeprefix("#").removeprefix(" ") if kind == TEXT else line for line in body.split("\n")]
        cells.append({"kind": kind, "source": "\n".join(lines).strip("\n"), "output": ""})
    return cells


def executed(cells: list[dict[str, str]]) -> list[dict[str, str]]:
    """The cells with what they print, run one after the other."""
    names: dict[str, object] = {"__name__": "__main__"}
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for cell in (cell for cell in cells if cell["kind"] == CODE):
                with contextlib.redirect_stdout(io.StringIO()) as output:
                    exec(compile(cell["source"], "<tutorial>", "exec"), names)
                cell["output"] = output.getvalue()
        finally:
            os.chdir(here)
    return cells


def page(cells: list[dict[str, str]], name: str) -> str:
    """The cells as one page of the documentation."""
    parts = []
    for cell in cells:
        if cell["kind"] == TEXT:
            parts.append(cell["source"])
            continue
        parts.append(f"```py\n{cell['source']}\n```")
        if cell["output"]:
            parts.append(f"```text\n{cell['output'].rstrip()}\n```")
    parts.append(f"This page is an executed notebook: [{name}.ipynb]({name}.ipynb).")
    return "\n\n".join(parts) + "\n"


def notebook(cells: list[dict[str, str]]) -> str:
    """The cells as a notebook of format 4.5."""
    made, n_code = [], 0
    for place, cell in enumerate(cells):
        record = {"cell_type": cell["kind"], "id": f"cell-{place}", "metadata": {}, "source": lines(cell["source"])}
        if cell["kind"] == CODE:
            n_code += 1
            stream = {"output_type": "stream", "name": "stdout", "text": lines(cell["output"])}
            record |= {"execution_count": n_code, "outputs": [stream] if cell["output"] else []}
        made.append(record)
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    whole = {"cells": made, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def lines(text: str) -> list[str]:
    """Text as notebooks hold it: lines with their ends."""
    return text.splitlines(keepends=True)


if __name__ == "__main__":
    main(sys.argv[1:])
