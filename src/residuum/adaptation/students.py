"""Models on disk with a head for the problem, and task distillation: a fine-tuned teacher's answers and their loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from residuum.corpus import Corpus
from residuum.errors import ModelError
from residuum.models.loading import clear_loading_errors, from_transformers, load_tokenizer, resolve_device
from residuum.models.surgery import files_fingerprint, keep_layers, kept_layers, layer_count
from residuum.training.encoding import (
    Batch,
    Collator,
    EncodedSplit,
    Example,
    ExampleEncoder,
    Problem,
    length_sorted,
    pad_id,
)
from residuum.training.learning import Logits, score_split
from residuum.training.networks import load_with_head, takes_types

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

TASK_WEIGHT = LOGITS_WEIGHT = 0.5  # β and α of the thesis
BATCH = 32
_HEADS = {
    "classification": "ForSequenceClassification",
    "regression": "ForSequenceClassification",
    "tagging": "ForTokenClassification",
    "choice": "ForMultipleChoice",
}


@dataclass(frozen=True, eq=False)
class AdaptationModel:
    """A model folder (a student's or the teacher's), the layers to keep, and the problem that it answers."""

    path: str
    problem: Problem
    keep_layers: str | None = None  # top:6, bottom:6, alternate or a list of blocks
    max_length: int | None = 128
    device: str = "auto"
    _encoded: dict[str, EncodedSplit] = field(default_factory=dict)

    @property
    def identity(self) -> dict[str, Any]:
        """What the model is, for a run's config."""
        return {"model": self.path, "files": files_fingerprint(self.path), "keep_layers": self.keep_layers}

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The model's tokenizer."""
        return load_tokenizer(self.path, False)

    def network(self, seed: int) -> PreTrainedModel:
        """The model with a head, in eval mode on its device; a missing head is initialised from the seed."""
        network, _ = load_with_head(self.path, self.problem, seed=seed)
        if self.keep_layers is not None:
            keep_layers(network, kept_layers(layer_count(network), keep=self.keep_layers))
        network.to(resolve_device(self.device))  # pyright: ignore[reportArgumentType]
        return network.eval()

    @property
    def collator(self) -> Collator:
        """How examples become batches for this model."""
        return self._reading[0]

    def encoded(self, corpus: Corpus) -> EncodedSplit:
        """A corpus as this model reads it; encoded once."""
        if corpus.fingerprint not in self._encoded:
            encoder = ExampleEncoder(self.tokenizer, self._problem_of(corpus), self._reading[1], self.max_length)
            self._encoded[corpus.fingerprint] = encoder.encode(corpus)
        return self._encoded[corpus.fingerprint]

    def scores(self, network: PreTrainedModel, corpus: Corpus) -> dict[str, float]:
        """All scores of a network on a corpus."""
        network.eval()
        device = next(network.parameters()).device
        return score_split(logits_of(network), self._problem_of(corpus), self.encoded(corpus), self.collator, device)

    def _problem_of(self, corpus: Corpus) -> Problem:
        """The problem as a corpus poses it: its questions may have another number of choices (SIQA 3, XCOPA 2)."""
        if self.problem.kind != "choice" or corpus.choices is None:
            return self.problem
        return replace(self.problem, classes=tuple(str(place) for place in range(max(map(len, corpus.choices)))))

    @cached_property
    def _reading(self) -> tuple[Collator, int | None]:
        """The collator, and the number of tokens that fit into the model's window."""
        network, tokenizer = load_with_head(self.path, self.problem)
        collator = Collator(self.problem.kind, pad_id(tokenizer), takes_types(network, tokenizer))
        return collator, from_transformers(network, tokenizer).window


def logits_of(network: PreTrainedModel) -> Logits:
    """The function from batches to a network's logits."""
    return lambda batch: network(**batch["inputs"]).logits


Question = int | tuple[int, int]  # an example by its place; in tagging a word by its sentence and place


@dataclass(frozen=True, eq=False)
class TeacherAnswers:
    """The teacher's logits per example, in tagging per word, since a student may split words differently."""

    logits: Mapping[Question, Tensor]
    n_outputs: int


def teacher_answers(teacher: AdaptationModel, corpus: Corpus) -> TeacherAnswers:
    """The answers of a fine-tuned teacher to all examples of a corpus, with its own tokenizer, without dropout."""
    from accelerate.utils import send_to_device

    problem, classes = teacher.problem, _teacher_classes(teacher)
    order = [classes.index(name) for name in problem.classes]
    teacher = replace(teacher, problem=replace(problem, classes=classes), _encoded={})
    network = teacher.network(seed=0)
    device = next(network.parameters()).device
    answers: dict[Question, Tensor] = {}
    with torch.inference_mode():
        for examples in length_sorted(teacher.encoded(corpus).examples, BATCH):
            batch: Any = send_to_device(teacher.collator(examples), device)
            logits = logits_of(network)(batch).float().cpu()
            if problem.kind in ("classification", "tagging"):
                logits = logits[..., order]
            for row, example in enumerate(examples):
                if problem.kind == "tagging":
                    answers |= {(sentence, word): logits[row, token].clone() for sentence, word, token in example.words}
                else:
                    answers[_place(problem, example)] = logits[row].clone()
    return TeacherAnswers(answers, next(iter(answers.values())).shape[-1])


def _teacher_classes(teacher: AdaptationModel) -> tuple[str, ...]:
    """The classes in the order of the teacher's outputs; its head must be one for this very task."""
    import transformers

    with clear_loading_errors(teacher.path):
        config: Any = transformers.AutoConfig.from_pretrained(teacher.path)
    problem = teacher.problem
    architecture = (config.architectures or ["no head"])[0]
    classes = tuple(config.id2label[place] for place in sorted(config.id2label))
    named = problem.kind in ("classification", "tagging")
    if not architecture.endswith(_HEADS[problem.kind]) or (named and set(classes) != set(problem.classes)):
        raise ModelError(
            f"The teacher {teacher.path} is {architecture} for {', '.join(classes)}; expected one that was fine-tuned "
            f"on {problem.task.name}. Use `residuum finetune`, or `residuum adapt` with it as the source."
        )
    return classes if named else problem.classes


def _place(problem: Problem, example: Example) -> int:
    """The place of an example in its part: `first` numbers sequences, and a question has several."""
    return example.first // len(example.sequences) if problem.kind == "choice" else example.first


def logits_loss(logits: Float[Tensor, "*place output"], taught: Float[Tensor, "*place output"]) -> Float[Tensor, ""]:
    """L = mean over examples (in tagging: words) of ‖z_teacher − z_student‖²; NaN marks places without an answer."""
    asked = ~taught.isnan().any(dim=-1)
    return (logits[asked].float() - taught[asked]).square().sum(dim=-1).mean()


def taught_losses(batch: Batch, logits: Sequence[Tensor]) -> dict[str, Tensor]:
    """The weighted loss that is added to the task's: the mean over all networks that read the batch."""
    losses = [logits_loss(of_network, batch["taught"]) for of_network in logits]
    return {"logits": LOGITS_WEIGHT * torch.stack(losses).mean()}


@dataclass(frozen=True, eq=False)
class TaughtCollator(Collator):
    """Batches with the teacher's logits beside them, in the places of the student's."""

    problem: Problem = field(kw_only=True)
    answers: TeacherAnswers = field(kw_only=True)

    @classmethod
    def of(cls, plain: Collator, problem: Problem, answers: TeacherAnswers) -> TaughtCollator:
        """A collator that adds the teacher's logits to each batch."""
        return cls(plain.kind, plain.pad, plain.with_types, plain.cache, problem=problem, answers=answers)

    def __call__(self, examples: Sequence[Example]) -> Batch:
        """The batch of some examples."""
        batch, answers = super().__call__(examples), self.answers.logits
        if self.problem.kind != "tagging":
            return {**batch, "taught": torch.stack([answers[_place(self.problem, example)] for example in examples])}
        taught = torch.full((*batch["labels"].shape, self.answers.n_outputs), torch.nan)
        for row, example in enumerate(examples):
            for sentence, word, token in example.words:
                if (sentence, word) in answers:
                    taught[row, token] = answers[sentence, word]
        return {**batch, "taught": taught}
