"""`evaluate`: the evaluations by name, as the command line has them."""

from __future__ import annotations

from typing import Any, Literal, overload

from residuum.errors import SettingError
from residuum.evaluation.perplexity import Perplexity, evaluate_perplexity
from residuum.evaluation.retrieval import Retrieval, evaluate_retrieval

EVALUATIONS = ("retrieval", "perplexity")


@overload
def evaluate(what: Literal["retrieval"], *arguments: Any, **options: Any) -> Retrieval: ...
@overload
def evaluate(what: Literal["perplexity"], *arguments: Any, **options: Any) -> Perplexity: ...
def evaluate(what: str, *arguments: Any, **options: Any) -> Retrieval | Perplexity:
    """Run an evaluation by its name: `evaluate("retrieval", …)` is `evaluate_retrieval(…)`, and so on."""
    if what == "retrieval":
        return evaluate_retrieval(*arguments, **options)
    if what == "perplexity":
        return evaluate_perplexity(*arguments, **options)
    raise SettingError(f"The evaluation {what!r} is not known; choose one of {', '.join(EVALUATIONS)}.")
