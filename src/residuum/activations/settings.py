"""The settings of extract, verify, import and export."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar, Literal

from residuum.errors import SettingError
from residuum.settings import (
    Argument,
    Device,
    Execution,
    Format,
    Layers,
    Limit,
    MaxLoss,
    Option,
    Out,
    Precision,
    Settings,
    Split,
    TableReading,
    as_bytes,
)


@dataclass(frozen=True, kw_only=True)
class ReadingSettings(Settings):
    """How the tokens of a model become the rows of a store; part of the store's identity."""

    pooling: Annotated[Literal["last", "first", "mean", "max"], Option("How sub-words make a word")] = "last"
    dtype: Annotated[Literal["float32", "float16", "bfloat16"], Option("Precision of stored activations")] = "float32"
    unit: Annotated[Literal["word", "sentence"], Option("One row per word or per sentence")] = "word"
    position: Annotated[
        Literal["auto", "cls", "last", "mean", "all"], Option("Token that represents a sentence, with --unit sentence")
    ] = "auto"
    attention: Annotated[bool, Option("Store word-by-word attention too")] = False
    batch_tokens: Annotated[int, Option("Tokens per batch", group="where it runs", at_least=1)] = 1024
    shard_words: Annotated[int, Option("Words per file", group="output", at_least=1)] = 4096

    def check(self) -> None:
        """Attention belongs to words."""
        if self.attention and self.unit == "sentence":
            raise SettingError("Attention is read word by word; it needs unit 'word'.")


@dataclass(frozen=True)
class ExtractSettings(ReadingSettings, TableReading, Execution):
    """What `extract` takes."""

    example: ClassVar[str] = "residuum extract bert-base-cased en_ewt-ud-dev.conllu --out acts/bert"
    estimates: ClassVar[bool] = True

    model: Annotated[Any, Argument("Model folder, .gguf file or hub name")]
    corpus: Annotated[Any, Argument("Treebank, column file, table, text file, folder of splits or hub name")]
    out: Annotated[
        Any, Option("Folder to write, or an address such as s3://bucket/acts", "output", "-o", "DIR", identity=False)
    ]
    _: KW_ONLY
    layers: Layers = "all"
    max_loss: MaxLoss = 0.0
    random_init: Annotated[bool, Option("Use the random twin: same model, random weights", "model", identity=False)] = (
        False
    )
    seed: Annotated[int, Option("Random seed of the random twin", at_least=0, identity=False)] = 0
    device: Device = "auto"
    precision: Precision = "float32"
    split: Split = None
    limit: Limit = None


StorePath = Annotated[Any, Argument("Activation store: a folder or an address")]


@dataclass(frozen=True)
class VerifySettings(Settings):
    """What `verify` takes."""

    example: ClassVar[str] = "residuum verify acts/bert"

    store: StorePath


@dataclass(frozen=True)
class ImportSettings(Settings):
    """What `import` takes."""

    example: ClassVar[str] = "residuum import neurox.hdf5 --corpus dev.conllu --out acts/bert"

    source: Annotated[Any, Argument("NeuroX .hdf5 or .json file, .npz, .arrow or .feather", metavar="FILE")]
    out: Out
    _: KW_ONLY
    corpus: Annotated[Any, Option("Corpus whose words the activations belong to", group="data")] = None
    format: Format = None
    split: Split = None
    shard_words: Annotated[int, Option("Words per file", group="output", at_least=1)] = 4096
    max_memory: Annotated[
        int | None,
        Option("Memory limit in GB: shards are made to fit", "where it runs", metavar="GB", at_least=0, parse=as_bytes),
    ] = None
    fresh: Annotated[bool, Option("Discard earlier output and start over", group="output")] = False


@dataclass(frozen=True)
class ExportSettings(Settings):
    """What `export` takes."""

    example: ClassVar[str] = "residuum export acts/bert bert.hdf5"

    store: StorePath
    target: Annotated[Any, Argument("File to write: .hdf5, .json, .npz or .arrow", metavar="FILE")]
