"""Meanings in Swahili: everything agrees in class, pronouns and definite persons show in the verb."""

from residuum.samples import lexicon, trees
from residuum.samples.meanings import BE, BE_AT, NUMERALS, Clause, Entity, Meaning
from residuum.samples.swahili_forms import (
    SwahiliVerbStem,
    adjective_form,
    all_form,
    finite_form,
    having_form,
    infinitive,
    is_plural,
    located_form,
    many_form,
    not_located_form,
    noun_forms,
    numeral_form,
    numeral_lemma,
    of_form,
    one_form,
    relative_form,
    this_form,
    verb_stem,
    with_form,
    without_form,
)
from residuum.samples.trees import Phrase, SentenceTree, TreeWord, coordinated, finished, joined, punctuation

_LINKS = {"and": "na", "but": "lakini"}
_TENSES = {"past": "Past", "present": "Pres", "future": "Fut"}
_PRONOUNS = {
    "i": ("mimi", "Number=Sing|Person=1|PronType=Prs"),
    "we": ("sisi", "Number=Plur|Person=1|PronType=Prs"),
    "they": ("wao", "NounClass=Bantu2|Number=Plur|Person=3|PronType=Prs"),
}
_KUWA = SwahiliVerbStem("wa", True, "", "")


def swahili(meaning: Meaning) -> SentenceTree:
    """A meaning as a Swahili sentence."""
    first, *others = meaning.clauses
    main = _clause(first, _concord(first.subject))
    words = main.words
    for clause in others:
        second = _follower(clause) if meaning.shared_subject else _clause(clause, _concord(clause.subject))
        second.under(main.head, "conj")
        comma = None if meaning.shared_subject else punctuation(",", second.head)
        link = TreeWord(_LINKS[meaning.link], _LINKS[meaning.link], "CCONJ").under(second.head, "cc")
        words = joined(words, comma, link, second)
    words.append(punctuation(".", main.head))
    return finished(words, words[0].form[0].upper())


def _clause(clause: Clause, concord: int | str, object_concord: int | str | None = None) -> Phrase:
    """A clause; `object_concord` is that of an object that stands before, in a relative clause."""
    if clause.predicate in (BE, BE_AT):
        predicate = _copular(clause, concord)
    else:
        agreed = object_concord if object_concord is not None else _object_concord(clause)
        verb = verb_stem(clause.predicate)
        form = finite_form(verb, clause.tense, clause.negated, concord, agreed)
        predicate = _verb(clause, TreeWord(form, verb.stem, "VERB", _finite_feats(clause, concord, agreed)))
    subject = _subject(clause, predicate.head)
    return _arranged(clause, predicate, subject)


def _follower(clause: Clause) -> Phrase:
    """What the same subject does then, as an infinitive: na kununua mkate."""
    verb = verb_stem(clause.predicate)
    agreed = _object_concord(clause)
    layers = _object_layers(agreed)
    feats = "|".join([*layers, "VerbForm=Inf", "Voice=Act"])
    return _arranged(clause, _verb(clause, TreeWord(infinitive(verb, agreed), verb.stem, "VERB", feats)), None)


def _arranged(clause: Clause, predicate: Phrase, subject: Phrase | None) -> Phrase:
    """Frequency and time first, or time last; after the verb whom, what, how, where, with whom."""
    head = predicate.head
    time = trees.time(clause.time, "sw", head)
    first, last = (time, None) if clause.time_first else (None, time)
    scene = _located(clause.place).under(head, "obl") if clause.place else None
    if scene and scene.head.entity == "B-LOC":  # a city, whose name has no ending, comes after huko (there)
        scene.words.insert(0, TreeWord("huko", "huko", "DET", "PronType=Dem").under(scene.head, "det"))
    words = joined(
        trees.adverb(clause.frequency, "sw", head),
        first,
        subject,
        predicate,
        clause.recipient and _entity(clause.recipient).under(head, "iobj"),
        _object(clause, head),
        None if clause.predicate == BE_AT else _ground(clause, head),
        _with(clause.beneficiary, ["kwa", "ajili", "ya"], head),
        trees.adverb(clause.manner, "sw", head),
        scene,
        _with(clause.companion, ["pamoja", "na"], head),
        _with(Entity(clause.means) if clause.means else None, ["kwa"], head),
        last,
    )
    return Phrase(words, head)


def _subject(clause: Clause, head: TreeWord) -> Phrase | None:
    """The subject; a pronoun is said only where the copula does not show it."""
    if not clause.subject:
        return None
    first = clause.subject[0]
    if first.kind == "pronoun":
        if head.upos == "VERB" or clause.predicate == BE_AT or clause.tense != "present":
            return None
        form, feats = _PRONOUNS[first.lexeme]
        return Phrase([word := TreeWord(form, form, "PRON", feats)], word).under(head, "nsubj")
    return _group(clause.subject, as_subject=True).under(head, "nsubj")


def _verb(clause: Clause, head: TreeWord) -> Phrase:
    """A verb form, before the noun that belongs to the verb: alifanya kazi."""
    noun = verb_stem(clause.predicate).noun
    if not noun:
        return Phrase([head], head)
    word = TreeWord(noun, noun, "NOUN", "NounClass=Bantu9|Number=Sing").under(head, "compound")
    return Phrase([head, word], head)


def _copular(clause: Clause, concord: int | str) -> Phrase:
    """Being somewhere, or being so: by a copula, or as having something (ana furaha)."""
    if clause.predicate == BE_AT:
        assert clause.ground is not None
        complement = _located(clause.ground)
        present = not_located_form(concord) if clause.negated else located_form(concord)
        lemma = "ko"
    else:
        quality = lexicon.adjectives()[clause.quality].sw
        if quality.startswith("enye:"):
            return _having(clause, concord, quality)
        noun_class = concord if isinstance(concord, int) else 2 if concord == "we" else 1
        phrase = _adjective(quality, noun_class)
        if clause.very:
            phrase.words.append(TreeWord("sana", "sana", "ADV").under(phrase.head, "advmod"))
        complement = phrase
        present = lemma = "si" if clause.negated else "ni"
    head = complement.head
    if clause.tense == "present":
        feats = _finite_feats(clause, concord, None) if lemma == "ko" else f"Polarity={_polarity(clause)}|Tense=Pres"
        copula = TreeWord(present, lemma, "AUX", feats)
    else:
        form = finite_form(_KUWA, clause.tense, clause.negated, concord, None)
        copula = TreeWord(form, "wa", "AUX", _finite_feats(clause, concord, None))
    return Phrase([copula.under(head, "cop"), *complement.words], head)


def _having(clause: Clause, concord: int | str, quality: str) -> Phrase:
    """A quality that one has: ana furaha, hakuwa na furaha."""
    thing = _noun_of(quality)
    very = TreeWord("sana", "sana", "ADV") if clause.very else None
    feats = _finite_feats(clause, concord, None)
    if clause.tense == "present":
        form = without_form(concord) if clause.negated else with_form(concord)
        head = TreeWord(form, "na", "VERB", feats)
        words = [head, thing.under(head, "obj")]
    else:
        head = TreeWord(finite_form(_KUWA, clause.tense, clause.negated, concord, None), "wa", "VERB", feats)
        words = [head, TreeWord("na", "na", "ADP").under(thing, "case"), thing.under(head, "obl")]
    return Phrase(joined(words, very and very.under(head, "advmod")), head)


def _finite_feats(clause: Clause, concord: int | str, object_concord: int | str | None) -> str:
    """The features of a finite verb, those of its object in layers, in alphabetical order."""
    own = _concord_feats(concord)
    layers = dict(pair.split("=") for pair in _object_layers(object_concord))
    pairs = ["Mood=Ind"]
    for name in ("NounClass", "Number", "Person"):
        pairs += [f"{name}={own[name]}"] if name in own else []
        pairs += [f"{name}[obj]={layers[f'{name}[obj]']}"] if f"{name}[obj]" in layers else []
    pairs += [f"Polarity={_polarity(clause)}", f"Tense={_TENSES[clause.tense]}", "VerbForm=Fin", "Voice=Act"]
    return "|".join(pairs)


def _object_layers(concord: int | str | None) -> list[str]:
    if concord is None:
        return []
    return [f"{name}[obj]={value}" for name, value in _concord_feats(concord).items()]


def _concord_feats(concord: int | str) -> dict[str, str]:
    if isinstance(concord, str):
        return {"Number": "Sing" if concord == "i" else "Plur", "Person": "1"}
    number = "Plur" if is_plural(concord) else "Sing"
    return {"NounClass": f"Bantu{concord}", "Number": number, "Person": "3"}


def _polarity(clause: Clause) -> str:
    return "Neg" if clause.negated else "Pos"


def _concord(members: tuple[Entity, ...]) -> int | str:
    """The class that agrees with participants: 2 for two of them (people and animals only), `i` and `we` as such."""
    first = members[0]
    if len(members) > 1 or first.lexeme == "they":
        return 2
    if first.kind == "pronoun":
        return first.lexeme
    if first.kind == "name":
        return 1 if lexicon.names()[first.lexeme].type == "PER" else 9
    return noun_forms(first.lexeme).classes[first.number]


def _object_concord(clause: Clause) -> int | str | None:
    """The object that shows in the verb: a recipient, a pronoun, a name, people, and animals that are definite."""
    if clause.recipient:
        return _concord((clause.recipient,))
    if not clause.object or verb_stem(clause.predicate).preposition:
        return None
    return _concord(clause.object) if all(map(_shows_in_verb, clause.object)) else None


def _shows_in_verb(entity: Entity) -> bool:
    if entity.kind != "noun":
        return True
    noun = lexicon.nouns()[entity.lexeme]
    definite = entity.determiner in ("the", "this", "all")
    return noun.is_human or (noun.is_animate and definite)


def _object(clause: Clause, head: TreeWord) -> Phrase | None:
    if not clause.object or clause.object[0].kind == "pronoun":
        return None
    phrase = _group(clause.object)
    preposition = verb_stem(clause.predicate).preposition
    return _after([preposition], phrase).under(head, "obl") if preposition else phrase.under(head, "obj")


def _ground(clause: Clause, head: TreeWord) -> Phrase | None:
    if clause.ground is None:
        return None
    phrase = _located(clause.ground)
    preposition = verb_stem(clause.predicate).preposition
    return (_after([preposition], phrase) if preposition else phrase).under(head, "obl")


def _located(place: Entity) -> Phrase:
    """A place: by its form in -ni if nothing is said of it, a city by its name, else after kwenye."""
    if place.kind == "name":
        phrase = _name(place)
        return _after(["katika"], phrase) if lexicon.names()[place.lexeme].type == "ORG" else phrase
    form = lexicon.places()[place.lexeme].sw
    if form and place.is_plain:
        noun = noun_forms(place.lexeme)
        feats = f"Case=Loc|{_class_feats(noun.classes['sg'])}"
        return Phrase([word := TreeWord(form, noun.forms["sg"], "NOUN", feats)], word)
    return _after(["kwenye"], _entity(place))


def _with(entity: Entity | None, prepositions: list[str], head: TreeWord) -> Phrase | None:
    return entity and _after(prepositions, _entity(entity)).under(head, "obl")


def _after(prepositions: list[str], phrase: Phrase) -> Phrase:
    """A phrase after a preposition, which may be of several words (kwa ajili ya)."""
    first, *others = prepositions
    case = TreeWord(first, first, "ADP").under(phrase.head, "case")
    rest = [TreeWord(form, form, "NOUN" if form == "ajili" else "ADP").under(case, "fixed") for form in others]
    return Phrase([case, *rest, *phrase.words], phrase.head)


def _group(members: tuple[Entity, ...], as_subject: bool = False) -> Phrase:
    return coordinated((_entity(member, as_subject) for member in members), "na")


def _entity(entity: Entity, as_subject: bool = False) -> Phrase:
    return _name(entity) if entity.kind == "name" else _noun_phrase(entity, as_subject)


def _name(entity: Entity) -> Phrase:
    name = lexicon.names()[entity.lexeme]
    forms = name.sw.split() + ([lexicon.names()[entity.surname].sw] if entity.surname else [])
    feats = _class_feats(1 if name.type == "PER" else 9)
    words = [TreeWord(form, form, "PROPN", feats, entity=f"I-{name.type}") for form in forms]
    words[0].entity = f"B-{name.type}"
    for word in words[1:]:
        word.under(words[0], "flat")
    return Phrase(words, words[0])


def _noun_phrase(entity: Entity, as_subject: bool) -> Phrase:
    """Noun, quantity, adjectives, all, what it has or is of, owner, relative clause."""
    noun = noun_forms(entity.lexeme)
    noun_class = noun.classes[entity.number]
    head = TreeWord(noun.forms[entity.number], noun.forms["sg"], "NOUN", _class_feats(noun_class))
    cells = {key: lexicon.adjectives()[key].sw for key in entity.adjectives}
    phrasal = [key for key, cell in cells.items() if cell.startswith(("enye:", "a:"))]
    adjectives = [key for key in cells if key not in phrasal]
    every = TreeWord("kila", "kila", "DET", "PronType=Tot") if entity.determiner == "every" else None
    all_ = (
        TreeWord(all_form(noun_class), "ote", "DET", _class_feats(noun_class, "PronType=Tot"))
        if entity.determiner == "all"
        else None
    )
    words = joined(
        every and every.under(head, "det"),
        head,
        _quantity(entity, head, noun_class, as_subject),
        *(_attribute(cells[key], head, noun_class) for key in adjectives),
        all_ and all_.under(head, "det"),
        *(_attribute(cells[key], head, noun_class) for key in phrasal),
        entity.possessor and _owner(entity.possessor, head, noun_class),
        _relative(entity, head, noun_class) if entity.relative else None,
    )
    return Phrase(words, head)


def _class_feats(noun_class: int, more: str = "") -> str:
    feats = f"NounClass=Bantu{noun_class}|Number={'Plur' if is_plural(noun_class) else 'Sing'}"
    return f"{feats}|{more}" if more else feats


def _quantity(entity: Entity, head: TreeWord, noun_class: int, as_subject: bool) -> TreeWord | None:
    """This, a number, many, or one where an indefinite subject is told of for the first time."""
    determiner = entity.determiner
    if determiner == "this":
        form = this_form(noun_class)
        return TreeWord(form, "huyu", "DET", _class_feats(noun_class, "PronType=Dem")).under(head, "det")
    if determiner == "many":
        return TreeWord(many_form(noun_class), "ingi", "DET", _class_feats(noun_class, "PronType=Ind")).under(
            head, "det"
        )
    if determiner in NUMERALS or (determiner == "a" and as_subject):
        form = one_form(noun_class) if determiner == "a" else numeral_form(determiner, noun_class)
        lemma = "moja" if determiner == "a" else numeral_lemma(determiner)
        return TreeWord(form, lemma, "NUM", _class_feats(noun_class, "NumType=Card")).under(head, "nummod")
    return None


def _attribute(cell: str, head: TreeWord, noun_class: int) -> Phrase:
    if cell.startswith("enye:"):
        thing = _noun_of(cell)
        having = TreeWord(having_form(noun_class), "enye", "ADP", _class_feats(noun_class)).under(thing, "case")
        return Phrase([having, thing], thing).under(head, "nmod")
    phrase = _adjective(cell, noun_class)
    return phrase.under(head, "nmod" if cell.startswith("a:") else "amod")


def _adjective(cell: str, noun_class: int) -> Phrase:
    """An adjective with its concord, if it is of a kind that has one."""
    if cell.startswith("a:"):
        thing = _noun_of(cell)
        of = TreeWord(of_form(noun_class), "a", "ADP", _class_feats(noun_class)).under(thing, "case")
        return Phrase([of, thing], thing)
    if cell.startswith("="):
        word = TreeWord(cell[1:], cell[1:], "ADJ")
    elif cell.startswith("pair:"):
        singular, plural = cell[5:].split("/")
        form = plural if is_plural(noun_class) else singular
        word = TreeWord(form, singular, "ADJ", _class_feats(noun_class))
    else:
        word = TreeWord(adjective_form(cell[1:], noun_class), cell[1:], "ADJ", _class_feats(noun_class))
    return Phrase([word], word)


def _noun_of(cell: str) -> TreeWord:
    """The noun in the cell of an adjective: furaha of `enye:furaha:9`."""
    _, form, noun_class = cell.split(":")
    return TreeWord(form, form, "NOUN", _class_feats(int(noun_class)))


def _owner(possessor: Entity, head: TreeWord, noun_class: int) -> Phrase:
    phrase = _entity(possessor)
    of = TreeWord(of_form(noun_class), "a", "ADP", _class_feats(noun_class)).under(phrase.head, "case")
    return Phrase([of, *phrase.words], phrase.head).under(head, "nmod")


def _relative(entity: Entity, head: TreeWord, noun_class: int) -> list[TreeWord]:
    """The relative clause with amba-; an object that it is about shows in its verb."""
    clause = entity.relative
    assert clause is not None
    by_subject = clause.gap == "subject"
    if by_subject:
        phrase = _clause(clause, noun_class)
    else:
        phrase = _clause(clause, _concord(clause.subject), object_concord=noun_class)
    phrase.under(head, "acl")  # UD documents no acl:relcl for Swahili
    feats = _class_feats(noun_class, "PronType=Rel")
    pronoun = TreeWord(relative_form(noun_class), "amba", "PRON", feats)
    return [pronoun.under(phrase.head, "nsubj" if by_subject else "obj"), *phrase.words]
