"""Where sampled meanings come from."""

from dataclasses import dataclass

from residuum.samples.draws import Draw, split_of
from residuum.samples.meanings import Meaning, cores
from residuum.samples.vocabulary import Vocabulary


@dataclass(frozen=True)
class Source:
    """Where meanings come from: choices, the lexemes, and the split that every clause must belong to."""

    draw: Draw
    words: Vocabulary
    split: str

    def accepts(self, meaning: Meaning) -> bool:
        """Whether all that a meaning says belongs to the split."""
        return all(split_of(core) == self.split for core in cores(meaning))
