"""What the steps of a study work with: a scale, models by name, data, and the folder that keeps everything."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from residuum.errors import ModelError
from residuum.storage.files import read_json
from residuum.studies.documents import step_name

if TYPE_CHECKING:
    from residuum.activations.store import ActivationStore
    from residuum.corpus import Corpus
    from residuum.maths.probing import PaperRecipe
    from residuum.models.loading import Model
    from residuum.studies.data import GivenData, SampleData
    from residuum.studies.documents import StudyStep


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
            name="sample", sentences=200, examples=320, tasks=2, seeds=1, groups=5,
            epochs=2.0, batch_size=16, learning_rate=NARROW_RATE, probe_epochs=8,
            distillation_steps=24, distillation_batch=8,
        ),
        Scale(
            name="small", sentences=1000, examples=2000, tasks=2, seeds=3, groups=5,
            epochs=2.0, batch_size=16, learning_rate=5e-5, probe_epochs=10,
            distillation_steps=600, distillation_batch=8,
        ),
        Scale(
            name="paper", sentences=None, examples=None, tasks=None, seeds=3, groups=10,
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
    def families(self) -> dict[str, str]:
        """The architecture of each model."""
        return {name: self.architectures.get(name) or model_family(path) for name, path in self.models.items()}

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
        from residuum.maths.probing import PaperRecipe

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
        plain = re.sub(r"[^\w.-]+", "-", model)
        return self.out / "activations" / f"{plain}-{corpus.text_fingerprint[:8]}"

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
        from residuum.activations.extraction import extract

        text = self.data.text if text is None else text
        folder = self.activations(f"{model}-random" if random else model, text)
        network = self.load(source, name=model, random=random, attention=attention)
        options = {"max_memory": self.max_memory, "fresh": self.fresh, "progress": False}
        return extract(network, text, folder, attention=attention, **options)

    def load(
        self, source: str | Path, *, name: str | None = None, random: bool = False, attention: bool = False
    ) -> Model:
        """A model, or its random twin (same architecture, untrained weights), under its name in the study's tables."""
        from residuum.models.loading import load_model

        options = {"seed": self.seed, "device": self.device, "max_memory": self.max_memory}
        model = load_model(source, random_init=random, attention=attention, **options)
        return model if name is None else replace(model, name=f"{name} (random)" if random else name)


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
    """Whether a model has attention heads, by its config; a model without a config is taken to have some."""
    values = _config(source)
    names = ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads")
    return not values or any(name in values for name in names)


def block_count(source: str | Path) -> int:
    """The number of blocks of a model, by its config; 12 where there is none."""
    from residuum.models.loading import MOST_BLOCKS

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
