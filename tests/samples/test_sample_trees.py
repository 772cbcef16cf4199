"""Every sentence is a tree that the rules of Universal Dependencies allow."""

import re

import conllu
import pytest
from samples_reading import DEPRELS, LANGUAGES, UPOS, trees

from residuum.samples import sample_text

LEAVES = {"aux", "case", "cc", "cop", "det", "punct", "nummod"}
# Level 3 of the validator of Universal Dependencies: which parts of speech a relation asks for or refuses (a word with
# `fixed` below it is exempt), and what may stand below function words.
ASKED = {
    "aux": {"AUX"},
    "cop": {"AUX", "DET", "PRON", "SYM"},
    "det": {"DET", "PRON"},
    "nummod": {"NOUN", "NUM", "SYM"},
    "advmod": {"ADJ", "ADV", "CCONJ", "DET", "PART", "SYM"},
    "amod": {"ADJ", "DET", "NUM", "VERB"},
    "punct": {"PUNCT"},
}
_CONTENT = {"ADJ", "AUX", "DET", "INTJ", "NOUN", "NUM", "PRON", "PROPN", "VERB"}
REFUSED = {"case": {"ADJ", "AUX", "DET", "NUM", "PRON", "PROPN"}, "mark": _CONTENT, "cc": _CONTENT}
_JOINED = {"cc", "conj", "fixed", "goeswith", "punct", "reparandum"}
BELOW = {
    "mark": _JOINED | {"advmod", "obl"},
    "case": _JOINED | {"advmod", "obl"},
    "aux": _JOINED,
    "cop": _JOINED,
    "cc": _JOINED - {"cc"},
    "fixed": _JOINED - {"cc", "fixed"},
    "punct": set(),
}


@pytest.mark.parametrize("language", LANGUAGES)
class TestEverySentence:
    def test_has_one_root_and_no_cycle(self, language):
        for tree in trees(language):
            assert [token.deprel for token in tree.tokens if token.head == 0] == ["root"]
            for token in tree.tokens:
                seen = set()
                while token.head:
                    assert token.id not in seen
                    seen.add(token.id)
                    token = tree.tokens[token.head - 1]

    def test_has_known_tags_and_relations_only(self, language):
        for tree in trees(language):
            assert {token.upos for token in tree.tokens} <= UPOS
            assert {token.relation for token in tree.tokens} <= DEPRELS

    def test_has_sorted_features_of_the_right_form(self, language):
        pair = re.compile(r"[A-Z][A-Za-z]*(\[[a-z]+\])?=[A-Z0-9][A-Za-z0-9]*")
        for feats in {feats for tree in trees(language) for feats in tree.raw_feats} - {"_"}:
            pairs = feats.split("|")
            assert all(map(pair.fullmatch, pairs)), feats
            keys = [item.split("=")[0].lower() for item in pairs]
            assert keys == sorted(set(keys)), feats

    def test_has_leaves_where_function_words_are(self, language):
        for tree in trees(language):
            for token in tree.tokens:
                below = {child.relation for child in tree.children(token)}
                if token.relation in LEAVES:
                    assert below <= {"fixed"}, (tree.text, token.form)

    def test_has_the_parts_of_speech_that_its_relations_ask_for(self, language):
        for tree in trees(language):
            for token in tree.tokens:
                if tree.children(token, "fixed"):
                    continue
                told = (tree.text, token.form, token.upos, token.deprel)
                assert token.upos in ASKED.get(token.relation, UPOS), told
                assert token.upos not in REFUSED.get(token.relation, ()), told
                assert (token.upos == "PUNCT") == (token.relation == "punct"), told

    def test_has_below_function_words_only_what_may_stand_there(self, language):
        for tree in trees(language):
            for token in tree.tokens:
                below = {child.relation for child in tree.children(token)}
                assert below <= BELOW.get(token.relation, DEPRELS), (tree.text, token.form, below)

    def test_has_at_most_one_subject_and_one_object_per_head(self, language):
        for tree in trees(language):
            for token in tree.tokens:
                assert len(tree.children(token, "nsubj")) <= 1, tree.text
                assert len(tree.children(token, "obj")) <= 1, tree.text

    def test_has_coordination_names_and_fixed_phrases_from_left_to_right(self, language):
        for tree in trees(language):
            for token in tree.tokens:
                if token.relation in ("conj", "flat", "fixed", "appos"):
                    assert token.head < token.id, tree.text

    def test_is_projective(self, language):
        for tree in trees(language):
            arcs = [tuple(sorted((token.id, token.head))) for token in tree.tokens if token.head]
            for a, b in arcs:
                assert not any(a < c < b < d for c, d in arcs), tree.text

    def test_ends_in_its_only_full_stop_and_begins_with_a_big_letter(self, language):
        for tree in trees(language):
            assert tree.text.endswith(".")
            assert tree.text.count(".") == 1
            assert tree.text[0].isupper()
            assert "  " not in tree.text
            assert " ," not in tree.text

    def test_has_a_verb_or_a_copular_predicate_as_root(self, language):
        for tree in trees(language):
            root = next(token for token in tree.tokens if token.head == 0)
            assert root.upos in ("VERB", "ADJ", "NOUN", "PROPN")
            if root.upos != "VERB" and language != "tr":
                assert tree.child(root, "cop"), tree.text


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_conllu_package_reads_the_same_words(language):
    text = sample_text("treebank", language=language, size=200, seed=2)
    parsed = conllu.parse(text)
    assert len(parsed) == 200
    for sentence in parsed:
        surface, skip = "", 0
        for token in sentence:
            if isinstance(token["id"], tuple):
                skip = token["id"][2]
            elif token["id"] <= skip:
                continue
            glued = token["misc"] and token["misc"].get("SpaceAfter") == "No"
            surface += token["form"] + ("" if glued else " ")
        assert surface == sentence.metadata["text"] + " "


def test_german_contracts_prepositions_and_articles_as_multiword_tokens():
    text = sample_text("treebank", language="de", size=1500, seed=2)
    forms = set(re.findall(r"^\d+-\d+\t(\w+)\t", text, flags=re.M))
    assert {form.lower() for form in forms} == {"im", "ins", "am", "zum", "zur"}


def test_turkish_copulas_are_multiword_tokens_that_their_parts_spell():
    text = sample_text("treebank", language="tr", size=1500, seed=2)
    ranges = re.findall(r"^\d+-\d+\t(\S+)\t.*\n\d+\t(\S+)\t.*\n\d+\t(\S+)\t(\S+)\tAUX", text, flags=re.M)
    assert len(ranges) > 50
    for token, stem, ending, lemma in ranges:
        assert stem + ending == token
        assert lemma == "i"
