"""Meanings in Turkish: the verb last, relative clauses as participles before the noun, pronouns left out."""

from functools import cache

from residuum.samples import lexicon, trees
from residuum.samples.meanings import BE, BE_AT, NUMERALS, Clause, Entity, Meaning
from residuum.samples.trees import Phrase, SentenceTree, TreeWord, coordinated, finished, joined, punctuation
from residuum.samples.turkish_forms import (
    capital,
    copula_suffix,
    finite_form,
    future_form,
    name_form,
    noun_form,
    object_participle,
    subject_participle,
    verb_stem,
)

_LINKS = {"and": "ve", "but": "ama"}
_NUMERALS = {"two": "iki", "three": "üç", "four": "dört", "five": "beş"}
_QUANTIFIERS = {"many": ("birçok", "Ind"), "all": ("bütün", "Ind"), "every": ("her", "Ind"), "this": ("bu", "Dem")}
# after numbers and words of quantity the noun stays singular
_SINGULAR_AFTER = (*NUMERALS, "many", "every")
_INDEFINITE = (*NUMERALS, "many", "a", "bare")
_AGREEMENT = {"i": "1Sing", "we": "1Plur", "they": "3Plur"}
_PRONOUNS = {
    "i": ("ben", {"Acc": "beni", "Dat": "bana", "Abl": "benden", "Ins": "benimle"}, "Number=Sing|Person=1"),
    "we": ("biz", {"Acc": "bizi", "Dat": "bize", "Abl": "bizden", "Ins": "bizimle"}, "Number=Plur|Person=1"),
    "they": (
        "onlar",
        {"Acc": "onları", "Dat": "onlara", "Abl": "onlardan", "Ins": "onlarla"},
        "Number=Plur|Person=3",
    ),
}
_FINITE_FEATS = {
    "past": "Aspect=Perf|Evident=Fh|Number={}|Person={}|Polarity={}|Tense=Past",
    "lasting past": "Aspect=Prog|Evident=Fh|Number={}|Person={}|Polarity={}|Tense=Past",
    "present": "Aspect=Prog|Number={}|Person={}|Polarity={}|Tense=Pres",
    "future": "Aspect=Imp|Number={}|Person={}|Polarity={}|Tense=Fut",
}
_NOT = {
    "past": {"1Sing": "değildim", "1Plur": "değildik", "3Sing": "değildi", "3Plur": "değillerdi"},
    "present": {"1Sing": "değilim", "1Plur": "değiliz", "3Sing": "değil", "3Plur": "değiller"},
}


def turkish(meaning: Meaning) -> SentenceTree:
    """A meaning as a Turkish sentence."""
    first, *others = meaning.clauses
    main = _clause(first, first.subject)
    words = main.words
    for clause in others:
        second = _clause(clause, first.subject if meaning.shared_subject else clause.subject).under(main.head, "conj")
        comma = punctuation(",", second.head) if meaning.link == "but" else None
        link = TreeWord(_LINKS[meaning.link], _LINKS[meaning.link], "CCONJ").under(second.head, "cc")
        words = joined(words, comma, link, second)
    words.append(punctuation(".", main.head))
    return finished(words, capital(words[0].fused or words[0].form))


def _clause(clause: Clause, subject: tuple[Entity, ...]) -> Phrase:
    """Time, subject, and all else before the verb; `subject` is whom the verb agrees with."""
    predicate = _predicate(clause, _agreement(subject))
    return _arranged(clause, predicate, _subject(clause, predicate.head))


def _subject(clause: Clause, head: TreeWord) -> Phrase | None:
    if not clause.subject or clause.subject[0].kind == "pronoun":
        return None
    return _group(clause.subject, "Nom").under(head, "nsubj")


def _arranged(clause: Clause, predicate: Phrase, subject: Phrase | None) -> Phrase:
    """What belongs to the predicate, in order; an indefinite object stays beside the verb.

    A time before the relative clause of the subject would be read as part of it, so it comes after the subject.
    """
    head = predicate.head
    time = trees.time(clause.time, "tr", head)
    time_first = clause.time_first and not any(entity.relative for entity in clause.subject)
    first, second = (time, None) if time_first else (None, time)
    rest = joined(second, _rest(clause, predicate))
    comma = None
    if subject and _runs_on(subject.words[-1], rest[0]):
        comma = punctuation(",", subject.head)
    return Phrase(joined(first, subject, comma, rest), head)


def _rest(clause: Clause, predicate: Phrase) -> list[TreeWord]:
    """What follows the subject and the time; only early stands between a goal and the verb."""
    head = predicate.head
    definite, indefinite = _object(clause, head)
    means = _phrase_of(noun_form(clause.means, "sg", "Ins"), clause.means, "Ins") if clause.means else None
    ground = None if clause.predicate == BE_AT else _ground(clause, head)
    manner = trees.adverb(clause.manner, "tr", head)
    beneficiary = None
    if clause.beneficiary:
        phrase = _entity(clause.beneficiary, "Nom").under(head, "obl")
        beneficiary = [*phrase.words, TreeWord("için", "için", "ADP").under(phrase.head, "case")]
    return joined(
        trees.adverb(clause.frequency, "tr", head),
        clause.companion and _entity(clause.companion, "Ins").under(head, "obl"),
        means and means.under(head, "obl"),
        clause.place and _entity(clause.place, "Loc").under(head, "obl"),
        beneficiary,
        definite,
        clause.recipient and _entity(clause.recipient, "Dat").under(head, "obl"),
        *((ground, manner) if clause.manner == "early" else (manner, ground)),
        indefinite,
        predicate,
    )


def _runs_on(last: TreeWord, following: TreeWord) -> bool:
    """Whether two words would be read as one without a comma (Doktor, Robert'i gördü).

    They look like a title and a name, two names, or a compound (çocuk doktoru: paediatrician).
    """
    if "Number=Sing" not in last.feats or "Case=Nom" not in last.feats:
        return False
    if following.entity in ("B-PER", "B-ORG"):
        return True
    if last.upos != "NOUN" or following.upos != "NOUN":
        return False
    like_compound = "Case=Acc" in following.feats and following.form[-2] != "y"
    return like_compound or following.lemma in _people()


@cache
def _people() -> frozenset[str]:
    return frozenset(noun_form(noun.key, "sg", "Nom") for noun in lexicon.nouns().values() if noun.is_human)


def _predicate(clause: Clause, agreement: str) -> Phrase:
    if clause.predicate in (BE, BE_AT):
        return _copular(clause, agreement)
    form = finite_form(clause.predicate, clause.tense, clause.negated, agreement)
    lasting = clause.tense == "past" and verb_stem(clause.predicate).is_lasting
    feats = _FINITE_FEATS["lasting past" if lasting else clause.tense]
    feats = feats.format(agreement[1:], agreement[0], _polarity(clause))
    return _verb(clause, form, feats)


def _verb(clause: Clause, form: str, feats: str) -> Phrase:
    """A verb form, after the noun that belongs to the verb (yardım etti) or is always its object (şarkı söyledi)."""
    stem = verb_stem(clause.predicate)
    head = TreeWord(form, stem.stem, "VERB", feats)
    if not stem.noun:
        return Phrase([head], head)
    noun = TreeWord(stem.noun, stem.noun, "NOUN", "Case=Nom|Number=Sing|Person=3")
    return Phrase([noun.under(head, "compound:lvc" if stem.stem == "et" else "obj"), head], head)


def _copular(clause: Clause, agreement: str) -> Phrase:
    """An adjective or place with the ending for was, or with a word for will be and for not."""
    if clause.predicate == BE_AT:
        assert clause.ground is not None
        complement = _entity(clause.ground, "Loc")
    else:
        form = lexicon.adjectives()[clause.quality].tr
        quality = TreeWord(form, form, "ADJ")
        very = TreeWord("çok", "çok", "ADV").under(quality, "advmod") if clause.very else None
        complement = Phrase(joined(very, quality), quality)
    head = complement.head
    person, number = agreement[0], agreement[1:]
    if clause.tense == "future":
        form = future_form("ol", "", clause.negated, agreement)
        feats = _FINITE_FEATS["future"].format(number, person, _polarity(clause))
        return Phrase([*complement.words, TreeWord(form, "ol", "AUX", feats).under(head, "cop")], head)
    tense = "Past" if clause.tense == "past" else "Pres"
    if clause.negated:
        feats = f"Number={number}|Person={person}|Polarity=Neg|Tense={tense}"
        no = TreeWord(_NOT[clause.tense][agreement], "değil", "AUX", feats).under(head, "cop")
        return Phrase([*complement.words, no], head)
    suffix = copula_suffix(head.form, clause.tense, agreement)
    if not suffix:
        return complement
    head.fused = head.form + suffix
    evidence = "Aspect=Perf|Evident=Fh|" if tense == "Past" else ""
    copula = TreeWord(suffix, "i", "AUX", f"{evidence}Number={number}|Person={person}|Tense={tense}")
    return Phrase([*complement.words, copula.under(head, "cop")], head)


def _object(clause: Clause, head: TreeWord) -> tuple[Phrase | None, Phrase | None]:
    """The object as a definite one or as an indefinite one, which keeps beside the verb."""
    if not clause.object:
        return None, None
    case = verb_stem(clause.predicate).governs
    first = clause.object[0]
    indefinite = first.kind == "noun" and first.determiner in _INDEFINITE and not first.possessor
    relation = "obj" if case == "Acc" else "obl"
    if indefinite and case == "Acc" and not any(_is_marked(clause, entity) for entity in clause.object):
        without_bir = clause.negated and not first.adjectives and not first.relative
        return None, _group(clause.object, "Nom", without_bir).under(head, relation)
    phrase = _group(clause.object, case).under(head, relation)
    return (None, phrase) if indefinite else (phrase, None)


def _is_marked(clause: Clause, entity: Entity) -> bool:
    """Whether an indefinite object is accusative: bir öğretmeni gördü, but bir kitap aldı.

    Somebody is a certain person even if it is not said who; so is what a verb for persons has in its place, and what
    has a relative clause. Bir saat (a clock) without the case would be for an hour.
    """
    key = entity.lexeme
    noun = lexicon.nouns()[key]
    like_person = lexicon.verbs()[clause.predicate].takes_people and (noun.is_animate or key in lexicon.places())
    is_certain = noun.is_human or like_person or entity.relative is not None
    return is_certain or (key == "clock" and not clause.negated)


def _ground(clause: Clause, head: TreeWord) -> Phrase | None:
    """The place that the verb asks for: the goal in the dative, where one lives in the locative, or as governed."""
    if clause.ground is None:
        return None
    verb = lexicon.verbs()[clause.predicate]
    governs = verb_stem(clause.predicate).governs
    case = {"m": "Dat", "l": "Loc"}.get(verb.frame, "Acc") if governs == "Acc" else governs
    return _entity(clause.ground, case).under(head, "obl")


def _agreement(subject: tuple[Entity, ...]) -> str:
    """Person and number that the verb shows: the third person is singular beside a subject that is said."""
    first = subject[0]
    return _AGREEMENT[first.lexeme] if first.kind == "pronoun" else "3Sing"


def _polarity(clause: Clause) -> str:
    return "Neg" if clause.negated else "Pos"


def _group(members: tuple[Entity, ...], case: str, without_bir: bool = False) -> Phrase:
    return coordinated((_entity(member, case, without_bir) for member in members), "ve")


def _entity(entity: Entity, case: str, without_bir: bool = False) -> Phrase:
    if entity.kind == "pronoun":
        lemma, forms, feats = _PRONOUNS[entity.lexeme]
        word = TreeWord(forms[case], lemma, "PRON", f"Case={case}|{feats}|PronType=Prs")
        return Phrase([word], word)
    return _name(entity, case) if entity.kind == "name" else _noun_phrase(entity, case, without_bir)


def _name(entity: Entity, case: str) -> Phrase:
    """A name; the last of its words has the case."""
    name = lexicon.names()[entity.lexeme]
    forms = name.tr.split() + ([lexicon.names()[entity.surname].tr] if entity.surname else [])
    words = [TreeWord(form, form, "PROPN", "Case=Nom|Number=Sing|Person=3", entity=f"I-{name.type}") for form in forms]
    words[0].entity = f"B-{name.type}"
    words[-1].form = name_form(forms[-1], case)
    words[-1].feats = f"Case={case}|Number=Sing|Person=3"
    for word in words[1:]:
        word.under(words[0], "flat")
    return Phrase(words, words[0])


def _noun_phrase(entity: Entity, case: str, without_bir: bool) -> Phrase:
    """Relative clause, owner, quantity, adjectives, bir, noun."""
    number = "sg" if entity.determiner in _SINGULAR_AFTER else entity.number
    form = noun_form(entity.lexeme, number, case, possessed=entity.possessor is not None)
    phrase = _phrase_of(form, entity.lexeme, case, number, possessed=entity.possessor is not None)
    head = phrase.head
    words = joined(
        _relative(entity, head) if entity.relative else None,
        entity.possessor and _entity(entity.possessor, "Gen").under(head, "nmod:poss"),
        _quantity(entity, head),
        [_adjective(key, head) for key in entity.adjectives],
        TreeWord("bir", "bir", "DET", "Definite=Ind|PronType=Art").under(head, "det")
        if entity.determiner == "a" and not without_bir
        else None,
        head,
    )
    return Phrase(words, head)


def _phrase_of(form: str, key: str, case: str, number: str = "sg", possessed: bool = False) -> Phrase:
    """A noun form alone, with its features."""
    number = "Sing" if number == "sg" else "Plur"
    feats = f"Case={case}|Number={number}|Person=3"
    if possessed:
        feats = f"Case={case}|Number={number}|Number[psor]=Sing|Person=3|Person[psor]=3"
    word = TreeWord(form, noun_form(key, "sg", "Nom"), "NOUN", feats)
    return Phrase([word], word)


def _quantity(entity: Entity, head: TreeWord) -> TreeWord | None:
    if entity.determiner in NUMERALS:
        form = _NUMERALS[entity.determiner]
        return TreeWord(form, form, "NUM", "NumType=Card").under(head, "nummod")
    if entity.determiner in _QUANTIFIERS:
        form, type = _QUANTIFIERS[entity.determiner]
        return TreeWord(form, form, "DET", f"PronType={type}").under(head, "det")
    return None


def _adjective(key: str, head: TreeWord) -> TreeWord:
    form = lexicon.adjectives()[key].tr
    return TreeWord(form, form, "ADJ").under(head, "amod")


def _relative(entity: Entity, head: TreeWord) -> list[TreeWord]:
    """The participle with what belongs to it: who does something (-An), or what somebody does it to (-DIk)."""
    clause = entity.relative
    assert clause is not None
    polarity = _polarity(clause)
    if clause.gap == "subject":
        form = subject_participle(clause.predicate, clause.negated)
        verb = _verb(clause, form, f"Polarity={polarity}|Tense=Pres|VerbForm=Part")
        return _arranged(clause, verb, None).under(head, "acl").words
    agreement = _agreement(clause.subject)
    form = object_participle(clause.predicate, clause.negated, agreement)
    owner = f"Number[psor]={agreement[1:]}|Person[psor]={agreement[0]}"
    verb = _verb(clause, form, f"Aspect=Perf|{owner}|Polarity={polarity}|Tense=Past|VerbForm=Part")
    subject = None
    if clause.subject[0].kind != "pronoun":
        subject = _group(clause.subject, "Gen").under(verb.head, "nsubj")
    return _arranged(clause, verb, subject).under(head, "acl").words
