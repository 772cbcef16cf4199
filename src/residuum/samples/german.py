"""Meanings in German: verb second, other verb parts at the end; and German forms.

Cells: a noun is its form, gender, plural and genitive (`Buch n Bücher Buches`; `m!` is weak, plural `-` is none); a
verb is its infinitive with `~` after a separable prefix, the third person of present and past, then the case it governs
unless accusative (`@dat`, or a preposition: `@auf`); an adjective is its form and the stem that endings go to, if
another. Names with gender f that are places take the article (die Türkei).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from residuum.samples import lexicon, trees
from residuum.samples.meanings import BE, BE_AT, NUMERALS, Clause, Entity, Meaning
from residuum.samples.trees import Phrase, SentenceTree, TreeWord, coordinated, finished, joined, punctuation

_LINKS = {"and": "und", "but": "aber"}
_NUMERALS = {"two": "zwei", "three": "drei", "four": "vier", "five": "fünf"}
_PRONOUNS = {
    "i": ({"Nom": "ich", "Acc": "mich", "Dat": "mir"}, "Number=Sing|Person=1"),
    "we": ({"Nom": "wir", "Acc": "uns", "Dat": "uns"}, "Number=Plur|Person=1"),
    "they": ({"Nom": "sie", "Acc": "sie", "Dat": "ihnen"}, "Number=Plur|Person=3"),
}
_INDEFINITE = (*NUMERALS, "many", "a", "bare")
_AGREEMENT = {"i": "1Sing", "we": "1Plur", "they": "3Plur"}
_SEIN = {
    "past": {"1Sing": "war", "3Sing": "war", "Plur": "waren"},
    "present": {"1Sing": "bin", "3Sing": "ist", "Plur": "sind"},
}
_WERDEN = {"1Sing": "werde", "3Sing": "wird", "Plur": "werden"}


def german(meaning: Meaning) -> SentenceTree:
    """A meaning as a German sentence."""
    first, *others = meaning.clauses
    main = _main_clause(first, first.subject)
    words = main.words
    for clause in others:
        shared = meaning.shared_subject
        second = _follower(clause, first.subject) if shared else _main_clause(clause, clause.subject)
        second.under(main.head, "conj")
        comma = punctuation(",", second.head) if meaning.link == "but" else None
        link = TreeWord(_LINKS[meaning.link], _LINKS[meaning.link], "CCONJ").under(second.head, "cc")
        words = joined(words, comma, link, second)
    words.append(punctuation(".", main.head))
    # A comma that closes a relative clause is not written before another mark.
    pairs = zip(words, [*words[1:], None], strict=True)
    words = [word for word, after in pairs if not (word.form == "," and after and after.upos == "PUNCT")]
    return finished(words, (words[0].fused or words[0].form)[0].upper())


def _main_clause(clause: Clause, subject: tuple[Entity, ...]) -> Phrase:
    """The time or the subject, the finite verb, the middle field, the rest of the verb.

    The subject is first if a name would follow it after the verb: gestern traf (der Arzt) Anna Berger.
    """
    finite, rest, head = _verb_parts(clause, _agreement(subject))
    subject_phrase = _group(subject, "Nom").under(head, "nsubj")
    time = trees.time(clause.time, "de", head)
    if clause.time_first and time:
        middle = joined(*_middle_field(clause, head, None))
        runs_on = subject_phrase.words[-1].upos in ("NOUN", "PROPN") and middle and middle[0].upos == "PROPN"
        if not runs_on:
            return Phrase(joined(time, finite, subject_phrase, middle, rest), head)
    return Phrase(joined(subject_phrase, finite, *_middle_field(clause, head, time), rest), head)


def _follower(clause: Clause, subject: tuple[Entity, ...]) -> Phrase:
    """A second predicate of the same subject, under the same auxiliary if there is one."""
    finite, rest, head = _verb_parts(clause, _agreement(subject))
    middle = joined(*_middle_field(clause, head, trees.time(clause.time, "de", head)))
    return Phrase(joined(None if clause.tense == "future" else finite, middle, rest), head)


def _verb_parts(
    clause: Clause, agreement: str, verb_last: bool = False
) -> tuple[list[TreeWord], list[TreeWord], TreeWord]:
    """The finite verb, what ends the clause, and the head of the clause, which is in one of them."""
    if clause.predicate in (BE, BE_AT):
        return _copula_parts(clause, agreement)
    forms = verb_forms(clause.predicate)
    if clause.tense == "future":
        head = TreeWord(forms.lemma, forms.lemma, "VERB", "VerbForm=Inf")
        return [_finite(_WERDEN, agreement, "werden", "Pres").under(head, "aux")], [head], head
    tense, table = ("Past", forms.past) if clause.tense == "past" else ("Pres", forms.present)
    head = _finite(table, agreement, forms.lemma, tense, upos="VERB")
    if forms.prefix and verb_last:
        head.form = forms.prefix + head.form
    elif forms.prefix:
        return [head], [TreeWord(forms.prefix, forms.prefix, "ADP").under(head, "compound:prt")], head
    return [head], [], head


def _copula_parts(clause: Clause, agreement: str) -> tuple[list[TreeWord], list[TreeWord], TreeWord]:
    """Sein; the adjective or the place, which is the head, ends the clause."""
    if clause.predicate == BE:
        form = lexicon.adjectives()[clause.quality].de.split()[0]
        head = TreeWord(form, form, "ADJ", "Degree=Pos")
        very = TreeWord("sehr", "sehr", "ADV").under(head, "advmod") if clause.very else None
        complement = joined(very, head)
    else:
        assert clause.ground is not None
        phrase = _placed(clause.ground, "rest")
        complement, head = phrase.words, phrase.head
    if clause.negated:
        complement = [_nicht(head), *complement]
    if clause.tense == "future":
        finite = _finite(_WERDEN, agreement, "werden", "Pres").under(head, "aux")
        return [finite], [*complement, TreeWord("sein", "sein", "AUX", "VerbForm=Inf").under(head, "cop")], head
    tense = "Past" if clause.tense == "past" else "Pres"
    return [_finite(_SEIN[clause.tense], agreement, "sein", tense).under(head, "cop")], complement, head


def _finite(table: dict[str, str], agreement: str, lemma: str, tense: str, upos: str = "AUX") -> TreeWord:
    person, number = agreement[0], agreement[1:]
    form = table[agreement if number == "Sing" else "Plur"]
    feats = f"Mood=Ind|Number={number}|Person={person}|Tense={tense}|VerbForm=Fin"
    return TreeWord(form, lemma, upos, feats)


def _middle_field(clause: Clause, head: TreeWord, time: Phrase | None) -> list[Phrase | TreeWord | None]:
    """Pronouns first, then time, recipient and object; what nicht stands before: manner, means, place.

    Manner is said before an indefinite object: sie kochte schnell eine Suppe.
    """
    if clause.predicate in (BE, BE_AT):
        return [time]
    object_, governed = _object(clause, head)
    is_pronoun = bool(clause.object) and clause.object[0].kind == "pronoun"
    recipient = clause.recipient and _entity(clause.recipient, "Dat").under(head, "obl:arg")
    negation = _nicht(head) if clause.negated and not _says_kein(clause) else None
    manner = trees.adverb(clause.manner, "de", head)
    indefinite = any(own.kind == "noun" and own.determiner in _INDEFINITE for own in clause.object[:1])
    means = clause.means and _prepositional("mit", _entity(Entity(clause.means), "Dat")).under(head, "obl")
    return [
        object_ if is_pronoun else None,
        time,
        trees.adverb(clause.frequency, "de", head),
        recipient,
        manner if indefinite else None,
        None if is_pronoun else object_,
        negation,
        None if indefinite else manner,
        _with(clause.companion, "mit", "Dat", head),
        means or None,
        _with(clause.beneficiary, "für", "Acc", head),
        clause.place and _placed(clause.place, "rest").under(head, "obl"),
        governed,
    ]


def _object(clause: Clause, head: TreeWord) -> tuple[Phrase | None, Phrase | None]:
    """What stands as an object before nicht, and what is governed by a preposition and stands after it."""
    none = _says_kein(clause)
    verb = lexicon.verbs()[clause.predicate]
    if clause.ground and verb.frame == "e":
        return _entity(clause.ground, "Acc", none).under(head, "obj"), None
    if clause.ground:
        return None, _placed(clause.ground, "goal" if verb.frame == "m" else "rest").under(head, "obl")
    if not clause.object:
        return None, None
    governs = verb_forms(clause.predicate).governs
    if governs not in ("acc", "dat"):
        return None, _prepositional(governs, _group(clause.object, "Acc")).under(head, "obl")
    case = "Acc" if governs == "acc" else "Dat"
    return _group(clause.object, case, none).under(head, _object_relation(clause.predicate)), None


def _object_relation(predicate: str) -> str:
    return "obl:arg" if verb_forms(predicate).governs == "dat" else "obj"


def _says_kein(clause: Clause) -> bool:
    """Whether the negation is said by kein, which an indefinite object takes."""
    if not clause.negated or clause.predicate in (BE, BE_AT):
        return False
    if lexicon.verbs()[clause.predicate].frame == "e":
        return clause.ground is not None and clause.ground.determiner == "a"
    if not clause.object or verb_forms(clause.predicate).governs not in ("acc", "dat"):
        return False
    entity = clause.object[0]
    return entity.kind == "noun" and entity.determiner in ("a", "bare")


def _nicht(head: TreeWord) -> TreeWord:
    return TreeWord("nicht", "nicht", "PART", "Polarity=Neg").under(head, "advmod")


def _with(entity: Entity | None, preposition: str, case: str, head: TreeWord) -> Phrase | None:
    return entity and _prepositional(preposition, _entity(entity, case)).under(head, "obl")


def _agreement(subject: tuple[Entity, ...]) -> str:
    """Person and number of a subject: 1Sing, 3Plur, ..."""
    first = subject[0]
    if first.kind == "pronoun":
        return _AGREEMENT[first.lexeme]
    return "3Plur" if len(subject) > 1 or first.number == "pl" else "3Sing"


def _group(members: tuple[Entity, ...], case: str, negative: bool = False) -> Phrase:
    return coordinated((_entity(member, case, negative) for member in members), "und")


def _entity(entity: Entity, case: str, negative: bool = False) -> Phrase:
    """A participant in a case; a `negative` indefinite has kein."""
    if entity.kind == "pronoun":
        forms, feats = _PRONOUNS[entity.lexeme]
        word = TreeWord(forms[case], forms["Nom"], "PRON", f"Case={case}|{feats}|PronType=Prs")
        return Phrase([word], word)
    return _name(entity, case) if entity.kind == "name" else _noun_phrase(entity, case, negative)


def _name(entity: Entity, case: str) -> Phrase:
    name = lexicon.names()[entity.lexeme]
    forms = name.de.split() + ([lexicon.names()[entity.surname].de] if entity.surname else [])
    feats = f"Case={case}|Gender={GENDERS[name.gender]}|Number=Sing"
    words = [TreeWord(form, form, "PROPN", feats, entity=f"I-{name.type}") for form in forms]
    head = words[0]
    head.entity = f"B-{name.type}"
    if case == "Gen":
        words[-1].form += "s"
    for word in words[1:]:
        word.under(head, "flat:name")
    if name.type == "LOC" and name.gender == "f":
        words.insert(0, _article(DEFINITE[case, "f"], head, case, "f", "Def"))
    return Phrase(words, head)


def _noun_phrase(entity: Entity, case: str, negative: bool) -> Phrase:
    """Determiner, adjectives with the endings that it leaves to them, noun, owner, relative clause."""
    noun = noun_forms(entity.lexeme)
    column = noun.gender if entity.number == "sg" else "pl"
    number = "Sing" if entity.number == "sg" else "Plur"
    feats = f"Case={case}|Gender={GENDERS[noun.gender]}|Number={number}"
    head = TreeWord(noun.forms[case, entity.number], noun.lemma, "NOUN", feats)
    by_name = entity.possessor if entity.possessor and entity.possessor.kind == "name" else None
    if by_name:
        determiners, endings = _name(by_name, "Gen").under(head, "nmod").words, STRONG
    else:
        determiners, endings = _determiners(entity, head, case, column, negative)
    adjectives = [_adjective(key, endings[case, column], head, feats) for key in entity.adjectives]
    owner = _entity(entity.possessor, "Gen").under(head, "nmod") if entity.possessor and not by_name else None
    relative = _relative(entity, head, column) if entity.relative else None
    return Phrase(joined(determiners, adjectives, head, owner, relative), head)


def _adjective(key: str, ending: str, head: TreeWord, feats: str) -> TreeWord:
    lemma = lexicon.adjectives()[key].de.split()[0]
    feats = feats.replace("|Gender", "|Degree=Pos|Gender", 1)
    return TreeWord(adjective_form(key, ending), lemma, "ADJ", feats).under(head, "amod")


def _determiners(
    entity: Entity, head: TreeWord, case: str, column: str, negative: bool
) -> tuple[list[TreeWord], dict[tuple[str, str], str]]:
    """The words before the adjectives, and the endings that adjectives take after them."""
    determiner = entity.determiner
    if negative:
        form = "kein" + MIXED_DETERMINER[case, column].strip("-")
        return [_quantifier(form, "kein", "Neg", head, case, column)], MIXED
    if determiner in NUMERALS:
        form = _NUMERALS[determiner]
        return [TreeWord(form, form, "NUM", "NumType=Card").under(head, "nummod")], STRONG
    match determiner:
        case "the":
            return [_article(DEFINITE[case, column], head, case, column, "Def")], WEAK
        case "a":
            form = "ein" + MIXED_DETERMINER[case, column].strip("-")
            return [_article(form, head, case, column, "Ind")], MIXED
        case "this" | "every":
            lemma, type = ("dieser", "Dem") if determiner == "this" else ("jeder", "Tot")
            form = lemma[:-2] + STRONG_DETERMINER[case, column]
            return [_quantifier(form, lemma, type, head, case, column)], WEAK
        case "all":
            return [_quantifier("all" + STRONG_DETERMINER[case, column], "alle", "Tot", head, case, column)], WEAK
        case "many":
            form = "viel" + STRONG_DETERMINER[case, column]
            return [_quantifier(form, "viel", "Ind", head, case, column)], STRONG
    return [], STRONG


def _article(form: str, head: TreeWord, case: str, column: str, definite: str) -> TreeWord:
    lemma = "der" if definite == "Def" else "ein"
    feats = f"Case={case}|Definite={definite}|{_gender_number(column)}|PronType=Art"
    return TreeWord(form, lemma, "DET", feats).under(head, "det")


def _quantifier(form: str, lemma: str, type: str, head: TreeWord, case: str, column: str) -> TreeWord:
    return TreeWord(form, lemma, "DET", f"Case={case}|{_gender_number(column)}|PronType={type}").under(head, "det")


def _gender_number(column: str) -> str:
    return "Number=Plur" if column == "pl" else f"Gender={GENDERS[column]}|Number=Sing"


def _relative(entity: Entity, head: TreeWord, column: str) -> list[TreeWord]:
    """The relative clause between commas, its verbs at the end.

    Its pronoun has the gender of the noun and the case of the gap.
    """
    clause = entity.relative
    assert clause is not None
    case = "Nom"
    if clause.gap == "object":
        case = "Dat" if verb_forms(clause.predicate).governs == "dat" else "Acc"
    feats = f"Case={case}|{_gender_number(column)}|PronType=Rel"
    pronoun = TreeWord(RELATIVE[case, column], "der", "PRON", feats)
    subject = (entity,) if clause.gap == "subject" else clause.subject
    finite, rest, verb = _verb_parts(clause, _agreement(subject), verb_last=True)
    middle = joined(*_middle_field(clause, verb, trees.time(clause.time, "de", verb)))
    if clause.gap == "subject":
        words = joined(pronoun.under(verb, "nsubj"), middle, rest, finite)
    else:
        pronoun.under(verb, _object_relation(clause.predicate))
        words = joined(pronoun, _group(subject, "Nom").under(verb, "nsubj"), middle, rest, finite)
    phrase = Phrase(words, verb).under(head, "acl:relcl")
    return [punctuation(",", phrase.head), *phrase.words, punctuation(",", phrase.head)]


def _placed(place: Entity, role: str) -> Phrase:
    """A place where something is (`rest`) or goes (`goal`), with the preposition that the noun asks for."""
    if place.kind == "name":
        name = lexicon.names()[place.lexeme]
        if name.type == "ORG":
            return _prepositional("bei", _entity(place, "Dat"))
        if name.gender == "f":
            return _prepositional("in", _entity(place, "Dat" if role == "rest" else "Acc"))
        return _prepositional("in" if role == "rest" else "nach", _entity(place, "Dat"))
    rest, goal = lexicon.places()[place.lexeme].de.split()
    preposition = rest if role == "rest" else goal
    case = "Acc" if role == "goal" and preposition in ("in", "an", "auf") else "Dat"
    return _prepositional(preposition, _entity(place, case))


def _prepositional(preposition: str, phrase: Phrase) -> Phrase:
    """A phrase after a preposition, written as one with the article where German does so."""
    case = TreeWord(preposition, preposition, "ADP").under(phrase.head, "case")
    first = phrase.words[0]
    if "Definite=Def" in first.feats:
        case.fused = CONTRACTIONS.get((preposition, first.form), "")
    return Phrase([case, *phrase.words], phrase.head)


GENDERS = {"m": "Masc", "f": "Fem", "n": "Neut"}
CONTRACTIONS = {
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("an", "dem"): "am",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
}
_CASES = ("Nom", "Acc", "Dat", "Gen")
_COLUMNS = ("m", "f", "n", "pl")


def _table(rows: str) -> dict[tuple[str, str], str]:
    """Forms by case and gender (or plural), from a line a case."""
    lines = [line.split() for line in rows.strip().splitlines()]
    return {
        (case, column): form
        for case, line in zip(_CASES, lines, strict=True)
        for column, form in zip(_COLUMNS, line, strict=True)
    }


DEFINITE = _table("der die das die\nden die das die\ndem der dem den\ndes der des der")
RELATIVE = _table("der die das die\nden die das die\ndem der dem denen\ndessen deren dessen deren")
# the endings of dieser and jeder, and of ein and kein
STRONG_DETERMINER = _table("er e es e\nen e es e\nem er em en\nes er es er")
MIXED_DETERMINER = _table("- e - e\nen e - e\nem er em en\nes er es er")
STRONG = _table("er e es e\nen e es e\nem er em en\nen er en er")
MIXED = _table("er e es en\nen e es en\nen en en en\nen en en en")
WEAK = _table("e e e en\nen e e en\nen en en en\nen en en en")


@dataclass(frozen=True)
class GermanNounForms:
    """A noun: gender, and its forms by case and number."""

    lemma: str
    gender: str
    forms: dict[tuple[str, str], str]


@dataclass(frozen=True)
class GermanVerbForms:
    """A verb: the prefix that comes off, the forms without it, and what its object is governed by."""

    prefix: str
    infinitive: str
    present: dict[str, str]
    past: dict[str, str]
    governs: str

    @property
    def lemma(self) -> str:
        """The infinitive with its prefix."""
        return self.prefix + self.infinitive


@cache
def noun_forms(key: str) -> GermanNounForms:
    """All forms of a noun."""
    form, gender, plural, *genitive = lexicon.nouns()[key].de.split()
    weak = gender.endswith("!")
    oblique = plural if weak else form
    forms = {
        ("Nom", "sg"): form,
        ("Acc", "sg"): oblique,
        ("Dat", "sg"): oblique,
        ("Gen", "sg"): genitive[0] if genitive else oblique,
    }
    if plural != "-":
        forms |= {(case, "pl"): plural for case in _CASES}
        forms["Dat", "pl"] = plural if plural[-1] in "ns" else plural + "n"
    return GermanNounForms(form, gender[0], forms)


@cache
def verb_forms(key: str) -> GermanVerbForms:
    """All forms of a verb, by person and number (1Sing, 3Sing, Plur)."""
    infinitive, third, past, *governs = lexicon.verbs()[key].de.split()
    prefix, _, infinitive = infinitive.rpartition("~")
    first = infinitive[:-1] if infinitive.endswith("ern") else infinitive[:-2]
    if infinitive.endswith("eln"):
        first = infinitive[:-3] + "l"
    past_plural = past + ("n" if past.endswith("e") else "en")
    return GermanVerbForms(
        prefix,
        infinitive,
        {"1Sing": first + "e", "3Sing": third, "Plur": infinitive},
        {"1Sing": past, "3Sing": past, "Plur": past_plural},
        governs[0][1:] if governs else "acc",
    )


def adjective_form(key: str, ending: str) -> str:
    """An adjective with an ending: teuer, teure, teuren."""
    form, *inflected = lexicon.adjectives()[key].de.split()
    return (inflected[0] if inflected else form) + ending
