"""The settings of a distillation, checked before anything is loaded, and the named losses.

Presets are the losses of the thesis (tables 3.1 and 4.7) and of its survey, with their weights under each recipe.

The published configurations weigh sums that differ in size by orders of magnitude: `soft` is summed over all positions
and divided by the batch only, `attention` compares probabilities, most of which are near zero. `corrected` averages
every term per token and compares scores before the softmax, so equal weights would be another method. Its weights are
the published ones times what the published sums multiply them by:

    soft       × TOKENS         positions per line, padding included, that the sum runs over
    attention  ÷ (KEYS·TOKENS)  Δp ≈ p·(Δa − mean Δa): with KEYS keys sharing the mass evenly, the squared difference of
                                probabilities, averaged over TOKENS keys, is that of the scores ÷ (KEYS·TOKENS)

and then all are divided by their sum.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from residuum.errors import SettingError
from residuum.settings import (
    Argument,
    Device,
    InvalidSettingError,
    Option,
    Out,
    Publishing,
    Resumable,
    Seed,
    Settings,
    from_mapping,
    named_values,
    section,
)
from residuum.training.settings import PrecisionOption, ReportTo, ScheduleOption, Warmup, WeightDecay

Divergence = Literal["forward", "reverse", "js"]
Recipe = Literal["corrected", "thesis", "published"]
RECIPES: tuple[Recipe, ...] = ("corrected", "thesis", "published")

HEAD_TERMS = ("mlm", "soft", "softmax_regression")
HIDDEN_TERMS = ("hidden_mse", "hidden_cos", "hidden_kl", "cls_mse", "cls_cos")
ATTENTION_TERMS = ("attention_mse", "attention_kl", "value_relation")
EMBEDDING_TERMS = ("embedding_mse", "embedding_cos")
ALIGNMENT_TERMS = ("adversarial", "contrastive", "translation_mse")
TERMS = (*HEAD_TERMS, *HIDDEN_TERMS, *ATTENTION_TERMS, *EMBEDDING_TERMS, *ALIGNMENT_TERMS)

TOKENS = 128  # of the longest of 16 lines of web text, to which the others are padded
KEYS = 8  # that a query attends to
SUM_TOLERANCE = 0.01  # published weights add up to 0.999 or 1


@dataclass(frozen=True)
class Preset:
    """A loss by name: the published weight of each term, and the teacher layers it compares with."""

    weights: Mapping[str, float]
    layer_map: str = "uniform"
    temperature: float = 4.0
    share: str | None = None  # `all`: one student for all languages
    averaged: bool = False  # weights of averages, the same in every recipe
    published: Mapping[str, float] | None = None  # where the published files differ from the thesis

    def weights_for(self, recipe: Recipe) -> dict[str, float]:
        """The weights of the terms under a recipe."""
        if recipe == "published" and self.published is not None:
            return dict(self.published)
        if recipe != "corrected" or self.averaged:
            return dict(self.weights)
        return in_effect(self.weights)


def in_effect(published: Mapping[str, float]) -> dict[str, float]:
    """Weights of averaged terms with the proportions that the published weights give the published sums."""
    factors = {"soft": float(TOKENS), "attention_mse": 1 / (KEYS * TOKENS)}
    weights = {term: weight * factors.get(term, 1.0) for term, weight in published.items()}
    total = sum(weights.values())
    return {term: weight / total for term, weight in weights.items()}


_HINTON = {"mlm": 0.0005, "soft": 0.0005}
_MONOSHOT = {**_HINTON, "hidden_mse": 0.333, "attention_mse": 0.333, "embedding_mse": 0.333}
_COSINE = {**_HINTON, "hidden_cos": 0.333, "attention_mse": 0.333, "embedding_mse": 0.333}
_TINYBERT = {"hidden_mse": 0.333, "attention_mse": 0.333, "embedding_mse": 0.333}

_MONOLINGUAL = {
    "hinton": Preset({"mlm": 0.5, "soft": 0.5}),
    "hinton+hidden": Preset({**_HINTON, "hidden_mse": 0.999}),
    "hinton+hidden+attention": Preset({**_HINTON, "hidden_mse": 0.499, "attention_mse": 0.499}),
    "monoshot": Preset(_MONOSHOT, published=_COSINE),  # the published configuration binds its hidden loss to cosine
    "hidden+attention+embedding": Preset(_TINYBERT),
    "monoshot-cos": Preset(_COSINE),
    "monoshot-cos-bottom": Preset(_COSINE, "bottom"),
    "monoshot-top": Preset(_MONOSHOT, "top"),
    "monoshot-bottom": Preset(_MONOSHOT, "bottom"),
    "monoalignment": Preset(_MONOSHOT, "last"),
}
TABLE_4_7 = tuple(_MONOLINGUAL)

PRESETS: dict[str, Preset] = {
    **_MONOLINGUAL,
    **{f"bilingual-{name}": replace(preset, share="all") for name, preset in _MONOLINGUAL.items()},
    "tinybert": Preset(_TINYBERT),
    "monoalignment-headless": Preset(_TINYBERT, "last"),  # for teachers without a language-model head
    "translation": Preset({"translation_mse": 1.0}, "last", averaged=True),  # Reimers and Gurevych (2020)
    "distilbert": Preset({"soft": 0.625, "mlm": 0.25, "hidden_cos": 0.125}, "last", temperature=2.0, averaged=True),
    "minilm": Preset({"attention_kl": 0.5, "value_relation": 0.5}, "last", averaged=True),
    "pkd": Preset({"mlm": 0.25, "soft": 0.25, "cls_mse": 0.5}, averaged=True),
    "sid": Preset({"mlm": 0.25, "soft": 0.25, "cls_cos": 0.25, "attention_kl": 0.25}, averaged=True),
    "xtremedistil": Preset({"mlm": 0.25, "soft": 0.25, "hidden_kl": 0.5}, averaged=True),
    "softmax-regression": Preset({"softmax_regression": 0.5, "hidden_mse": 0.5}, "last", averaged=True),
}
HEADLESS = tuple(name for name, preset in PRESETS.items() if not set(preset.weights) & set(HEAD_TERMS))

if TYPE_CHECKING:
    Texts = Any
else:
    Texts = Any | tuple[str, ...]  # several words on the command line
SHARING = ("none", "embeddings", "all")
SHARED_PARTS = ("embeddings", "head")
CLIP = 1.0  # the maximum gradient norm of the corrected recipe
EPSILONS = {"corrected": 1e-8, "thesis": 1e-8, "published": 1e-6}  # the thesis names none: torch's default


@dataclass(frozen=True, kw_only=True)
class MeasuredMap(Settings):
    """A layer map from a `compare` run: the order-preserving one of highest CKA between two of its models."""

    run: Annotated[str, Option("Folder of the run")]
    student: Annotated[str, Option("Model of the run whose layers stand for the student's")]
    teacher: Annotated[str, Option("Model of the run whose layers are the teacher's")]
    measure: Annotated[str, Option("Similarity measure")] = "cka"


LayerMapChoice = Literal["uniform", "top", "bottom", "last"] | tuple[int, ...] | MeasuredMap
PairFiles = Annotated[
    dict[str, tuple[str, str]], Option("Two text files per language pair, line by line, such as tr-en: [a.tr, a.en]")
]


@dataclass(frozen=True, kw_only=True)
class ShapeSettings(Settings):
    """The shape of all students; what is not given is as in the teacher."""

    layers: Annotated[int | None, Option("Layers [half of the teacher's]", at_least=1)] = None
    hidden_size: Annotated[int | None, Option("Width of the states", at_least=1)] = None
    heads: Annotated[int | None, Option("Attention heads", at_least=1)] = None
    intermediate_size: Annotated[int | None, Option("Width of the feed-forward layers", at_least=1)] = None


@dataclass(frozen=True, kw_only=True)
class VocabularySettings(Settings):
    """The vocabulary of the students, and the positions whose logits `soft` compares."""

    trim: Annotated[bool, Option("Keep only the tokens that the texts use")] = False
    minimum_count: Annotated[int, Option("Keep tokens that occur at least this often", at_least=1)] = 1
    soft_positions: Annotated[
        Literal["masked", "all"] | float | None,
        Option("Positions that `soft` compares: masked, all or a fraction [by recipe]", above=0, below=1),
    ] = None


@dataclass(frozen=True, kw_only=True)
class TextSettings(Settings):
    """How texts become batches."""

    batch_size: Annotated[int, Option("Lines per language and step", at_least=1)] = 16
    max_length: Annotated[int, Option("Maximum tokens per line", at_least=4)] = 512
    long_lines: Annotated[
        Literal["windows", "truncate"], Option("Read lines beyond max_length in windows, or cut them off")
    ] = "windows"
    sampling: Annotated[
        float,
        Option("Share a step's lines by (lines of each text)^this: 0 equal, 1 proportional, 0.3 as XLM-R", at_least=0),
    ] = 0.0
    shuffle_buffer: Annotated[int, Option("Lines in the shuffle buffer", at_least=1)] = 10_000
    masked: Annotated[float, Option("Fraction of tokens to predict", above=0, below=1)] = 0.15
    new_masks_each_epoch: Annotated[bool, Option("Choose new tokens to predict in every epoch")] = True
    held_out: Annotated[int, Option("Held-out lines of each text, for perplexity: the first ones", at_least=0)] = 200
    held_out_share: Annotated[
        float | None,
        Option("Hold out this share of the lines by their hash instead, wherever they stand", above=0, below=1),
    ] = None
    deduplicate: Annotated[
        bool, Option("Train on each distinct line once per pass, and on none that equals a held-out line")
    ] = False
    column: Annotated[
        str | None, Option("Column of the text in JSON lines, parquet and datasets [text, sentence or content]")
    ] = None
    split: Annotated[str | None, Option("Split of hub datasets and folders [train; all files]")] = None
    revision: Annotated[str | None, Option("Branch, tag or commit of hub datasets")] = None

    @property
    def reading(self) -> dict[str, Any]:
        """Where texts stand in tables and datasets, as `TextOptions` of the corpus."""
        return {"text": self.column, "split": self.split, "revision": self.revision}


@dataclass(frozen=True, kw_only=True)
class OptimiserSettings(Settings):
    """AdamW as in table 4.2 of the thesis; `clip: auto` is 1 in the corrected recipe, no bound in the others."""

    steps: Annotated[int, Option("Training steps", at_least=1)] = 500_000
    learning_rate: Annotated[float, Option("Learning rate", above=0)] = 2e-4
    weight_decay: WeightDecay = 0.01
    warmup: Warmup = 0.1
    schedule: ScheduleOption = "linear"
    clip: Annotated[float | Literal["auto"] | None, Option("Maximum gradient norm", above=0)] = "auto"
    epsilon: Annotated[float | None, Option("Epsilon of AdamW [1e-8; published: 1e-6]", above=0)] = None
    accumulation: Annotated[int, Option("Batches per step", at_least=1)] = 1
    precision: PrecisionOption = "float32"
    gradient_checkpointing: Annotated[
        bool, Option("Compute the students' activations again in the backward pass: less memory, more time")
    ] = False
    compile: Annotated[
        bool, Option("Compile teacher and students by torch.compile: faster steps on GPUs, after minutes of compiling")
    ] = False
    checkpoint_every: Annotated[int, Option("Steps between checkpoints", at_least=1)] = 1000
    keep_checkpoints: Annotated[int, Option("Number of last checkpoints to keep", at_least=1)] = 1
    log_every: Annotated[int, Option("Steps between logged losses", at_least=1)] = 50


@dataclass(frozen=True, kw_only=True)
class MonitorSettings(Settings):
    """What is measured during training: perplexity on held-out lines, retrieval on translations."""

    every: Annotated[int | None, Option("Steps between evaluations [only at the end]", at_least=1)] = None
    pairs: PairFiles = field(default_factory=dict)
    lines: Annotated[int, Option("Maximum lines per language pair", at_least=1)] = 500
    patience: Annotated[
        int | None, Option("Stop after so many evaluations without better retrieval, and keep the best students")
    ] = None


@dataclass(frozen=True, kw_only=True)
class ContrastSettings(Settings):
    """The term `contrastive`: between students on `translations`, otherwise mixup with the teacher's vectors."""

    temperature: Annotated[float, Option("Temperature of the contrastive loss", above=0)] = 0.1
    hardness: Annotated[float, Option("Share of the hardest negative in a mixture", at_least=0)] = 0.9


def _shared_parts(text: str) -> Any:
    """`all`, or `embeddings,head,1` as a list of parts and layer numbers."""
    return text if text in SHARING else [int(part) if part.isdecimal() else part for part in text.split(",")]


@dataclass(frozen=True)
class DistillSettings(Publishing, Resumable):
    """What `distill` takes: one teacher, one text per language, the students, and how they learn."""

    example: ClassVar[str] = (
        "residuum distill xlm-roberta-base en=en.txt tr=tr.txt --preset monoalignment --optimiser steps=100000 "
        "--out students"
    )
    estimates: ClassVar[bool] = True

    teacher: Annotated[Any, Argument("Teacher: model folder or hub name", group="model", identity=True)]
    texts: Annotated[
        Texts,
        Argument("One text per language, one sentence per line", metavar="LANGUAGE=TEXT", identity=True),
    ]
    out: Out = None
    _: KW_ONLY
    teachers: Annotated[
        dict[str, tuple[str, ...]],
        Option("Teachers of a language in place of `teacher`, such as tr: [a, b]; several are averaged", cli=False),
    ] = field(default_factory=dict)
    students: Annotated[
        dict[str, tuple[str, ...]] | None, Option("Languages of each student [one student per language]", cli=False)
    ] = None
    preset: Annotated[str | None, Option("Loss by name: monoalignment, monoshot, hinton, tinybert, minilm, …")] = None
    losses: Annotated[
        dict[str, float] | None, Option("Weights of the loss terms, instead of a preset: mlm=0.5,hidden_mse=0.5")
    ] = None
    recipe: Annotated[
        Recipe, Option("Averages per token (corrected), algorithm 1 as written (thesis), or the published code's sums")
    ] = "corrected"
    temperature: Annotated[float | None, Option("Temperature of the soft targets [by preset]", above=0)] = None
    divergence: Annotated[
        Divergence,
        Option("Divergence that `soft` minimises: forward is KL(teacher ‖ student), reverse the other, js both"),
    ] = "forward"
    layer_weights: Annotated[
        tuple[float, ...] | None,
        Option(
            "Weight of each mapped layer in terms that are summed over layers, from the bottom [1 each]", at_least=0
        ),
    ] = None
    schedules: Annotated[
        dict[str, tuple[float, float]],
        Option("First and last value of the temperature or of a term's weight, such as temperature: [8, 2]", cli=False),
    ] = field(default_factory=dict)
    layer_map: Annotated[
        LayerMapChoice | None,
        Option("Teacher layer per student layer: uniform, top, bottom, last or numbers [by preset]", at_least=1),
    ] = None
    initialise: Annotated[
        Literal["teacher", "random", "neurons"],
        Option("Initial weights: the teacher's layers, random, or the teacher's essential neurons"),
    ] = "teacher"
    initialise_map: Annotated[
        LayerMapChoice, Option("Teacher layer that each student layer starts from", at_least=1)
    ] = "uniform"
    share: Annotated[
        Literal["none", "embeddings", "all"] | tuple[Any, ...] | None,
        Option("What students share: none, embeddings, all (one student), or embeddings,head,1,2", parse=_shared_parts),
    ] = None
    tie: Annotated[bool, Option("Tie the decoder to the embeddings")] = True
    shape: Annotated[ShapeSettings, Option("Shape of the students: layers=6", parse=section)] = ShapeSettings()
    vocabulary: Annotated[VocabularySettings, Option("Vocabulary: trim=true", parse=section)] = VocabularySettings()
    text: Annotated[TextSettings, Option("Batches: batch_size=16,max_length=128", parse=section)] = TextSettings()
    optimiser: Annotated[OptimiserSettings, Option("Training: steps=1000,learning_rate=1e-4", parse=section)] = (
        OptimiserSettings()
    )
    evaluation: Annotated[MonitorSettings, Option("Evaluation during training: every=1000", parse=section)] = field(
        default_factory=MonitorSettings
    )
    translations: PairFiles = field(default_factory=dict)
    contrast: Annotated[ContrastSettings, Option("Contrastive loss: temperature=0.1", parse=section)] = field(
        default_factory=ContrastSettings
    )
    teacher_cache: Annotated[
        str | None, Option("Folder that keeps the teacher's outputs per line", group="output", identity=False)
    ] = None
    onnx: Annotated[bool, Option("Write ONNX files too", group="output")] = False
    flops: Annotated[
        float | None,
        Option(
            "Estimate for another device that does so many FLOP/s, such as 6e13",
            "where it runs",
            above=0,
            identity=False,
        ),
    ] = None
    report_to: ReportTo = ()
    seed: Seed = 0
    device: Device = "auto"

    def check(self) -> None:
        """Languages, students, losses and recipes that go together."""
        self._check_texts()
        self._check_losses()
        self._check_languages()
        parts = self.share if isinstance(self.share, tuple) else ()
        wrong = [part for part in parts if part not in SHARED_PARTS and (type(part) is not int or part < 1)]
        if wrong:
            raise SettingError(
                f"share has {wrong[0]!r:.80}; expected {', '.join(SHARING)}, or a list of {', '.join(SHARED_PARTS)} "
                "and layer numbers from 1."
            )
        if "head" in parts and "embeddings" not in parts and self.tie:
            raise SettingError(
                "share names the head without the embeddings, but tie makes the head's decoder the embeddings; add "
                "embeddings to share or set tie to false."
            )
        if self.recipe != "corrected" and self.optimiser.accumulation > 1:
            raise SettingError(
                f"Recipe {self.recipe} moves the weights after every batch; set optimiser.accumulation to 1."
            )
        if self.teacher_cache and self.recipe == "published":
            raise SettingError(
                "teacher_cache keeps outputs line by line, but recipe published also compares padding, which depends "
                "on the batch; leave teacher_cache out or choose another recipe."
            )

    def _check_texts(self) -> None:
        texts = named_values(self.texts)
        if not isinstance(texts, Mapping) or not texts or not all(isinstance(t, str | Path) for t in texts.values()):
            found = ", ".join(map(str, texts)) if isinstance(texts, Sequence) else texts
            raise InvalidSettingError("texts", f"is {str(found)[:80]!r}; expected at least one LANGUAGE=TEXT.")
        for name in (*texts, *(self.students or {})):
            if not re.fullmatch(r"[\w-][\w.-]*", str(name)):
                raise SettingError(
                    f"{name!r} is no name of a language or student; use letters, digits, '_', '.' and '-'."
                )
        object.__setattr__(self, "texts", {str(name): str(text) for name, text in texts.items()})
        object.__setattr__(self, "teacher", str(self.teacher))

        unknown = [language for language in self.teachers if language not in self.texts]
        if unknown or not all(self.teachers.values()):
            raise SettingError(
                f"teachers.{(unknown or list(self.teachers))[0]}: expected a language of texts "
                f"({', '.join(self.texts)}) and at least one model for it."
            )

    def _check_losses(self) -> None:
        if (self.preset is None) == (self.losses is None):
            raise SettingError("Pass either preset= or losses=.")
        if self.preset is not None and self.preset not in PRESETS:
            raise SettingError(f"There is no preset {self.preset!r}; choose one of {', '.join(PRESETS)}.")
        for term, weight in (self.losses or {}).items():
            if term not in TERMS:
                raise SettingError(f"losses: there is no loss term {term!r}; choose from {', '.join(TERMS)}.")
            if weight < 0:
                raise SettingError(f"losses.{term} is {weight}; expected a number at least 0.")
        total = sum((self.losses or {"": 1.0}).values())
        if abs(total - 1) > SUM_TOLERANCE:
            raise SettingError(f"losses: the weights add up to {total:.4g}; expected 1 (± {SUM_TOLERANCE}).")
        if self.teachers and self.loss.weights.get("softmax_regression"):
            raise SettingError(
                "softmax_regression reads the students by one teacher's head; choose another loss for several teachers."
            )
        for name, values in self.schedules.items():
            if name == "temperature":
                if min(values) <= 0:
                    raise SettingError(f"schedules.temperature is {values}; expected two numbers above 0.")
            elif not self.loss.weights.get(name):
                known = ", ".join(("temperature", *self.loss.weights))
                raise SettingError(f"schedules.{name}: the loss has no such term; choose from {known}.")
            elif min(values) < 0 or not any(values):
                raise SettingError(f"schedules.{name} is {values}; expected two numbers from 0 on, not both 0.")
        if self.loss.weights.get("adversarial") and len(self.texts) < 2:
            raise SettingError(
                f"losses.adversarial tells languages apart, but texts has only {next(iter(self.texts))}; add another "
                "language or leave the term out."
            )

    def _check_languages(self) -> None:
        for name, languages in self.learners.items():
            missing = [language for language in languages if language not in self.texts]
            if missing or not languages:
                raise SettingError(
                    f"students.{name} learns {', '.join(missing) or 'nothing'}, which has no text; texts has "
                    f"{', '.join(self.texts)}."
                )
        idle = set(self.texts) - {language for languages in self.learners.values() for language in languages}
        if idle:
            raise SettingError(f"texts.{min(idle)} is learnt by no student; add it to a student or leave it out.")
        for where, pairs in (("evaluation.pairs", self.evaluation.pairs), ("translations", self.translations)):
            for pair in pairs:
                languages = pair.split("-")
                unknown = [language for language in languages if language not in self.texts]
                if unknown or len(languages) != 2:
                    raise SettingError(
                        f"{where}.{pair}: {(unknown or [pair])[0]} is not among texts ({', '.join(self.texts)}); "
                        "expected two languages such as tr-en."
                    )
        if self.evaluation.patience is not None and not (self.evaluation.pairs and self.evaluation.every):
            raise SettingError("evaluation.patience watches retrieval; set evaluation.pairs and evaluation.every too.")
        taught = [term for term in ("contrastive", "translation_mse") if self.loss.weights.get(term)]
        if self.translations and not taught:
            raise SettingError(
                "translations are given, but the loss has neither the term contrastive nor translation_mse; give one a "
                "weight in losses, choose --preset translation, or leave translations out."
            )
        if not self.translations and "translation_mse" in taught:
            raise SettingError(
                "translation_mse compares translations, and none are given; pass translations such as "
                "en-tr: [a.en, a.tr], with the language that the teacher knows best first."
            )
        if self.translations and self.recipe != "corrected":
            raise SettingError(
                f"Recipe {self.recipe} moves one student after the other, but translations compare two; set recipe "
                "to corrected, or leave translations out."
            )

    @property
    def clip(self) -> float | None:
        """The maximum gradient norm; neither the thesis nor algorithm 1 has one."""
        if self.optimiser.clip == "auto":
            return CLIP if self.recipe == "corrected" else None
        return self.optimiser.clip

    @property
    def epsilon(self) -> float:
        """Epsilon of AdamW: what is given, otherwise that of the recipe."""
        return EPSILONS[self.recipe] if self.optimiser.epsilon is None else self.optimiser.epsilon

    @property
    def learners(self) -> dict[str, tuple[str, ...]]:
        """The languages of each student: those given, one per language by default, a single one where all is shared."""
        students = self.students or {language: (language,) for language in self.texts}
        return students if self.sharing != "all" or len(students) == 1 else {"-".join(students): tuple(self.texts)}

    @property
    def loss(self) -> Preset:
        """The preset, or the given terms, with what overrides it."""
        chosen = PRESETS[self.preset] if self.preset else Preset(self.losses or {}, averaged=True)
        layer_map = self.layer_map if isinstance(self.layer_map, str) else chosen.layer_map
        temperature = chosen.temperature if self.temperature is None else self.temperature
        return Preset(chosen.weights_for(self.recipe), layer_map, temperature, chosen.share, averaged=True)

    @property
    def sharing(self) -> str | tuple[Any, ...]:
        """What students share: the embeddings by default, in the thesis' default (§3.2.3) the whole head too.

        There tying shares the head, g_share = {0, M+1}: its dense layer and norm, not only the decoder's matrix.
        """
        if self.share is not None:
            return self.share
        if self.preset is not None and PRESETS[self.preset].share == "all":
            return "all"
        whole_head = self.recipe == "thesis" and self.tie and set(self.loss.weights) & set(HEAD_TERMS)
        return ("embeddings", "head") if whole_head else "embeddings"

    @property
    def soft_positions(self) -> str | float:
        """Where soft targets are compared: at masked positions, but everywhere in the thesis and the published code."""
        return self.vocabulary.soft_positions or ("masked" if self.recipe == "corrected" else "all")

    @property
    def turns(self) -> int:
        """Updates per step: `corrected` updates all students at once, algorithm 1 one (language, student) pair."""
        return 1 if self.recipe == "corrected" else len(self.language_student_pairs)

    @property
    def language_student_pairs(self) -> list[tuple[str, str]]:
        """Every (language, student) in the order of algorithm 1: languages outside, students inside."""
        return [
            (language, name)
            for language in self.texts
            for name, languages in self.learners.items()
            if language in languages
        ]


def read_settings(config: str | Path | Mapping[str, Any] | DistillSettings, **changes: Any) -> DistillSettings:
    """Settings from a YAML file or a mapping, with changes."""
    if isinstance(config, DistillSettings):
        return replace(config, **changes)
    if isinstance(config, Mapping):
        return from_mapping(DistillSettings, {**config, **changes}, "The configuration")
    from residuum.storage.schemas import read_yaml

    values = read_yaml(Path(config), SettingError)
    try:
        return from_mapping(DistillSettings, {**values, **changes}, "The configuration")
    except SettingError as error:
        raise SettingError(f"{config}: {error}") from None
