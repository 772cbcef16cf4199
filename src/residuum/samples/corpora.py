"""The sample sets as corpora."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from residuum.samples.tasks import RENDERERS, Request, choices, labelled, pairs, sentences
from residuum.samples.trees import Sentence

if TYPE_CHECKING:
    from residuum.corpus import Corpus

Span = tuple[int, int]
WordLabels = list[list[str | None]]


def sample(
    task: str,
    *,
    language: str = "en",
    size: int = 1000,
    seed: int = 0,
    split: str = "train",
    disjoint_lexemes: bool = False,
) -> "Corpus":
    """A sample set of a task: treebank, ner, nli, copa, translation, polarity, tense or text.

    The same seed gives the same meanings in every language (en, de, tr, sw; a pair such as `tr-en` for translation),
    and treebank, ner, translation and text have the same sentences. No meaning is in two splits; with
    `disjoint_lexemes` each split has nouns, names, verbs, adjectives and adverbs of manner of its own. The
    candidates of copa are its choices.
    """
    request = Request(task, language, size, seed, split, disjoint_lexemes)
    return _BUILDERS[task](request)


def _treebank(request: Request) -> "Corpus":
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


def _ner(request: Request) -> "Corpus":
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


def _nli(request: Request) -> "Corpus":
    render = RENDERERS[request.language]
    items = pairs(request)
    premises = [render(pair.premise).text() for pair in items]
    hypotheses = [render(pair.hypothesis).text() for pair in items]
    return _of_texts(request, premises, hypotheses, label=[pair.label for pair in items])


def _copa(request: Request) -> "Corpus":
    render = RENDERERS[request.language]
    items = choices(request)
    corpus = _of_texts(
        request,
        [render(item.premise).text() for item in items],
        [item.question for item in items],
        label=[str(item.label) for item in items],
    )
    return replace(corpus, choices=[[render(choice).text() for choice in item.choices] for item in items])


def _translation(request: Request) -> "Corpus":
    first, second = (RENDERERS[language] for language in request.languages)
    meanings = sentences(request)
    return _of_texts(
        request,
        [first(meaning).text() for meaning in meanings],
        [second(meaning).text() for meaning in meanings],
    )


def _classes(request: Request) -> "Corpus":
    render = RENDERERS[request.language]
    items = labelled(request)
    texts = [render(item.meaning).text() for item in items]
    return _of_texts(request, texts, label=[item.label for item in items])


def _text(request: Request) -> "Corpus":
    return _of_texts(request, [sentence.text() for sentence in _rendered(request)])


def _of_texts(request: Request, texts: list[str], pair_texts: list[str] | None = None, **labels: list[str]) -> "Corpus":
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


def _rendered(request: Request) -> list[Sentence]:
    render = RENDERERS[request.language]
    return [render(meaning) for meaning in sentences(request)]


def _column_labels(rendered: list[Sentence]) -> dict[str, WordLabels]:
    """The labels that a treebank's reader gives, by the columns of CoNLL-U."""
    return {
        "upos": [[row.upos for row in sentence.rows] for sentence in rendered],
        "lemma": [[row.lemma for row in sentence.rows] for sentence in rendered],
        "head": [[str(row.head) for row in sentence.rows] for sentence in rendered],
        "deprel": [[row.deprel for row in sentence.rows] for sentence in rendered],
        "deprel_main": [[row.deprel.partition(":")[0] for row in sentence.rows] for sentence in rendered],
    }


def _feature_labels(rendered: list[Sentence]) -> dict[str, WordLabels]:
    """A label for each feature by its key; None where a word does not have it."""
    features = [[_features(row.feats) for row in sentence.rows] for sentence in rendered]
    keys = sorted({key for sentence in features for word in sentence for key in word})
    return {key: [[word.get(key) for word in sentence] for sentence in features] for key in keys}


def _features(feats: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in feats.split("|")) if feats != "_" else {}


def _word_spans(sentence: Sentence) -> list[Span]:
    """Where each word stands; the words of a token share its span unless they spell it."""
    rows, spans, start, index = sentence.rows, [], 0, 0
    while index < len(rows):
        words = rows[index : index + 2] if rows[index].fused else rows[index : index + 1]
        token = rows[index].fused or rows[index].form
        spans += _divided(start, token, [row.form for row in words])
        start += len(token) + words[-1].space_after
        index += len(words)
    return spans


def _divided(start: int, token: str, words: list[str]) -> list[Span]:
    if "".join(words) != token:
        return [(start, start + len(token))] * len(words)
    spans = []
    for word in words:
        spans.append((start, start + len(word)))
        start += len(word)
    return spans


def _located(sentences: Sequence[list[str]], texts: Sequence[str]) -> list[list[Span]]:
    """Where words stand in texts that they make up."""
    return [_located_words(words, text) for words, text in zip(sentences, texts, strict=True)]


def _located_words(words: list[str], text: str) -> list[Span]:
    spans, start = [], 0
    for word in words:
        start = text.index(word, start)
        spans.append((start, start + len(word)))
        start += len(word)
    return spans


_BUILDERS: dict[str, Callable[[Request], "Corpus"]] = {
    "treebank": _treebank,
    "ner": _ner,
    "nli": _nli,
    "copa": _copa,
    "translation": _translation,
    "polarity": _classes,
    "tense": _classes,
    "text": _text,
}
