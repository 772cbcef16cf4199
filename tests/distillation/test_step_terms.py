"""Every term of a step against a transcription that goes sentence by sentence, without padding, masks or chunks."""

import pytest
import torch
import torch.nn.functional as F

from residuum.distillation.preparation import prepare
from residuum.distillation.texts import IGNORED

TERMS = (
    "mlm",
    "soft",
    "softmax_regression",
    "hidden_mse",
    "hidden_cos",
    "hidden_kl",
    "cls_mse",
    "cls_cos",
    "attention_mse",
    "attention_kl",
    "value_relation",
    "embedding_mse",
    "embedding_cos",
)
OVER_LAYERS = TERMS[3:11]
WEIGHTS = {term: weight / 91 for weight, term in enumerate(TERMS, 1)}  # all different, so that none can be mixed up
THIN = {"shape": {"hidden_size": 8, "heads": 2}}


def divergence(log_p, log_q):
    """KL(p ‖ q) over the last axis."""
    return (log_p.exp() * (log_p - log_q)).sum(dim=-1)


def heads_of(module, name, layer, states):
    """Queries, keys or values of a block from the states that it reads, head × token × dimension."""
    part = getattr(module.base_model.encoder.layer[layer - 1].attention.self, name)(states)
    return part.unflatten(-1, (module.config.num_attention_heads, -1)).transpose(0, 1)


def scores(module, layer, states):
    query, key = (heads_of(module, name, layer, states) for name in ("query", "key"))
    return query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5


def relation(module, layer, states):
    value = heads_of(module, "value", layer, states)
    return value @ value.transpose(-1, -2) / value.shape[-1] ** 0.5


def sentence_terms(prepared, student, layers, ids, labels, soft):
    """The sum over the tokens of one sentence of every term, each by its formula."""
    teacher, module, project = prepared.teacher.model.module, student.model.module, student.projections
    theirs, mine = (m(input_ids=ids[None], output_hidden_states=True) for m in (teacher, module))
    t, s = ([layer[0] for layer in found.hidden_states] for found in (theirs, mine))
    z_t, z_s, chosen = theirs.logits[0], mine.logits[0], labels != IGNORED
    temperature = prepared.objective.temperature
    hot_t, hot_s = ((z / temperature).log_softmax(-1) for z in (z_t, z_s))
    through_teacher = teacher.lm_head(project(student.model.n_layers, s[-1]))
    found = dict.fromkeys(TERMS, torch.zeros(()))
    found["mlm"] = F.cross_entropy(z_s[chosen], labels[chosen], reduction="sum")
    found["soft"] = temperature**2 * divergence(hot_t, hot_s)[soft].sum()
    found["softmax_regression"] = -(z_t.softmax(-1) * through_teacher.log_softmax(-1)).sum(-1)[soft].sum()
    found["embedding_mse"] = (project(0, s[0]) - t[0]).square().mean(-1).sum()
    found["embedding_cos"] = (1 - F.cosine_similarity(project(0, s[0]), t[0])).sum()
    for m, n in layers.items():
        states, first = project(m, s[m]), project(m, s[m])[0]
        curved = F.gelu(project.curved[str(m)][0](s[m]))
        a_s, a_t = scores(module, m, s[m - 1]), scores(teacher, n, t[n - 1])
        v_s, v_t = relation(module, m, s[m - 1]), relation(teacher, n, t[n - 1])
        values = {
            "hidden_mse": (states - t[n]).square().mean(-1).sum(),
            "hidden_cos": (1 - F.cosine_similarity(states, t[n])).sum(),
            "hidden_kl": divergence(curved.log_softmax(-1), t[n].log_softmax(-1)).sum(),
            "cls_mse": (first / first.norm() - t[n][0] / t[n][0].norm()).square().mean(),
            "cls_cos": 1 - F.cosine_similarity(first, t[n][0], dim=0),
            "attention_mse": (a_s - a_t).square().mean(dim=(0, 2)).sum(),
            "attention_kl": divergence(a_t.log_softmax(-1), a_s.log_softmax(-1)).mean(0).sum(),
            "value_relation": divergence(v_t.log_softmax(-1), v_s.log_softmax(-1)).mean(0).sum(),
        }
        found |= {term: found[term] + value for term, value in values.items()}
    return found


def literal_terms(prepared, student, batch, layers):
    """The terms of a batch: sums over its sentences, divided by their tokens, sentences or positions."""
    lengths = batch["attention_mask"].sum(dim=1).tolist()
    rows = [
        sentence_terms(prepared, student, layers, *(batch[name][row, :n] for name in ("input_ids", "labels", "soft")))
        for row, n in enumerate(lengths)
    ]
    counts = dict.fromkeys(TERMS, sum(lengths)) | {"cls_mse": len(rows), "cls_cos": len(rows)}
    counts["mlm"] = int((batch["labels"] != IGNORED).sum())
    counts |= dict.fromkeys(("soft", "softmax_regression"), int(batch["soft"].sum()))
    return {term: sum(row[term] for row in rows) / counts[term] for term in TERMS}


@pytest.mark.parametrize("shape", [{}, THIN], ids=["as wide", "thinner"])
def test_every_term_is_its_formula_and_the_layers_are_those_of_the_map(settings, shape):
    chosen = settings(
        losses=WEIGHTS,
        layer_map=[1, 3],
        initialise="random",
        vocabulary={"soft_positions": 0.4},
        **shape,
    )
    prepared = prepare(chosen)
    batches = prepared.batches(0)
    assert any((batch["attention_mask"] == 0).any() for batch in batches.values())  # there is padding
    found, total = prepared.step(batches), torch.zeros(())
    for student in prepared.students:
        batch = batches[student.name]
        expected = literal_terms(prepared, student, batch, {1: 1, 2: 3})
        shifted = literal_terms(prepared, student, batch, {1: 2, 2: 4})  # as if layers were counted from another end
        for term in TERMS:
            value = found.terms[f"{term} {student.name}/{student.name}"]
            torch.testing.assert_close(
                value, expected[term].detach(), rtol=1e-4, atol=1e-6, msg=lambda m, t=term: t + m
            )
            own, other = expected[term].detach(), shifted[term].detach()
            assert torch.equal(own, other) == (term not in OVER_LAYERS)
            assert term not in OVER_LAYERS or abs(value - own) < abs(value - other)
            total = total + WEIGHTS[term] * expected[term]
    torch.testing.assert_close(found.total, total, rtol=1e-4, atol=1e-6)
    assert_same_gradients(prepared, found.total, total)


def assert_same_gradients(prepared, mine, theirs):
    parameters = {id(p): p for module in prepared.modules.values() for p in module.parameters()}
    pairs = [
        torch.autograd.grad(x, list(parameters.values()), allow_unused=True, retain_graph=True) for x in (mine, theirs)
    ]
    assert any(gradient is not None for gradient in pairs[0])
    for a, b in zip(*pairs, strict=True):
        if a is None or b is None:
            assert not torch.count_nonzero(torch.zeros(()) if a is None else a)
            assert not torch.count_nonzero(torch.zeros(()) if b is None else b)
        else:
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
