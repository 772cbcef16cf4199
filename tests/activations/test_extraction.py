"""Extraction against a plain reading of the model, one sentence at a time."""

import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import torch

from reference import plain_attention, plain_words
from residuum.activations.extraction import Extraction, batches, extract
from residuum.activations.pooling import membership
from residuum.activations.settings import ReadingSettings
from residuum.corpus import Corpus
from residuum.engine import Engine
from residuum.errors import CorpusError, DataError, MemoryLimitError, ModelError, SettingError
from residuum.models.alignment import Aligner
from residuum.models.loading import from_module, load_model
from tiny import FAMILIES, RecurrentLanguageModel, build_tokenizer

SENTENCES = [
    ["The", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog", "."],
    ["dog"],
    ["naïve", "café", "don't", "größere", "Häuser"],
    ["東京", "は", "日本", "の", "首都", "です", "。"],
    ["Watoto", "wanasoma", "vitabu", "shuleni", "kila", "siku"],
]


def corpus(sentences=SENTENCES, **fields) -> Corpus:
    return Corpus(name="test", sentences=sentences, **fields)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("pooling", ["last", "first", "mean", "max"])
def test_words_equal_a_plain_reading_of_one_sentence_at_a_time(family, pooling, tiny_folder, tmp_path):
    store = extract(load_model(tiny_folder(family)), corpus(), tmp_path / "acts", pooling=pooling, batch_tokens=64)
    expected = np.concatenate([plain_words(tiny_folder(family), s, pooling) for s in SENTENCES])
    np.testing.assert_allclose(store.array(), expected, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_attention_goes_from_word_to_word_and_sums_to_one(family, tiny_folder, tmp_path):
    model = load_model(tiny_folder(family), attention=True)
    store = extract(model, corpus(), tmp_path / "acts", attention=True, batch_tokens=64)
    for ours, sentence in zip(store.read_attention(0, len(SENTENCES)), SENTENCES, strict=True):
        np.testing.assert_allclose(np.sum(ours, axis=-1), 1, atol=1e-5)
        np.testing.assert_allclose(np.stack(ours), plain_attention(tiny_folder(family), sentence), atol=1e-5)


def test_a_recurrent_model_is_extracted_without_padding_leaking_in(tmp_path):
    tokenizer = build_tokenizer("wordpiece")
    torch.manual_seed(0)
    network = RecurrentLanguageModel(len(tokenizer))
    model = from_module(network, tokenizer, ["embedding", "first", "second"])
    together = extract(model, corpus(), tmp_path / "together").array()
    alone = [extract(model, corpus([s]), tmp_path / f"alone{i}").array() for i, s in enumerate(SENTENCES)]
    np.testing.assert_allclose(together, np.concatenate(alone), atol=1e-6)


@pytest.mark.parametrize("family", ["bert", "gpt2", "xlm-roberta"])
def test_words_of_a_long_sentence_see_a_whole_window_of_context(family, tiny_folder, tmp_path):
    long = SENTENCES[0] * 12
    model = load_model(tiny_folder(family))
    store = extract(model, corpus([long, SENTENCES[2]]), tmp_path / "acts", layers=[0, 3])
    assert store.n_rows == len(long) + len(SENTENCES[2])
    assert store.audit.windowed == 1
    plain = plain_words(tiny_folder(family), SENTENCES[2], "last")[:, [0, 3]]
    np.testing.assert_allclose(store.array()[len(long) :], plain, atol=1e-5)


def test_attention_of_a_long_sentence_stays_a_distribution(tiny_folder, tmp_path):
    model = load_model(tiny_folder("bert"), attention=True)
    store = extract(model, corpus([SENTENCES[0] * 12]), tmp_path / "acts", attention=True)
    [[*layers]] = store.read_attention(0, 1)
    assert layers[0].shape == (2, 120, 120)
    np.testing.assert_allclose(np.sum(layers, axis=-1), 1, atol=1e-5)


def test_the_layers_asked_for_are_those_of_the_whole_model(tiny_folder, tmp_path):
    for family in ("bert", "gpt2", "albert"):
        model = load_model(tiny_folder(family))
        whole = extract(model, corpus(), tmp_path / f"{family}-all").array()
        part = extract(model, corpus(), tmp_path / f"{family}-part", layers="0,2")
        assert part.layers == [0, 2]
        np.testing.assert_allclose(part.array(), whole[:, [0, 2]], atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_smaller_types_round_and_nothing_else(dtype, tiny_folder, tmp_path):
    model = load_model(tiny_folder("bert"))
    exact = extract(model, corpus(), tmp_path / "float32").array()
    small = extract(model, corpus(), tmp_path / dtype, dtype=dtype).array()
    expected = torch.from_numpy(np.array(exact)).to(getattr(torch, dtype)).float().numpy()
    np.testing.assert_array_equal(small, expected)


@pytest.mark.parametrize(
    ("family", "position", "token"),
    [("bert", "auto", 0), ("gpt2", "auto", -1), ("xlnet", "auto", -1), ("bert", "last", -1)],
)
def test_a_sentence_is_its_architectures_own_position(family, position, token, tiny_folder, tmp_path):
    from transformers import AutoTokenizer

    from reference import plain_model

    store = extract(load_model(tiny_folder(family)), corpus(), tmp_path / "acts", unit="sentence", position=position)
    tokenizer, module = AutoTokenizer.from_pretrained(tiny_folder(family)), plain_model(tiny_folder(family))
    for row, sentence in zip(store.array(), SENTENCES, strict=True):
        with torch.inference_mode():
            encoded = tokenizer(" ".join(sentence), return_tensors="pt")
            states = module(**encoded, output_hidden_states=True).hidden_states
        expected = torch.stack(states)[:, 0, token].numpy()
        np.testing.assert_allclose(row, expected, atol=1e-5)


def test_the_mean_position_averages_over_windows_by_their_length(tiny_folder, tmp_path):
    model = load_model(tiny_folder("bert"))
    short = extract(model, corpus([SENTENCES[0]]), tmp_path / "a", unit="sentence", position="mean").array()
    words = extract(model, corpus([SENTENCES[0]]), tmp_path / "b", pooling="mean")
    tokens = [len(build_tokenizer("wordpiece").tokenize(w)) for w in SENTENCES[0]]
    expected = np.average(words.array(), axis=0, weights=tokens)
    np.testing.assert_allclose(short[0], expected, atol=1e-5)


def test_pairs_are_read_together(tiny_folder, tmp_path):
    from transformers import AutoTokenizer

    from reference import plain_model

    pairs = corpus(pairs=[list(reversed(s)) for s in SENTENCES])
    store = extract(load_model(tiny_folder("bert")), pairs, tmp_path / "acts", unit="sentence")
    encoded = AutoTokenizer.from_pretrained(tiny_folder("bert"))(
        " ".join(SENTENCES[2]), " ".join(reversed(SENTENCES[2])), return_tensors="pt"
    )
    with torch.inference_mode():
        output = plain_model(tiny_folder("bert"))(**encoded)
    np.testing.assert_allclose(store.array()[2, -1], output.last_hidden_state[0, 0].numpy(), atol=1e-5)
    with pytest.raises(SettingError, match="pairs of sentences"):
        extract(load_model(tiny_folder("bert")), pairs, tmp_path / "words")


def test_lost_words_stop_the_run_unless_they_are_allowed(tiny_folder, tmp_path):
    holes = corpus([["fox", "\u200b", "dog"], ["\u200b"], ["ok"]])
    model = load_model(tiny_folder("bert"))
    with pytest.raises(CorpusError, match=r"2 of 5 words are lost .*word 2 '\\u200b' of sentence 1"):
        extract(model, holes, tmp_path / "strict")
    store = extract(model, holes, tmp_path / "lenient", max_loss=0.5)
    assert store.n_rows == 3
    assert store.row_words.tolist() == [[0, 0], [0, 2], [2, 0]]
    assert store.manifest.shards[0].absent == [(0, 1), (1, 0)]


def test_results_stand_in_corpus_order_whatever_the_batches(tiny_folder, tmp_path):
    model = load_model(tiny_folder("bert"))
    many = corpus(SENTENCES * 5)
    one = extract(model, many, tmp_path / "one", batch_tokens=1).array()
    for tokens, words in [(32, 20), (512, 7), (4096, 1000)]:
        other = extract(model, many, tmp_path / f"{tokens}", batch_tokens=tokens, shard_words=words)
        np.testing.assert_allclose(other.array(), one, atol=1e-5)


def test_nan_weights_are_found_and_placed(tiny_folder, tmp_path):
    model = load_model(tiny_folder("bert"))
    with torch.no_grad():
        model.module.encoder.layer[1].output.dense.bias[5] = float("nan")
    with pytest.raises(DataError, match="layer 2 of bert has nan at neuron .* in sentence 1"):
        extract(model, corpus(), tmp_path / "acts")


def test_overflow_of_float16_is_found(tiny_folder, tmp_path):
    model = load_model(tiny_folder("gpt2"))
    with torch.no_grad():
        model.module.wte.weight[:, 3] = 1e6
    with pytest.raises(DataError, match="layer 0 of gpt2 has inf at neuron 3.*--dtype float32 or bfloat16"):
        extract(model, corpus(), tmp_path / "acts", dtype="float16")


def test_a_position_the_model_does_not_have_is_refused(tiny_folder, tmp_path):
    with pytest.raises(ModelError, match=r"gpt2 has no \[CLS\]"):
        extract(load_model(tiny_folder("gpt2")), corpus(), tmp_path / "acts", unit="sentence", position="cls")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"pooling": "median"}, "pooling is 'median'; expected one of last, first, mean, max"),
        ({"dtype": "int8"}, "dtype is 'int8'"),
        ({"unit": "letter"}, "unit is 'letter'"),
        ({"batch_tokens": 0}, "batch_tokens is 0; expected a whole number at least 1"),
        ({"layers": "7"}, "Layer 7 does not exist"),
        ({"attention": True, "unit": "sentence"}, "word by word"),
    ],
)
def test_unusable_settings_are_refused_before_anything_is_written(setting, message, tiny_folder, tmp_path):
    with pytest.raises(SettingError, match=message):
        extract(load_model(tiny_folder("bert")), corpus(), tmp_path / "acts", **setting)
    assert not (tmp_path / "acts").exists()


def test_batches_hold_everything_once_within_the_budget():
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 60, 300).tolist()
    groups = list(batches(sizes, 200))
    assert sorted(i for g in groups for i in g) == list(range(300))
    assert all(max(sizes[i] for i in g) * len(g) <= 200 for g in groups)
    assert list(batches([500, 3], 200)) == [[0], [1]]
    assert all(len({sizes[i] for i in g}) == 1 for g in batches(sizes, 200, pads=False))


def test_real_models_agree_with_a_plain_reading(real_models, data, tmp_path):
    from residuum.corpus import read_corpus

    treebank = read_corpus(data / "treebanks/UD_English-PUD", limit=30)
    for name in ("gte-small", "paraphrase-MiniLM-L3-v2"):
        store = extract(load_model(real_models / name), treebank, tmp_path / name)
        row = 0
        for sentence in treebank.sentences[:5]:
            expected = plain_words(real_models / name, sentence, "last")
            np.testing.assert_allclose(store.array()[row : row + len(sentence)], expected, atol=2e-5)
            row += len(sentence)


def test_a_batch_that_does_not_fit_the_memory_is_refused(tiny_folder, tmp_path):
    model, corpus = load_model(tiny_folder("bert"), attention=True), Corpus(name="long", sentences=[["the"] * 20] * 200)
    options = {"attention": True, "max_memory": 12_000_000, "progress": False}
    assert extract(model, corpus, tmp_path / "small", **options).n_rows == 4000
    with pytest.raises(MemoryLimitError, match=r"'extraction' of bert: 4,000 words .+ lower --batch-tokens"):
        extract(model, corpus, tmp_path / "large", batch_tokens=1_000_000, **options)


def test_the_weights_of_every_process_of_this_machine_are_counted(tiny_folder, tmp_path):
    model, corpus = load_model(tiny_folder("bert")), Corpus(name="long", sentences=[["the"] * 20] * 200)
    plan = Extraction(model, corpus, list(range(model.n_layers + 1)), ReadingSettings(shard_words=400))
    one, two = (plan.cost(plan.step(Engine(n)), Engine(n)).largest[1] for n in (1, 2))  # alone: two groups at once
    (largest,) = {plan.step(Engine(n)).memory for n in (2, 3)}
    assert one < two == 2 * largest + model.n_bytes
    with pytest.raises(MemoryLimitError, match="or --workers"):
        extract(model, corpus, tmp_path / "acts", shard_words=400, workers=2, max_memory=two - 1, progress=False)


def test_a_line_of_a_million_words_is_refused_within_the_limit(tiny_folder, tmp_path):
    model, text = load_model(tiny_folder("bert")), corpus([["the"] * 1_000_000])
    tracemalloc.start()
    with pytest.raises(MemoryLimitError, match=r"1,000,000 words × 1 layers needs .* --max-memory allows 500\.0 MB"):
        extract(model, text, tmp_path / "acts", layers=[1], max_memory=500_000_000, progress=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000_000
    assert not (tmp_path / "acts").exists()


@pytest.mark.parametrize("options", [{"unit": "word"}, {"unit": "sentence", "position": "mean"}])
def test_a_long_sentence_is_extracted_in_the_memory_that_was_predicted(options, tiny_folder, tmp_path):
    """In a process that can have no more: the prediction holds what the system is asked for."""
    script = (
        "import resource, sys; from pathlib import Path; import pandas, scipy.linalg, pyarrow; pyarrow.array([1])\n"
        "from residuum.activations.extraction import extract; from residuum.corpus import Corpus\n"
        "from residuum.models.loading import load_model\n"
        f"model, options = load_model({str(tiny_folder('bert'))!r}), {options!r}\n"
        "text = lambda n: Corpus('long', [['quick', 'größere'] * (n // 2)])\n"
        f"out = Path({str(tmp_path)!r})\n"
        "extract(model, text(100), out / 'short', progress=False, **options)\n"
        "held = int(Path('/proc/self/statm').read_text().split()[5]) * resource.getpagesize()\n"
        "bound = held + 420_000_000\n"
        "long = text(100_000)\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (bound, bound))\n"
        "print(extract(model, long, out / 'long', max_memory=420_000_000, progress=False, **options))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "100,000 words" in done.stdout or "1 sentences" in done.stdout, done.stderr[-600:]


def test_attention_of_a_long_sentence_needs_each_window_only_its_own_words(tiny_folder, tmp_path):
    model, text = load_model(tiny_folder("bert"), attention=True), corpus([["fox"] * 400])
    alignments = Extraction(model, text, [1], ReadingSettings(attention=True)).align(
        Aligner(model.tokenizer, model.window), 0, 1
    )
    places = [alignments[0].words_in(v) for v in range(len(alignments[0].windows))]
    assert len(places) > 10
    assert membership(places, model.window).shape[1] <= model.window
    [[attention]] = extract(model, text, tmp_path / "acts", layers=[1], attention=True).read_attention(0, 1)
    seen = np.zeros((400, 400), dtype=bool)
    for window, placed in enumerate(places):
        seen[np.ix_(placed.word[alignments[0].choice[placed.word] == window], placed.word)] = True
    assert (attention[:, ~seen] == 0).all()
    assert (attention[:, seen] > 0).all()
