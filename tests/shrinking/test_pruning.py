"""`prune`: by position and by measurement; what is written is read back as it should be."""

import shutil
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch
import transformers as hf

from residuum.corpus import Corpus
from residuum.errors import SettingError, StoreError
from residuum.maths.similarity import similarity
from residuum.models.loading import from_transformers
from residuum.models.surgery import load_whole
from residuum.probing.probe import probe
from residuum.reporting.report import section
from residuum.samples import sample, sample_text
from residuum.shrinking.planning import Sample, block_influence
from residuum.shrinking.pruning import prune
from residuum.storage.results import read_run
from tiny import TEXT, save_model


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    """A model of six layers of which the fourth passes its input on, but for the norm that follows."""
    folder = save_model("bert", tmp_path_factory.mktemp("deep") / "bert", num_hidden_layers=6)
    network = hf.AutoModel.from_pretrained(folder)
    with torch.no_grad():
        for name, weight in network.encoder.layer[3].named_parameters():
            if name.endswith(("output.dense.weight", "output.dense.bias")):
                weight.zero_()
            elif "LayerNorm.weight" in name:
                weight.fill_(1)
            elif "LayerNorm.bias" in name:
                weight.zero_()
        for name, weight in network.encoder.layer[2].named_parameters():  # so that the norms find nothing to do
            if name == "output.LayerNorm.weight":
                weight.fill_(1)
            elif name == "output.LayerNorm.bias":
                weight.zero_()
    network.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def corpus():
    return Corpus(name="words", sentences=[sentence.split() for sentence in TEXT[:8]])


@pytest.mark.parametrize("by", ["cka", "angular"])
def test_a_layer_that_does_nothing_goes_first(by, deep, corpus, tmp_path):
    result = prune(deep, tmp_path, by=by, drop=1, corpus=corpus)
    assert result.kept == [1, 2, 3, 5, 6]
    assert hf.AutoModel.from_pretrained(tmp_path).config.num_hidden_layers == 5
    with torch.inference_mode():
        ids = torch.tensor([[2, 9, 11, 3]])
        states = [hf.AutoModel.from_pretrained(folder).eval()(ids).last_hidden_state for folder in (deep, tmp_path)]
    torch.testing.assert_close(*states, atol=1e-4, rtol=1e-4)


def test_the_measured_cka_is_that_of_the_activations(deep, corpus, tmp_path):
    from residuum.activations.live import LiveActivations

    result = prune(deep, tmp_path, by="cka", keep=2, corpus=corpus)
    assert len(result.kept) == 2
    layers = LiveActivations.of(from_transformers(*load_whole(deep)), corpus).read(0, len(corpus)).layers
    expected = [similarity(a, b, "cka") for a, b in pairwise(layers)]
    np.testing.assert_allclose(result.frame["value"], expected, atol=1e-6)
    dropped = result.frame.loc[~result.frame["kept"], "value"]
    assert dropped.min() >= result.frame.loc[result.frame["kept"], "value"].max()


def test_a_model_is_never_written_over_itself(deep, run, tmp_path):
    own = shutil.copytree(deep, tmp_path / "own")
    before = (own / "model.safetensors").read_bytes()
    for words in (["prune", own, "--drop", "top:1"], ["trim", own, own / "config.json"]):
        status, _, err = run(*words, "--out", own)
        assert status == 1
        assert "is the model itself, which would be lost" in err
    assert (own / "model.safetensors").read_bytes() == before


def test_a_pruned_model_that_is_gone_is_told(deep, tmp_path):
    prune(deep, tmp_path, drop="top:1")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(StoreError, match="had a model, which is gone; make it again with --fresh"):
        prune(deep, tmp_path, drop="top:1")
    assert prune(deep, tmp_path, drop="top:1", fresh=True).kept == [1, 2, 3, 4, 5]


def test_a_part_of_a_folder_is_measured_on(deep, tmp_path):
    for split, size in (("train", 20), ("dev", 10), ("test", 10)):
        (tmp_path / f"bank-{split}.conllu").write_text(sample_text("treebank", size=size, split=split), "utf-8")
    found = prune(deep, tmp_path / "out", by="cka", keep=2, corpus=tmp_path, split="dev")
    alone = prune(deep, tmp_path / "alone", by="cka", keep=2, corpus=tmp_path / "bank-dev.conllu")
    assert found.run.config == alone.run.config
    with pytest.raises(SettingError, match="split is dev; a probe learns from one part"):
        prune(deep, tmp_path / "probe", by="probe", keep=2, corpus=tmp_path, task="upos", split="dev")


def test_angular_distance_drops_neighbours(deep, corpus, tmp_path):
    kept = prune(deep, tmp_path, by="angular", drop=3, corpus=corpus).kept
    dropped = sorted(set(range(1, 7)) - set(kept))
    assert dropped == list(range(dropped[0], dropped[0] + 3))


def test_probe_gain_measures_what_each_layer_adds(deep, tmp_path):
    treebank = sample("treebank", size=240)
    result = prune(deep, tmp_path, by="probe", drop=2, corpus=treebank, task="upos")
    values = result.frame.set_index("layer")["value"]
    dropped = values[~values.index.isin(result.kept)]
    assert sorted(dropped) == sorted(values)[:2]
    model = from_transformers(*load_whole(deep))
    scores = probe(model, treebank, "upos", seeds=1, subsets=False, random_twin=False).frame
    of_layers = scores.loc[scores["layer"].notna(), "dev"].to_numpy()
    np.testing.assert_allclose(values, np.diff(of_layers), atol=1e-9)
    assert np.diff(of_layers).any(), "the sign could not be told"


def test_another_text_at_the_same_path_is_another_run(deep, tmp_path):
    path = tmp_path / "bank.conllu"
    path.write_text(sample_text("treebank", size=30), encoding="utf-8")
    options = {"by": "probe", "drop": 1, "corpus": path, "task": "upos"}
    first = prune(deep, tmp_path / "out", **options)
    assert prune(deep, tmp_path / "out", **options).run.config == first.run.config
    path.write_text(sample_text("treebank", size=30, seed=1), encoding="utf-8")
    with pytest.raises(StoreError, match="holds another run"):
        prune(deep, tmp_path / "out", **options)


@pytest.mark.parametrize("by", ["cka", "angular"])
def test_a_limit_holds_for_a_corpus_too(by, deep, corpus, tmp_path):
    found = [
        prune(deep, tmp_path / name, by=by, drop=1, corpus=text, limit=limit).frame["value"]
        for name, text, limit in (("limited", corpus, 3), ("short", corpus.limit(3), None), ("whole", corpus, None))
    ]
    np.testing.assert_array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


def test_by_position_the_record_says_what_went(tiny_folder, tmp_path):
    result = prune(tiny_folder("gpt2"), tmp_path, drop="top:1")
    assert result.kept == [1, 2]
    again = read_run(tmp_path)
    assert again.summary["parameters after"] < again.summary["parameters before"]
    pd.testing.assert_frame_equal(
        again.tables["layers"], pd.DataFrame({"layer": [1, 2, 3], "kept": [True, True, False]})
    )


def test_the_same_again_returns_at_once_and_another_needs_fresh(tiny_folder, tmp_path):
    prune(tiny_folder("bert"), tmp_path, drop="top:1")
    written = (tmp_path / "model.safetensors").stat().st_mtime_ns
    assert prune(tiny_folder("bert"), tmp_path, drop="top:1").kept == [1, 2]
    assert (tmp_path / "model.safetensors").stat().st_mtime_ns == written
    with pytest.raises(StoreError, match="drop top:1 → top:2"):
        prune(tiny_folder("bert"), tmp_path, drop="top:2")
    assert prune(tiny_folder("bert"), tmp_path, drop="top:2", fresh=True).kept == [1]
    assert hf.AutoModel.from_pretrained(tmp_path).config.num_hidden_layers == 1


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({}, "prune needs drop= or keep="),
        ({"by": "luck", "drop": 1}, "by is 'luck'; expected one of cka, angular, influence"),
        ({"by": "cka", "drop": 1}, "by is 'cka', which needs text; give a corpus"),
        ({"ffn": 0.5}, "ffn is 0.5, which needs text; give a corpus"),
        ({"drop": "1", "heal": 3}, "heal is 3, which needs text; give a corpus"),
        ({"by": "cka", "ffn": 0.5, "corpus": "x.txt"}, "pass drop= or keep= with their number"),
        ({"drop": "1", "iterative": True}, "iterative measures again after each layer; pass by="),
        ({"by": "probe", "drop": 1, "corpus": "x.conllu"}, "needs a task"),
        ({"by": "cka", "drop": 1, "corpus": "x.txt", "task": "upos"}, "uses no task; leave it out"),
        ({"drop": "1", "limit": 3}, "A limit is given, but no text; give a corpus, or leave it out"),
    ],
)
def test_choices_that_do_not_fit_together_are_refused(choice, message, tiny_folder, tmp_path):
    with pytest.raises(SettingError, match=message):
        prune(tiny_folder("bert"), tmp_path, **choice)


@pytest.mark.parametrize("number", ["top:1", 3, 0])
def test_a_measurement_needs_a_number_of_layers(number, tiny_folder, corpus, tmp_path):
    with pytest.raises(SettingError, match="with a measurement expected the number of layers, from 1 to 2"):
        prune(tiny_folder("bert"), tmp_path, by="cka", drop=number, corpus=corpus)


@pytest.mark.parametrize("family", ["bert", "xlnet"])
def test_influence_counts_every_token_of_every_line_once(family, tiny_folder):
    network, tokenizer = load_whole(tiny_folder(family))
    whole, *parts = (Sample.of(network, tokenizer, lines, None) for lines in (TEXT[:3], *zip(TEXT[:3], strict=True)))
    sizes = [int(part.batches[0]["attention_mask"].sum()) for part in parts]
    expected = np.average([block_influence(network, part) for part in parts], axis=0, weights=sizes)
    np.testing.assert_allclose(block_influence(network, whole), expected, rtol=1e-4)


def test_the_types_of_layers_are_cut_with_the_layers(tiny_folder, tmp_path):
    tokenizer = hf.AutoTokenizer.from_pretrained(tiny_folder("gpt2"))
    types = ["full_attention", "sliding_attention", "sliding_attention"]
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = hf.Qwen3Config(
        vocab_size=len(tokenizer), num_hidden_layers=3, head_dim=8, layer_types=types, sliding_window=4,
        use_sliding_window=True, bos_token_id=0, eos_token_id=0, **sizes,
    )  # fmt: skip
    hf.Qwen3ForCausalLM(config).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    result = prune(tmp_path / "model", tmp_path / "out", drop="2")
    written = hf.AutoConfig.from_pretrained(result.folder)
    assert (written.layer_types, written.num_hidden_layers) == (["full_attention", "sliding_attention"], 2)


def test_the_report_shows_which_layers_went(deep, corpus, tmp_path):
    shown = section(prune(deep, tmp_path, by="cka", drop=1, corpus=corpus).run)
    assert shown.facts["layers"] == "5 of 6"
    assert shown.findings[0].text.startswith("Layer 4 was dropped (1 layer), which saves")
    criterion = next(panel for panel in shown.panels if panel.title == "Criterion")
    assert [trace.name for trace in criterion.views[0].figure.data] == ["kept", "dropped"]
