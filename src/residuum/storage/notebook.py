"""How results and progress show themselves in a notebook, and how other libraries keep quiet.

The report stands above; `residuum/__init__.py` sets the first two functions.
"""

from __future__ import annotations

import html as markup
import io
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
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
    if find_spec("ipywidgets") is None:
        from tqdm import tqdm

        return tqdm(*items, disable=not shown, ascii=False, file=_Display() if shown else None, **options)
    from tqdm.auto import tqdm

    return tqdm(*items, disable=not shown, **options)


class _Display(io.StringIO):
    """A file whose last line is the output of a notebook's cell; what an export keeps is how a bar ended."""

    def __init__(self) -> None:
        from IPython.display import display  # pyright: ignore[reportMissingImports]

        super().__init__()
        self.handle: Any = display({"text/plain": ""}, raw=True, display_id=True)

    def write(self, text: str, /) -> int:
        if text.strip("\n"):
            self.handle.update({"text/plain": text.strip()}, raw=True)
        return len(text)


if in_notebook() and find_spec("ipywidgets") is None:
    with warnings.catch_warnings():  # by whichever library is the first to import it, on red
        warnings.simplefilter("ignore")
        from tqdm import auto  # noqa: F401


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Without the progress bars and load reports of transformers and Accelerate: what they find is said by us."""
    from transformers import modeling_gguf_pytorch_utils as gguf
    from transformers.utils import logging as transformers_logging

    gguf_bar: Any = gguf.tqdm  # pyright: ignore[reportPrivateImportUsage] - it asks nobody whether it may show
    shown, verbosity = transformers_logging.is_progress_bar_enabled(), transformers_logging.get_verbosity()
    accelerate = logging.getLogger("accelerate.big_modeling")
    level = accelerate.level
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    accelerate.setLevel(logging.ERROR)
    setattr(gguf, "tqdm", partial(gguf_bar, disable=True))  # noqa: B010
    try:
        yield
    finally:
        setattr(gguf, "tqdm", gguf_bar)  # noqa: B010
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
