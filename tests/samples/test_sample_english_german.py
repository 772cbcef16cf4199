"""Agreement, case and word order hold in every English and German sentence."""

from itertools import pairwise

import pytest
from samples_reading import Token, Tree, trees

from residuum.samples import lexicon

MALE, FEMALE, NEUTER = "Masc", "Fem", "Neut"
DAT_PREPOSITIONS = {"mit", "bei", "zu", "nach"}
EITHER_PREPOSITIONS = {"in", "an", "auf"}
DEFINITE_ENDINGS = {  # by case, then masculine, feminine, neuter, plural
    "Nom": ("er", "e", "es", "e"),
    "Acc": ("en", "e", "es", "e"),
    "Dat": ("em", "er", "em", "en"),
    "Gen": ("en", "er", "en", "er"),
}


def subject_agreement(tree: Tree, subject: Token) -> tuple[str, str]:
    person = subject.feats.get("Person", "3")
    number = "Plur" if tree.child(subject, "conj") else subject.feats["Number"]
    return person, number


def finite_verb(tree: Tree, head: Token) -> Token | None:
    candidates = [head, *tree.children(head, "aux"), *tree.children(head, "cop")]
    return next((token for token in candidates if token.feats.get("VerbForm") == "Fin"), None)


@pytest.mark.parametrize("language", ["en", "de"])
def test_the_finite_verb_agrees_with_its_subject(language):
    checked = 0
    for tree in trees(language):
        for subject in (token for token in tree.tokens if token.relation == "nsubj"):
            verb = finite_verb(tree, tree.parent(subject))
            if "PronType" in subject.feats and subject.feats["PronType"] == "Rel" and language == "en":
                subject = tree.parent(tree.parent(subject))
            if verb and "Person" in verb.feats:
                assert (verb.feats["Person"], verb.feats["Number"]) == subject_agreement(tree, subject), tree.text
                checked += 1
    assert checked > 1500


def test_english_of_be_and_do_fit_person_and_number():
    singular, plural = {"is", "was", "does"}, {"are", "were", "do"}
    for tree in trees("en"):
        for token in tree.tokens:
            if token.lemma in ("be", "do") and token.feats.get("Person") == "3":
                form = token.form.lower()
                assert form not in (plural if token.feats["Number"] == "Sing" else singular), tree.text


def test_english_articles_and_numbers_fit_their_noun():
    for tree in trees("en"):
        for token in tree.tokens:
            noun = tree.parent(token)
            if token.lemma == "a" and token.upos == "DET":
                assert noun.feats["Number"] == "Sing"
                following = tree.tokens[token.id].form
                assert (token.form.lower() == "an") == (following[0] in "aeiou" or following == "honest")
            if token.relation == "nummod" or token.form.lower() in ("many", "these"):
                assert noun.feats["Number"] == "Plur", tree.text


def test_english_negates_full_verbs_with_an_auxiliary():
    for tree in trees("en"):
        for token in tree.tokens:
            if token.form == "not" and tree.parent(token).upos == "VERB":
                assert tree.children(tree.parent(token), "aux"), tree.text


def test_english_company_names_are_compounds_with_the_last_word_as_head():
    companies = {tuple(name.en.split()) for name in lexicon.names().values() if name.type == "ORG" and " " in name.en}
    found = set()
    for tree in trees("en"):
        for token, following in pairwise(tree.tokens):
            if (token.form, following.form) in companies:
                assert (token.deprel, token.head) == ("compound", following.id), tree.text
                found.add((token.form, following.form))
    assert len(found) > 1


def test_german_determiners_and_adjectives_agree_with_their_noun():
    checked = 0
    for tree in trees("de"):
        for token in tree.tokens:
            if token.relation not in ("det", "amod"):
                continue
            noun = tree.parent(token)
            for feature in ("Case", "Number", "Gender"):
                if feature in token.feats:
                    assert token.feats[feature] == noun.feats[feature], tree.text
            assert "Gender" in token.feats or token.feats["Number"] == "Plur"
            checked += 1
    assert checked > 2500


def test_german_adjectives_have_the_ending_that_the_determiner_leaves_to_them():
    for tree in trees("de"):
        for token in tree.tokens:
            if token.relation == "amod" and token.lemma not in ("letzt", "nächst"):
                noun = tree.parent(token)
                assert token.form.endswith(expected_ending(tree, noun)), (tree.text, token.form)
                stem = token.form.removesuffix(expected_ending(tree, noun))
                assert stem in (token.lemma, token.lemma[:-1], token.lemma[:-2] + token.lemma[-1]), token.form


def expected_ending(tree: Tree, noun: Token) -> str:
    """The textbook rules, written apart from the package's tables."""
    case, number, gender = (noun.feats[key] for key in ("Case", "Number", "Gender"))
    determiner = tree.child(noun, "det")
    lemma = determiner.lemma if determiner else None
    column = 3 if number == "Plur" else (MALE, FEMALE, NEUTER).index(gender)
    if lemma in ("der", "dieser", "jeder", "alle"):
        bare = number == "Sing" and (case == "Nom" or (case == "Acc" and gender != MALE))
        return "e" if bare else "en"
    if lemma in ("ein", "kein"):
        if case in ("Dat", "Gen") or (case == "Acc" and gender == MALE):
            return "en"
        return DEFINITE_ENDINGS[case][column]
    return DEFINITE_ENDINGS[case][column]


def test_german_cases_follow_from_the_role():
    cases = {"nsubj": "Nom", "obj": "Acc", "obl:arg": "Dat", "nmod": "Gen"}
    for tree in trees("de"):
        for token in tree.tokens:
            if token.deprel in cases and "Case" in token.feats:
                assert token.feats["Case"] == cases[token.deprel], tree.text


def test_german_prepositions_govern_their_case():
    for tree in trees("de"):
        for token in tree.tokens:
            if token.relation != "case":
                continue
            case = tree.parent(token).feats["Case"]
            if token.lemma in DAT_PREPOSITIONS:
                assert case == "Dat", tree.text
            elif token.lemma == "für":
                assert case == "Acc", tree.text
            else:
                assert token.lemma in EITHER_PREPOSITIONS
                assert case in ("Dat", "Acc")


def test_german_prepositions_of_place_have_the_accusative_for_a_goal_only():
    goals = {"gehen", "kommen", "zurückkehren", "laufen", "reisen", "umziehen"}
    times = {"Morgen", "Abend", "Nacht", "Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "Samstag"}
    seen = set()
    for tree in trees("de"):
        for token in tree.tokens:
            noun = tree.parent(token)
            if token.relation != "case" or token.lemma not in EITHER_PREPOSITIONS or noun.lemma in times:
                continue
            verb = tree.parent(noun)
            if noun.relation != "obl" or verb.lemma == "warten":
                continue
            is_goal = verb.lemma in goals
            assert noun.feats["Case"] == ("Acc" if is_goal else "Dat"), tree.text
            seen.add(is_goal)
    assert seen == {True, False}


def test_german_main_clauses_have_the_finite_verb_second():
    for tree in trees("de"):
        root = next(token for token in tree.tokens if token.head == 0)
        verb = finite_verb(tree, root)
        first_field = {top_below(tree, token, root) for token in tree.tokens[: verb.id - 1]}
        assert len(first_field) == 1, tree.text


def test_german_names_of_different_people_never_stand_side_by_side():
    """Gestern traf Anna Berger: nobody knows who met whom."""
    subjects_after_the_verb = 0
    for tree in trees("de"):
        for token, following in pairwise(tree.tokens):
            if token.upos == following.upos == "PROPN":
                assert following.deprel == "flat:name", tree.text
            if following.upos == "PROPN" and token.upos == "NOUN":
                assert token.deprel != "nsubj", tree.text
            subjects_after_the_verb += token.deprel == "nsubj" and token.upos == "PROPN" and token.id > 2
    assert subjects_after_the_verb > 50


def top_below(tree: Tree, token: Token, root: Token) -> int:
    while token.head != root.id:
        token = tree.parent(token)
    return token.id


def test_german_relative_clauses_end_in_their_finite_verb():
    checked = 0
    for tree in trees("de"):
        for token in tree.tokens:
            if token.deprel == "acl:relcl":
                below = [other for other in tree.tokens if other.head == token.id and other.upos != "PUNCT"]
                assert all(other.id < token.id for other in below), tree.text
                checked += 1
    assert checked > 150


def test_german_denies_indefinite_objects_with_kein():
    for tree in trees("de"):
        for token in tree.tokens:
            if token.lemma == "nicht":
                object_ = tree.child(tree.parent(token), "obj")
                article = tree.child(object_, "det") if object_ else None
                assert article is None or article.lemma != "ein", tree.text
