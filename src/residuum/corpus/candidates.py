"""Multiple choice as pairs: every candidate beside its context, right or wrong."""

from residuum.corpus.corpus import Corpus, SentenceLabels

RIGHT, WRONG = "right", "wrong"


def candidate_pairs(corpus: Corpus) -> Corpus:
    """A sentence for each candidate: the context and its question, then the candidate, labelled right or wrong.

    A corpus without candidates is returned as it is.
    """
    if corpus.choices is None:
        return corpus
    places = [(i, place) for i, candidates in enumerate(corpus.choices) for place in range(len(candidates))]
    labels: dict[str, SentenceLabels] = {
        name: [None if answers[i] is None else RIGHT if str(place) == answers[i] else WRONG for i, place in places]
        for name, answers in corpus.sentence_labels.items()
    }
    contexts = [_words(corpus.text(i), corpus.pair_text(i)) for i in range(len(corpus))]
    return Corpus(
        name=corpus.name,
        sentences=[contexts[i] for i, _ in places],
        sentence_labels=labels,
        pairs=[corpus.choices[i][place].split() for i, place in places],
        ids=[f"{corpus.ids[i]}.{place + 1}" for i, place in places],
        language=corpus.language,
        skipped=corpus.skipped,
        numbered=False,
    )


def _words(context: str, question: str | None) -> list[str]:
    return context.split() + ([] if question is None else question.split())
