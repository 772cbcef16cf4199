"""Meanings in English, and English forms.

Cells: a noun is `book`, `man/men`, or `water/` if it has no plural; a verb is its base and past, then an -ing form
that the rules miss, `+up` for a particle and `>for` for the preposition of its object.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from residuum.samples import lexicon, trees
from residuum.samples.meanings import BE, BE_AT, NUMERALS, Clause, Entity, Meaning
from residuum.samples.trees import Phrase, SentenceTree, TreeWord, coordinated, finished, joined, punctuation

_PRONOUNS = {
    "i": ("I", "me", "Number=Sing|Person=1|PronType=Prs"),
    "we": ("we", "us", "Number=Plur|Person=1|PronType=Prs"),
    "they": ("they", "them", "Number=Plur|Person=3|PronType=Prs"),
}
_NUMBER = {"sg": "Sing", "pl": "Plur"}
_BE_PAST = {"1Sing": "was", "3Sing": "was", "1Plur": "were", "3Plur": "were"}
_BE_PRESENT = {"1Sing": "am", "3Sing": "is", "1Plur": "are", "3Plur": "are"}


def english(meaning: Meaning) -> SentenceTree:
    """A meaning as an English sentence."""
    first, *others = meaning.clauses
    main = _clause(first, _agreement(first.subject))
    words = main.words
    for clause in others:
        shared = meaning.shared_subject
        agreement = _agreement(first.subject if shared else clause.subject)
        second = _clause(clause, agreement, follows=first if shared else None).under(main.head, "conj")
        comma = None if shared else punctuation(",", second.head)
        words = joined(words, comma, TreeWord(meaning.link, meaning.link, "CCONJ").under(second.head, "cc"), second)
    words.append(punctuation(".", main.head))
    return finished(words, words[0].form[0].upper())


def _clause(clause: Clause, agreement: str, *, follows: Clause | None = None) -> Phrase:
    """A clause; one that `follows` another has its subject, and its auxiliary too."""
    core = _predicate(clause, agreement, shared_auxiliary=follows is not None)
    hidden = follows or clause.gap == "subject"
    subject = None if hidden else _group(clause.subject).under(core.head, "nsubj")
    time = trees.time(clause.time, "en", core.head)
    first, last = (time, None) if clause.time_first else (None, time)
    means = None
    if clause.means:
        form = noun_form(clause.means, "sg")
        noun = TreeWord(form, form, "NOUN", "Number=Sing")
        means = _prepositional("by", Phrase([noun], noun), core.head)
    words = joined(
        first,
        subject,
        core,
        clause.beneficiary and _prepositional("for", _entity(clause.beneficiary, "obj"), core.head),
        trees.adverb(clause.manner, "en", core.head),
        clause.place and _located(clause.place, core.head),
        clause.companion and _prepositional("with", _entity(clause.companion, "obj"), core.head),
        means,
        last,
    )
    return Phrase(words, core.head)


def _predicate(clause: Clause, agreement: str, *, shared_auxiliary: bool) -> Phrase:
    """The verb with its auxiliaries, its objects, and the place that it asks for."""
    if clause.predicate in (BE, BE_AT):
        return _copular(clause, agreement)
    verb = lexicon.verbs()[clause.predicate]
    forms = verb_forms(clause.predicate)
    auxiliaries, head = _verb_group(clause, agreement, shared_auxiliary)
    frequency = trees.adverb(clause.frequency, "en", head)
    particle = TreeWord(forms.particle, forms.particle, "ADP").under(head, "compound:prt") if forms.particle else None
    object_ = _object(clause, head, forms.preposition)
    ground = _ground(clause, verb.frame, head)
    recipient = clause.recipient and _prepositional("to", _entity(clause.recipient, "obj"), head)
    return Phrase(joined(auxiliaries, frequency, head, particle, object_, ground, recipient), head)


def _verb_group(clause: Clause, agreement: str, shared_auxiliary: bool) -> tuple[list[TreeWord], TreeWord]:
    """The auxiliaries with `not`, and the verb: will read, did not read, is reading, reads."""
    forms = verb_forms(clause.predicate)
    progressive = is_progressive(clause)
    head = TreeWord(forms.base, forms.base, "VERB", "VerbForm=Inf")
    auxiliary = None
    if clause.tense == "future":
        auxiliary = TreeWord("will", "will", "AUX", "VerbForm=Fin")
    elif progressive:
        auxiliary = TreeWord(_BE_PRESENT[agreement], "be", "AUX", _finite(agreement, "Pres"))
        head.form, head.feats = forms.participle, "Tense=Pres|VerbForm=Part"
    elif clause.negated and clause.tense == "past":
        auxiliary = TreeWord("did", "do", "AUX", _finite(agreement, "Past"))
    elif clause.negated:
        auxiliary = TreeWord("does" if agreement == "3Sing" else "do", "do", "AUX", _finite(agreement, "Pres"))
    elif clause.tense == "past":
        head.form, head.feats = forms.past, _finite(agreement, "Past")
    else:
        head.form, head.feats = forms.third if agreement == "3Sing" else forms.base, _finite(agreement, "Pres")
    if auxiliary is None or shared_auxiliary:
        return [], head
    auxiliary.under(head, "aux")
    return [auxiliary, *_negation(clause, head)], head


def is_progressive(clause: Clause) -> bool:
    """Whether the present goes on now, rather than being a state or a habit."""
    habit = clause.frequency or (clause.time and "habit" in lexicon.times()[clause.time].tenses)
    return clause.tense == "present" and not habit and not lexicon.verbs()[clause.predicate].is_stative


def _finite(agreement: str, tense: str) -> str:
    person, number = agreement[0], agreement[1:]
    return f"Mood=Ind|Number={number}|Person={person}|Tense={tense}|VerbForm=Fin"


def _negation(clause: Clause, head: TreeWord) -> list[TreeWord]:
    return [TreeWord("not", "not", "PART", "Polarity=Neg").under(head, "advmod")] if clause.negated else []


def _copular(clause: Clause, agreement: str) -> Phrase:
    """Be with an adjective or a place, which is the head."""
    if clause.predicate == BE:
        form = lexicon.adjectives()[clause.quality].en
        complement = Phrase([adjective := TreeWord(form, form, "ADJ", "Degree=Pos")], adjective)
        if clause.very:
            complement.words.insert(0, TreeWord("very", "very", "ADV").under(adjective, "advmod"))
    else:
        assert clause.ground is not None
        complement = _located(clause.ground)
    head = complement.head
    negation = _negation(clause, head)
    if clause.tense == "future":
        will = TreeWord("will", "will", "AUX", "VerbForm=Fin").under(head, "aux")
        copula = [will, *negation, TreeWord("be", "be", "AUX", "VerbForm=Inf").under(head, "cop")]
    else:
        form, tense = (_BE_PAST, "Past") if clause.tense == "past" else (_BE_PRESENT, "Pres")
        copula = [TreeWord(form[agreement], "be", "AUX", _finite(agreement, tense)).under(head, "cop"), *negation]
    return Phrase(joined(copula, complement), head)


def _object(clause: Clause, head: TreeWord, preposition: str) -> Phrase | None:
    if not clause.object:
        return None
    phrase = _group(clause.object, "obj")
    return _prepositional(preposition, phrase, head) if preposition else phrase.under(head, "obj")


def _ground(clause: Clause, frame: str, head: TreeWord) -> Phrase | None:
    if clause.ground is None:
        return None
    if frame == "e":
        return _entity(clause.ground, "obj").under(head, "obj")
    return _prepositional("to", _entity(clause.ground), head) if frame == "m" else _located(clause.ground, head)


def _located(place: Entity, head: TreeWord | None = None) -> Phrase:
    """A place where something is: at the market, in Berlin."""
    if place.kind == "name":
        preposition = "at" if lexicon.names()[place.lexeme].type == "ORG" else "in"
    else:
        preposition = lexicon.places()[place.lexeme].en
    return _prepositional(preposition, _entity(place), head)


def _prepositional(preposition: str, phrase: Phrase, head: TreeWord | None) -> Phrase:
    case = TreeWord(preposition, preposition, "ADP").under(phrase.head, "case")
    result = Phrase([case, *phrase.words], phrase.head)
    return result.under(head, "obl") if head else result


def _agreement(subject: tuple[Entity, ...]) -> str:
    """Person and number of a subject: 1Sing, 3Plur, ..."""
    first = subject[0]
    if len(subject) > 1:
        return "3Plur"
    if first.kind == "pronoun":
        return {"i": "1Sing", "we": "1Plur", "they": "3Plur"}[first.lexeme]
    return f"3{_NUMBER[first.number]}"


def _group(members: tuple[Entity, ...], role: str = "nsubj") -> Phrase:
    return coordinated((_entity(member, role) for member in members), "and")


def _entity(entity: Entity, role: str = "nsubj") -> Phrase:
    if entity.kind == "pronoun":
        subject_form, object_form, feats = _PRONOUNS[entity.lexeme]
        case, form = ("Nom", subject_form) if role == "nsubj" else ("Acc", object_form)
        word = TreeWord(form, subject_form, "PRON", f"Case={case}|{feats}")
        return Phrase([word], word)
    return _name(entity) if entity.kind == "name" else _noun_phrase(entity)


def _name(entity: Entity) -> Phrase:
    """A name; that of a company is a compound, whose last word is the head."""
    name = lexicon.names()[entity.lexeme]
    forms = name.en.split() + ([lexicon.names()[entity.surname].en] if entity.surname else [])
    words = [TreeWord(form, form, "PROPN", "Number=Sing", entity=f"I-{name.type}") for form in forms]
    words[0].entity = f"B-{name.type}"
    head, *others = reversed(words) if name.type == "ORG" else words
    for word in others:
        word.under(head, "compound" if name.type == "ORG" else "flat")
    return Phrase(words, head)


def _noun_phrase(entity: Entity) -> Phrase:
    lemma = noun_form(entity.lexeme, "sg")
    form = noun_form(entity.lexeme, entity.number)
    head = TreeWord(form, lemma, "NOUN", f"Number={_NUMBER[entity.number]}")
    adjectives = [lexicon.adjectives()[key].en for key in entity.adjectives]
    modifiers = [TreeWord(form, form, "ADJ", "Degree=Pos").under(head, "amod") for form in adjectives]
    if entity.possessor:
        phrase = _entity(entity.possessor).under(head, "nmod:poss")
        determiners = [*phrase.words, TreeWord("'s", "'s", "PART", glued=True).under(phrase.head, "case")]
    else:
        determiners = _determiners(entity, head, [*adjectives, form][0])
    relative = _relative(entity, head) if entity.relative else None
    return Phrase(joined(determiners, modifiers, head, relative), head)


def _determiners(entity: Entity, head: TreeWord, next_word: str) -> list[TreeWord]:
    """The words before the adjectives: the article, `this`, a number or a quantity."""
    the = TreeWord("the", "the", "DET", "Definite=Def|PronType=Art").under(head, "det")
    determiner = entity.determiner
    if determiner in NUMERALS:
        return [TreeWord(determiner, determiner, "NUM", "NumForm=Word|NumType=Card").under(head, "nummod")]
    match determiner:
        case "the":
            return [the]
        case "a":
            article = indefinite_article(next_word)
            return [TreeWord(article, "a", "DET", "Definite=Ind|PronType=Art").under(head, "det")]
        case "this":
            form = "this" if entity.number == "sg" else "these"
            feats = f"Number={_NUMBER[entity.number]}|PronType=Dem"
            return [TreeWord(form, "this", "DET", feats).under(head, "det")]
        case "many":
            return [TreeWord("many", "many", "ADJ", "Degree=Pos").under(head, "amod")]
        case "all":
            return [TreeWord("all", "all", "DET", "PronType=Tot").under(head, "det:predet"), the]
        case "every":
            return [TreeWord("every", "every", "DET", "PronType=Tot").under(head, "det")]
    return []


def _relative(entity: Entity, head: TreeWord) -> list[TreeWord]:
    """Who for persons that act, that for all else."""
    clause = entity.relative
    assert clause is not None
    by_subject = clause.gap == "subject"
    phrase = _clause(clause, _agreement((entity,)) if by_subject else _agreement(clause.subject))
    phrase.under(head, "acl:relcl")
    human = lexicon.nouns()[entity.lexeme].is_human
    form = "who" if human and by_subject else "that"
    pronoun = TreeWord(form, form, "PRON", "PronType=Rel").under(phrase.head, "nsubj" if by_subject else "obj")
    return [pronoun, *phrase.words]


_SIBILANTS = ("s", "x", "z", "ch", "sh")
_VOWELS = "aeiou"
_SPOKEN_VOWEL_FIRST = ("honest",)


@dataclass(frozen=True)
class EnglishVerbForms:
    """The forms of a verb, with its particle and the preposition of its object."""

    base: str
    third: str
    past: str
    participle: str
    particle: str
    preposition: str


@cache
def noun_form(key: str, number: str) -> str:
    """A noun in the singular or plural."""
    singular, slash, plural = lexicon.nouns()[key].en.partition("/")
    if number == "sg":
        return singular
    assert plural or not slash, f"{key} has no plural"
    return plural or with_s(singular)


@cache
def verb_forms(key: str) -> EnglishVerbForms:
    """All forms of a verb."""
    base, past, *rest = lexicon.verbs()[key].en.split()
    participles = [cell for cell in rest if cell[0] not in "+>"]
    marked = {cell[0]: cell[1:] for cell in rest if cell[0] in "+>"}
    participle = participles[0] if participles else with_ing(base)
    return EnglishVerbForms(base, with_s(base), past, participle, marked.get("+", ""), marked.get(">", ""))


def with_s(word: str) -> str:
    """The regular plural of a noun, or third person of a verb."""
    if word.endswith("y") and word[-2] not in _VOWELS:
        return word[:-1] + "ies"
    if word.endswith(_SIBILANTS) or word in ("go", "do"):
        return word + "es"
    return word + "s"


def with_ing(base: str) -> str:
    """The -ing form: `write`, writing; `cut`, cutting; `see`, seeing."""
    if base.endswith("e") and not base.endswith("ee"):
        return base[:-1] + "ing"
    # The last consonant is written twice in one syllable with one vowel, and where the stress is last.
    ends_short = len(base) > 2 and base[-1] not in _VOWELS + "wxy" and base[-2] in _VOWELS
    one_vowel = ends_short and base[-3] not in _VOWELS and sum(letter in _VOWELS for letter in base) == 1
    return base + (base[-1] if one_vowel or base in ("begin", "forget") else "") + "ing"


def indefinite_article(next_word: str) -> str:
    """`an` before the sound of a vowel, else `a`."""
    return "an" if next_word[0] in _VOWELS or next_word in _SPOKEN_VOWEL_FIRST else "a"
