"""What the steps of a study work with (scale, models, data, folder), and the steps that several studies take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from residuum.activations.extraction import extract
from residuum.activations.store import ActivationStore
from residuum.comparison.compare import compare
from residuum.corpus import Corpus
from residuum.corpus.tasks import Task, TaskCorpora
from residuum.errors import ModelError
from residuum.maths.probing import PaperRecipe
from residuum.models.loading import MOST_BLOCKS, Model, load_model
from residuum.probing.redundancy import redundancy
from residuum.storage.files import folder_name, lone_file, read_json
from residuum.storage.results import Run
from residuum.studies.documents import StudyStep, Workload, step_name
from residuum.training.finetuning import finetune

if TYPE_CHECKING:
    from residuum.studies.data import GivenData, SampleData

HELD_OUT = 200  # lines of each language for perplexity
CURVE = 6  # points of the curves of perplexity and retrieval during distillation
PAIRS = 200  # translations to retrieve at each point
NARROW = 384
"""Models below this width, such as the sample teacher, need a larger learning rate than the documents' models."""
NARROW_RATE = 5e-4
_COPY = "Copy the model again."


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The sizes of a study and the settings that follow from them; the document's own settings are in the studies."""

    name: str
    sentences: int | None  # at most, per part of a treebank; None is all
    examples: int | None  # at most, in the training part of a sentence task; None is all
    transferred: int | None  # at most, of a task that is transferred to other languages; None is all
    tasks: int | None  # of each unit; None is all
    epochs: float
    batch_size: int
    learning_rate: float
    seeds: int
    probe_epochs: int
    groups: int  # of sentences, for jackknife intervals
    distillation_steps: int
    distillation_batch: int


SCALES = {
    scale.name: scale
    for scale in (
        Scale(
            name="sample", sentences=200, examples=320, transferred=320, tasks=2, seeds=1, groups=5,
            epochs=2.0, batch_size=16, learning_rate=NARROW_RATE, probe_epochs=8,
            distillation_steps=24, distillation_batch=8,
        ),
        Scale(
            name="small", sentences=1000, examples=2000, transferred=1000, tasks=2, seeds=3, groups=5,
            epochs=2.0, batch_size=16, learning_rate=5e-5, probe_epochs=10,
            distillation_steps=600, distillation_batch=8,
        ),
        Scale(
            name="paper", sentences=None, examples=None, transferred=None, tasks=None, seeds=3, groups=10,
            epochs=3.0, batch_size=8, learning_rate=5e-5, probe_epochs=10,
            distillation_steps=500_000, distillation_batch=16,
        ),
    )
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class StudyContext:
    """All that a step may use; steps find each other's results by their folders."""

    scale: Scale
    models: Mapping[str, str]  # name → folder or hub name
    data: SampleData | GivenData
    out: Path
    _: KW_ONLY
    teachers: Mapping[str, str] = field(default_factory=dict)  # of distilled models: the models they were made from
    architectures: Mapping[str, str] = field(default_factory=dict)  # that replace those of the configs
    multilingual: Mapping[str, bool] = field(default_factory=dict)  # of models that say so
    kinds: tuple[str, ...] = ()  # of steps that are run; all where there are none
    device: str = "auto"
    seed: int = 0
    fresh: bool = False
    max_memory: int | None = None

    @property
    def first(self) -> str:
        """The name of the first model."""
        return next(iter(self.models))

    def wants(self, *kinds: str) -> bool:
        """Whether steps of these kinds are run, so that their data must be there."""
        return not self.kinds or not set(kinds).isdisjoint(self.kinds)

    @property
    def loadable(self) -> dict[str, str]:
        """The models that can be loaded; of the others there are only activations."""
        return {name: path for name, path in self.models.items() if not is_store(path)}

    @property
    def families(self) -> dict[str, str]:
        """The architecture of each model; stored activations whose architecture is not named are a family alone."""
        return {
            name: self.architectures.get(name) or (name if is_store(path) else model_family(path))
            for name, path in self.models.items()
        }

    @property
    def options(self) -> dict[str, Any]:
        """Options of every command of a study."""
        return {"seed": self.seed, "fresh": self.fresh, "progress": False}

    @property
    def bounded(self) -> dict[str, Any]:
        """Options of commands that can do with less memory."""
        return {**self.options, "max_memory": self.max_memory}

    @property
    def workers(self) -> int | None:
        """Processes of a comparison: all cores, but one where starting others takes longer than the work."""
        return 1 if self.scale.name == "sample" else None

    @property
    def learning(self) -> dict[str, Any]:
        """How a task is learnt at this scale."""
        return {name: getattr(self.scale, name) for name in ("epochs", "batch_size", "learning_rate")}

    def paper_probes(self, batch_size: int = 128) -> dict[str, Any]:
        """Settings of commands whose probes follow the papers' protocol."""
        epochs, seeds = self.scale.probe_epochs, self.scale.seeds
        return {"recipe": "paper", "epochs": epochs, "batch_size": batch_size, "seeds": seeds}

    def recipe(self, batch_size: int = 128) -> PaperRecipe:
        """How probes are trained."""
        return PaperRecipe(epochs=self.scale.probe_epochs, batch_size=batch_size)

    def folder(self, step: StudyStep | str, model: str = "", task: str = "", variant: str = "") -> Path:
        """The folder of a step, or of the step of that kind, model, task and variant."""
        return self.out / (step_name(step, model, task, variant) if isinstance(step, str) else step.name)

    def finetuned(self, model: str, task: str) -> Path:
        """The model that learnt a task, for steps that read with it; the first of several seeds."""
        folder = self.folder("finetune", model, task)
        return folder if self.scale.seeds == 1 else folder / f"seed-{self.seed}"

    def activations(self, model: str, corpus: Corpus) -> Path:
        """Where a model's activations over a text are kept, for all steps that read it."""
        return self.out / "activations" / f"{folder_name(model)}-{corpus.text_fingerprint[:8]}"

    def read(
        self,
        model: str,
        source: str | Path,
        *,
        random: bool = False,
        attention: bool = False,
        text: Corpus | None = None,
    ) -> ActivationStore:
        """The activations of a model (or its random twin) over the study's text, or over another one."""
        if is_store(source):
            return ActivationStore.open(source).renamed(model)  # a comparison checks that the words are the same
        text = self.data.text if text is None else text
        folder = self.activations(f"{model}-random" if random else model, text)
        network = self.load(source, name=model, random=random, attention=attention)
        options = {"max_memory": self.max_memory, "fresh": self.fresh, "progress": False}
        return extract(network, text, folder, attention=attention, **options)

    def load(
        self, source: str | Path, *, name: str | None = None, random: bool = False, attention: bool = False
    ) -> Model:
        """A model, or its random twin (same architecture, untrained weights), under its name in the study's tables."""
        options = {"seed": self.seed, "device": self.device, "max_memory": self.max_memory}
        model = load_model(source, random_init=random, attention=attention, **options)
        return model if name is None else replace(model, name=f"{name} (random)" if random else name)


def is_store(source: str | Path) -> bool:
    """Whether a model is passed as a folder of its activations."""
    return (Path(source) / "manifest.json").is_file()


def model_family(source: str | Path) -> str:
    """The architecture that a model's config names; empty where there is no config."""
    family = _config(source).get("model_type", "")
    if not isinstance(family, str):
        raise ModelError(f"{source}/config.json has model_type {str(family)[:60]}; expected a name. {_COPY}")
    return family


def is_narrow(source: str | Path) -> bool:
    """Whether a model is far smaller than those of the documents, by its config."""
    width = _config(source).get("hidden_size", NARROW)
    return isinstance(width, int) and width < NARROW


def has_heads(source: str | Path) -> bool:
    """Whether a model has attention heads, by its config; a model without a config is taken to have some.

    Stored activations have them if the store holds attention.
    """
    if is_store(source):
        return ActivationStore.open(source).n_heads > 0
    values = _config(source)
    names = ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads")
    return not values or any(name in values for name in names)


def block_count(source: str | Path) -> int:
    """The number of blocks of a model, by its config; 12 where there is none."""
    values = _config(source)
    key = next((key for key in ("num_hidden_layers", "n_layer", "n_layers") if key in values), None)
    if key is None:
        return 12
    count = values[key]
    if not isinstance(count, int) or isinstance(count, bool) or not 0 < count <= MOST_BLOCKS:
        found = f"{source}/config.json has {key} {str(count)[:60]}"
        raise ModelError(f"{found}; expected a whole number from 1 to {MOST_BLOCKS:,}. {_COPY}")
    return count


def _config(source: str | Path) -> dict[str, Any]:
    """The config of a model folder, or of a hub name from the cache or the hub; empty where it cannot be read."""
    path: str | Path | None = Path(source) / "config.json"
    if not path.exists():
        from transformers.utils.hub import cached_file

        try:
            path = cached_file(str(source), "config.json")
        except OSError:  # not on the hub, or the hub cannot be reached: loading the model says so
            path = None
    values = read_json(Path(path)) if path is not None else {}
    if not isinstance(values, dict):
        raise ModelError(f"{path} holds a {type(values).__name__}; expected settings by name. {_COPY}")
    return values


def finetune_step(
    context: StudyContext,
    model: str,
    task: str,
    *,
    kind: str = "finetune",
    variant: str = "",
    freeze: str | None = None,
    drop: str | None = None,
) -> StudyStep:
    """Fine-tune a model for a sentence task with every seed of the scale, with layers frozen or dropped."""
    changes = f", layers {freeze} frozen" if freeze else f", layers {drop} dropped" if drop else ""
    _, corpora = context.data.sentence_tasks[task]
    load = Workload(trained=len(corpora.train) * context.scale.epochs * context.scale.seeds)
    work = partial(finetune_seeds, freeze=freeze, drop=drop)
    return StudyStep(kind, f"Fine-tune {model} for {task}{changes}", work, load, model, task, variant=variant)


def finetune_seeds(step: StudyStep, context: StudyContext, *, freeze: str | None, drop: str | None) -> Run:
    """Fine-tune with every seed of the scale."""
    task, corpora = context.data.sentence_tasks[step.task]
    return finetune(
        context.models[step.model],
        corpora,
        task,
        context.folder(step),
        freeze=freeze,
        drop=drop,
        seeds=context.scale.seeds,
        device=context.device,
        **context.learning,
        **context.options,
    ).run


def compare_stores(
    step: StudyStep, context: StudyContext, stores: Sequence[ActivationStore], measures: Sequence[str]
) -> Run:
    """Compare all layers of the stores."""
    return compare(
        stores,
        measures=measures,
        groups=context.scale.groups,
        out=context.folder(step),
        workers=context.workers,
        **context.bounded,
    ).run


def compare_models(step: StudyStep, context: StudyContext) -> Run:
    """CKA of all layers of all models."""
    return compare_stores(step, context, [context.read(name, path) for name, path in context.models.items()], ["cka"])


def task_redundancy(
    step: StudyStep, context: StudyContext, source: str, task: Task, corpora: TaskCorpora, *, keep: float = 0.99
) -> Run:
    """What a model repeats, and the neurons and layers that a task needs."""
    store = step.model if task.unit == "word" else f"{step.model}-{task.name}"
    return redundancy(
        context.load(source, name=step.model),
        corpora,
        task,
        keep=keep,
        seeds=context.scale.seeds,
        recipe="paper",
        epochs=context.scale.probe_epochs,
        by="lca",
        out=context.folder(step),
        activations=context.activations(f"{store}-parts", corpora.train),
        **context.bounded,
    ).run


def n_sentences(corpora: TaskCorpora) -> int:
    """The number of sentences in all parts of a task."""
    return len(corpora.train) + len(corpora.dev) + len(corpora.test)


def distillation_load(context: StudyContext, students: float = 1.0) -> Workload:
    """The work of a distillation: teacher and students read every line, and half-depth students learn from it."""
    lines = students * context.scale.distillation_steps * context.scale.distillation_batch
    return Workload(read=3 * lines, trained=1.5 * lines)


def distillation_config(context: StudyContext) -> dict[str, Any]:
    """The first model as the teacher, plain text in English and the target languages, and the scale's steps."""
    scale, folder = context.scale, context.out / "texts"
    texts = context.data.lines(folder)
    folder.mkdir(parents=True, exist_ok=True)
    pairs = {}
    for code, translations in zip(context.data.targets(), context.data.pairs(), strict=True):
        files = (
            _write_lines(folder / f"pairs-{code}-en.{code}", translations.source),
            _write_lines(folder / f"pairs-{code}-en.en", translations.target),
        )
        pairs[f"{code}-en"] = files
    return {
        "teacher": context.models[context.first],
        "texts": texts,
        "text": {
            "batch_size": scale.distillation_batch,
            "max_length": 512 if scale.name == "paper" else 128,
            "held_out": min(HELD_OUT, scale.sentences or HELD_OUT),
        },
        "optimiser": {"steps": scale.distillation_steps},
        "evaluation": {
            "every": max(1, scale.distillation_steps // CURVE),
            "pairs": pairs,
            "lines": min(PAIRS, scale.sentences or PAIRS),
        },
        "seed": context.seed,
    }


def _write_lines(path: Path, lines: Sequence[str]) -> str:
    with lone_file(path) as temporary:
        temporary.write_text("".join(f"{line}\n" for line in lines[:PAIRS]), encoding="utf-8")
    return str(path)
