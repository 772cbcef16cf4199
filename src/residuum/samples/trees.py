"""Words in a dependency tree, the sentence that they make, and its CoNLL-U."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from residuum.samples import lexicon
from residuum.samples.meanings import Meaning, described


@dataclass(slots=True, eq=False)
class TreeWord:
    """A syntactic word while its sentence is put together; its head may be set later.

    `fused` is the written token that this word and the next make together (German `im`, Turkish `hastaydı`).
    `entity` is the BIO tag.
    """

    form: str
    lemma: str
    upos: str
    feats: str = "_"
    deprel: str = "root"
    head: TreeWord | None = None
    fused: str = ""
    entity: str = "O"
    glued: bool = False

    def under(self, head: TreeWord, deprel: str) -> TreeWord:
        """This word as a dependent of another."""
        self.head, self.deprel = head, deprel
        return self


@dataclass(slots=True, eq=False)
class Phrase:
    """Words in their order, one of which is the head of the others."""

    words: list[TreeWord]
    head: TreeWord

    def under(self, head: TreeWord, deprel: str) -> Phrase:
        """This phrase as a dependent of a word."""
        self.head.under(head, deprel)
        return self


class TreeRow(NamedTuple):
    """A word of a finished sentence: the columns of CoNLL-U that are used, and the BIO tag."""

    form: str
    lemma: str
    upos: str
    feats: str
    head: int
    deprel: str
    space_after: bool
    fused: str
    entity: str


class WrittenToken(NamedTuple):
    """A written token: one word, or two that are written as one."""

    form: str
    entity: str
    space_after: bool


@dataclass(frozen=True)
class SentenceTree:
    """A finished sentence."""

    rows: tuple[TreeRow, ...]

    def tokens(self) -> list[WrittenToken]:
        """The tokens as written."""
        tokens, index = [], 0
        while index < len(self.rows):
            row = self.rows[index]
            last = self.rows[index + 1] if row.fused else row
            tokens.append(WrittenToken(row.fused or row.form, row.entity, last.space_after))
            index += 2 if row.fused else 1
        return tokens

    def text(self) -> str:
        """The sentence as written."""
        return "".join(t.form + (" " if t.space_after else "") for t in self.tokens()).rstrip(" ")


def finished(words: Sequence[TreeWord], upper: str) -> SentenceTree:
    """The sentence of words in a tree, the first letter made big as `upper` tells (a Turkish i becomes İ)."""
    first = words[0]
    if first.fused:
        first.fused = upper + first.fused[1:]
    first.form = upper + first.form[1:]
    position = {id(word): number for number, word in enumerate(words, 1)}
    following = (*(word.glued for word in words[1:]), False)
    return SentenceTree(
        tuple(
            TreeRow(
                word.form,
                word.lemma,
                word.upos,
                word.feats,
                position[id(word.head)] if word.head else 0,
                word.deprel,
                not glued,
                word.fused,
                word.entity,
            )
            for word, glued in zip(words, following, strict=True)
        )
    )


def punctuation(mark: str, head: TreeWord) -> TreeWord:
    """A comma or full stop, without a space before it."""
    return TreeWord(mark, mark, "PUNCT", "_", "punct", head, glued=True)


def joined(*parts: Phrase | TreeWord | Iterable[TreeWord] | None) -> list[TreeWord]:
    """The words of phrases one after the other; what is absent is left out."""
    words: list[TreeWord] = []
    for part in parts:
        if isinstance(part, TreeWord):
            words.append(part)
        elif isinstance(part, Phrase):
            words += part.words
        elif part is not None:
            words += part
    return words


def coordinated(members: Iterable[Phrase], conjunction: str) -> Phrase:
    """Phrases joined by a conjunction, which belongs to the one after it; the first is the head."""
    first, *others = members
    for other in others:
        other.under(first.head, "conj")
        link = TreeWord(conjunction, conjunction, "CCONJ").under(other.head, "cc")
        first.words = joined(first.words, link, other)
    return first


def fixed_phrase(notation: str) -> Phrase:
    """The phrase of a table's notation: `form/lemma/UPOS/feats/deprel` a word, `*` before the deprel of the head.

    A form alone is an adverb. `am>an` is a word that the next one joins to `am`.
    """
    words = [TreeWord(*cells) for cells in _notation(notation)]
    head = next(word for word in words if word.deprel.startswith("*"))
    head.deprel = head.deprel[1:]
    for word in words:
        if word is not head:
            word.head = head
        surface, _, form = word.form.rpartition(">")
        word.form, word.fused = form, surface
    return Phrase(words, head)


@cache
def _notation(notation: str) -> list[tuple[str, str, str, str, str]]:
    cells = []
    for word in notation.split(" "):
        form, lemma, upos, feats, deprel = word.split("/") if "/" in word else (word, word, "ADV", "_", "*advmod")
        cells.append((form, lemma, upos, feats.replace(",", "|"), deprel))
    return cells


def adverb(key: str, language: str, head: TreeWord) -> Phrase | None:
    """An adverb of manner or frequency under a head; None if none is said."""
    return _under(getattr(lexicon.adverbs()[key], language), head) if key else None


def time(key: str, language: str, head: TreeWord) -> Phrase | None:
    """A time under a head; None if none is said."""
    return _under(getattr(lexicon.times()[key], language), head) if key else None


def _under(notation: str, head: TreeWord) -> Phrase:
    phrase = fixed_phrase(notation)
    return phrase.under(head, phrase.head.deprel)


def conllu(sentence: SentenceTree, sent_id: str, meaning: Meaning) -> str:
    """A sentence with its id, its text and what it means above it, and a blank line below."""
    lines = [f"# sent_id = {sent_id}", f"# text = {sentence.text()}", f"# meaning = {described(meaning)}"]
    rows = sentence.rows
    in_range = False
    for number, row in enumerate(rows, 1):
        if row.fused:
            misc = _misc(rows[number].space_after)
            lines.append(f"{number}-{number + 1}\t{row.fused}\t_\t_\t_\t_\t_\t_\t_\t{misc}")
        inside = bool(row.fused) or in_range
        in_range = bool(row.fused)
        misc = "_" if inside else _misc(row.space_after)
        lines.append(
            f"{number}\t{row.form}\t{row.lemma}\t{row.upos}\t_\t{row.feats}\t{row.head}\t{row.deprel}\t_\t{misc}"
        )
    return "\n".join(lines) + "\n\n"


def _misc(space_after: bool) -> str:
    return "_" if space_after else "SpaceAfter=No"
