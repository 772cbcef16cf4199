"""What Python programs hand over: arrays, generators, bytes, missing texts, modules in training, several threads."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pandas as pd
import pytest
import transformers as hf

from residuum import (
    Corpus,
    FeatureTransfer,
    compare,
    diff,
    evaluate_perplexity,
    evaluate_retrieval,
    extract,
    finetune,
    from_transformers,
    import_activations,
    load_adapted,
    load_model,
    predict,
    probe,
    read_corpus,
    read_pairs,
    read_parallel,
    read_transfer,
    transfer,
    trim,
)
from residuum.errors import CorpusError, ModelError, ResiduumError, SettingError, StoreError
from residuum.models.cards import plain
from residuum.shrinking.predicting import corpus_of
from residuum.storage.files import hold_folder, release_folder
from residuum.storage.remote import local_path
from residuum.storage.results import Run, read_run, write_run

WORDS = [["The", "quick", "fox"], ["Привет", ",", "мир"]]


@pytest.mark.parametrize(
    "sentences",
    [
        (["The", "quick", "fox"], ("Привет", ",", "мир")),
        (iter(words) for words in WORDS),
        [np.array(words) for words in WORDS],
        np.array(WORDS),
        np.array(WORDS, dtype=object),
        pd.Series(WORDS),
    ],
    ids=["tuples", "generators", "arrays", "one array", "objects", "series"],
)
def test_a_corpus_is_the_same_whatever_holds_its_words(sentences):
    corpus = Corpus("text", sentences)
    assert corpus.sentences == WORDS
    assert {type(word) for words in corpus.sentences for word in words} == {str}
    assert corpus.fingerprint == Corpus("text", WORDS).fingerprint


@pytest.mark.parametrize(
    ("sentences", "said"),
    [
        ("The quick fox", "found 'The quick fox'; expected a list of words per sentence"),
        (["The quick fox"], "number 1: found 'The quick fox'; expected a list of words"),
        ([WORDS[0], None], "number 2: found None; expected a list of words"),
        ([WORDS[0], ["a", None]], "number 2: found None among its words"),
        ([["a", float("nan")]], "number 1: found nan among its words"),
        ([[b"bytes"]], "found b'bytes' among its words"),
        ([b"bytes"], "found b'bytes'; expected a list"),
        ([["\ud83d"]], "half a surrogate pair"),
        ({"a": ["b"]}, "expected a list of words per sentence"),
        (3, "found 3; expected a list of words per sentence"),
    ],
)
def test_what_is_no_word_is_named_by_its_sentence(sentences, said):
    with pytest.raises(CorpusError, match=r"^text, sentences") as raised:
        Corpus("text", sentences)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_labels_come_as_columns_and_arrays_and_missing_ones_are_none():
    corpus = Corpus(
        "text",
        WORDS,
        labels={"upos": np.array([["DET", "ADJ", "NOUN"], ["INTJ", "PUNCT", "NOUN"]])},
        sentence_labels={"kind": pd.Series(["a", np.nan]), "length": np.array([3, 4])},
        ids=np.array([7, 8]),
    )
    assert corpus.labels["upos"][0] == ["DET", "ADJ", "NOUN"]
    assert corpus.sentence_labels == {"kind": ["a", None], "length": [3, 4]}
    assert corpus.ids == ["7", "8"]
    assert (
        corpus.fingerprint
        == Corpus(
            "text",
            WORDS,
            labels={"upos": [["DET", "ADJ", "NOUN"], ["INTJ", "PUNCT", "NOUN"]]},
            sentence_labels={"kind": ["a", None], "length": [3, 4]},
        ).fingerprint
    )


@pytest.mark.parametrize("text", [None, float("nan"), 3, b"bytes", ["a", None], [3]])
def test_a_text_to_label_that_is_no_text_is_named_by_its_number(text):
    for pairs in (False, True):
        with pytest.raises(CorpusError, match="^Text 1 "):
            corpus_of(["good text" if not pairs else ("a", "b"), text], unit="sentence", pairs=pairs)


@pytest.mark.parametrize("texts", ["The fox", b"The fox", 3, float("nan")])
def test_one_text_to_label_is_not_taken_for_a_list_of_letters(texts):
    with pytest.raises(SettingError, match=r"^texts is .+; expected a list of texts\.$"):
        predict("folder", texts)


@pytest.mark.parametrize("limit", [0, -1, 1.5, float("nan"), True, "x", 10**30])
def test_a_limit_that_is_no_number_of_sentences_is_refused(limit, tmp_path):
    (tmp_path / "a.txt").write_text("One line .\nTwo lines .\n")
    with pytest.raises(SettingError, match="^limit is "):
        read_corpus(tmp_path / "a.txt", limit=limit)
    with pytest.raises(SettingError, match="^limit is "):
        Corpus("text", WORDS).limit(limit)


def test_numbers_of_numpy_limit_and_split_as_plain_ones_do(tmp_path):
    (tmp_path / "a.txt").write_text("One line .\nTwo lines .\n")
    assert len(read_corpus(tmp_path / "a.txt", limit=np.int64(1))) == 1
    plain, of_numpy = Corpus("text", WORDS * 5), Corpus("text", np.array(WORDS * 5))
    expected = [part.sentences for part in plain.split([6, 4], seed=3)]
    assert [part.sentences for part in of_numpy.split(np.array([6, 4]), seed=np.int64(3))] == expected


@pytest.mark.parametrize("label", ["\ud800", b"NOUN", ("a", "b"), 1j])
def test_a_label_that_is_no_text_or_number_is_refused_before_anything_is_read(label, tiny_folder):
    corpus = Corpus("text", WORDS * 8, labels={"upos": [["A", "B", label]] * 16})
    with pytest.raises(CorpusError, match=r"^text has the upos label .+; expected text or a number\.$"):
        probe(str(tiny_folder("bert")), corpus, "upos", progress=False)


def test_labels_and_names_that_are_none_are_refused():
    for labels in (None, "NOUN", 3):
        with pytest.raises(CorpusError, match=r"as labels; expected a list of them\.$"):
            Corpus("text", WORDS, labels={"upos": labels})
    for name in (None, 3, "\ud800"):
        with pytest.raises(CorpusError, match=r"^A corpus has the name .+; expected text\.$"):
            Corpus(name, WORDS)


def test_layers_of_a_store_are_named_as_those_of_a_command(tiny_folder, tmp_path):
    store = extract(tiny_folder("bert"), Corpus("text", WORDS), tmp_path / "acts", progress=False)
    for layers in (1, np.int64(1), np.array([1]), range(1, 2), {1}):
        np.testing.assert_array_equal(store.array(layers), store.array([1]))
    for layers in (1.0, float("nan"), "x", True, [None]):
        with pytest.raises(SettingError, match="^layers is "):
            store.array(layers)


def test_a_failed_extraction_leaves_the_model_whole_and_its_folder_free(tiny_folder, tmp_path):
    model, corpus = load_model(tiny_folder("bert"), device="cpu"), Corpus("text", WORDS)
    before = model.fingerprint, model.module.config.num_hidden_layers
    for layers in (True, 1.5, [True], "9", [0, 9], np.array([0.5])):
        with pytest.raises(SettingError, match=r"[Ll]ayer"):
            extract(model, corpus, tmp_path / "out", layers=layers, progress=False)
    broken = Corpus("text", [*WORDS, ["\u200b\u00ad"]])  # a word of which the tokenizer leaves nothing
    with pytest.raises(ResiduumError):
        extract(model, broken, tmp_path / "broken", layers=[0, 1], progress=False)
    assert (load_model(tiny_folder("bert")).fingerprint, model.module.config.num_hidden_layers) == before
    seen = []
    other = threading.Thread(target=lambda: seen.append(hold_folder(tmp_path / "broken")))
    other.start()
    other.join()
    assert seen == [None], "what failed holds its folder no more"
    release_folder(tmp_path / "broken")


@pytest.mark.parametrize("thing", [None, 3, float("nan"), b"bytes", {"a": "b"}, ["a"]])
def test_what_is_no_model_and_no_store_is_one_clear_error(thing, tmp_path):
    with pytest.raises(ModelError, match=r"^Found .+; expected a model folder, a hub name or a Model\.$"):
        load_model(thing)
    with pytest.raises(SettingError, match=r" is no place; expected a path or an address"):
        local_path(thing)  # which opens stores
    with pytest.raises(ResiduumError):
        compare([thing], corpus=Corpus("text", WORDS), out=tmp_path, progress=False)


@pytest.mark.parametrize("thing", [3, float("nan"), b"bytes", {"a": "b"}, ["a"], "a\0b"])
@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("path", read_pairs),
        ("translations", lambda thing: read_pairs("a.txt", thing)),
        ("folder", load_adapted),
        ("data", lambda thing: read_transfer("sentence", thing, ["tr"])),
    ],
)
def test_what_is_no_path_is_named(name, read, thing):
    with pytest.raises(SettingError, match=rf"^{name} is .+; expected a path\.$"):
        read(thing)


@pytest.mark.parametrize(
    ("said", "call"),
    [
        ("source is ", lambda _: import_activations(["a.npz"], "out")),
        ("texts is ", lambda model: trim(model, {"en": "en.txt"}, "out")),
        ("texts is None", lambda model: evaluate_perplexity(model, None)),
        ("texts is nan", lambda model: evaluate_perplexity(model, float("nan"))),
        (r"texts is \[None\]", lambda model: evaluate_perplexity(model, [None])),
        ("corpus is {'a': 1}", lambda model: diff({"a": model, "b": model}, {"a": 1}, ["upos"], out="out")),
        (r"corpus is \[\]", lambda model: finetune(model, [], "upos", "out")),
        (r"task is \[None\]", lambda model: transfer(model, "a.conllu", [None], "out")),
        ("pairs holds None", lambda model: evaluate_retrieval(model, [None])),
        ("pairs holds 'en'", lambda model: evaluate_retrieval(model, {"en": 1})),
        ("sources is 'None'", lambda _: read_parallel(None)),
        ("sources is 'nan'", lambda _: read_parallel(float("nan"))),
    ],
)
def test_a_container_of_the_wrong_kind_is_named(said, call, tiny_folder):
    with pytest.raises(SettingError, match=f"^{said}"):
        call(str(tiny_folder("bert")))


@pytest.mark.parametrize("settings", [{"device": None}, {"max_memory": float("nan")}, {"layers": 1.5}, {"seed": "x"}])
def test_a_setting_of_loading_that_cannot_be_is_named(settings, tiny_folder):
    with pytest.raises(SettingError, match=rf"(?i)^{next(iter(settings))} "):
        load_model(tiny_folder("bert"), **settings)


@pytest.mark.parametrize("text", [None, float("nan"), 3, b"bytes"])
def test_a_text_to_learn_from_that_is_no_text_is_named_by_its_number(text, tiny_folder):
    for unit, labels in (("sentence", ["a", "b"] * 4), ("word", [["A", "B"]] * 8)):
        with pytest.raises(CorpusError, match=r"^Text 0 is .+; expected text, or a list of words\.$"):
            FeatureTransfer(str(tiny_folder("bert"))).fit([text, *["good text"] * 7], labels), unit


def test_threads_that_load_models_before_anything_is_imported_all_load_one(tiny_folder):
    code = """
import sys
from concurrent.futures import ThreadPoolExecutor
from residuum import load_model
with ThreadPoolExecutor(6) as pool:
    print({model.n_layers for model in pool.map(load_model, [sys.argv[1]] * 6)})
"""
    done = subprocess.run([sys.executable, "-c", code, str(tiny_folder("bert"))], capture_output=True, text=True)
    assert done.stdout == "{3}\n", done.stderr


def test_an_empty_corpus_is_refused_before_anything_is_written(tiny_folder, tmp_path):
    model = load_model(tiny_folder("bert"), device="cpu")
    for sentences in ([], [[]]):
        with pytest.raises(CorpusError, match="holds no words"):
            extract(model, Corpus("text", sentences), tmp_path / "out", progress=False)
    assert not (tmp_path / "out").exists()


def test_a_module_in_training_stays_in_training_and_is_read_without_dropout(tiny_folder, tmp_path):
    tokenizer = hf.AutoTokenizer.from_pretrained(tiny_folder("bert"))
    module = hf.AutoModel.from_pretrained(tiny_folder("bert")).train()
    module.encoder.layer[0].eval()
    modes = [part.training for part in module.modules()]
    model = from_transformers(module, tokenizer)
    first, second = (
        extract(model, Corpus("text", WORDS), tmp_path / name, progress=False).array() for name in ("a", "b")
    )
    assert [part.training for part in module.modules()] == modes
    np.testing.assert_array_equal(first, second)
    still = extract(
        load_model(tiny_folder("bert"), device="cpu"), Corpus("text", WORDS), tmp_path / "c", progress=False
    )
    np.testing.assert_array_equal(first, still.array())


def test_of_two_threads_that_write_to_one_folder_the_second_is_refused(tmp_path):
    said: list[str] = []

    def second():
        try:
            hold_folder(tmp_path / "out")
            said.append("held")
        except StoreError as error:
            said.append(str(error))

    def in_a_thread():
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()

    hold_folder(tmp_path / "out")
    hold_folder(tmp_path / "out")  # the same thread may begin again
    in_a_thread()
    assert said == [f"Another thread is writing to {tmp_path / 'out'}; wait for it, or choose another folder."]
    release_folder(tmp_path / "out")
    in_a_thread()
    assert said[1] == "held"
    hold_folder(tmp_path / "out")  # the thread that held it has ended
    release_folder(tmp_path / "out")


@pytest.mark.parametrize("cell", ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1"])
def test_no_cell_of_a_table_is_a_formula(tmp_path, cell):
    table = pd.DataFrame({"word": [cell, "plain"], "=column()": [-1.5, 2], "count": [1, 2]})
    write_run(tmp_path, Run("test", {}, tables={"words": table}))
    shown = pd.read_csv(tmp_path / "words.csv", keep_default_na=False)
    assert shown["word"][0].startswith("'")
    assert shown["word"][1] == "plain"
    assert list(shown.columns) == ["word", "'=column()", "count"]
    assert shown["'=column()"].tolist() == [-1.5, 2], "numbers stay numbers"
    pd.testing.assert_frame_equal(read_run(tmp_path).tables["words"], table)


def test_signs_that_are_words_stay_words(tmp_path):
    table = pd.DataFrame({"word": ["-", "+", "=", "@", None]})
    write_run(tmp_path, Run("test", {}, tables={"words": table}))
    assert (tmp_path / "words.csv").read_text().splitlines() == ["word", "-", "+", "=", "@", '""']


def test_a_card_shows_a_name_on_one_line_and_without_html():
    assert plain("a\n---\n# b <script>") == "a --- # b &lt;script&gt;"
