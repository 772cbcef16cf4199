"""`first_token_only`: a head that reads the first token gets the same logits and gradients for less work."""

import pytest
import torch
from task_data import task_data_of

from residuum.training.learning import task_loss
from residuum.training.networks import after_attention, first_token_only


@pytest.mark.parametrize("kind", ["classification", "pair", "regression", "choice"])
@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta"])
def test_logits_and_gradients_stay_and_the_block_shrinks(kind, family, tiny_folder):
    plain, _, data = task_data_of(kind, tiny_folder(family))
    narrow, _, _ = task_data_of(kind, tiny_folder(family))
    part = after_attention(narrow, data.problem.kind)
    batch = data.collate_train(data.train.examples[:6])
    seen, logits = [], []
    narrow.base_model.encoder.layer[-1].register_forward_hook(lambda _, __, out: seen.append(out.shape[1]))
    for network, cut in ((plain, None), (narrow, part)):
        network.eval()
        with first_token_only(cut):
            logits.append(network(**batch["inputs"]).logits)
        task_loss(data.problem.kind, logits[-1], batch["labels"]).backward()
    torch.testing.assert_close(logits[0], logits[1])
    assert seen == [1]
    for (name, a), b in zip(plain.named_parameters(), narrow.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.parametrize(("kind", "family"), [("tagging", "bert"), ("classification", "gpt2")])
def test_heads_that_read_more_than_the_first_token_have_no_such_part(kind, family, tiny_folder):
    network, _, data = task_data_of(kind, tiny_folder(family))
    assert after_attention(network, data.problem.kind) is None


def test_the_network_is_left_as_it_was(tiny_folder):
    network, _, data = task_data_of("classification", tiny_folder("bert"))
    network.train()
    network.base_model.embeddings.eval()
    part = after_attention(network, data.problem.kind)
    with first_token_only(part):
        pass
    assert network.training
    assert not network.base_model.embeddings.training
    assert not any(module._forward_pre_hooks for module in network.modules())
