"""Small cross-lingual tasks from the sample grammar, students that share a vocabulary, and a few steps of training."""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedModel

from residuum.adaptation.corpora import TargetParts, TransferCorpora
from residuum.adaptation.strategies import Strategy, StrategyPlan, bias_parameters, body_parameters, head_parameters
from residuum.adaptation.students import AdaptationModel, logits_of
from residuum.corpus import Corpus
from residuum.corpus.tasks import Task
from residuum.samples import sample
from residuum.training.encoding import problem_of
from residuum.training.learning import task_loss
from residuum.training.optimisation import trainable_groups

TASKS = {
    "pair": Task("sentence", unit="sentence"),
    "tagging": Task("ner", "ner", metric="span_f1"),
    "choice": Task("choice", unit="sentence"),
}
SAMPLES = {"pair": "nli", "tagging": "ner", "choice": "copa"}
QUICK: dict[str, Any] = {
    "epochs": 1,
    "batch_size": 8,
    "learning_rate": 3e-3,
    "few_shot_epochs": 2,
    "few_shot_learning_rate": 3e-3,
    "reduction": 4,
}


def corpus_of(kind: str, language: str = "en", size: int = 16, split: str = "train") -> Corpus:
    return sample(SAMPLES[kind], language=language, size=size, split=split)


def transfer_of(kind: str = "pair", languages: tuple[str, ...] = ("tr",), size: int = 16) -> TransferCorpora:
    targets = {
        language: TargetParts(
            corpus_of(kind, language, 8, "dev"), corpus_of(kind, language, 8, "test"), corpus_of(kind, language, 12)
        )
        for language in languages
    }
    return TransferCorpora(corpus_of(kind, size=size), corpus_of(kind, size=8, split="dev"), targets)


def student_of(folder, kind: str = "pair", **changes) -> AdaptationModel:
    return AdaptationModel(str(folder), problem_of(TASKS[kind], corpus_of(kind)), device="cpu", **changes)


def allowed(strategy: Strategy, network: PreTrainedModel) -> set[str]:
    """The parameters of a network that a strategy may move."""
    head = set(head_parameters(network))
    return {
        "full": set(dict(network.named_parameters())),
        "freeze": head,
        "adapter": head,
        "lora": head,
        "bitfit": head | set(bias_parameters(network)),
        "sparse-delta": head | set(body_parameters(network)),
    }[strategy.family]


def batch_of(student: AdaptationModel, kind: str = "pair", size: int = 8):
    return student.collator(student.encoded(corpus_of(kind)).examples[:size])


def mean_loss(plan: StrategyPlan, batch, kind: str = "pair") -> torch.Tensor:
    kind = {"pair": "classification"}.get(kind, kind)
    losses = [task_loss(kind, logits_of(network)(batch), batch["labels"]) for network in plan.readers]
    return torch.stack(losses).mean()


def take_steps(plan: StrategyPlan, batch, kind: str = "pair", steps: int = 2, after=lambda: None) -> None:
    groups = trainable_groups(*plan.modules.values())
    optimiser = torch.optim.AdamW([p for group in groups for p in group.parameters], lr=1e-2)
    for _ in range(steps):
        optimiser.zero_grad()
        mean_loss(plan, batch, kind).backward()
        optimiser.step()
        after()


def without_dropout(*networks) -> None:
    for network in networks:
        for part in network.modules():
            if isinstance(part, torch.nn.Dropout):
                part.p = 0.0
            if hasattr(part, "dropout_prob"):
                part.dropout_prob = 0.0
        network.config.attention_probs_dropout_prob = 0.0
