"""The settings of `pretrain`: one schema, checked whole before anything is read."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from residuum.errors import SettingError
from residuum.storage.schemas import conforming, read_yaml
from residuum.training import TrainingSettings

Files = list[str]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PairSource(_Strict):
    """Translations: two files in step, two columns of a table without header, or the sample grammar."""

    languages: tuple[str, str]
    files: tuple[str, str] | None = None
    table: str | None = None
    columns: tuple[int, int] = (0, 1)
    sample: int | None = Field(default=None, gt=0)
    longest: int | None = Field(default=None, gt=0)  # pairs with a side of more words are left out, and counted
    weight: float = Field(default=1.0, gt=0)  # how often it is drawn, beside its size to the power of the exponent

    @model_validator(mode="after")
    def _one_source(self) -> PairSource:
        given = [name for name in ("files", "table", "sample") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"found {', '.join(given) or 'no source'}; give exactly one of files, table, sample")
        return self


class TokenizerSettings(_Strict):
    """A unigram vocabulary with the special tokens of XLM-R."""

    pieces: int = Field(default=10_000, gt=20)
    lines: int = Field(default=200_000, gt=0)  # of all languages together, shared out by the exponent


class NetworkSettings(_Strict):
    """The architecture, its size in the usual terms."""

    architecture: Literal["xlm-roberta", "bert", "gpt2"] = "xlm-roberta"
    layers: int = Field(default=6, gt=0)
    hidden: int = Field(default=192, gt=0)
    heads: int = Field(default=4, gt=0)
    feed_forward: int = Field(default=768, gt=0)
    window: int = Field(default=128, gt=4)
    dropout: float = Field(default=0.1, ge=0, lt=1)
    attention_dropout: float = Field(default=0.1, ge=0, lt=1)  # 0 is faster: attention then needs no matrix of weights

    @model_validator(mode="after")
    def _heads_divide(self) -> NetworkSettings:
        if self.hidden % self.heads:
            raise ValueError(f"hidden {self.hidden} is not a multiple of heads {self.heads}")
        return self


class Objective(_Strict):
    """One way to learn. `share` is how many of all batches it gets, relative to the other objectives.

    mlm: masked tokens of single sentences; clm: the next token; tlm: masked tokens of a sentence and its translation
    side by side; ranking: each sentence finds its translation among all of the batch (and the other way round), by
    the cosine of mean-pooled states of `layer`, over `temperature`.
    """

    kind: Literal["mlm", "clm", "tlm", "ranking"]
    share: float = Field(default=1.0, gt=0)
    batch: int = Field(default=64, gt=0)
    length: int = Field(default=64, gt=2)
    mask: float = Field(default=0.15, gt=0, lt=1)
    layer: int | None = Field(default=None, ge=0)
    temperature: float = Field(default=0.05, gt=0)

    @model_validator(mode="after")
    def _ranking_needs_a_layer(self) -> Objective:
        if (self.kind == "ranking") != (self.layer is not None):
            raise ValueError(
                f"kind is {self.kind} and layer is {self.layer}; a layer belongs to ranking, and only there"
            )
        if self.kind == "ranking" and self.batch < 2:
            raise ValueError("ranking needs a batch of at least 2 pairs: the others are what it is ranked among")
        return self


class RetrievalSet(_Strict):
    """Pairs to score retrieval on: two files in step. The first side looks for its counterpart in the second."""

    files: tuple[str, str]


class EvaluationSettings(_Strict):
    """What is measured on the way: perplexity on held-out sentences and retrieval by each layer."""

    every: int = Field(default=500, gt=0)
    held_out: int = Field(default=300, ge=0)  # sentences of each language
    retrieval: dict[str, RetrievalSet] = {}


class PretrainConfig(_Strict):
    """All of a pretraining. Paths may hold ${VARIABLES} of the environment and wildcards; .gz and .xz are unpacked."""

    name: str = "model"
    seed: int = Field(default=0, ge=0)
    text: dict[str, Files]  # language → files, a sentence a line
    sample_text: int = Field(default=0, ge=0)  # sentences of the sample grammar, added to each language that it has
    pairs: list[PairSource] = []
    exclude: Files = []  # pairs with a side that is a line of these files are left out, and counted
    exponent: float = Field(default=0.5, ge=0, le=1)
    tokenizer: TokenizerSettings = TokenizerSettings()
    network: NetworkSettings = NetworkSettings()
    objectives: list[Objective] = Field(min_length=1)
    training: dict[str, Any]
    evaluation: EvaluationSettings = EvaluationSettings()
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"  # of the weights that are written
    sources: list[str] = []  # data, licences and attribution, for the card

    @field_validator("training")
    @classmethod
    def _training_is_whole(cls, values: dict[str, Any]) -> dict[str, Any]:
        allowed = [name for name in TrainingSettings.__dataclass_fields__ if name not in ("seed", "evaluate_every")]
        unknown = [name for name in values if name not in allowed]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is not known; choose from {', '.join(allowed)}")
        _settings_of(values, evaluate_every=1)
        return values

    @model_validator(mode="after")
    def _objectives_fit(self) -> PretrainConfig:
        decoder = self.network.architecture == "gpt2"
        for number, objective in enumerate(self.objectives):
            where = f"objectives.{number}"
            if objective.kind in ("tlm", "ranking") and not self.pairs:
                raise ValueError(f"{where}: {objective.kind} needs translations; give pairs")
            if objective.kind in (("mlm", "tlm") if decoder else ("clm",)):
                raise ValueError(f"{where}: {objective.kind} does not fit the architecture {self.network.architecture}")
            if objective.layer is not None and objective.layer > self.network.layers:
                raise ValueError(f"{where}: layer {objective.layer} does not exist; there are 0–{self.network.layers}")
            if objective.length > self.network.window:
                raise ValueError(f"{where}: length {objective.length} is beyond the window of {self.network.window}")
        return self

    def training_settings(self) -> TrainingSettings:
        """The settings of the loop."""
        return _settings_of(self.training, seed=self.seed, evaluate_every=self.evaluation.every)


def read_config(path: str | Path) -> PretrainConfig:
    """Read and check a YAML file; variables of the environment are filled in."""
    return checked_config(read_yaml(Path(path), SettingError), str(path))


def checked_config(values: dict[str, Any], where: str = "The configuration") -> PretrainConfig:
    """The settings as one typed record; the error names the key, what was found and what is allowed."""
    try:
        return PretrainConfig.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "settings"
        known = f" Known keys: {', '.join(_known_keys(first['loc']))}." if first["type"] == "extra_forbidden" else ""
        found = "" if first["type"] == "missing" else f" (found {str(first['input'])[:80]!r})"
        more = f" {len(error.errors()) - 1} more faults." if len(error.errors()) > 1 else ""
        raise SettingError(f"{where}: {key}: {first['msg']}{found}.{known}{more}") from None


def filled_in(path: str) -> str:
    """A path with the variables of the environment filled in."""
    unset = [name for name in re.findall(r"\$\{(\w+)\}", path) if name not in os.environ]
    if unset:
        raise SettingError(f"{path} needs the variable {unset[0]}, which is not set; export {unset[0]}=… first.")
    return os.path.expandvars(path)


def _settings_of(values: dict[str, Any], **more: Any) -> TrainingSettings:
    return conforming({**values, **more}, TrainingSettings, "training", SettingError)


def _known_keys(location: tuple[str | int, ...]) -> list[str]:
    """The keys of the part of the schema that a fault is in."""
    parts: dict[str, type[BaseModel]] = {
        "pairs": PairSource,
        "tokenizer": TokenizerSettings,
        "network": NetworkSettings,
        "objectives": Objective,
        "evaluation": EvaluationSettings,
    }
    owner = parts.get(str(location[0]), PretrainConfig) if len(location) > 1 else PretrainConfig
    return list(owner.model_fields)
