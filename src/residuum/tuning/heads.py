"""A pretrained model with a head for a problem: the classes that `from_pretrained` knows, drawn from a seed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from residuum.errors import ModelError
from residuum.models import check_no_fresh_weights, clear_loading_errors, load_tokenizer
from residuum.tuning.encoding import pad_id
from residuum.tuning.problems import Problem

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

AUTO_CLASSES = {
    "classification": "AutoModelForSequenceClassification",
    "regression": "AutoModelForSequenceClassification",
    "tagging": "AutoModelForTokenClassification",
    "choice": "AutoModelForMultipleChoice",
}


def load_with_head(
    name_or_path: str | Path, problem: Problem, *, seed: int = 0
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model whose head fits the problem, and its tokenizer; a head that the folder lacks is drawn from the seed.

    A head that is there is kept if it has as many outputs, so that a fine-tuned model can be trained further.
    """
    import transformers

    name = str(name_or_path)
    auto = getattr(transformers, AUTO_CLASSES[problem.kind])
    tokenizer = load_tokenizer(name, False)
    with clear_loading_errors(name), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = transformers.AutoConfig.from_pretrained(name, **_labels(problem))
        if config.is_encoder_decoder:
            raise ModelError(f"{name} has an encoder and a decoder; give a model that is one or the other.")
        if type(config) not in auto._model_mapping:
            raise ModelError(
                f"transformers has no head for {problem.kind} on {type(config).__name__}; use another model."
            )
        config.pad_token_id = pad_id(tokenizer)
        module, info = auto.from_pretrained(
            name,
            config=config,
            dtype=torch.float32,
            use_safetensors=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    check_no_fresh_weights(module, info, name, allowed=f"^(?!{module.base_model_prefix}\\.)")
    return module, tokenizer


def takes_types(module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the model is given the segment that each token belongs to."""
    return "token_type_ids" in tokenizer.model_input_names and getattr(module.config, "type_vocab_size", 2) > 1


def _labels(problem: Problem) -> dict[str, Any]:
    if problem.kind == "regression":
        return {"num_labels": 1, "problem_type": "regression"}
    if problem.kind == "choice":
        return {}
    names = dict(enumerate(problem.classes))
    return {"id2label": names, "label2id": {name: place for place, name in names.items()}}
