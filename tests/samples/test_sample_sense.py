"""What is said makes sense: nobody twice, no time twice, no adjective against the verb, no wrong answer that fits."""

from collections import Counter
from itertools import product

import pytest

from residuum.samples import inference, lexicon
from residuum.samples.english import english
from residuum.samples.lexicon import SplitVocabulary
from residuum.samples.meanings import Clause, Draw, Entity
from residuum.samples.settings import SampleSettings
from residuum.samples.tasks import pairs, sentences

ANNA = Entity("anna", "name", determiner="bare")
# the adjective that is not true of a thing to which this is done
CONTRARY = {"wash": "clean", "clean": "clean", "build": "old", "sew": "old", "treat": "healthy"}


def clauses() -> list[Clause]:
    """The clauses of sentences, and those of premises, which are made in other ways."""
    meanings = list(sentences(SampleSettings("text", size=1500, seed=6)))
    meanings += [pair.premise for pair in pairs(SampleSettings("nli", size=900, seed=6))]
    return [clause for meaning in meanings for clause in meaning.clauses]


def test_a_word_for_the_moment_stands_alone():
    """Not: this morning he woke up early."""
    moments = 0
    for clause in clauses():
        if clause.manner and lexicon.adverbs()[clause.manner].kind == "moment":
            assert not clause.time, clause
            moments += 1
    assert moments > 10


def test_nobody_does_something_together_with_yet_another():
    for clause in clauses():
        assert not (clause.manner == "together" and clause.companion), clause


def test_nobody_takes_part_twice():
    others = 0
    for clause in clauses():
        more = (clause.recipient, clause.ground, clause.companion, clause.beneficiary)
        told = [*clause.subject, *clause.object, *(entity for entity in more if entity)]
        lexemes = [entity.lexeme for entity in told]
        lexemes += [entity.possessor.lexeme for entity in told if entity.possessor]
        assert len(set(lexemes)) == len(lexemes), clause
        others += bool(clause.companion or clause.beneficiary)
    assert others > 50


def test_no_object_has_an_adjective_that_the_verb_denies():
    for clause in clauses():
        for entity in clause.object:
            assert CONTRARY.get(clause.predicate) not in entity.adjectives, clause


def test_nobody_comes_and_then_wakes_up():
    meanings = sentences(SampleSettings("text", size=3000, seed=6))
    then = [meaning.clauses[1].predicate for meaning in meanings if meaning.shared_subject]
    assert len(then) > 150
    assert "wake_up" not in then


def test_a_wrong_choice_is_never_what_might_be_as_well(monkeypatch):
    """All that either table tells, said of Anna, against all the questions about Anna."""
    monkeypatch.setattr(inference, "_participants", lambda words, who, split: (ANNA,))
    known = [(link.cause, link.effect) for link in inference.links()]
    known += [pair for causes, effects in lexicon.plausible() for pair in product(causes, effects)]
    fitting = {(said(cause), said(effect)) for cause, effect in known}
    questions = Counter()
    for number in range(4000):
        choice = inference.sample_choice(Draw("anna", number), "train", SplitVocabulary(), label=0)
        premise, right, wrong = (english(meaning).text() for meaning in (choice.premise, *choice.choices))
        assert ((premise, right) if choice.question == "effect" else (right, premise)) in fitting
        assert ((premise, wrong) if choice.question == "effect" else (wrong, premise)) not in fitting
        assert len({premise, right, wrong}) == 3
        questions[choice.question] += 1
    assert min(questions.values()) > 1500


def said(event: str) -> str:
    return english(inference._told(event, ANNA)).text()


def test_what_might_be_as_well_is_told_of_events_that_are_asked_for():
    causes, effects = ({getattr(link, role) for link in inference.links()} for role in ("cause", "effect"))
    for might_lead, might_follow in lexicon.plausible():
        assert set(might_lead) <= causes
        assert set(might_follow) <= effects


@pytest.mark.parametrize("question", ["cause", "effect"])
def test_every_answer_is_as_often_wrong_as_it_is_right(question):
    rivals = [pair for pair in inference._rivals(inference.links()) if pair[0].theme != "crime"]
    right, wrong = (Counter(pair[side].event(question) for pair in rivals) for side in (0, 1))
    assert right == wrong
    # and no link is left without questions
    assert {pair[0] for pair in inference._rivals(inference.links())} == set(inference.links())
