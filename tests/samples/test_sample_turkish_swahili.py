"""Harmony, suffixes and concord hold in every Turkish and Swahili sentence."""

import re
from itertools import pairwise

import pytest
from samples_reading import Token, Tree, trees

VOWELS = "aeıioöuü"
FRONT = set("eiöü")
# of the words in the tables, these take front vowels against the rule
DISHARMONIC = ("saat",)
SUBJECTS = {
    "1": "a",
    "2": "wa",
    "3": "u",
    "4": "i",
    "5": "li",
    "6": "ya",
    "7": "ki",
    "8": "vi",
    "9": "i",
    "10": "zi",
    "11": "u",
    "14": "u",
}
OBJECTS = SUBJECTS | {"1": "m"}
OF = dict(zip("1 2 3 4 5 6 7 8 9 10 11 14".split(), "wa wa wa ya la ya cha vya ya za wa wa".split(), strict=True))
WHO = dict(zip("1 2 3 4 5 6 7 8 9 10 11 14".split(), "ye o o yo lo yo cho vyo yo zo o o".split(), strict=True))


def lowered(word: str) -> str:
    return word.replace("İ", "i").replace("I", "ı").lower()


def suffix_start(form: str, lemma: str) -> int:
    """Where the suffixes begin: after the letters that form and lemma share."""
    shared = 0
    while shared < min(len(form), len(lemma)) and form[shared] == lemma[shared]:
        shared += 1
    return shared


def words(language: str, *upos: str) -> list[tuple[Tree, Token]]:
    return [(tree, token) for tree in trees(language) for token in tree.tokens if token.upos in upos]


def test_turkish_suffixes_harmonise_in_backness():
    checked = 0
    for tree, token in words("tr", "NOUN", "PROPN", "VERB"):
        form, lemma = lowered(token.form).replace("'", ""), lowered(token.lemma)
        if token.lemma in DISHARMONIC or not any(letter in VOWELS for letter in lemma):
            continue
        start = max(suffix_start(form, lemma), 1)
        before = [letter for letter in form[:start] if letter in VOWELS] or [form[start]]
        for letter in form[start:].replace("yor", ""):
            if letter in VOWELS and "yor" not in form:
                assert (letter in FRONT) == (before[-1] in FRONT), (tree.text, token.form)
                before.append(letter)
                checked += 1
    assert checked > 3000


def test_turkish_suffixes_harmonise_in_rounding():
    """A high vowel in a suffix is round after a round vowel, and only then."""
    for tree, token in words("tr", "NOUN", "PROPN", "VERB"):
        form, lemma = lowered(token.form).replace("'", ""), lowered(token.lemma)
        start = suffix_start(form, lemma)
        vowels = [(index, letter) for index, letter in enumerate(form) if letter in VOWELS]
        for (_, previous), (index, letter) in pairwise(vowels):
            in_suffix = index >= start and index >= len(lemma) - 1
            if in_suffix and letter in "ıiuü" and "yor" not in form:
                assert (letter in "uü") == (previous in "oöuü"), (tree.text, token.form)


def test_turkish_suffixes_never_put_two_vowels_side_by_side():
    for tree, token in words("tr", "NOUN", "PROPN", "VERB"):
        form, lemma = lowered(token.form).replace("'", ""), lowered(token.lemma)
        ending = form[max(suffix_start(form, lemma) - 1, 0) :]
        assert not re.search(f"[{VOWELS}]{{2}}", ending[1:]), (tree.text, token.form)


def test_turkish_d_is_voiceless_after_a_voiceless_consonant():
    for tree, token in words("tr", "NOUN", "PROPN", "VERB"):
        assert not re.search("[fstkçşhp]'?d[aeıiuü]", lowered(token.form)), (tree.text, token.form)


def test_turkish_cases_have_their_suffix():
    endings = {"Acc": "ıiuü", "Dat": "ae", "Loc": "ae", "Abl": "n", "Gen": "n", "Ins": "ae"}
    seen = set()
    for tree, token in words("tr", "NOUN", "PROPN"):
        case = token.feats["Case"]
        if case in endings:
            assert token.form[-1] in endings[case], (tree.text, token.form)
            seen.add(case)
    assert seen == set(endings)


def test_turkish_names_have_an_apostrophe_exactly_when_they_have_a_suffix():
    for tree, token in words("tr", "PROPN"):
        assert ("'" in token.form) == (token.feats["Case"] != "Nom"), tree.text
        assert token.form.split("'")[0] == token.lemma


def test_turkish_verbs_show_person_polarity_and_tense():
    endings = {"1Sing": ("m",), "1Plur": ("k", "z"), "3Plur": ("lar", "ler")}
    for tree, token in words("tr", "VERB"):
        agreement = token.feats.get("Person", "") + token.feats.get("Number", "")
        if agreement in endings:
            assert token.form.endswith(endings[agreement]), tree.text
        if token.feats["Polarity"] == "Neg":
            rest = lowered(token.form)[len(token.lemma) :]
            assert re.match("m[aeıiuü]", rest), (tree.text, token.form)
        tense = token.feats["Tense"]
        if tense == "Pres" and "VerbForm" not in token.feats:
            assert "yor" in token.form
        if tense == "Fut":
            assert re.search("[ae]ca[kğ]|[ae]ce[kğ]", token.form), token.form


def test_turkish_clauses_end_in_their_predicate():
    for tree in trees("tr"):
        root = next(token for token in tree.tokens if token.head == 0)
        last = max([root, *tree.children(root, "conj")], key=lambda token: token.id)
        cop = tree.child(last, "cop")
        assert (cop or last).id == len(tree.tokens) - 1, tree.text


def test_turkish_relative_clauses_are_participles_before_their_noun():
    checked = 0
    for tree, token in words("tr", "VERB"):
        if token.relation == "acl":
            assert token.feats["VerbForm"] == "Part"
            assert token.id < token.head
            subject = tree.child(token, "nsubj")
            assert subject is None or "Gen" in {subject.feats["Case"], *flat_cases(tree, subject)}
            checked += 1
    assert checked > 150


def flat_cases(tree: Tree, name: Token) -> set[str]:
    return {child.feats["Case"] for child in tree.children(name, "flat")}


def test_turkish_definite_objects_are_accusative():
    for tree, token in words("tr", "NOUN"):
        if token.deprel == "obj" and token.feats["Case"] == "Nom":
            determiner = tree.child(token, "det")
            assert determiner is None or determiner.lemma in ("bir", "birçok"), tree.text
            assert "Number[psor]" not in token.feats
            assert token.feats["Number"] == "Sing"


def swahili_class(features: dict[str, str], layer: str = "") -> str:
    return features.get(f"NounClass{layer}", "").removeprefix("Bantu")


@pytest.mark.parametrize("relation", ["det", "amod", "nummod"])
def test_swahili_modifiers_agree_with_their_noun(relation):
    checked = 0
    for tree, token in words("sw", "DET", "ADJ", "NUM"):
        noun = tree.parent(token)
        if token.relation == relation and "NounClass" in token.feats:
            assert token.feats["NounClass"] == noun.feats["NounClass"], tree.text
            assert token.feats["Number"] == noun.feats["Number"]
            checked += 1
    assert checked > 50


def test_swahili_of_agrees_with_what_is_had():
    checked = 0
    for tree, token in words("sw", "ADP"):
        if token.lemma == "a" and token.relation == "case":
            thing = tree.parent(tree.parent(token)) if tree.parent(token).relation == "nmod" else None
            if thing is not None:
                assert token.feats["NounClass"] == thing.feats["NounClass"], tree.text
                assert token.form == OF[swahili_class(thing.feats)]
                checked += 1
    assert checked > 100


def test_swahili_verbs_agree_with_their_subject_in_class_and_prefix():
    checked = 0
    for tree, token in words("sw", "VERB", "AUX"):
        head = token if token.upos == "VERB" else tree.parent(token)
        subject = tree.child(head, "nsubj")
        if subject is None or token.feats.get("VerbForm") != "Fin":
            continue
        expected = "2" if tree.child(subject, "conj") else swahili_class(subject.feats)
        assert swahili_class(token.feats) == expected, tree.text
        prefix = SUBJECTS[expected]
        if token.feats["Polarity"] == "Neg":
            prefix = "ha" if expected == "1" else "ha" + prefix
        elif token.lemma == "ko" and expected == "1":
            prefix = "yu"
        assert token.form.lower().startswith(prefix), (tree.text, token.form)
        checked += 1
    assert checked > 1200


def test_swahili_objects_show_in_the_verb_in_their_class():
    checked = 0
    for tree, token in words("sw", "VERB"):
        layer = swahili_class(token.feats, "[obj]")
        shown = tree.child(token, "iobj") or tree.child(token, "obj")
        if not layer or shown is None:
            continue
        expected = "2" if tree.child(shown, "conj") else swahili_class(shown.feats)
        assert layer == expected, tree.text
        assert re.search(f"{OBJECTS[layer]}[uw]?{token.lemma[:-1]}", token.form), (tree.text, token.form)
        checked += 1
    assert checked > 250


def test_swahili_definite_people_as_objects_always_show_in_the_verb():
    for tree, token in words("sw", "PROPN"):
        verb = tree.parent(token)
        if token.deprel == "obj" and swahili_class(token.feats) == "1":
            assert "NounClass[obj]" in verb.feats, tree.text


def test_swahili_tenses_and_negations_have_their_markers():
    markers = {
        ("Past", "Pos"): "li",
        ("Pres", "Pos"): "na",
        ("Fut", "Pos"): "ta",
        ("Past", "Neg"): "ku",
        ("Fut", "Neg"): "ta",
    }
    for tree, token in words("sw", "VERB"):
        tense, polarity = token.feats.get("Tense"), token.feats.get("Polarity")
        if (tense, polarity) in markers and "PronType" not in token.feats:
            assert markers[tense, polarity] in token.form, tree.text
        if tense == "Pres" and polarity == "Neg" and token.lemma not in ("na",) and token.lemma.endswith("a"):
            assert token.form.endswith("i"), tree.text
        if polarity == "Neg":
            assert token.form.lower().startswith(("ha", "si", "hu")), tree.text


def test_swahili_relative_pronouns_agree_with_what_they_are_about():
    checked = 0
    for tree, token in words("sw", "PRON"):
        if token.lemma == "amba":
            noun = tree.parent(tree.parent(token))
            assert token.feats["NounClass"] == noun.feats["NounClass"], tree.text
            assert token.form == "amba" + WHO[swahili_class(noun.feats)]
            checked += 1
    assert checked > 150


def test_swahili_uses_all_the_noun_classes():
    found = {swahili_class(token.feats) for _, token in words("sw", "NOUN")}
    assert found >= {"1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "14"}
