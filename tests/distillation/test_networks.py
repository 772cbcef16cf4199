"""Models taken apart: the same states, attention and logits as transformers gives."""

import pytest
import torch
import transformers as hf

from residuum.distillation.networks import language_model
from residuum.errors import ModelError
from teachers import CAUSAL, LINES, tokenizer_of

FAMILIES = ("xlm-roberta", "bert", "roberta", "distilbert", "mpnet", "gpt2", "llama", "electra", "qwen3")


def load(family, folder, **options):
    kind = hf.AutoModelForCausalLM if family in CAUSAL else hf.AutoModelForMaskedLM
    return kind.from_pretrained(folder, **options).eval()


@pytest.mark.parametrize("family", FAMILIES)
def test_scores_are_what_the_model_turns_into_attention(family, teacher_folder):
    folder = teacher_folder(family)
    tokenizer = tokenizer_of(family)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    batch = tokenizer(LINES["en"], return_tensors="pt", padding=True)
    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    reference = load(family, folder, attn_implementation="eager").base_model
    with torch.inference_mode():
        mine = language_model(load(family, folder), attention=True).run(**inputs, attention=True)
        theirs = reference(**inputs, output_attentions=True, output_hidden_states=True)
    real = batch["attention_mask"].bool()
    visible = real[:, None, None, :] & (
        torch.ones(real.shape[1], real.shape[1]).tril().bool() if family in CAUSAL else torch.tensor(True)
    )
    for layer in range(4):
        attention = mine.attention[layer].scores.masked_fill(~visible, -1e30).softmax(dim=-1)
        expected = theirs.attentions[layer].transpose(1, 2)[real]
        torch.testing.assert_close(attention.transpose(1, 2)[real], expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(
            mine.hidden[layer + 1][real], theirs.hidden_states[layer + 1][real], rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("family", [*FAMILIES, "modernbert"])
def test_transform_and_projection_are_the_models_logits(family, teacher_folder):
    module = load(family, teacher_folder(family))
    model = language_model(module)
    assert model.causal == (family in CAUSAL)
    ids = torch.tensor([[5, 9, 12, 7]])
    with torch.inference_mode():
        states = model.run(ids, torch.ones_like(ids)).hidden[-1][0]
        torch.testing.assert_close(
            model.head.projection(model.head.transform(states)), module(ids).logits[0], rtol=1e-4, atol=1e-4
        )


def test_a_head_that_does_more_is_refused(teacher_folder):
    module = load("bert", teacher_folder("bert"))
    module.register_forward_hook(lambda *args: setattr(args[2], "logits", args[2].logits * 2))
    with pytest.raises(ModelError, match="does more than is known"):
        language_model(module)


def test_an_unknown_head_is_named(teacher_folder):
    module = hf.AutoModelForSequenceClassification.from_config(hf.AutoConfig.from_pretrained(teacher_folder("bert")))
    with pytest.raises(ModelError, match="The head of BertForSequenceClassification is not known"):
        language_model(module)
