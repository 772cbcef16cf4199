"""What the steps of a study work with: models by name, data, a scale, and the folder that keeps everything."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from residuum.errors import ModelError
from residuum.storage.files import read_json
from residuum.studies.given_data import GivenData
from residuum.studies.sample_data import SampleData
from residuum.studies.scales import Scale

if TYPE_CHECKING:
    from residuum.activations.store import ActivationStore
    from residuum.corpus import Corpus
    from residuum.maths.probing import Recipe
    from residuum.models.loading import Model
    from residuum.training.learning import LearningSettings


_COPY = "Copy the model again."
NARROW = 384
"""Models below this width, such as the sample teacher, learn by a larger rate than the documents' models."""


@dataclass(frozen=True, eq=False)
class Kit:
    """All that a step may use; steps find each other's results by their folders."""

    scale: Scale
    models: Mapping[str, str]  # name → folder or hub name
    data: SampleData | GivenData
    out: Path
    device: str = "auto"
    seed: int = 0
    fresh: bool = False
    max_memory: int | None = None

    @property
    def first(self) -> str:
        """The name of the first model."""
        return next(iter(self.models))

    @property
    def options(self) -> dict[str, Any]:
        """What every command of a study is told."""
        return {"seed": self.seed, "fresh": self.fresh}

    @property
    def bounded(self) -> dict[str, Any]:
        """The same, for commands that can do with less memory."""
        return {**self.options, "max_memory": self.max_memory}

    @property
    def workers(self) -> int | None:
        """Processes of a comparison: all cores, but one where starting others takes longer than the work."""
        return 1 if self.scale.name == "sample" else None

    @property
    def learning(self) -> LearningSettings:
        """How a task is learnt at this scale."""
        from residuum.training.learning import LearningSettings

        scale = self.scale
        return LearningSettings(epochs=scale.epochs, batch_size=scale.batch_size, learning_rate=scale.learning_rate)

    def recipe(self, batch_size: int = 128) -> Recipe:
        """How probes are trained."""
        from residuum.maths.probing import Recipe

        return Recipe(epochs=self.scale.probe_epochs, batch_size=batch_size)

    def activations(self, model: str, corpus: Corpus) -> Path:
        """Where a model's activations over a text are kept, for all steps that read it."""
        plain = re.sub(r"[^\w.-]+", "-", model)
        return self.out / "activations" / f"{plain}-{corpus.text_fingerprint[:8]}"

    def read(self, model: str, source: str | Path, *, random: bool = False, attention: bool = False) -> ActivationStore:
        """The activations of a model (or its random twin) over the study's text."""
        from residuum.activations.extraction import extract

        text = self.data.text
        place = self.activations(f"{model}-random" if random else model, text)
        network = self.load(source, name=model, random=random, attention=attention)
        options = {"max_memory": self.max_memory, "fresh": self.fresh, "progress": False}
        return extract(network, text, place, attention=attention, **options)

    def load(
        self, source: str | Path, *, name: str | None = None, random: bool = False, attention: bool = False
    ) -> Model:
        """A model, or a random twin of it, under the name that the study's tables use."""
        from residuum.models.loading import load_model

        options = {"seed": self.seed, "device": self.device, "max_memory": self.max_memory}
        model = load_model(source, random_init=random, attention=attention, **options)
        return model if name is None else replace(model, name=f"{name} (random)" if random else name)


def model_family(source: str | Path) -> str:
    """The architecture that a model's config names; empty where it is not at hand."""
    family = _config(source).get("model_type", "")
    if not isinstance(family, str):
        raise ModelError(f"{source}/config.json has model_type {str(family)[:60]}; expected a name. {_COPY}")
    return family


def is_narrow(source: str | Path) -> bool:
    """Whether a model is far smaller than those of the documents, by its config."""
    width = _config(source).get("hidden_size", NARROW)
    return isinstance(width, int) and width < NARROW


def block_count(source: str | Path) -> int:
    """How many blocks a model has, by its config; 12 where it is not at hand."""
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
    """The config of a model's folder; empty where there is none, as for a name on the hub."""
    path = Path(source) / "config.json"
    values = read_json(path) if path.exists() else {}
    if not isinstance(values, dict):
        raise ModelError(f"{path} holds a {type(values).__name__}; expected settings by name. {_COPY}")
    return values
