"""The sample sets as text, each in the format that its task is usually kept in."""

import json
from collections.abc import Callable

from residuum.samples.conllu import conllu
from residuum.samples.meanings import Meaning
from residuum.samples.tasks import RENDERERS, Request, choices, labelled, pairs, sentences


def sample_text(
    task: str,
    *,
    language: str = "en",
    size: int = 1000,
    seed: int = 0,
    split: str = "train",
    disjoint_lexemes: bool = False,
) -> str:
    """A sample set as the content of a file.

    treebank: CoNLL-U; ner: a word and its tag a line; nli, polarity, tense: TSV with a header; copa: a JSON record a
    line; translation: two sentences a line, a tab between; text: a sentence a line. The settings are those of `sample`.
    """
    request = Request(task, language, size, seed, split, disjoint_lexemes)
    return _WRITERS[task](request)


def _treebank(request: Request) -> str:
    render = RENDERERS[request.language]
    meanings = sentences(request)
    return "".join(
        conllu(render(meaning), sent_id, meaning) for sent_id, meaning in zip(request.ids(), meanings, strict=True)
    )


def _ner(request: Request) -> str:
    render = RENDERERS[request.language]
    blocks = (
        "".join(f"{token.form}\t{token.entity}\n" for token in render(meaning).tokens())
        for meaning in sentences(request)
    )
    return "\n".join(blocks)


def _nli(request: Request) -> str:
    say = _sayer(request.language)
    rows = ([say(pair.premise), say(pair.hypothesis), pair.label] for pair in pairs(request))
    return _table(["premise", "hypothesis", "label"], *rows)


def _copa(request: Request) -> str:
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


def _translation(request: Request) -> str:
    say_first, say_second = map(_sayer, request.languages)
    return _table(*([say_first(meaning), say_second(meaning)] for meaning in sentences(request)))


def _classes(request: Request) -> str:
    say = _sayer(request.language)
    rows = ([say(item.meaning), item.label] for item in labelled(request))
    return _table(["sentence", "label"], *rows)


def _lines(request: Request) -> str:
    say = _sayer(request.language)
    return "".join(say(meaning) + "\n" for meaning in sentences(request))


def _sayer(language: str) -> Callable[[Meaning], str]:
    render = RENDERERS[language]
    return lambda meaning: render(meaning).text()


def _table(*rows: list[str]) -> str:
    return "".join("\t".join(row) + "\n" for row in rows)


_WRITERS: dict[str, Callable[[Request], str]] = {
    "treebank": _treebank,
    "ner": _ner,
    "nli": _nli,
    "copa": _copa,
    "translation": _translation,
    "polarity": _classes,
    "tense": _classes,
    "text": _lines,
}
