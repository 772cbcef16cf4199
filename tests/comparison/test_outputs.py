"""Functional similarity: what models with heads predict, against plain forward passes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers as hf

from residuum.comparison.compare import compare
from residuum.corpus import Corpus
from residuum.errors import SettingError
from residuum.maths.similarity import similarity
from residuum.reporting.report import section

RNG = np.random.default_rng(0)
WORDS = "the quick brown fox jumps over lazy dog reads a small text word by größere Häuser 東京 naïve .".split()
SENTENCES = [[str(w) for w in RNG.choice(WORDS, RNG.integers(2, 9))] for _ in range(20)]
CORPUS = Corpus(name="test", sentences=SENTENCES)
SETTINGS = {"measures": "cka,outputs", "groups": 5, "workers": 1, "progress": False}


def headed(folder, root, head: str, seed: int, **config):
    """A tiny model with a fresh head, as a folder called after both."""
    torch.manual_seed(seed)
    model = getattr(hf, f"AutoModelFor{head}").from_config(hf.AutoConfig.from_pretrained(folder, **config)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    out = root / f"{head}-{seed}"
    model.save_pretrained(out)
    hf.AutoTokenizer.from_pretrained(folder).save_pretrained(out)
    return out


@torch.inference_mode()
def logits(folder, head: str) -> np.ndarray:
    """The logits of the last sub-word of every word, or of every sentence."""
    model = getattr(hf, f"AutoModelFor{head}").from_pretrained(folder).eval()
    tokenizer, rows = hf.AutoTokenizer.from_pretrained(folder), []
    for words in SENTENCES:
        batch = tokenizer(" ".join(words), return_tensors="pt", return_offsets_mapping=True)
        offsets = batch.pop("offset_mapping")[0].tolist()
        found = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[0]
        ends = np.cumsum([len(word) + 1 for word in words]) - 1
        places = [max(i for i, (a, b) in enumerate(offsets) if a < b and b <= end) for end in ends]
        rows.append(found[None] if found.ndim == 1 else found[places])
    return torch.cat(rows).double().numpy()


@pytest.mark.parametrize(
    ("family", "head", "config"),
    [
        ("bert", "MaskedLM", {}),
        ("gpt2", "CausalLM", {}),
        ("bert", "TokenClassification", {"num_labels": 4}),
        ("bert", "SequenceClassification", {"num_labels": 3}),
    ],
)
def test_against_plain_forward_passes(family, head, config, tiny_folder, tmp_path):
    places = [headed(tiny_folder(family), tmp_path, head, seed, **config) for seed in (1, 2)]
    result = compare([f"{place.name}={place}" for place in places], CORPUS, **SETTINGS)
    x, y = (logits(place, head) for place in places)
    for measure in ("output_js", "output_agreement"):
        rows = result.outputs.query("measure == @measure")
        assert list(rows["value"]) == pytest.approx([similarity(x, y, measure)] * 2, abs=1e-5)
        assert (rows["low"] <= rows["value"]).all()
        assert (rows["value"] <= rows["high"]).all()
    assert (rows["high"] - rows["low"] > 0).all() == (rows["value"] > 0).all()
    said = {finding.topic: finding.text for finding in section(result.run).findings}
    assert "predict the same most often" in said["Outputs"]
    assert "Do the models predict the same?" in [panel.title for panel in section(result.run).panels]


def test_only_models_with_heads_over_the_same_classes_are_compared(tiny_folder, tmp_path):
    bert = tiny_folder("bert")
    heads = [headed(bert, tmp_path, "TokenClassification", seed, num_labels=4) for seed in (1, 2)]
    other = headed(bert, tmp_path, "TokenClassification", 3, num_labels=3)
    result = compare([*heads, other, bert], CORPUS, **SETTINGS)
    assert set(result.outputs["model_a"]) == {place.name for place in heads}
    assert result.layers["model"].nunique() == 4
    assert "outputs of TokenClassification-3, bert (no head" in result.run.summary["left out"]
    with pytest.raises(SettingError, match="of 2 sources 1 have a head, and no two the same"):
        compare([other, bert], CORPUS, **SETTINGS)
    with pytest.raises(SettingError, match="stand beside those of layers"):
        compare(heads, CORPUS, measures="outputs")
    with pytest.raises(SettingError, match="has no measures of outputs"):
        compare([bert], CORPUS, measures="cka", progress=False).outputs  # noqa: B018
