"""The sample sets as corpora and as text files, and the sample teacher."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from residuum.errors import ModelError, SettingError
from residuum.samples.meanings import Meaning
from residuum.samples.settings import SampleSettings, WriteSampleSettings
from residuum.samples.tasks import RENDERERS, choices, labelled, pairs, sentences
from residuum.samples.trees import SentenceTree, conllu
from residuum.settings import command
from residuum.storage.files import checksum, lone_file, whole_folder

if TYPE_CHECKING:
    from residuum.corpus import Corpus

Span = tuple[int, int]
WordLabels = list[list[str | None]]


@command(SampleSettings)
def sample(settings: SampleSettings) -> Corpus:
    """A sample set of a task: treebank, ner, nli, copa, translation, polarity, tense or text.

    The same seed gives the same meanings in every language (en, de, tr, sw; a pair such as `tr-en` for translation),
    and treebank, ner, translation and text have the same sentences. No meaning occurs in two splits; with
    `disjoint_lexemes` each split has its own nouns, names, verbs, adjectives and adverbs of manner. The candidates of
    copa are its choices.
    """
    return _BUILDERS[settings.task](settings)


def treebank_corpus(request: SampleSettings) -> Corpus:
    """Words with their labels; the words of one token know that they are one."""
    from residuum.corpus import Corpus, WrittenText

    rendered = _rendered(request)
    written = WrittenText([s.text() for s in rendered], [_word_spans(s) for s in rendered])
    n_ranges = sum(bool(row.fused) for sentence in rendered for row in sentence.rows)
    return Corpus(
        name=request.name,
        sentences=[[row.form for row in sentence.rows] for sentence in rendered],
        labels=_column_labels(rendered) | _feature_labels(rendered),
        ids=request.ids(),
        numbered=False,
        language=request.language,
        skipped={"multiword ranges": n_ranges} if n_ranges else {},
        written=written,
    )


def ner_corpus(request: SampleSettings) -> Corpus:
    """Tokens with the tags of people, places and organisations."""
    from residuum.corpus import Corpus, WrittenText

    rendered = _rendered(request)
    tokens = [sentence.tokens() for sentence in rendered]
    words = [[token.form for token in row] for row in tokens]
    texts = [sentence.text() for sentence in rendered]
    return Corpus(
        name=request.name,
        sentences=words,
        labels={"ner": [[token.entity for token in row] for row in tokens]},
        ids=request.ids(),
        numbered=False,
        language=request.language,
        written=WrittenText(texts, _located(words, texts)),
    )


def nli_corpus(request: SampleSettings) -> Corpus:
    """Premises and hypotheses with the label of their relation."""
    render = RENDERERS[request.language]
    items = pairs(request)
    premises = [render(pair.premise).text() for pair in items]
    hypotheses = [render(pair.hypothesis).text() for pair in items]
    return _of_texts(request, premises, hypotheses, label=[pair.label for pair in items])


def copa_corpus(request: SampleSettings) -> Corpus:
    """Premises with two choices, of which one is the cause or effect."""
    render = RENDERERS[request.language]
    items = choices(request)
    corpus = _of_texts(
        request,
        [render(item.premise).text() for item in items],
        [item.question for item in items],
        label=[str(item.label) for item in items],
    )
    return replace(corpus, choices=[[render(choice).text() for choice in item.choices] for item in items])


def translation_corpus(request: SampleSettings) -> Corpus:
    """Sentences and their translations."""
    first, second = (RENDERERS[language] for language in request.languages)
    meanings = sentences(request)
    return _of_texts(
        request,
        [first(meaning).text() for meaning in meanings],
        [second(meaning).text() for meaning in meanings],
    )


def _classes(request: SampleSettings) -> Corpus:
    render = RENDERERS[request.language]
    items = labelled(request)
    texts = [render(item.meaning).text() for item in items]
    return _of_texts(request, texts, label=[item.label for item in items])


def _text(request: SampleSettings) -> Corpus:
    return _of_texts(request, [sentence.text() for sentence in _rendered(request)])


def _of_texts(
    request: SampleSettings, texts: list[str], pair_texts: list[str] | None = None, **labels: list[str]
) -> Corpus:
    """The corpus of whole sentences, their words as white space divides them."""
    from residuum.corpus import Corpus, WrittenText

    words = [text.split() for text in texts]
    return Corpus(
        name=request.name,
        sentences=words,
        sentence_labels={name: list(values) for name, values in labels.items()},
        pairs=None if pair_texts is None else [text.split() for text in pair_texts],
        ids=request.ids(),
        numbered=False,
        language=request.language,
        written=WrittenText(texts, _located(words, texts), pair_texts),
    )


def _rendered(request: SampleSettings) -> list[SentenceTree]:
    render = RENDERERS[request.language]
    return [render(meaning) for meaning in sentences(request)]


def _column_labels(rendered: list[SentenceTree]) -> dict[str, WordLabels]:
    """The labels that a treebank's reader gives, by the columns of CoNLL-U."""
    return {
        "upos": [[row.upos for row in sentence.rows] for sentence in rendered],
        "lemma": [[row.lemma for row in sentence.rows] for sentence in rendered],
        "head": [[str(row.head) for row in sentence.rows] for sentence in rendered],
        "deprel": [[row.deprel for row in sentence.rows] for sentence in rendered],
        "deprel_main": [[row.deprel.partition(":")[0] for row in sentence.rows] for sentence in rendered],
    }


def _feature_labels(rendered: list[SentenceTree]) -> dict[str, WordLabels]:
    """A label for each feature by its key; None where a word does not have it."""
    features = [
        [dict(pair.split("=", 1) for pair in row.feats.split("|") if pair != "_") for row in sentence.rows]
        for sentence in rendered
    ]
    keys = sorted({key for sentence in features for word in sentence for key in word})
    return {key: [[word.get(key) for word in sentence] for sentence in features] for key in keys}


def _word_spans(sentence: SentenceTree) -> list[Span]:
    """Where each word stands; the words of a token share its span unless they spell it."""
    rows, spans, start, index = sentence.rows, [], 0, 0
    while index < len(rows):
        words = rows[index : index + 2] if rows[index].fused else rows[index : index + 1]
        token = rows[index].fused or rows[index].form
        is_spelt, end = "".join(row.form for row in words) == token, start
        for row in words:
            end += len(row.form)
            spans.append((end - len(row.form), end) if is_spelt else (start, start + len(token)))
        start += len(token) + words[-1].space_after
        index += len(words)
    return spans


def _located(sentences: Sequence[list[str]], texts: Sequence[str]) -> list[list[Span]]:
    """Where words stand in texts that they make up."""
    located = []
    for words, text in zip(sentences, texts, strict=True):
        spans, start = [], 0
        for word in words:
            start = text.index(word, start)
            spans.append((start, start + len(word)))
            start += len(word)
        located.append(spans)
    return located


_BUILDERS: dict[str, Callable[[SampleSettings], Corpus]] = {
    "treebank": treebank_corpus,
    "ner": ner_corpus,
    "nli": nli_corpus,
    "copa": copa_corpus,
    "translation": translation_corpus,
    "polarity": _classes,
    "tense": _classes,
    "text": _text,
}


@command(SampleSettings)
def sample_text(settings: SampleSettings) -> str:
    """A sample set as the content of a file.

    treebank: CoNLL-U; ner: one word and its tag per line; nli, polarity, tense: TSV with a header; copa: one JSON
    record per line; translation: two sentences per line with a tab between them; text: one sentence per line.
    """
    return _WRITERS[settings.task](settings)


@command(WriteSampleSettings)
def write_sample(settings: WriteSampleSettings) -> Path | Iterator[str]:
    """Write a sample set to a file, or copy the sample teacher to a folder; without a place, the lines to print."""
    if settings.task == "teacher":
        return iter([str(teacher_folder())]) if settings.out is None else _copied_teacher(settings.out)
    text = sample_text(**settings.options(SampleSettings))
    if settings.out is None:
        return iter(text.removesuffix("\n").split("\n"))
    with lone_file(settings.out) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
    return settings.out


def _copied_teacher(out: Path) -> Path:
    """The sample teacher in a folder that does not exist yet, or holds the same copy."""

    def content(folder: Path) -> dict[str, str]:
        return {file.name: checksum(file) for file in folder.iterdir() if file.is_file()}

    if not out.exists():
        with whole_folder(out) as temporary:
            shutil.copytree(teacher_folder(), temporary, dirs_exist_ok=True)
    elif not out.is_dir() or content(out) != content(teacher_folder()):
        raise SettingError(f"{out} exists; choose another folder for the copy of the teacher.")
    return out


def treebank_text(request: SampleSettings) -> str:
    """CoNLL-U."""
    render = RENDERERS[request.language]
    meanings = sentences(request)
    return "".join(
        conllu(render(meaning), sent_id, meaning) for sent_id, meaning in zip(request.ids(), meanings, strict=True)
    )


def ner_text(request: SampleSettings) -> str:
    """One word and its tag per line, an empty line between sentences."""
    render = RENDERERS[request.language]
    blocks = (
        "".join(f"{token.form}\t{token.entity}\n" for token in render(meaning).tokens())
        for meaning in sentences(request)
    )
    return "\n".join(blocks)


def nli_text(request: SampleSettings) -> str:
    """A table with a header: premise, hypothesis, label."""
    say = _sayer(request.language)
    rows = ([say(pair.premise), say(pair.hypothesis), pair.label] for pair in pairs(request))
    return _table(["premise", "hypothesis", "label"], *rows)


def copa_text(request: SampleSettings) -> str:
    """One JSON record per line."""
    say = _sayer(request.language)
    records = (
        {
            "premise": say(choice.premise),
            "choice1": say(choice.choices[0]),
            "choice2": say(choice.choices[1]),
            "question": choice.question,
            "label": choice.label,
        }
        for choice in choices(request)
    )
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def translation_text(request: SampleSettings) -> str:
    """Two sentences per line with a tab between them."""
    say_first, say_second = map(_sayer, request.languages)
    return _table(*([say_first(meaning), say_second(meaning)] for meaning in sentences(request)))


def _classes_text(request: SampleSettings) -> str:
    say = _sayer(request.language)
    rows = ([say(item.meaning), item.label] for item in labelled(request))
    return _table(["sentence", "label"], *rows)


def _lines(request: SampleSettings) -> str:
    say = _sayer(request.language)
    return "".join(say(meaning) + "\n" for meaning in sentences(request))


def _sayer(language: str) -> Callable[[Meaning], str]:
    render = RENDERERS[language]
    return lambda meaning: render(meaning).text()


def _table(*rows: list[str]) -> str:
    return "".join("\t".join(row) + "\n" for row in rows)


_WRITERS: dict[str, Callable[[SampleSettings], str]] = {
    "treebank": treebank_text,
    "ner": ner_text,
    "nli": nli_text,
    "copa": copa_text,
    "translation": translation_text,
    "polarity": _classes_text,
    "tense": _classes_text,
    "text": _lines,
}


_FOLDER = Path(__file__).with_name("teacher")


def teacher_folder() -> Path:
    """The folder of the sample teacher (XLM-R architecture; en, de, tr, sw), for `load_model` or `from_pretrained`.

    Its card, README.md, says what it was trained on, how to make it again, and what it scores.
    """
    if not (_FOLDER / "model.safetensors").exists():
        raise ModelError(
            f"{_FOLDER} holds no model.safetensors; the sample teacher is missing from this installation. Install the "
            "package again, or make the teacher with recipes/sample-teacher.yaml."
        )
    return _FOLDER
