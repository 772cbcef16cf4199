"""`evaluate`: the evaluations by name, as the command line has them."""

from __future__ import annotations

from typing import Any, Literal, overload

from residuum.adaptation import AdaptedScores, evaluate_adapted
from residuum.errors import SettingError
from residuum.evaluation import (
    AlignmentCorrelation,
    Perplexity,
    Retrieval,
    correlate_alignment,
    evaluate_perplexity,
    evaluate_retrieval,
)

EVALUATIONS = {
    "retrieval": evaluate_retrieval,
    "perplexity": evaluate_perplexity,
    "adapted": evaluate_adapted,
    "correlate": correlate_alignment,
}


@overload
def evaluate(what: Literal["retrieval"], *arguments: Any, **options: Any) -> Retrieval: ...
@overload
def evaluate(what: Literal["perplexity"], *arguments: Any, **options: Any) -> Perplexity: ...
@overload
def evaluate(what: Literal["adapted"], *arguments: Any, **options: Any) -> AdaptedScores: ...
@overload
def evaluate(what: Literal["correlate"], *arguments: Any, **options: Any) -> AlignmentCorrelation: ...
def evaluate(
    what: str, *arguments: Any, **options: Any
) -> Retrieval | Perplexity | AdaptedScores | AlignmentCorrelation:
    """Run an evaluation by its name: `evaluate("retrieval", …)` is `evaluate_retrieval(…)`, and so on."""
    if what not in EVALUATIONS:
        raise SettingError(f"The evaluation {what!r} is not known; choose one of {', '.join(EVALUATIONS)}.")
    return EVALUATIONS[what](*arguments, **options)
