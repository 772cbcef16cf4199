"""The settings of a distillation: one schema, checked whole before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from residuum.distillation.presets import PRESETS, SUM_TOLERANCE, TERMS, Preset, Recipe
from residuum.errors import SettingError
from residuum.storage.schemas import read_yaml

Positive = Annotated[int, Field(ge=1)]
Name = Annotated[str, Field(pattern=r"^[\w.-]+$")]
SHARING = ("none", "embeddings", "all")
SHARED_PARTS = ("embeddings", "head")
CLIP = 1.0  # the bound of a gradient's norm in the corrected recipe


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class MeasuredMap(_Strict):
    """A layer map from a `compare` run: the order-preserving one of highest CKA between two of its models."""

    run: str
    student: str  # the name of the model in the run whose layers stand for the student's
    teacher: str
    measure: str = "cka"


LayerChoice = Literal["uniform", "top", "bottom", "last"] | list[Positive] | MeasuredMap


class StudentSettings(_Strict):
    """One student: its languages."""

    languages: list[Name] = Field(min_length=1)


class ShapeSettings(_Strict):
    """The shape of all students; what is not given is as in the teacher (layers: half of them)."""

    layers: Positive | None = None
    hidden_size: Positive | None = None
    heads: Positive | None = None
    intermediate_size: Positive | None = None


class VocabularySettings(_Strict):
    """Which pieces the students have, and at which positions the vocabulary is multiplied for `soft`."""

    trim: bool = False
    minimum_count: Positive = 1
    soft_positions: Literal["masked", "all"] | Annotated[float, Field(gt=0, lt=1)] | None = None


class TextSettings(_Strict):
    """How texts become batches; `batch_size` is per language."""

    batch_size: Positive = 16
    max_length: Annotated[int, Field(ge=4)] = 512
    shuffle_buffer: Positive = 10_000
    masked: Annotated[float, Field(gt=0, lt=1)] = 0.15
    new_masks_each_epoch: bool = True
    held_out: Annotated[int, Field(ge=0)] = 200  # lines from the start of each text, for perplexity


class OptimiserSettings(_Strict):
    """AdamW as in table 4.2 of the thesis; `clip: auto` bounds the gradient's norm by 1 where recipe is corrected."""

    steps: Positive = 500_000
    learning_rate: Annotated[float, Field(gt=0)] = 2e-4
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    warmup: Annotated[float, Field(ge=0)] = 0.1
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    clip: Annotated[float, Field(gt=0)] | Literal["auto"] | None = "auto"
    accumulation: Positive = 1
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    checkpoint_every: Positive = 1000
    log_every: Positive = 50


class EvaluationSettings(_Strict):
    """What is measured during training: perplexity on held-out lines, retrieval on pairs of files by `tr-en`."""

    every: Positive | None = None
    pairs: dict[Annotated[str, Field(pattern=r"^[^-]+-[^-]+$")], tuple[str, str]] = {}
    lines: Positive = 500


class ContrastSettings(_Strict):
    """The option `contrastive`: translation pairs by `tr-en` where given, else mixup with the teacher's vectors."""

    pairs: dict[Annotated[str, Field(pattern=r"^[^-]+-[^-]+$")], tuple[str, str]] = {}
    temperature: Annotated[float, Field(gt=0)] = 0.1
    hardness: Annotated[float, Field(ge=0)] = 0.9


class DistillSettings(_Strict):
    """One teacher, students × languages × texts, and how the students learn. See the method page for each key."""

    teacher: str
    texts: dict[Name, str] = Field(min_length=1)
    out: str | None = None
    students: dict[Name, StudentSettings] | None = None
    shape: ShapeSettings = ShapeSettings()
    recipe: Recipe = "corrected"
    preset: str | None = None
    losses: dict[str, Annotated[float, Field(ge=0)]] | None = None
    temperature: Annotated[float, Field(gt=0)] | None = None
    layer_map: LayerChoice | None = None
    initialise: Literal["teacher", "random", "neurons"] = "teacher"
    initialise_map: LayerChoice = "uniform"
    share: Literal["none", "embeddings", "all"] | list[Literal["embeddings", "head"] | Positive] | None = None
    tie: bool = True
    vocabulary: VocabularySettings = VocabularySettings()
    text: TextSettings = TextSettings()
    optimiser: OptimiserSettings = OptimiserSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    contrast: ContrastSettings = ContrastSettings()
    teacher_cache: str | None = None
    onnx: bool = False
    report_to: list[str] = []
    seed: int = 0

    @field_validator("preset")
    @classmethod
    def _known_preset(cls, name: str | None) -> str | None:
        if name is not None and name not in PRESETS:
            raise ValueError(f"there is no preset {name!r}; choose one of {', '.join(PRESETS)}")
        return name

    @field_validator("share", mode="before")
    @classmethod
    def _known_parts(cls, share: Any) -> Any:
        if share is None or share in SHARING:
            return share
        parts = list(share) if isinstance(share, list | tuple) else [share]
        wrong = [part for part in parts if part not in SHARED_PARTS and (type(part) is not int or part < 1)]
        if wrong or not isinstance(share, list | tuple):
            raise ValueError(
                f"found {(wrong or parts)[0]!r:.80}; expected {', '.join(SHARING)}, or a list of "
                f"{', '.join(SHARED_PARTS)} and layer numbers from 1"
            )
        return parts

    @field_validator("losses")
    @classmethod
    def _known_terms(cls, losses: dict[str, float] | None) -> dict[str, float] | None:
        unknown = [term for term in losses or {} if term not in TERMS]
        if unknown:
            raise ValueError(f"there is no loss term {unknown[0]!r}; choose from {', '.join(TERMS)}")
        total = sum((losses or {"": 1.0}).values())
        if abs(total - 1) > SUM_TOLERANCE:
            raise ValueError(f"the weights add up to {total:.4g}; expected 1 (± {SUM_TOLERANCE})")
        return losses

    @model_validator(mode="after")
    def _fits_together(self) -> DistillSettings:
        if (self.preset is None) == (self.losses is None):
            raise ValueError("give either preset or losses, not both and not neither")
        for name, student in self.learners.items():
            missing = [language for language in student.languages if language not in self.texts]
            if missing:
                raise ValueError(
                    f"students.{name} learns {missing[0]}, which has no text; texts has {', '.join(self.texts)}"
                )
        idle = set(self.texts) - {language for student in self.learners.values() for language in student.languages}
        if idle:
            raise ValueError(f"texts.{min(idle)} is learnt by no student; add it to a student or leave it out")
        if self.recipe != "corrected" and self.optimiser.accumulation > 1:
            raise ValueError(
                f"recipe {self.recipe} moves the weights after every batch; set optimiser.accumulation to 1"
            )
        self._check_pairs()
        self._check_alignment()
        self._check_sharing()
        self._check_cache()
        return self

    def _check_pairs(self) -> None:
        for where, pairs in (("evaluation", self.evaluation.pairs), ("contrast", self.contrast.pairs)):
            for pair in pairs:
                unknown = [language for language in pair.split("-") if language not in self.texts]
                if unknown:
                    raise ValueError(f"{where}.pairs.{pair}: {unknown[0]} is not among texts ({', '.join(self.texts)})")

    def _check_alignment(self) -> None:
        uses = self.loss.weights
        if self.contrast.pairs and not uses.get("contrastive"):
            raise ValueError(
                "contrast.pairs is given, but the loss has no term contrastive; give it a weight in losses, or leave "
                "contrast.pairs out"
            )
        if self.contrast.pairs and self.recipe != "corrected":
            raise ValueError(
                f"recipe {self.recipe} moves one student after the other, but contrast.pairs compares two; set recipe "
                "to corrected, or leave contrast.pairs out"
            )
        if uses.get("adversarial") and len(self.texts) < 2:
            raise ValueError(
                f"losses.adversarial tells languages apart, but texts has only {next(iter(self.texts))}; add another "
                "language or leave the term out"
            )

    def _check_sharing(self) -> None:
        if isinstance(self.share, list) and "head" in self.share and "embeddings" not in self.share and self.tie:
            raise ValueError(
                "share names the head without the embeddings, but tie makes the head's decoder the embeddings; add "
                "embeddings to share or set tie to false"
            )

    def _check_cache(self) -> None:
        if self.teacher_cache and self.recipe == "published":
            raise ValueError(
                "teacher_cache keeps lessons line by line, but recipe published also compares padding, which depends "
                "on the batch; leave teacher_cache out or choose another recipe"
            )

    @property
    def clip(self) -> float | None:
        """The bound of the gradient's norm; neither the thesis nor algorithm 1 has one."""
        if self.optimiser.clip == "auto":
            return CLIP if self.recipe == "corrected" else None
        return self.optimiser.clip

    @property
    def learners(self) -> dict[str, StudentSettings]:
        """The students by name: those given, one per language by default, a single one where all is shared."""
        students = self.students or {language: StudentSettings(languages=[language]) for language in self.texts}
        if self.sharing != "all" or len(students) == 1:
            return students
        return {"-".join(students): StudentSettings(languages=list(self.texts))}

    @property
    def loss(self) -> Preset:
        """The preset, or the terms that were given, with what overrides it."""
        chosen = PRESETS[self.preset] if self.preset else Preset(self.losses or {}, averaged=True)
        layer_map = self.layer_map if isinstance(self.layer_map, str) else chosen.layer_map
        temperature = chosen.temperature if self.temperature is None else self.temperature
        return Preset(chosen.weights_for(self.recipe), layer_map, temperature, chosen.share, averaged=True)

    @property
    def sharing(self) -> Literal["none", "embeddings", "all"] | list[Any]:
        """What students share; the embeddings by default."""
        if self.share is not None:
            return self.share
        preset = PRESETS.get(self.preset or "")
        return "all" if preset is not None and preset.share == "all" else "embeddings"

    @property
    def soft_positions(self) -> str | float:
        """Where soft targets are compared: at masked positions, but everywhere in the thesis and the published code."""
        return self.vocabulary.soft_positions or ("masked" if self.recipe == "corrected" else "all")


def read_settings(config: str | Path | Mapping[str, Any] | DistillSettings) -> DistillSettings:
    """Settings from a YAML file or a mapping; every fault is named by its key."""
    if isinstance(config, DistillSettings):
        return config
    values = read_yaml(Path(config), SettingError) if isinstance(config, str | Path) else dict(config)
    try:
        return DistillSettings.model_validate(values)
    except ValidationError as error:
        place = f" {config}" if isinstance(config, str | Path) else ""
        raise SettingError(f"The configuration{place} has {_faults(error)}") from None


def merged_settings(path: Path | None, given: Mapping[str, Any]) -> DistillSettings:
    """The settings of a file, with what was given on the command line (`shape.layers` and the like) put over them."""
    values: dict[str, Any] = {} if path is None else read_yaml(path, SettingError)
    for key, value in given.items():
        if value is None:
            continue
        *sections, name = key.split(".")
        place = values
        for section in sections:
            place[section] = dict(place.get(section) or {})
            place = place[section]
        place[name] = value
    if given.get("preset") is not None:
        values.pop("losses", None)
    return read_settings(values)


def _faults(error: ValidationError) -> str:
    """All faults in one line: key, what is wrong, what is allowed."""
    found: dict[str, str] = {}
    for fault in error.errors():
        place = [str(part) for part in fault["loc"] if not _names_a_type(part)]
        message = fault["msg"].removeprefix("Value error, ")
        if fault["type"] == "extra_forbidden":
            owner = _owner(place)
            known = f"; known keys: {', '.join(owner.model_fields)}" if owner else ""
            message = f"this key is not known{known}"
        found.setdefault(".".join(place) or "settings", message)
    count = "a fault" if len(found) == 1 else f"{len(found)} faults"
    return f"{count}: " + "; ".join(f"{key}: {message}" for key, message in found.items()) + "."


def _owner(place: list[str]) -> type[BaseModel] | None:
    """The settings among which a key stands; names of students and pairs lead nowhere else."""
    owner: type[BaseModel] | None = DistillSettings
    for key in place[:-1]:
        if owner is not None and key in owner.model_fields:
            owner = _settings_in(owner.model_fields[key].annotation)
    return owner


def _settings_in(annotation: Any) -> type[BaseModel] | None:
    """The settings that a type is or holds: those of `dict[str, StudentSettings] | None` are StudentSettings."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_settings_in, get_args(annotation))), None)


def _names_a_type(part: int | str) -> bool:
    """Whether a part of a fault's place is pydantic's name of a union's member, not a key."""
    return isinstance(part, str) and (
        "[" in part or part in ("MeasuredMap", "literal", "float", "int", "constrained-float", "constrained-int")
    )
