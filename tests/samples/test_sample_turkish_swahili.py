"""Harmony, suffixes and concord hold in every Turkish and Swahili sentence."""

import re
from collections import Counter
from itertools import pairwise

import pytest
from samples_reading import Token, Tree, trees

from residuum.samples import lexicon, sample_text, turkish_forms
from residuum.samples.lexicon import SplitVocabulary

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
    endings = {"1Sing": ("m",), "1Plur": ("k", "z"), "3Plur": ("lar", "ler", "lardı")}
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


def test_turkish_somebody_and_animals_among_people_are_accusative_even_if_indefinite():
    animals = {turkish_forms.noun_form(key, "sg", "Nom") for key in SplitVocabulary().nouns(("animal",))}
    for_people = [verb.key for verb in lexicon.verbs().values() if "person" in verb.object]
    stems = {turkish_forms.verb_stem(key).stem for key in for_people}
    seen = Counter()
    for tree, token in words("tr", "NOUN"):
        article = tree.child(token, "det")
        if token.deprel == "obj" and article and article.lemma == "bir":
            kind = "person" if token.lemma in people() else "animal" if token.lemma in animals else "thing"
            if kind == "person" or (kind == "animal" and tree.parent(token).lemma in stems):
                assert token.feats["Case"] == "Acc", tree.text
                seen[kind] += 1
            assert token.form != "saat", tree.text
    assert set(seen) == {"person", "animal"}


def test_turkish_time_never_stands_before_a_subject_with_a_relative_clause():
    """Dün okuyan kız geldi is about the girl who read yesterday."""
    checked = 0
    for tree in trees("tr"):
        for subject in (token for token in tree.tokens if token.relation == "nsubj" and tree.child(token, "acl")):
            start = min(below(tree, subject))
            before = [token for token in tree.children(tree.parent(subject)) if token.id < start]
            assert {token.relation for token in before} <= {"cc", "punct", "nsubj"}, tree.text
            checked += 1
    assert checked > 80


def below(tree: Tree, token: Token) -> set[int]:
    """The ids of a token and of all that is under it."""
    found, more = {token.id}, True
    while more:
        more = {other.id for other in tree.tokens if other.head in found} - found
        found |= more
    return found


def test_turkish_has_a_comma_where_a_subject_would_run_on_into_a_name_or_a_title():
    """Doktor, Robert'i gördü; çocuk, doktoru çağırdı."""
    names = {name.tr.split()[0] for name in lexicon.names().values() if name.type in ("PER", "ORG")}
    commas = 0
    for tree in trees("tr"):
        for subject in (token for token in tree.tokens if token.relation == "nsubj"):
            end = max(below(tree, subject))
            last, following = tree.tokens[end - 1 : end + 1]
            commas += last.form == ","
            if last.feats.get("Case") == "Nom" and last.feats["Number"] == "Sing":
                assert following.lemma not in names, tree.text
                assert last.upos == "PROPN" or following.lemma not in people(), tree.text
    assert commas > 40


def people() -> set[str]:
    return {turkish_forms.noun_form(noun.key, "sg", "Nom") for noun in lexicon.nouns().values() if noun.is_human}


def test_turkish_early_stands_between_the_goal_and_the_verb():
    checked = 0
    for tree, token in words("tr", "ADV"):
        if token.form == "erken":
            assert tree.tokens[token.id].id == token.head, tree.text
            checked += 1
    assert checked > 3


def test_turkish_light_verbs_are_made_with_et_only():
    for tree, token in words("tr", "NOUN"):
        if token.deprel == "compound:lvc":
            assert tree.parent(token).lemma == "et", tree.text


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


def test_swahili_names_as_objects_always_show_in_the_verb():
    classes = Counter()
    for tree, token in words("sw", "PROPN"):
        if token.deprel == "obj":
            assert "NounClass[obj]" in tree.parent(token).feats, tree.text
            classes[swahili_class(token.feats)] += 1
    assert set(classes) == {"1", "9"}


def test_swahili_says_huko_before_a_city_where_something_happens_but_not_before_a_goal():
    cities = [name.key for name in lexicon.names().values() if name.type == "LOC"]
    found = 0
    for tree in trees("sw"):
        scenes = re.findall(rf"place=\[bare (?:{'|'.join(cities)}) sg\]", tree.meaning)
        assert tree.text.lower().split().count("huko") == len(scenes), tree.text
        found += len(scenes)
    assert found > 2


def test_swahili_all_stands_before_what_a_noun_has_or_is_of():
    """Makatibu wote wenye adabu."""
    checked = 0
    for tree, token in words("sw", "DET"):
        if token.lemma == "ote":
            before = tree.tokens[token.id - 2]
            assert before.id == token.head or before.relation == "amod", tree.text
            checked += 1
    assert checked > 20


@pytest.mark.parametrize("task", ["text", "nli"])
def test_swahili_never_says_together_twice(task):
    text = sample_text(task, language="sw", size=1500)
    assert "pamoja na" in text
    assert "pamoja pamoja" not in text


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


def test_only_features_and_relations_that_universal_dependencies_documents_are_used():
    """Level 5 of the UD validator for Turkish, and its relations (level 4) for Swahili, which documents no features."""
    assert {token.feats.get("PronType") for _, token in words("tr", "DET")} <= {"Art", "Dem", "Ind", None}
    relations = {token.deprel for tree in trees("sw") for token in tree.tokens}
    assert not [relation for relation in relations if ":" in relation]
