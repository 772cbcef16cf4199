"""Meanings in English."""

from residuum.samples import adverbials, lexicon
from residuum.samples.english_forms import indefinite_article, noun_form, verb_forms
from residuum.samples.meanings import BE, BE_AT, NUMERALS, Clause, Entity, Meaning
from residuum.samples.trees import Phrase, Sentence, Word, finished, joined, punctuation

_PRONOUNS = {
    "i": ("I", "me", "Number=Sing|Person=1|PronType=Prs"),
    "we": ("we", "us", "Number=Plur|Person=1|PronType=Prs"),
    "they": ("they", "them", "Number=Plur|Person=3|PronType=Prs"),
}
_NUMBER = {"sg": "Sing", "pl": "Plur"}
_BE_PAST = {"1Sing": "was", "3Sing": "was", "1Plur": "were", "3Plur": "were"}
_BE_PRESENT = {"1Sing": "am", "3Sing": "is", "1Plur": "are", "3Plur": "are"}


def english(meaning: Meaning) -> Sentence:
    """A meaning as an English sentence."""
    first, *others = meaning.clauses
    main = _clause(first, _agreement(first.subject))
    words = main.words
    for clause in others:
        shared = meaning.shared_subject
        agreement = _agreement(first.subject if shared else clause.subject)
        second = _clause(clause, agreement, follows=first if shared else None).under(main.head, "conj")
        comma = None if shared else punctuation(",", second.head)
        words = joined(words, comma, _linker(meaning.link, second.head), second)
    words.append(punctuation(".", main.head))
    return finished(words, words[0].form[0].upper())


def _clause(clause: Clause, agreement: str, *, follows: Clause | None = None) -> Phrase:
    """A clause; one that `follows` another has its subject, and its auxiliary too."""
    core = _predicate(clause, agreement, shared_auxiliary=follows is not None)
    subject = None if follows else _subject(clause, core.head)
    time = adverbials.time(clause.time, "en", core.head)
    first, last = (time, None) if clause.time_first else (None, time)
    words = joined(first, subject, core, *_adjuncts(clause, core.head), last)
    return Phrase(words, core.head)


def _subject(clause: Clause, head: Word) -> Phrase | Word | None:
    if clause.gap == "subject":
        return None
    return _group(clause.subject).under(head, "nsubj")


def _predicate(clause: Clause, agreement: str, *, shared_auxiliary: bool) -> Phrase:
    """The verb with its auxiliaries, its objects, and the place that it asks for."""
    if clause.predicate in (BE, BE_AT):
        return _copular(clause, agreement)
    verb = lexicon.verbs()[clause.predicate]
    forms = verb_forms(clause.predicate)
    auxiliaries, head = _verb_group(clause, agreement, shared_auxiliary)
    frequency = adverbials.adverb(clause.frequency, "en", head)
    particle = Word(forms.particle, forms.particle, "ADP").under(head, "compound:prt") if forms.particle else None
    object_ = _object(clause, head, forms.preposition)
    ground = _ground(clause, verb.frame, head)
    recipient = clause.recipient and _prepositional("to", _entity(clause.recipient, "obj"), head)
    return Phrase(joined(auxiliaries, frequency, head, particle, object_, ground, recipient), head)


def _verb_group(clause: Clause, agreement: str, shared_auxiliary: bool) -> tuple[list[Word], Word]:
    """The auxiliaries with `not`, and the verb: will read, did not read, is reading, reads."""
    forms = verb_forms(clause.predicate)
    progressive = is_progressive(clause)
    head = Word(forms.base, forms.base, "VERB", "VerbForm=Inf")
    auxiliary = None
    if clause.tense == "future":
        auxiliary = Word("will", "will", "AUX", "VerbForm=Fin")
    elif progressive:
        auxiliary = Word(_BE_PRESENT[agreement], "be", "AUX", _finite(agreement, "Pres"))
        head.form, head.feats = forms.participle, "Tense=Pres|VerbForm=Part"
    elif clause.negated:
        auxiliary = _do(clause, agreement)
    else:
        head.form, head.feats = _simple(clause, agreement)
    if auxiliary is None or shared_auxiliary:
        return [], head
    auxiliary.under(head, "aux")
    return [auxiliary, *_negation(clause, head)], head


def is_progressive(clause: Clause) -> bool:
    """Whether the present goes on now, rather than being a state or a habit."""
    habit = clause.frequency or (clause.time and "habit" in lexicon.times()[clause.time].tenses)
    return clause.tense == "present" and not habit and not lexicon.verbs()[clause.predicate].is_stative


def _do(clause: Clause, agreement: str) -> Word:
    if clause.tense == "past":
        return Word("did", "do", "AUX", _finite(agreement, "Past"))
    return Word("does" if agreement == "3Sing" else "do", "do", "AUX", _finite(agreement, "Pres"))


def _simple(clause: Clause, agreement: str) -> tuple[str, str]:
    forms = verb_forms(clause.predicate)
    if clause.tense == "past":
        return forms.past, _finite(agreement, "Past")
    return forms.third if agreement == "3Sing" else forms.base, _finite(agreement, "Pres")


def _finite(agreement: str, tense: str) -> str:
    person, number = agreement[0], agreement[1:]
    return f"Mood=Ind|Number={number}|Person={person}|Tense={tense}|VerbForm=Fin"


def _negation(clause: Clause, head: Word) -> list[Word]:
    return [Word("not", "not", "PART", "Polarity=Neg").under(head, "advmod")] if clause.negated else []


def _copular(clause: Clause, agreement: str) -> Phrase:
    """Be with an adjective or a place, which is the head."""
    if clause.predicate == BE:
        form = lexicon.adjectives()[clause.quality].en
        complement = Phrase([adjective := Word(form, form, "ADJ", "Degree=Pos")], adjective)
        if clause.very:
            complement.words.insert(0, Word("very", "very", "ADV").under(adjective, "advmod"))
    else:
        assert clause.ground is not None
        complement = _located(clause.ground)
    head = complement.head
    return Phrase(joined(_be(clause, agreement, head), complement), head)


def _be(clause: Clause, agreement: str, head: Word) -> list[Word]:
    negation = _negation(clause, head)
    if clause.tense == "future":
        will = Word("will", "will", "AUX", "VerbForm=Fin").under(head, "aux")
        return [will, *negation, Word("be", "be", "AUX", "VerbForm=Inf").under(head, "cop")]
    past = clause.tense == "past"
    form = (_BE_PAST if past else _BE_PRESENT)[agreement]
    cop = Word(form, "be", "AUX", _finite(agreement, "Past" if past else "Pres")).under(head, "cop")
    return [cop, *negation]


def _object(clause: Clause, head: Word, preposition: str) -> Phrase | None:
    if not clause.object:
        return None
    phrase = _group(clause.object, "obj")
    return _prepositional(preposition, phrase, head) if preposition else phrase.under(head, "obj")


def _ground(clause: Clause, frame: str, head: Word) -> Phrase | None:
    if clause.ground is None:
        return None
    if frame == "e":
        return _entity(clause.ground, "obj").under(head, "obj")
    return _prepositional("to", _entity(clause.ground), head) if frame == "m" else _located(clause.ground, head)


def _located(place: Entity, head: Word | None = None) -> Phrase:
    """A place where something is: at the market, in Berlin."""
    if place.kind == "name":
        preposition = "at" if lexicon.names()[place.lexeme].type == "ORG" else "in"
    else:
        preposition = lexicon.places()[place.lexeme].en
    return _prepositional(preposition, _entity(place), head)


def _prepositional(preposition: str, phrase: Phrase, head: Word | None) -> Phrase:
    case = Word(preposition, preposition, "ADP").under(phrase.head, "case")
    result = Phrase([case, *phrase.words], phrase.head)
    return result.under(head, "obl") if head else result


def _adjuncts(clause: Clause, head: Word) -> list[Phrase | None]:
    """For whom, how, where, with whom and by what means: in this order."""
    means = clause.means and _prepositional("by", _bare(clause.means), head)
    return [
        clause.beneficiary and _prepositional("for", _entity(clause.beneficiary, "obj"), head),
        adverbials.adverb(clause.manner, "en", head),
        clause.place and _located(clause.place, head),
        clause.companion and _prepositional("with", _entity(clause.companion, "obj"), head),
        means or None,
    ]


def _linker(link: str, head: Word) -> Word:
    return Word(link, link, "CCONJ").under(head, "cc")


def _agreement(subject: tuple[Entity, ...]) -> str:
    """Person and number of a subject: 1Sing, 3Plur, ..."""
    first = subject[0]
    if len(subject) > 1:
        return "3Plur"
    if first.kind == "pronoun":
        return {"i": "1Sing", "we": "1Plur", "they": "3Plur"}[first.lexeme]
    return f"3{_NUMBER[first.number]}"


def _group(members: tuple[Entity, ...], role: str = "nsubj") -> Phrase:
    first, *others = (_entity(member, role) for member in members)
    for other in others:
        other.under(first.head, "conj")
        first.words = joined(first.words, _linker("and", other.head), other)
    return first


def _entity(entity: Entity, role: str = "nsubj") -> Phrase:
    if entity.kind == "pronoun":
        subject_form, object_form, feats = _PRONOUNS[entity.lexeme]
        case, form = ("Nom", subject_form) if role == "nsubj" else ("Acc", object_form)
        word = Word(form, subject_form, "PRON", f"Case={case}|{feats}")
        return Phrase([word], word)
    return _name(entity) if entity.kind == "name" else _noun_phrase(entity)


def _name(entity: Entity) -> Phrase:
    """A name; that of a company is a compound, whose last word is the head."""
    name = lexicon.names()[entity.lexeme]
    forms = name.en.split() + ([lexicon.names()[entity.surname].en] if entity.surname else [])
    words = [Word(form, form, "PROPN", "Number=Sing", entity=f"I-{name.type}") for form in forms]
    words[0].entity = f"B-{name.type}"
    head, *others = reversed(words) if name.type == "ORG" else words
    for word in others:
        word.under(head, "compound" if name.type == "ORG" else "flat")
    return Phrase(words, head)


def _bare(key: str) -> Phrase:
    form = noun_form(key, "sg")
    word = Word(form, form, "NOUN", "Number=Sing")
    return Phrase([word], word)


def _noun_phrase(entity: Entity) -> Phrase:
    lemma = noun_form(entity.lexeme, "sg")
    form = noun_form(entity.lexeme, entity.number)
    head = Word(form, lemma, "NOUN", f"Number={_NUMBER[entity.number]}")
    adjectives = [lexicon.adjectives()[key].en for key in entity.adjectives]
    modifiers = [Word(form, form, "ADJ", "Degree=Pos").under(head, "amod") for form in adjectives]
    if entity.possessor:
        determiners = _possessor(entity.possessor, head)
    else:
        determiners = _determiners(entity, head, [*adjectives, form][0])
    relative = _relative(entity, head) if entity.relative else None
    return Phrase(joined(determiners, modifiers, head, relative), head)


def _possessor(possessor: Entity, head: Word) -> list[Word]:
    phrase = _entity(possessor).under(head, "nmod:poss")
    return [*phrase.words, Word("'s", "'s", "PART", glued=True).under(phrase.head, "case")]


def _determiners(entity: Entity, head: Word, next_word: str) -> list[Word]:
    """The words before the adjectives: the article, `this`, a number or a quantity."""
    the = Word("the", "the", "DET", "Definite=Def|PronType=Art").under(head, "det")
    determiner = entity.determiner
    if determiner in NUMERALS:
        return [Word(determiner, determiner, "NUM", "NumForm=Word|NumType=Card").under(head, "nummod")]
    match determiner:
        case "the":
            return [the]
        case "a":
            article = indefinite_article(next_word)
            return [Word(article, "a", "DET", "Definite=Ind|PronType=Art").under(head, "det")]
        case "this":
            form = "this" if entity.number == "sg" else "these"
            feats = f"Number={_NUMBER[entity.number]}|PronType=Dem"
            return [Word(form, "this", "DET", feats).under(head, "det")]
        case "many":
            return [Word("many", "many", "ADJ", "Degree=Pos").under(head, "amod")]
        case "all":
            return [Word("all", "all", "DET", "PronType=Tot").under(head, "det:predet"), the]
        case "every":
            return [Word("every", "every", "DET", "PronType=Tot").under(head, "det")]
    return []


def _relative(entity: Entity, head: Word) -> list[Word]:
    """Who for persons that act, that for all else."""
    clause = entity.relative
    assert clause is not None
    by_subject = clause.gap == "subject"
    phrase = _clause(clause, _agreement((entity,)) if by_subject else _agreement(clause.subject))
    phrase.under(head, "acl:relcl")
    human = lexicon.nouns()[entity.lexeme].is_human
    form = "who" if human and by_subject else "that"
    pronoun = Word(form, form, "PRON", "PronType=Rel").under(phrase.head, "nsubj" if by_subject else "obj")
    return [pronoun, *phrase.words]
