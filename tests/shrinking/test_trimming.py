"""Trimming: the kept text is split as before, the model says the same, and what is saved is counted."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
import transformers as hf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from residuum.errors import CorpusError, ModelError, SettingError, StoreError
from residuum.models.vocabularies import changed_lines, count_pieces, cut_vocabulary
from residuum.samples import sample_text, teacher_folder
from residuum.shrinking.trimming import trim
from residuum.storage.results import read_run
from teachers import LINES, TEXT, save_teacher, tokenizer_of
from tiny import TEXT as TINY_TEXT
from tiny import save_model

FAMILIES = ("bert", "distilbert", "mpnet", "roberta", "gpt2", "gpt", "xlm-roberta")


@pytest.mark.parametrize("family", FAMILIES)
def test_the_kept_text_is_split_as_before(family):
    tokenizer = tokenizer_of(family)
    vocabulary = cut_vocabulary(tokenizer, count_pieces(tokenizer, LINES["tr"]))
    assert len(vocabulary.kept) < len(tokenizer)
    assert len(vocabulary.tokenizer) == len(vocabulary.kept)
    assert changed_lines(tokenizer, vocabulary, LINES["tr"]) == 0
    old, new = (t(LINES["tr"])["input_ids"] for t in (tokenizer, vocabulary.tokenizer))  # with special tokens
    assert [vocabulary.kept[ids].tolist() for ids in new] == old
    assert [vocabulary.tokenizer.decode(ids) for ids in new] == [tokenizer.decode(ids) for ids in old]
    for name in ("pad", "mask", "cls", "unk", "eos"):
        assert getattr(vocabulary.tokenizer, f"{name}_token") == getattr(tokenizer, f"{name}_token")


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt", "xlm-roberta"])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(st.text("abekorxşğü東é. ", min_size=1, max_size=12), min_size=1, max_size=6))
def test_any_text_is_split_as_before_by_its_own_vocabulary(family, words):
    tokenizer = tokenizer_of(family)
    lines = [word for word in words if word.strip()] or ["a"]
    vocabulary = cut_vocabulary(tokenizer, count_pieces(tokenizer, lines))
    assert changed_lines(tokenizer, vocabulary, lines) == 0


def test_the_old_pieces_would_be_missed_if_they_were_not_counted():
    tokenizer = tokenizer_of("xlm-roberta")
    vocabulary = cut_vocabulary(tokenizer, count_pieces(tokenizer, LINES["sw"]))
    assert changed_lines(tokenizer, vocabulary, LINES["tr"]) > 0


def test_bytes_or_the_unknown_piece_stand_for_what_was_cut():
    of_bytes, of_pieces = tokenizer_of("roberta"), tokenizer_of("bert")
    first, second = (cut_vocabulary(t, count_pieces(t, LINES["en"])) for t in (of_bytes, of_pieces))
    assert (first.fallback, second.fallback) == ("bytes", "unknown")
    assert first.tokenizer.decode(first.tokenizer("東京")["input_ids"], skip_special_tokens=True) == "東京"
    assert second.tokenizer.tokenize("東京")[0] == "[UNK]"
    assert second.new_ids(len(of_pieces))[of_pieces.convert_tokens_to_ids("東")] == second.tokenizer.unk_token_id


def test_rare_pieces_are_cut_by_their_count():
    tokenizer = tokenizer_of("bert")
    counts = count_pieces(tokenizer, TEXT)
    sizes = [len(cut_vocabulary(tokenizer, counts, minimum).kept) for minimum in (1, 5, 9)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1]


def test_texts_that_are_always_read_keep_their_pieces():
    tokenizer = tokenizer_of("bert")
    counts = count_pieces(tokenizer, LINES["sw"])
    without, kept = (cut_vocabulary(tokenizer, counts, 2, always) for always in ((), LINES["tr"][:1]))
    assert changed_lines(tokenizer, without, LINES["tr"][:1]) == 1
    assert changed_lines(tokenizer, kept, LINES["tr"][:1]) == 0


@pytest.mark.parametrize("family", ["bert", "distilbert", "mpnet", "roberta", "gpt2", "xlm-roberta"])
def test_the_model_says_the_same_about_the_kept_text(family, tmp_path):
    teacher = save_teacher(family, tmp_path / "teacher", layers=2)
    text = tmp_path / "tr.txt"
    text.write_text("\n".join(LINES["tr"] + LINES["sw"] + LINES["en"]), encoding="utf-8")
    result = trim(teacher, text, tmp_path / "small")
    kind = hf.AutoModelForCausalLM if family == "gpt2" else hf.AutoModelForMaskedLM
    logits = []
    for folder in (teacher, tmp_path / "small"):
        tokenizer = hf.AutoTokenizer.from_pretrained(folder)
        batch = tokenizer(LINES["tr"][:1], return_tensors="pt")
        batch.pop("token_type_ids", None)
        with torch.inference_mode():
            logits.append(kind.from_pretrained(folder)(**batch).logits)
    kept = result.frame["old_id"].to_list()
    torch.testing.assert_close(logits[0][..., kept], logits[1], rtol=1e-4, atol=1e-5)
    summary = result.run.summary
    assert summary["parameters before"] - summary["parameters after"] == summary["parameters saved"] > 0
    assert summary["lines split in another way"] == 0


def test_several_texts_are_one_union_and_the_same_run_returns_at_once(tmp_path):
    teacher = save_teacher("bert", tmp_path / "teacher", layers=1)
    files = []
    for language in ("en", "sw"):
        files.append(tmp_path / f"{language}.txt")
        files[-1].write_text("\n".join([*LINES[language], *LINES["tr"]]), encoding="utf-8")
    both = trim(teacher, files, tmp_path / "both")
    single = [set(trim(teacher, file, tmp_path / file.stem).frame["piece"]) for file in files]
    assert set(both.frame["piece"]) == single[0] | single[1]
    before = (tmp_path / "both" / "model.safetensors").stat().st_mtime_ns
    assert np.array_equal(trim(teacher, files, tmp_path / "both").frame, both.frame)
    assert (tmp_path / "both" / "model.safetensors").stat().st_mtime_ns == before


def test_another_text_of_the_same_name_is_another_run(tmp_path):
    teacher, text = save_teacher("bert", tmp_path / "teacher", layers=1), tmp_path / "text.txt"
    text.write_text("\n".join(LINES["en"]), encoding="utf-8")
    trim(teacher, text, tmp_path / "out")
    text.write_text("\n".join(LINES["tr"]), encoding="utf-8")
    with pytest.raises(StoreError, match="holds another run"):
        trim(teacher, text, tmp_path / "out")
    again = trim(teacher, text, tmp_path / "out", fresh=True)
    assert again.run.summary["lines split in another way"] == 0


def test_a_column_of_json_lines_gives_the_vocabulary_of_its_text(tmp_path, run):
    teacher, text, table = (
        save_teacher("bert", tmp_path / "teacher", layers=1),
        tmp_path / "t.txt",
        tmp_path / "t.jsonl",
    )
    text.write_text("\n".join(LINES["tr"]), encoding="utf-8")
    table.write_text("".join(json.dumps({"en": "xyz", "tr": line}) + "\n" for line in LINES["tr"]), encoding="utf-8")
    plain = trim(teacher, text, tmp_path / "plain")
    run("trim", teacher, table, "--text", "tr", "--out", tmp_path / "column")
    assert read_run(tmp_path / "column").tables["pieces"].equals(plain.frame)
    with pytest.raises(CorpusError, match="has none that is known to hold text; its columns are 'en', 'tr'"):
        trim(teacher, table, tmp_path / "none")
    with pytest.raises(StoreError, match="holds another run"):  # the column decides, so it is part of the run
        trim(teacher, table, tmp_path / "column", text="en")


def test_a_model_without_a_pooler_is_trimmed(tmp_path):
    folder = save_model("bert", tmp_path / "teacher")
    model = hf.AutoModel.from_pretrained(folder)
    model.pooler = None
    model.save_pretrained(folder)
    (tmp_path / "text.txt").write_text("\n".join(LINES["en"]), encoding="utf-8")
    trim(folder, tmp_path / "text.txt", tmp_path / "out")
    _, info = hf.AutoModel.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert {name.partition(".")[0] for name in info["missing_keys"]} == {"pooler"}


def test_the_command_line_trims_and_says_what_it_saved(tmp_path):
    teacher = save_teacher("xlm-roberta", tmp_path / "teacher", layers=1)
    (tmp_path / "sw.txt").write_text("\n".join(LINES["sw"] + LINES["tr"]), encoding="utf-8")
    command = [sys.executable, "-m", "residuum", "trim", teacher, tmp_path / "sw.txt", "--out", tmp_path / "o"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    saved = read_run(tmp_path / "o").summary["parameters saved"]
    assert f"{saved:,} parameters" in done.stdout


def test_clear_errors(tmp_path):
    teacher = save_teacher("bert", tmp_path / "teacher", layers=1)
    with pytest.raises(SettingError, match="No text was given"):
        trim(teacher, [], tmp_path / "x")
    with pytest.raises(CorpusError, match="does not exist"):
        trim(teacher, tmp_path / "none" / "here.txt", tmp_path / "x")
    (tmp_path / "blank.txt").write_text("\n \n")
    with pytest.raises(CorpusError, match="no line of text"):
        trim(teacher, tmp_path / "blank.txt", tmp_path / "x")
    slow = type("Slow", (), {"backend_tokenizer": None, "all_special_tokens": []})()
    with pytest.raises(ModelError, match="not a fast tokenizer"):
        cut_vocabulary(slow, np.zeros(1))


def test_real_text_is_split_as_before(data, real_models):
    tokenizer = hf.AutoTokenizer.from_pretrained(real_models / "gte-small")
    source = [data / "text" / "common_voice" / language / "sentence-collector.txt" for language in ("de", "tr", "sw")]
    lines = [line for path in source for line in path.read_text(encoding="utf-8").splitlines()[:2000]]
    vocabulary = cut_vocabulary(tokenizer, count_pieces(tokenizer, lines))
    assert len(vocabulary.kept) < len(tokenizer)
    assert changed_lines(tokenizer, vocabulary, lines) == 0


def sample_lines(*languages):
    return [line for name in languages for line in sample_text("text", language=name, size=300).splitlines() if line]


def trained_bpe(lines, size, *, of_bytes):
    """A BPE tokenizer trained on a text, on its bytes or on its characters."""
    tokenizer = Tokenizer(models.BPE(unk_token=None if of_bytes else "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel() if of_bytes else pre_tokenizers.Whitespace()
    alphabet = pre_tokenizers.ByteLevel.alphabet() if of_bytes else []
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=["<unk>", "<pad>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(lines, trainer)
    return hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", pad_token="<pad>")


def assert_split_as_before(tokenizer, lines):
    vocabulary = cut_vocabulary(tokenizer, count_pieces(tokenizer, lines))
    assert len(vocabulary.kept) < len(tokenizer)
    assert changed_lines(tokenizer, vocabulary, lines) == 0
    return vocabulary


def test_the_sample_teachers_unigram_tokenizer_splits_two_languages_as_before():
    tokenizer = hf.AutoTokenizer.from_pretrained(teacher_folder())
    assert type(tokenizer.backend_tokenizer.model).__name__ == "Unigram"
    vocabulary = assert_split_as_before(tokenizer, sample_lines("en", "tr"))
    assert changed_lines(tokenizer, vocabulary, sample_lines("sw")) > 0  # of what was cut


@pytest.mark.parametrize("of_bytes", [True, False])
def test_bpe_of_four_languages_splits_one_as_before(of_bytes):
    tokenizer = trained_bpe(sample_lines("en", "de", "tr", "sw"), 1500, of_bytes=of_bytes)
    vocabulary = assert_split_as_before(tokenizer, sample_lines("tr"))
    assert vocabulary.fallback == ("bytes" if of_bytes else "unknown")
    assert changed_lines(tokenizer, vocabulary, sample_lines("sw")) > 0


@pytest.mark.parametrize("kind", ["unigram", "bytes", "characters"])
def test_real_text_is_split_as_before_by_unigram_and_bpe(data, kind):
    def lines(language):
        path = data / "text" / "common_voice" / language / "sentence-collector.txt"
        return path.read_text(encoding="utf-8").splitlines()[:1500]

    tokenizer = hf.AutoTokenizer.from_pretrained(teacher_folder())
    if kind != "unigram":
        tokenizer = trained_bpe([*lines("de"), *lines("tr"), *lines("sw")], 6000, of_bytes=kind == "bytes")
    assert_split_as_before(tokenizer, lines("tr"))


@pytest.mark.parametrize("command", ["trim {m} {t}", "prune {m} --drop top:1"])
def test_a_model_beyond_the_memory_limit_is_refused_before_it_is_loaded(command, run, tmp_path):
    model, text = save_model("bert", tmp_path / "model"), tmp_path / "text.txt"
    text.write_text("\n".join(LINES["en"]), encoding="utf-8")
    words = command.format(m=model, t=text).split()
    status, _, err = run(*words, "--out", tmp_path / "out", "--max-memory", "0.000001")
    assert status == 1
    assert "--max-memory allows" in err
    assert not (tmp_path / "out").exists()


def test_both_models_stand_side_by_side(tmp_path):
    folder = save_model("bert", tmp_path / "bert")
    (tmp_path / "text.txt").write_text("\n".join(TINY_TEXT[:3]), encoding="utf-8")
    stages = trim(folder, [tmp_path / "text.txt"], tmp_path / "out").run.tables["stages"].set_index("stage")
    assert stages.loc["trimmed", "pieces"] < stages.loc["original", "pieces"]
    assert stages.loc["trimmed", "parameters"] < stages.loc["original", "parameters"]
    assert stages.loc["trimmed", "fidelity"] == pytest.approx(1, abs=1e-5)  # the kept text is split as before
