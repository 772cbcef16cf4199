"""Task distillation: a fine-tuned teacher's answers to the training part, and the loss that draws students to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from residuum.adaptation.students import Student, logits_of
from residuum.corpus import Corpus
from residuum.errors import ModelError
from residuum.models.loading import clear_loading_errors
from residuum.training.encoding import Batch, Collator, Example, length_sorted
from residuum.training.problems import Problem

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TASK_WEIGHT = LOGITS_WEIGHT = 0.5  # β and α of the thesis
BATCH = 32
_HEADS = {
    "classification": "ForSequenceClassification",
    "regression": "ForSequenceClassification",
    "tagging": "ForTokenClassification",
    "choice": "ForMultipleChoice",
}

Asked = int | tuple[int, int]  # an example by its place, or of tagging a word by its sentence and place


@dataclass(frozen=True, eq=False)
class Answers:
    """The teacher's logits for every example, or of tagging for every word; a student may split words otherwise."""

    logits: Mapping[Asked, Tensor]
    n_outputs: int


def teacher_answers(teacher: Student, corpus: Corpus) -> Answers:
    """Ask a fine-tuned teacher once about all examples of a corpus, with its own tokenizer, without dropout."""
    classes = _classes(teacher)
    own = replace(teacher, problem=replace(teacher.problem, classes=classes), _encoded={})
    order = [classes.index(name) for name in teacher.problem.classes]
    network = own.network(seed=0)
    part, found = own.encoded(corpus), {}
    with torch.inference_mode():
        for examples in length_sorted(part.examples, BATCH):
            logits = _read(network, own.collator, examples)
            if teacher.problem.kind in ("classification", "tagging"):
                logits = logits[..., order]
            found |= _by_question(teacher.problem, examples, logits)
    return Answers(found, next(iter(found.values())).shape[-1])


def logits_loss(logits: Float[Tensor, "*place output"], taught: Float[Tensor, "*place output"]) -> Float[Tensor, ""]:
    """L = mean over examples (of tagging: words) of ‖z_teacher − z_student‖²; NaN marks where nothing is asked."""
    asked = ~taught.isnan().any(dim=-1)
    return (logits[asked].float() - taught[asked]).square().sum(dim=-1).mean()


def taught_losses(batch: Batch, logits: Sequence[Tensor]) -> dict[str, Tensor]:
    """The weighted loss that is added to the task's: the mean over all networks that read the batch."""
    return {"logits": LOGITS_WEIGHT * torch.stack([logits_loss(one, batch["taught"]) for one in logits]).mean()}


@dataclass(frozen=True, eq=False)
class TaughtCollator(Collator):
    """Batches with the teacher's logits beside them, in the places of the student's."""

    problem: Problem = field(kw_only=True)
    answers: Answers = field(kw_only=True)

    def __call__(self, examples: Sequence[Example]) -> Batch:
        """The batch of some examples."""
        batch = super().__call__(examples)
        return {**batch, "taught": self._taught(examples, batch["labels"])}

    def _taught(self, examples: Sequence[Example], labels: Tensor) -> Tensor:
        if self.problem.kind != "tagging":
            return torch.stack([self.answers.logits[_place(self.problem, example)] for example in examples])
        table = torch.full((*labels.shape, self.answers.n_outputs), torch.nan)
        for row, example in enumerate(examples):
            for sentence, word, token in example.words:
                if (sentence, word) in self.answers.logits:
                    table[row, token] = self.answers.logits[sentence, word]
        return table


def taught_collator(plain: Collator, problem: Problem, answers: Answers) -> TaughtCollator:
    """A collator that adds the teacher's logits to each batch."""
    return TaughtCollator(plain.kind, plain.pad, plain.with_types, plain.cache, problem=problem, answers=answers)


def _classes(teacher: Student) -> tuple[str, ...]:
    """The classes in the order of the teacher's outputs; its head must be one for this very task."""
    import transformers

    with clear_loading_errors(teacher.path):
        config: Any = transformers.AutoConfig.from_pretrained(teacher.path)
    problem = teacher.problem
    made = (config.architectures or ["no head"])[0]
    classes = tuple(config.id2label[place] for place in sorted(config.id2label))
    named = problem.kind in ("classification", "tagging")
    if not made.endswith(_HEADS[problem.kind]) or (named and set(classes) != set(problem.classes)):
        raise ModelError(
            f"The teacher {teacher.path} is {made} for {', '.join(classes)}; expected one that was fine-tuned on "
            f"{problem.task.name}. Use `residuum finetune`, or `residuum adapt` with it as --source."
        )
    return classes if named else problem.classes


def _read(network: PreTrainedModel, collate: Collator, examples: Sequence[Example]) -> Tensor:
    from accelerate.utils import send_to_device

    batch: Any = send_to_device(collate(examples), next(network.parameters()).device)
    return logits_of(network)(batch).float().cpu()


def _by_question(problem: Problem, examples: Sequence[Example], logits: Tensor) -> dict[Asked, Tensor]:
    if problem.kind != "tagging":
        return {_place(problem, example): own.clone() for example, own in zip(examples, logits, strict=True)}
    return {
        (sentence, word): logits[row, token].clone()
        for row, example in enumerate(examples)
        for sentence, word, token in example.words
    }


def _place(problem: Problem, example: Example) -> int:
    """The place of an example in its part: `first` numbers sequences, of which a question has several."""
    return example.first // len(example.sequences) if problem.kind == "choice" else example.first
