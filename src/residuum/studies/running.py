"""`study`: run all steps of one document and test its claims."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from residuum.costs import Cost, CostStep, duration, operations_a_second
from residuum.errors import OtherRunError, SettingError, StoreError
from residuum.models.loading import check_folder_or_name, check_weights, short_name
from residuum.models.surgery import files_fingerprint
from residuum.reporting.report import report
from residuum.reporting.wording import claim_text
from residuum.samples import teacher_folder
from residuum.settings import command, from_mapping, named_source
from residuum.storage.results import (
    Result,
    Run,
    changed_settings,
    clear_content_errors,
    finished_run,
    read_config,
    without_places,
    write_config,
    write_run,
)
from residuum.storage.tensors import stored_weights
from residuum.studies import StudyModel, StudyName, StudySettings
from residuum.studies.data import SENTENCE_TASKS, TREEBANK_LABELS, WORD_TASKS, GivenData, SampleData
from residuum.studies.distilled import DISTILLED
from residuum.studies.documents import (
    Document,
    Results,
    StudyStep,
    Workload,
    exhibit_tables,
    finding_tables,
    step_table,
    trained_table,
)
from residuum.studies.monolingual import MONOLINGUAL
from residuum.studies.redundancy import REDUNDANCY
from residuum.studies.similarity import SIMILARITY
from residuum.studies.steps import SCALES, StudyContext, is_store
from residuum.studies.transfer_learning import TRANSFER_LEARNING

COMMAND = "study"
DOCUMENTS: dict[StudyName, Document] = {
    document.name: document for document in (SIMILARITY, REDUNDANCY, TRANSFER_LEARNING, DISTILLED, MONOLINGUAL)
}
"""The studies by name, in the order in which their documents build on each other."""

TOKENS = 30  # per sentence
EFFICIENCY = 0.3  # of the speed of a bare matrix product that a whole step reaches
PROBED = 1e7  # parameters of a model that reads a sentence in the time that a battery of probes takes for it
START = 4.0  # seconds to load a model and write a folder
BASE_BLOCKS = 85e6  # parameters of twelve blocks of width 768, for a model whose weights are not on this machine

Say = Callable[[str], object]


@dataclass(frozen=True, eq=False)
class Study(Result):
    """The result of a study. `frame` has one row per claim of the document: our number, its interval, the verdict."""

    run: Run
    folder: Path

    @property
    def frame(self) -> pd.DataFrame:
        """where, finding, verdict, ours, low, high, rule, cases, document, bound, note."""
        return self.run.tables["findings"]

    @property
    def cases(self) -> pd.DataFrame:
        """The number and interval of each case behind the claims."""
        return self.run.tables["cases"]

    @property
    def exhibits(self) -> pd.DataFrame:
        """The document's tables and figures in its order, and which table of which step holds ours."""
        return self.run.tables["exhibits"]

    @property
    def trained(self) -> pd.DataFrame:
        """The score of each fine-tuned model, with all layers, some dropped or some frozen; may be empty."""
        return self.run.tables.get("trained", trained_table(Results((), {})))

    @property
    def page(self) -> Path:
        """The report of all steps."""
        return self.folder / "report.html"

    def text(self) -> str:
        """The claims as lines for a terminal, and where the report is."""
        rows = self.frame.to_dict("records")
        lines = [f"{row['verdict']:>13}  {row['where']}: {claim_text(row)}" for row in rows]
        return "\n".join([*lines, f"Open {self.page.resolve()} in a browser."])


def estimate_study(settings: StudySettings) -> Cost:
    """The expected time of every step, and the memory of the weights that it holds."""
    document = DOCUMENTS[settings.name]
    context = study_context(document, settings)
    steps = document.steps(context)
    weights = {model: 4 * (stored_weights(source) or BASE_BLOCKS) for model, source in context.loadable.items()}
    parts = []
    for step, seconds in zip(steps, expected_seconds(steps, document, context), strict=True):
        size = weights.get(step.model, max(weights.values(), default=0))
        # training keeps the gradient and Adam's two moments beside each weight
        parts.append(CostStep(step.name, seconds, memory=round(4 * size if step.load.trained else size)))
    return Cost(f"{settings.name}, scale {settings.scale}: {', '.join(context.models)}", tuple(parts))


@command(StudySettings, estimate=estimate_study)
def study(settings: StudySettings) -> Study:
    """Run the steps of a document into a folder, test its claims, and report.

    The scale `sample` takes minutes with the sample data and model. `small` reads the folder `data` with your `models`,
    in sizes for two cores. `paper` takes the document's models and all of `data`; it prints its cost first and starts
    only with `yes`. Every step has its folder in `out` and is not run again when the study is run again.
    """
    document = DOCUMENTS[settings.name]
    context = named_by_content(study_context(document, settings))
    config = study_config(settings, context)
    largest = max(context.loadable.values(), key=lambda model: stored_weights(model) or 0, default=None)
    check_weights([] if largest is None else [largest], settings.max_memory)
    begin_study(context.out, config, fresh=settings.fresh)
    steps = _chosen_steps(document.steps(context), settings.steps)
    assert len({step.name for step in steps}) == len(steps), "every step has its own folder"
    seconds = expected_seconds(steps, document, context)
    if settings.scale == "paper":
        _agree(steps, sum(seconds), context, settings)
    results, took = _run_steps(steps, context, seconds, settings.say)
    with clear_content_errors(f"{COMMAND} {settings.name}", context.out):
        tables = finding_tables(document, results, printed=settings.scale == "paper")
        tables |= {**exhibit_tables(document, results), "steps": step_table(results, took)}
        trained = trained_table(results)
    tables |= {} if trained.empty else {"trained": trained}
    verdicts = {str(verdict): int(n) for verdict, n in tables["findings"]["verdict"].value_counts().items()}
    summary = {"title": document.title, "source": document.source, "steps": len(steps), **verdicts}
    run = Run(COMMAND, config, {**summary, "seconds": round(sum(took.values()), 1)}, tables)
    write_run(context.out, run)
    folders = [context.out, *(context.out / name for name in results.runs)]
    report(folders, context.out / "report.html", title=document.title)
    return Study(run, context.out)


def study_context(document: Document, settings: StudySettings) -> StudyContext:
    """Models, data and scale of a study; what is missing or cannot be used is an error."""
    # an option that a study cannot honour is an error
    kinds = {"word": WORD_TASKS, "sentence": SENTENCE_TASKS, "treebank": TREEBANK_LABELS}
    known = [task for unit in document.units for task in kinds[unit]]
    if unused := [task for task in settings.tasks if task not in known]:
        expected = f"its tasks are {', '.join(known)}" if known else "its tasks are those of the document"
        raise SettingError(f"The study {document.name} does not use {', '.join(unused)}; {expected}.")
    if settings.examples is not None and not document.trains:
        raise SettingError(f"The study {document.name} trains on no sentence task; leave --examples out.")
    if settings.test_treebank and "treebank" not in document.units:
        raise SettingError(f"The study {document.name} tests on each corpus's own part; leave --test-treebank out.")
    if settings.languages and not document.multilingual:
        raise SettingError(f"The study {document.name} reads English only; leave --languages out.")
    scale = replace(
        SCALES[settings.scale],
        examples=settings.examples or SCALES[settings.scale].examples,
        transferred=settings.examples or SCALES[settings.scale].transferred,
        sentences=settings.limit or SCALES[settings.scale].sentences,
        seeds=settings.seeds or SCALES[settings.scale].seeds,
    )
    models = study_models(settings.models, settings.teachers or {})
    if scale.name == "sample":
        data = SampleData(scale, settings.seed, languages=tuple(settings.languages))
        models = models or study_models([teacher_folder()])
    else:
        if settings.data is None:
            needs = ", ".join(document.needs)
            raise SettingError(f"The scale {scale.name} needs data (--data): a folder with {needs}; found none.")
        if not models and scale.name == "small":
            known = ", ".join(list(document.models)[:2])
            raise SettingError(f"The scale small needs models (--models), such as {known}; found none.")
        treebanks = (settings.treebank, settings.text, settings.test_treebank)
        chosen = (tuple(settings.tasks), tuple(settings.languages), *treebanks)
        data = GivenData(settings.data, scale, settings.seed, *chosen)
        models = models or study_models(list(document.models), document.teachers)
    if not document.stores and (stores := [name for name, model in models.items() if is_store(model.path)]):
        raise SettingError(f"{stores[0]} is a folder of activations, but {document.name} loads its models; pass one.")
    if document.one_model and len(models) > 1:
        raise SettingError(f"{document.name} distils one teacher; found {len(models)} models: {', '.join(models)}.")
    return StudyContext(
        scale,
        {name: model.path for name, model in models.items()},
        data,
        settings.out,
        teachers={name: model.teacher for name, model in models.items() if model.teacher},
        architectures={name: model.architecture for name, model in models.items() if model.architecture},
        multilingual={name: model.multilingual for name, model in models.items() if model.multilingual is not None},
        kinds=tuple(settings.steps),
        **{name: getattr(settings, name) for name in ("device", "seed", "fresh", "max_memory")},
    )


def study_models(entries: Sequence[Any], teachers: Mapping[str, str] | None = None) -> dict[str, StudyModel]:
    """Models by name, from paths, `NAME=MODEL`, mappings of a name to a path, or records with `path`."""
    models: list[StudyModel] = []
    for entry in entries:
        if isinstance(entry, StudyModel):
            models.append(entry)
        elif isinstance(entry, Mapping) and "path" in entry:
            models.append(from_mapping(StudyModel, entry, "A model"))
        else:
            named = entry.items() if isinstance(entry, Mapping) else [named_source(entry)]
            models += [StudyModel(path=str(path), name=name or "") for name, path in named]
    for model in models:
        check_folder_or_name(model.path)
    named = {model.name or short_name(model.path): model for model in models}
    if len(named) < len(models):
        raise SettingError(f"Found {len(models)} models but {len(named)} names; name them as NAME=MODEL.")
    for student, teacher in (teachers or {}).items():
        if student not in named:
            raise SettingError(f"teachers names {student}, which is not a model of the study ({', '.join(named)}).")
        named[student] = replace(named[student], teacher=teacher)
    if unknown := [model.teacher for model in named.values() if model.teacher and model.teacher not in named]:
        raise SettingError(f"The teacher {unknown[0]} is not a model of the study; its models are {', '.join(named)}.")
    return named


def _chosen_steps(steps: Sequence[StudyStep], kinds: Sequence[str]) -> tuple[StudyStep, ...]:
    """The steps of some kinds, or all of them."""
    known = dict.fromkeys(step.kind for step in steps)
    if unknown := [kind for kind in kinds if kind not in known]:
        raise SettingError(f"The study has no step {unknown[0]}; its steps are {', '.join(known)}.")
    return tuple(step for step in steps if not kinds or step.kind in kinds)


def expected_seconds(steps: Sequence[StudyStep], document: Document, context: StudyContext) -> list[float]:
    """2·P operations per token read, 6·P per token trained on and 2·PROBED per token probed, at this machine's speed.

    P counts the parameters of a model's blocks. A step without a model works with all of them.
    """
    speed = EFFICIENCY * operations_a_second()
    blocks = {name: block_parameters(source, document.models) for name, source in context.loadable.items()}
    everything = math.fsum(blocks.values())
    return [START + operations(step.load, blocks.get(step.model, everything)) / speed for step in steps]


def operations(load: Workload, parameters: float) -> float:
    """The operations of a workload with a model of so many parameters; probes do not depend on them."""
    return TOKENS * (parameters * (2 * load.read + 6 * load.trained) + 2 * PROBED * load.probed)


def block_parameters(model: str, known: Mapping[str, float]) -> float:
    """Parameters of a model's blocks: known by name, or counted in the headers of its weights."""
    if model in known:
        return known[model]
    counted = stored_weights(model, without=("embed", "lm_head"))
    return BASE_BLOCKS if counted is None else float(counted)


def _agree(steps: Sequence[StudyStep], seconds: float, context: StudyContext, settings: StudySettings) -> None:
    """Print what the document's own scale costs, and stop unless the user has agreed to it."""
    sentences = sum(step.load.read + step.load.trained for step in steps)
    cost = f"{len(steps)} steps over {sentences:,.0f} sentences with {', '.join(context.models)}: {duration(seconds)}"
    settings.say(f"{cost}.")
    if not settings.yes:
        raise SettingError(f"The scale paper starts only with --yes. Expected: {cost}.")


def _run_steps(
    steps: Sequence[StudyStep], context: StudyContext, expected: Sequence[float], say: Say
) -> tuple[Results, dict[str, float]]:
    """Run the steps in order; one whose folder is finished returns at once. Also the seconds of each."""
    runs: dict[str, Run] = {}
    took: dict[str, float] = {}
    for number, step in enumerate(steps, 1):
        finished = (context.folder(step) / "result.json").exists() and not context.fresh
        left = f"about {duration(sum(expected[number - 1 :]))} left"
        say(f"{number}/{len(steps)}  {step.title} ({'finished before' if finished else left}) …")
        start = time.perf_counter()
        try:
            runs[step.name] = step.work(step, context)
        except OtherRunError:
            say(f"     {step.name} is run again: its models, data or settings have changed")
            runs[step.name] = step.work(step, replace(context, fresh=True))
        took[step.name] = time.perf_counter() - start
    sources = {Path(path).name: name for name, path in context.models.items()}
    return Results(tuple(steps), runs, context.families, context.teachers, context.multilingual, sources), took


def study_config(settings: StudySettings, context: StudyContext) -> dict[str, Any]:
    """What tells a study from others, with fingerprints of its models and data."""
    models = {name: {"model": source, "files": files_fingerprint(source)} for name, source in context.models.items()}
    return {"study": settings.name, **settings.identity(), "models": models, "data": context.data.identity}


def named_by_content(context: StudyContext) -> StudyContext:
    """The context with its models under the names that its folder has for them, where their folders were renamed."""
    kept = {} if context.fresh else read_config(context.out)
    models = kept.get("models") if kept.get("command") == COMMAND else None
    known = {
        model["files"]: str(name)
        for name, model in (models.items() if isinstance(models, Mapping) else ())
        if isinstance(model, Mapping) and model.get("files") and isinstance(model["files"], str)
    }
    named = {known.get(files_fingerprint(source), name): source for name, source in context.models.items()}
    return replace(context, models=named) if len(named) == len(context.models) else context


def begin_study(out: Path, config: Mapping[str, Any], *, fresh: bool) -> None:
    """Begin or resume a study in its folder; another study there is an error.

    Models and data may have moved, or their content may have changed, but not both: that is usually a mistake.
    """
    kept = {} if fresh else read_config(out)
    if kept and kept.pop("command", None) == COMMAND:
        wanted = {key: _kept_if_same(kept.get(key), value) for key, value in config.items()}
        if changes := changed_settings(kept, wanted):
            raise StoreError(f"{out} holds another run ({changes}); choose another folder or pass --fresh.")
    changed = without_places(kept) != without_places(config)
    finished_run(out, COMMAND, config, fresh=fresh or (bool(kept) and changed))
    write_config(out, COMMAND, config)


def _kept_if_same(kept: Any, wanted: Any) -> Any:
    """The kept description where it means the same thing: by its place or by its content, model by model."""
    if isinstance(wanted, Mapping) and "files" in wanted:
        places = [
            said.get("model", said.get("folder")) if isinstance(said, Mapping) else said for said in (kept, wanted)
        ]
        return kept if places[0] == places[1] or without_places(kept) == without_places(wanted) else wanted
    if isinstance(wanted, Mapping) and isinstance(kept, Mapping):
        return {name: _kept_if_same(kept.get(name), value) for name, value in wanted.items()}
    return wanted
