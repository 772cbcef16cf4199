"""Reading a sample treebank back, independently of the package: words with their columns, and rules of UD."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from residuum.samples import sample_text

UPOS = set("ADJ ADP ADV AUX CCONJ DET NOUN NUM PART PRON PROPN PUNCT SCONJ VERB".split())
DEPRELS = set(
    "acl advcl advmod amod appos aux case cc ccomp compound conj cop det fixed flat iobj mark nmod nsubj nummod obj "
    "obl punct root xcomp".split()
)
LANGUAGES = ("en", "de", "tr", "sw")


@dataclass(frozen=True)
class Token:
    id: int
    form: str
    lemma: str
    upos: str
    feats: dict[str, str]
    head: int
    deprel: str

    @property
    def relation(self) -> str:
        return self.deprel.partition(":")[0]


@dataclass(frozen=True)
class Tree:
    text: str
    meaning: str
    tokens: tuple[Token, ...]
    raw_feats: tuple[str, ...]

    def children(self, token: Token, relation: str = "") -> list[Token]:
        return [other for other in self.tokens if other.head == token.id and relation in ("", other.relation)]

    def child(self, token: Token, relation: str) -> Token | None:
        found = self.children(token, relation)
        return found[0] if found else None

    def parent(self, token: Token) -> Token | None:
        return self.tokens[token.head - 1] if token.head else None


@cache
def trees(language: str, size: int = 2000, seed: int = 5, split: str = "train") -> tuple[Tree, ...]:
    text = sample_text("treebank", language=language, size=size, seed=seed, split=split)
    return tuple(_tree(block) for block in text.strip().split("\n\n"))


def _tree(block: str) -> Tree:
    lines = block.split("\n")
    comments = dict(line[2:].split(" = ", 1) for line in lines if line.startswith("#"))
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    words = [row for row in rows if "-" not in row[0]]
    tokens = tuple(Token(int(row[0]), row[1], row[2], row[3], _features(row[5]), int(row[6]), row[7]) for row in words)
    return Tree(comments["text"], comments["meaning"], tokens, tuple(row[5] for row in words))


def _features(feats: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in feats.split("|")) if feats != "_" else {}
