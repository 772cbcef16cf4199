"""How results and progress show themselves in a notebook, and how other libraries keep quiet.

The report stands above; `residuum/__init__.py` sets the first two functions.
"""

from __future__ import annotations

import html as markup
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go
    from tqdm import tqdm

    from residuum.storage.results import Run

figure: Callable[[Run, str, str], go.Figure]
"""A figure of the run's report, by a part of its title and by the key or label of a view."""

html: Callable[[Run, pd.DataFrame], str]
"""Title, facts and findings of the run's report, and the first rows of a table."""


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return shell is not None and hasattr(shell, "kernel")


def progress_bar(*items: Any, shown: bool, **options: Any) -> tqdm:
    """A bar in a terminal or a notebook; none where nobody looks, or where it is not to be shown."""
    if not in_notebook():
        from tqdm import tqdm

        return tqdm(*items, disable=None if shown else True, **options)
    if find_spec("ipywidgets") is None:  # a text, on standard output: notebooks show the other one on red
        from tqdm import tqdm

        return tqdm(*items, disable=not shown, file=sys.stdout, **options)
    from tqdm.auto import tqdm

    return tqdm(*items, disable=not shown, **options)


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Without the progress bars and load reports of transformers and Accelerate: what they find is said by us."""
    from transformers.utils import logging as transformers_logging

    shown, verbosity = transformers_logging.is_progress_bar_enabled(), transformers_logging.get_verbosity()
    accelerate = logging.getLogger("accelerate.big_modeling")
    level = accelerate.level
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    accelerate.setLevel(logging.ERROR)
    try:
        yield
    finally:
        accelerate.setLevel(level)
        transformers_logging.set_verbosity(verbosity)
        if shown:
            transformers_logging.enable_progress_bar()


def facts_html(title: str, facts: Mapping[str, object]) -> str:
    """A title and a table of facts, as a notebook shows an object."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{markup.escape(name)}</th><td>{markup.escape(str(value))}</td></tr>"
        for name, value in facts.items()
    )
    return f"<div><b>{markup.escape(title)}</b><table>{rows}</table></div>"
