"""Multiple choice: a context, a question where there is one, and candidates of which one is right."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from residuum.corpus.rows import Fault

ANSWER_COLUMNS = ("label", "labels", "answer", "correct")
_LETTERS = "ABCDEFGH"
_CONTEXTS = (("context", "question"), ("premise", "question"), ("sent1", "sent2"), ("question", None))


@dataclass(frozen=True)
class ChoiceColumns:
    """The columns of a table of choices: one for each candidate, or one that holds them all.

    `first` is the number that an answer gives the first candidate.
    """

    context: str
    question: str | None
    candidates: tuple[str, ...]
    answer: str | None
    first: int = 0

    @property
    def all(self) -> list[str]:
        """Every column that is read."""
        return [c for c in (self.context, self.question, *self.candidates, self.answer) if c is not None]


# COPA and XCOPA, SIQA, SWAG: candidates in columns of their own, and the number of the first one.
_NUMBERED = (
    (("choice1", "choice2", "choice3", "choice4"), 0),
    (("answera", "answerb", "answerc", "answerd"), 1),
    (("ending0", "ending1", "ending2", "ending3"), 0),
)
_LISTED = ("options", "choices")


def known_choice_columns(columns: Sequence[str], lists: Iterable[str]) -> ChoiceColumns | None:
    """The columns of a multiple-choice table by their names, or None."""
    by_name = {column.strip().lower(): column for column in columns}
    found = _candidates(by_name, frozenset(lists))
    context = next(
        ((by_name[c], q and by_name[q]) for c, q in _CONTEXTS if c in by_name and (q is None or q in by_name)), None
    )
    if found is None or context is None:
        return None
    answer = next((by_name[name] for name in ANSWER_COLUMNS if name in by_name), None)
    return ChoiceColumns(*context, candidates=found[0], answer=answer, first=found[1])


def answer_place(value: object, candidates: Sequence[str], first: int) -> str | None:
    """Which candidate an answer means, counted from 0, as text: by its number, its letter or its very words."""
    if value is None or value == "":
        return None
    if isinstance(value, str) and value in candidates:
        return str(candidates.index(value))
    text = str(value).strip()
    if text.startswith("-") and text[1:].isdecimal():
        return None  # Hugging Face marks a missing label by a negative number
    numbered = text.isdecimal() and len(text) < 10
    place = int(text) - first if numbered else _LETTERS.find(text.upper()) if len(text) == 1 else -1
    if not 0 <= place < len(candidates):
        raise Fault(f"found the answer {value!r}; expected one of {len(candidates)} candidates, counted from {first}")
    return str(place)


def _candidates(by_name: dict[str, str], lists: frozenset[str]) -> tuple[tuple[str, ...], int] | None:
    for names, first in _NUMBERED:
        there = tuple(by_name[name] for name in names if name in by_name)
        if len(there) >= 2:
            return there, first
    listed = [by_name[name] for name in _LISTED if by_name.get(name) in lists]
    return ((listed[0],), 0) if listed else None
