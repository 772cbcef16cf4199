"""How large a study is: on what ships, on given data with two cores, or as the document has it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from residuum.errors import SettingError


@dataclass(frozen=True)
class Scale:
    """Sizes and the settings that follow from them; the document's own settings stand in the studies.

    `limit` bounds the sentences of each part of a treebank, `examples` the training part of a sentence task (None: all
    there is); `sentences` is how many are expected, for the estimate of costs. The sample teacher is far smaller than
    the documents' models and learns by a larger rate.
    """

    name: str
    limit: int | None
    examples: int | None
    sentences: int
    tasks: int | None  # how many tasks of each unit; None is all
    epochs: float
    batch_size: int
    learning_rate: float
    seeds: int
    probe_epochs: int
    groups: int
    distil_steps: int
    distil_batch: int


SCALES = {
    scale.name: scale
    for scale in (
        Scale("sample", 200, 320, 200, 2, 2.0, 16, 5e-4, 1, 8, 5, 24, 8),
        Scale("small", 1000, 2000, 1500, 2, 2.0, 16, 5e-5, 1, 10, 5, 600, 8),
        Scale("paper", None, None, 40_000, None, 3.0, 8, 5e-5, 3, 10, 10, 500_000, 16),
    )
}


def named_scale(name: str, examples: int | None = None) -> Scale:
    """The scale of that name; `examples` other than its own, where they are given."""
    if name not in SCALES:
        raise SettingError(f"There is no scale {name!r}; choose one of {', '.join(SCALES)}.")
    if examples is None:
        return SCALES[name]
    if examples < 1:
        raise SettingError(f"Found {examples} examples; expected at least 1.")
    return replace(SCALES[name], examples=examples)
