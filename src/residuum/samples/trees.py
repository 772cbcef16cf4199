"""Words in a dependency tree, and the sentence that they make."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple


@dataclass(slots=True, eq=False)
class Word:
    """A syntactic word while its sentence is put together; its head may be set later.

    `fused` is the written token that this word and the next make together (German `im`, Turkish `hastaydı`).
    `entity` is the BIO tag.
    """

    form: str
    lemma: str
    upos: str
    feats: str = "_"
    deprel: str = "root"
    head: "Word | None" = None
    fused: str = ""
    entity: str = "O"
    glued: bool = False

    def under(self, head: "Word", deprel: str) -> "Word":
        """This word as a dependent of another."""
        self.head, self.deprel = head, deprel
        return self


@dataclass(slots=True, eq=False)
class Phrase:
    """Words in their order, one of which is the head of the others."""

    words: list[Word]
    head: Word

    def under(self, head: Word, deprel: str) -> "Phrase":
        """This phrase as a dependent of a word."""
        self.head.under(head, deprel)
        return self


class Row(NamedTuple):
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


class Token(NamedTuple):
    """A written token: one word, or two that are written as one."""

    form: str
    entity: str
    space_after: bool


@dataclass(frozen=True)
class Sentence:
    """A finished sentence."""

    rows: tuple[Row, ...]

    def tokens(self) -> list[Token]:
        """The tokens as written."""
        tokens, index = [], 0
        while index < len(self.rows):
            row = self.rows[index]
            last = self.rows[index + 1] if row.fused else row
            tokens.append(Token(row.fused or row.form, row.entity, last.space_after))
            index += 2 if row.fused else 1
        return tokens

    def text(self) -> str:
        """The sentence as written."""
        return "".join(t.form + (" " if t.space_after else "") for t in self.tokens()).rstrip(" ")


def finished(words: Sequence[Word], upper: str) -> Sentence:
    """The sentence of words in a tree, the first letter made big as `upper` tells (a Turkish i becomes İ)."""
    first = words[0]
    if first.fused:
        first.fused = upper + first.fused[1:]
    first.form = upper + first.form[1:]
    position = {id(word): number for number, word in enumerate(words, 1)}
    following = (*(word.glued for word in words[1:]), False)
    return Sentence(
        tuple(
            Row(
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


def punctuation(mark: str, head: Word) -> Word:
    """A comma or full stop, without a space before it."""
    return Word(mark, mark, "PUNCT", "_", "punct", head, glued=True)


def joined(*parts: Phrase | Word | Iterable[Word] | None) -> list[Word]:
    """The words of phrases one after the other; what is absent is left out."""
    words: list[Word] = []
    for part in parts:
        if isinstance(part, Word):
            words.append(part)
        elif isinstance(part, Phrase):
            words += part.words
        elif part is not None:
            words += part
    return words


def fixed_phrase(notation: str) -> Phrase:
    """The phrase of a table's notation: `form/lemma/UPOS/feats/deprel` a word, `*` before the deprel of the head.

    A form alone is an adverb. `am>an` is a word that the next one joins to `am`.
    """
    words = [Word(*cells) for cells in _notation(notation)]
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
