"""The text that `pretrain` reads, without sentences of the evaluation, and the tokenizer that is trained on it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from residuum.corpus.streams import TextOptions, text_lines
from residuum.corpus.text_files import malformed, numbered_lines
from residuum.errors import CorpusError, SettingError
from residuum.samples import LANGUAGES, sample_text
from residuum.training.settings import PairSource, PretrainSettings


@dataclass(frozen=True)
class PairedText:
    """Translations from one source, and how many were left out for which reason."""

    name: str
    languages: tuple[str, str]
    sentences: list[tuple[str, str]]
    weight: float = 1.0
    read: int = 0
    blank: int = 0
    too_long: int = 0
    excluded: int = 0  # in a retrieval set
    held_out: int = 0  # in the held-out text of the perplexity


@dataclass(frozen=True)
class PretrainingTexts:
    """The training text (`sentences` by language, `pairs`) and the held-out text for evaluation."""

    sentences: dict[str, list[str]]
    held_out: dict[str, list[str]]
    pairs: list[PairedText]
    retrieval: dict[str, list[tuple[str, str]]]

    @property
    def fingerprint(self) -> str:
        """A hash of all sentences."""
        digest = hashlib.blake2b(digest_size=16)
        parts: Iterable[Iterable[str]] = (
            *self.sentences.values(),
            *self.held_out.values(),
            *((first + "\t" + second for first, second in paired.sentences) for paired in self.pairs),
        )
        for part in parts:
            for line in part:
                digest.update(line.encode() + b"\n")
            digest.update(b"\0")
        return digest.hexdigest()


def read_texts(settings: PretrainSettings) -> PretrainingTexts:
    """Read all files, hold out sentences, and leave out pairs that occur in these or in a retrieval set."""
    retrieval = {
        name: _read_files(chosen.files).sentences for name, chosen in sorted(settings.evaluation.retrieval.items())
    }
    forbidden = {_key(line) for path in settings.exclude for line in _lines(path)}
    forbidden |= {_key(side) for pairs in retrieval.values() for pair in pairs for side in pair}
    sentences, held_out = {}, {}
    for language, files in settings.text.items():
        lines = list(dict.fromkeys(line for path in files for line in _lines(path, settings.column) if line))
        if not lines:
            raise CorpusError(f"text.{language} holds no sentence; pass files with at least one line.")
        count = min(settings.evaluation.held_out, len(lines) // 10)
        away = set(np.random.default_rng(settings.seed).permutation(len(lines))[:count].tolist())
        held_out[language] = [lines[place] for place in sorted(away)]
        sentences[language] = [line for place, line in enumerate(lines) if place not in away]
        if settings.sample_text and language in LANGUAGES:
            sampled = sample_text("text", language=language, size=settings.sample_text, seed=settings.seed)
            sentences[language] += sampled.splitlines()
    measured = {_key(line) for lines in held_out.values() for line in lines}
    pairs = [without(_read_pairs(source, settings.seed), forbidden, measured) for source in settings.pairs]
    return PretrainingTexts(sentences, held_out, pairs, retrieval)


def without(paired: PairedText, forbidden: set[str], held_out: set[str]) -> PairedText:
    """The pairs without a forbidden or held-out side; case, spaces and punctuation do not count."""
    keyed = [(pair, {_key(side) for side in pair}) for pair in paired.sentences]
    allowed = [(pair, keys) for pair, keys in keyed if keys.isdisjoint(forbidden)]
    kept = [pair for pair, keys in allowed if keys.isdisjoint(held_out)]
    if not kept:
        raise CorpusError(
            f"{paired.name}: all {len(keyed)} pairs occur in retrieval sets or in held-out text; pass other text."
        )
    return replace(paired, sentences=kept, excluded=len(keyed) - len(allowed), held_out=len(allowed) - len(kept))


def _read_pairs(source: PairSource, seed: int) -> PairedText:
    if source.sample is not None:
        for language in source.languages:
            if language not in LANGUAGES:
                raise CorpusError(f"The sample grammar has no {language!r}; it has {', '.join(LANGUAGES)}.")
        text = sample_text("translation", language="-".join(source.languages), size=source.sample, seed=seed)
        rows = [line.split("\t") for line in text.splitlines()]
        paired = _of_rows("sample grammar", [(first, second) for first, second in rows])
    elif source.table is not None:
        paired = _read_table(source.table, source.columns)
    else:
        assert source.files is not None
        paired = _read_files(source.files)
    kept = paired.sentences
    if source.longest is not None:
        kept = [pair for pair in kept if max(len(side.split()) for side in pair) <= source.longest]
    too_long = len(paired.sentences) - len(kept)
    return replace(paired, sentences=kept, too_long=too_long, languages=source.languages, weight=source.weight)


def _read_files(files: tuple[str, str]) -> PairedText:
    first, second = (list(_lines(path)) for path in files)
    if len(first) != len(second):
        raise CorpusError(
            f"{files[0]} has {len(first)} lines and {files[1]} has {len(second)}; expected equal numbers."
        )
    return _of_rows(Path(files[0]).name, zip(first, second, strict=True))


def _read_table(path: str, columns: tuple[int, int]) -> PairedText:
    rows = []
    for file in _files(path):
        for number, line in numbered_lines(file):
            cells = line.split("\t")
            if len(cells) <= max(columns):
                raise malformed(file, number, f"{len(cells)} columns", f"at least {max(columns) + 1}")
            rows.append((cells[columns[0]].strip(), cells[columns[1]].strip()))
    return _of_rows("/".join(Path(path).parts[-2:]), rows)


def _of_rows(name: str, rows: Iterable[tuple[str, str]]) -> PairedText:
    rows = list(rows)
    whole = [row for row in rows if all(row)]
    return PairedText(name, ("", ""), list(dict.fromkeys(whole)), read=len(rows), blank=len(rows) - len(whole))


def _lines(path: str, column: str | None = None) -> Iterator[str]:
    """The sentences of all files that match a path with wildcards; of a .tsv table, its first column.

    Of JSON lines and parquet it is the column that is named, or one whose name says that it holds the text.
    """
    for file in _files(path):
        if file.suffix in (".jsonl", ".ndjson", ".parquet"):
            yield from (text for _, text in text_lines(file, TextOptions(text=column)))
            continue
        for _, line in numbered_lines(file):
            yield line.partition("\t")[0].strip() if file.suffix == ".tsv" else line.strip()


def _files(path: str) -> list[Path]:
    unset = [name for name in re.findall(r"\$\{(\w+)\}", path) if name not in os.environ]
    if unset:
        raise SettingError(f"{path} needs the variable {unset[0]}, which is not set; export {unset[0]}=… first.")
    place = Path(os.path.expandvars(path)).absolute()
    files = sorted(file for file in Path(place.anchor).glob(str(place.relative_to(place.anchor))) if file.is_file())
    if not files:
        raise CorpusError(f"{path} names no file; expected a text file or a pattern that matches some.")
    return files


def _key(text: str) -> str:
    """The letters and digits of a sentence, which two spellings of it share."""
    return "".join(c for c in unicodedata.normalize("NFKC", text).casefold() if c.isalnum())


N_SPECIAL = 4  # <s> <pad> </s> <unk>
SPECIAL = {
    "bos_token": "<s>",
    "pad_token": "<pad>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "cls_token": "<s>",
    "sep_token": "</s>",
    "mask_token": "<mask>",
}


def train_tokenizer(
    sentences: Mapping[str, Sequence[str]],
    *,
    pieces: int,
    lines: int,
    exponent: float,
    window: int,
    seed: int,
    progress: bool = False,
) -> PreTrainedTokenizerFast:
    """Train a unigram model (Kudo 2018) on lines of all languages, sampled with p ∝ size^exponent.

    Ids are as in XLM-R: <s> 0, <pad> 1, </s> 2, <unk> 3, <mask> last.
    """
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=pieces - 1,  # <mask> comes last
        special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
        unk_token="<unk>",
        show_progress=progress,
    )
    sampled: list[str] = []
    generator = np.random.default_rng(seed)
    for language, share in shares({language: len(texts) for language, texts in sentences.items()}, exponent).items():
        order = generator.permutation(len(sentences[language]))
        sampled += [sentences[language][int(place)] for place in order[: round(lines * share)]]
    tokenizer.train_from_iterator(sampled, trainer)
    if tokenizer.get_vocab_size() < pieces - 1:
        raise CorpusError(
            f"The text gives only {tokenizer.get_vocab_size() + 1} pieces; expected {pieces}. "
            "Set tokenizer.pieces lower."
        )
    tokenizer.model = _in_fixed_order(tokenizer)
    tokenizer.add_special_tokens(["<mask>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=window, **SPECIAL)


def shares(sizes: Mapping[str, float], exponent: float) -> dict[str, float]:
    """Sampling probabilities p ∝ size^exponent (1: by size; 0: equal)."""
    powers = {name: size**exponent for name, size in sizes.items()}
    total = sum(powers.values())
    return {name: power / total for name, power in powers.items()}


def _in_fixed_order(tokenizer: Tokenizer) -> models.Unigram:
    """The trained pieces by score, then by spelling.

    The trainer appends rare letters below all pieces, each a little lower, in an order that varies between calls;
    here they share one score.
    """
    pieces = [(piece, round(score, 6)) for piece, score in json.loads(tokenizer.to_str())["model"]["vocab"]]
    special, ordinary = pieces[:N_SPECIAL], pieces[N_SPECIAL:]
    lowest = min((score for piece, score in ordinary if len(piece) > 1), default=0.0)
    settled = [(piece, lowest - 1 if len(piece) == 1 and score < lowest else score) for piece, score in ordinary]
    settled.sort(key=lambda entry: (-entry[1], entry[0]))
    return models.Unigram([*special, *settled], unk_id=3)
