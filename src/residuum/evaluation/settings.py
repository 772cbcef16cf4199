"""The settings of evaluate retrieval, evaluate perplexity and evaluate correlate."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar, Literal

from residuum.errors import SettingError
from residuum.settings import Argument, Device, Limit, Option, Out, Precision, Resumable, Seed, Settings, TextReading

Score = Literal["cosine", "margin", "bertscore"]
SCORES: tuple[Score, ...] = ("cosine", "margin", "bertscore")
DEFAULT_SCORES: tuple[Score, ...] = ("cosine", "bertscore")
Resamples = Annotated[int, Option("Bootstrap samples per interval", at_least=2)]


@dataclass(frozen=True, kw_only=True)
class PairReading(Settings):
    """Which sentence pairs are read, where they come from a file or folder."""

    translations: Annotated[
        Any, Option("Text file of the second language, where PAIRS is a text file", group="data", identity=False)
    ] = None
    only: Annotated[
        tuple[str, ...], Option("Language pairs of a folder, such as tur-eng [all]", group="data", identity=False)
    ] = ()
    text: Annotated[
        str | int, Option("Column of the first language, by name or number from 0", group="data", identity=False)
    ] = 0
    pair: Annotated[
        str | int, Option("Column of the second language, by name or number from 0", group="data", identity=False)
    ] = 1
    limit: Limit = None

    def check(self) -> None:
        """Columns by number are numbers on the command line too."""
        for name in ("text", "pair"):
            value = getattr(self, name)
            if isinstance(value, str) and value.isdecimal():
                object.__setattr__(self, name, int(value))


@dataclass(frozen=True)
class RetrievalSettings(PairReading, Resumable):
    """What `evaluate retrieval` takes."""

    example: ClassVar[str] = "residuum evaluate retrieval xlm-roberta-base tatoeba --only tur-eng --out retrieval"

    model: Annotated[Any, Argument("Model folder or hub name")]
    pairs: Annotated[
        Any,
        Argument("Folder with files such as tatoeba.tur-eng.tur and .eng, a table of two columns, or a text file"),
    ]
    out: Out = None
    _: KW_ONLY
    target_model: Annotated[
        Any, Option("Model of the second language [MODEL]", group="model", metavar="MODEL", identity=False)
    ] = None
    score: Annotated[
        tuple[Score, ...],
        Option("Similarities of two sentences: cosine, margin (cosine less that of nearest neighbours), bertscore"),
    ] = DEFAULT_SCORES
    neighbours: Annotated[int, Option("Nearest neighbours that margin subtracts", at_least=1)] = 10
    layers: Annotated[
        Any,
        Option(
            "all (blocks averaged), each (one by one) or numbers such as 1,3,5-7; 3:6 pairs layer 3 of MODEL with "
            "layer 6 of the target model; several choices separated by ;",
            group="model",
            identity=False,
        ),
    ] = "all"
    special_tokens: Annotated[bool, Option("Include special tokens such as [CLS] in the mean that cosine compares")] = (
        True
    )
    resamples: Resamples = 1000
    seed: Seed = 0
    device: Device = "auto"
    precision: Precision = "float32"

    def check(self) -> None:
        """At least one score, each once."""
        super().check()
        if not self.score:
            raise SettingError(f"score is empty; choose from {', '.join(SCORES)}.")
        object.__setattr__(self, "score", tuple(dict.fromkeys(self.score)))


@dataclass(frozen=True)
class PerplexitySettings(TextReading, Resumable):
    """What `evaluate perplexity` takes."""

    example: ClassVar[str] = "residuum evaluate perplexity xlm-roberta-base tr=tr.txt sw=sw.txt --out perplexity"

    model: Annotated[Any, Argument("Model folder or hub name, with its language-modelling head")]
    texts: Annotated[
        Any | tuple[str, ...], Argument("Text files, one sentence per line; NAME=FILE names one", metavar="TEXT")
    ]
    out: Out = None
    _: KW_ONLY
    masking: Annotated[
        Literal["sampled", "each"],
        Option("Masked models: hide a fraction of the tokens at once, or one token at a time (slow)"),
    ] = "sampled"
    fraction: Annotated[float, Option("Fraction of tokens to hide", above=0, at_most=1)] = 0.15
    resamples: Resamples = 1000
    seed: Seed = 0
    device: Device = "auto"
    precision: Precision = "float32"
    limit: Limit = None


@dataclass(frozen=True)
class CorrelationSettings(Resumable):
    """What `evaluate correlate` takes."""

    example: ClassVar[str] = (
        "residuum evaluate correlate a=runs/a b=runs/b --downstream a=0.61 --downstream b=0.58 --out correlation"
    )

    retrievals: Annotated[
        Any | tuple[str, ...],
        Argument("Folders of `evaluate retrieval` runs, one per model", metavar="NAME=FOLDER"),
    ]
    downstream: Annotated[
        Any | tuple[str, ...],
        Option(
            "Downstream score per model: a number, or the folder of an `adapt` run with one strategy or of an "
            "`evaluate adapted` run",
            group="data",
            metavar="NAME=SCORE",
            identity=False,
        ),
    ]
    out: Out = None
    _: KW_ONLY
    level: Annotated[float, Option("Confidence level of the intervals", at_least=0.5, at_most=0.999)] = 0.95
