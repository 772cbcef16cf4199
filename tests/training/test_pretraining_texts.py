"""The text and settings of a pretraining, and what they refuse."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest
import yaml
from pretraining_runs import write_world

from residuum.errors import CorpusError, SettingError
from residuum.settings import read_record
from residuum.training.pretraining_texts import read_texts, shares, train_tokenizer
from residuum.training.settings import PretrainSettings


def checked_config(values):
    return PretrainSettings(**values, out="out")


def read_config(path):
    return read_record(PretrainSettings, path, out="out")


@pytest.fixture
def world(tmp_path):
    return write_world(tmp_path, size=60)


def test_pairs_with_a_side_in_a_retrieval_set_are_left_out_and_counted(world, tmp_path):
    (tmp_path / "retrieval.tr").write_text("Ev büyük.\nKedi uyuyor.\n")
    (tmp_path / "retrieval.en").write_text("The house is big.\nThe cat sleeps.\n")
    rows = ["Ev küçük.\tTHE HOUSE IS BIG", "ev büyük\tIt is large.", "Kedi koşar.\tThe cat runs.", "Kuş.\tA bird."]
    (tmp_path / "pairs.tsv").write_text("\n".join([*rows, "\tnothing"]) + "\n")
    (paired,) = read_texts(checked_config(world)).pairs
    assert paired.sentences == [("Kedi koşar.", "The cat runs."), ("Kuş.", "A bird.")]
    assert (paired.read, paired.blank, paired.excluded) == (5, 1, 2)


def test_other_files_can_be_excluded_too(world, tmp_path):
    (tmp_path / "more.txt").write_text("a bird\n")
    (tmp_path / "pairs.tsv").write_text("Kedi.\tA cat.\nKuş.\tA bird.\n")
    (paired,) = read_texts(checked_config(world | {"exclude": [str(tmp_path / "more.txt")]})).pairs
    assert paired.sentences == [("Kedi.", "A cat.")]


def test_pairs_that_all_occur_in_retrieval_sets_are_an_error(world, tmp_path):
    (tmp_path / "pairs.tsv").write_text((tmp_path / "retrieval.tr").read_text().split("\n")[0] + "\tx\n")
    with pytest.raises(CorpusError, match="all 1 pairs occur in retrieval sets"):
        read_texts(checked_config(world))


def test_long_pairs_are_left_out_and_counted(world, tmp_path):
    (tmp_path / "pairs.tsv").write_text("a b c\tx\nd e\ty z\n")
    pairs = [world["pairs"][0] | {"longest": 2}]
    (paired,) = read_texts(checked_config(world | {"pairs": pairs})).pairs
    assert paired.sentences == [("d e", "y z")]
    assert paired.too_long == 1


def test_held_out_sentences_are_not_trained_on(world):
    texts = read_texts(checked_config(world))
    for language in ("en", "tr"):
        assert texts.held_out[language]
        assert not set(texts.held_out[language]) & set(texts.sentences[language])


def test_pairs_with_a_side_in_held_out_text_are_left_out_and_counted(world, tmp_path):
    held_out = read_texts(checked_config(world)).held_out
    rows = [f"{held_out['tr'][0]}\tx", f"y\t{held_out['en'][1].upper()}", "Kedi koşar.\tThe cat runs."]
    (tmp_path / "pairs.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    texts = read_texts(checked_config(world))
    (paired,) = texts.pairs
    assert texts.held_out == held_out
    assert paired.sentences == [("Kedi koşar.", "The cat runs.")]
    assert (paired.read, paired.excluded, paired.held_out) == (3, 0, 2)


def test_files_are_found_by_wildcards_and_variables_and_unpacked(world, tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_PLACE", str(tmp_path))
    with lzma.open(tmp_path / "more-1.xz", "wt") as file:
        file.write("eins\nzwei\n")
    (tmp_path / "more-2.txt").write_text("drei\n")
    texts = read_texts(checked_config(world | {"text": {"de": ["${SOME_PLACE}/more-*"]}}))
    assert sorted(texts.sentences["de"]) == ["drei", "eins", "zwei"]


def test_a_variable_that_is_not_set_is_named(world, monkeypatch):
    monkeypatch.delenv("NO_SUCH_PLACE", raising=False)
    with pytest.raises(SettingError, match="needs the variable NO_SUCH_PLACE"):
        read_texts(checked_config(world | {"text": {"de": ["${NO_SUCH_PLACE}/x"]}}))


def test_files_out_of_step_are_refused(world, tmp_path):
    (tmp_path / "a").write_text("one\ntwo\n")
    (tmp_path / "b").write_text("one\n")
    pairs = [{"languages": ["tr", "en"], "files": [str(tmp_path / "a"), str(tmp_path / "b")]}]
    with pytest.raises(CorpusError, match="has 2 lines and .* has 1"):
        read_texts(checked_config(world | {"pairs": pairs}))


def test_a_table_with_too_few_columns_names_the_line(world, tmp_path):
    (tmp_path / "pairs.tsv").write_text("a\tb\nalone\n")
    with pytest.raises(CorpusError, match="line 2: found 1 columns; expected at least 2"):
        read_texts(checked_config(world))


def test_the_sample_grammar_can_be_a_source(world):
    changed = world | {"pairs": [{"languages": ["sw", "de"], "sample": 30}], "sample_text": 15}
    texts = read_texts(checked_config(changed))
    assert len(texts.pairs[0].sentences) > 20
    assert len(texts.sentences["en"]) > len(read_texts(checked_config(world)).sentences["en"])
    with pytest.raises(CorpusError, match="The sample grammar has no 'fr'"):
        read_texts(checked_config(world | {"pairs": [{"languages": ["fr", "de"], "sample": 30}]}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"network": {"architecture": "elmo"}},
            "network: architecture is 'elmo'; expected one of xlm-roberta",
        ),
        ({"network": {"hidden": 10, "heads": 3}}, "hidden 10 is not a multiple of heads 3"),
        ({"network": {"dropuot": 0}}, "network: .* has no setting 'dropuot'; did you mean 'dropout'"),
        ({"objectives": []}, "objectives is not set; write the settings into a YAML file"),
        ({"objectives": [{"kind": "ranking"}]}, "objectives: kind is ranking and layer is None; ranking needs a layer"),
        ({"objectives": [{"kind": "ranking", "layer": 9}]}, r"objectives.0: layer 9 does not exist; there are 0–2"),
        ({"objectives": [{"kind": "clm"}]}, "clm does not fit the architecture xlm-roberta"),
        ({"objectives": [{"kind": "mlm", "length": 49}]}, "length 49 exceeds the window of 48"),
        ({"objectives": [{"kind": "tlm", "length": 9}], "pairs": []}, "tlm needs translations; pass pairs"),
        ({"pairs": [{"languages": ["tr", "en"]}]}, "pass exactly one of files, table, sample"),
        ({"training": {"steps": 1, "speed": 2}}, "training has no setting 'speed'"),
        ({"training": {"steps": 1, "schedule": "up"}}, "schedule is 'up'; expected one of linear, cosine, constant"),
        ({"training": {"steps": 1, "seed": 3}}, "training: seed belongs elsewhere; set seed instead"),
        ({"training": {}}, "steps is None and epochs is None; pass exactly one"),
    ],
)
def test_wrong_settings_name_the_key_and_what_is_allowed(world, change, message):
    with pytest.raises(SettingError, match=message):
        checked_config(world | change)


def test_an_unknown_key_of_the_file_names_the_nearest(world, tmp_path):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(world | {"objective": []}))
    with pytest.raises(SettingError, match=r"config.yaml: .* has no setting 'objective'; did you mean 'objectives'"):
        read_config(tmp_path / "config.yaml")


def test_a_configuration_is_read_from_yaml(world, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(world))
    assert read_config(path) == checked_config(world)
    path.write_text("a: [")
    with pytest.raises(SettingError, match="is not YAML"):
        read_config(path)
    path.write_text("- a")
    with pytest.raises(SettingError, match="holds list of 1; expected settings by name"):
        read_config(path)
    with pytest.raises(SettingError, match="does not exist"):
        read_config(tmp_path / "nowhere.yaml")


def test_shares_follow_the_exponent():
    sizes = {"en": 900, "sw": 100}
    assert shares(sizes, 1) == pytest.approx({"en": 0.9, "sw": 0.1})
    assert shares(sizes, 0.5) == pytest.approx({"en": 0.75, "sw": 0.25})
    assert shares(sizes, 0) == pytest.approx({"en": 0.5, "sw": 0.5})


def test_the_tokenizer_gives_back_what_it_was_given(world):
    sentences = read_texts(checked_config(world)).sentences
    tokenizer = train_tokenizer(sentences, pieces=250, lines=1000, exponent=0.5, window=48, seed=0)
    for text in (sentences["en"][0], sentences["tr"][0]):
        ids = tokenizer(text)["input_ids"]
        assert (ids[0], ids[-1]) == (0, 2)
        assert tokenizer.decode(ids, skip_special_tokens=True).strip() == text


def test_the_same_text_gives_the_same_ids_again(world):
    sentences = read_texts(checked_config(world)).sentences
    first, second = (
        train_tokenizer(sentences, pieces=250, lines=1000, exponent=0.5, window=48, seed=0).get_vocab()
        for _ in range(2)
    )
    assert first == second


def test_text_too_small_for_its_vocabulary_says_so():
    with pytest.raises(CorpusError, match=r"gives only \d+ pieces; expected 5000"):
        train_tokenizer({"en": ["a b c"]}, pieces=5000, lines=10, exponent=1, window=8, seed=0)


def test_the_recipe_of_the_sample_teacher_is_a_valid_configuration(request):
    config = read_config(request.config.rootpath / "recipes" / "sample-teacher.yaml")
    assert set(config.text) == {"en", "de", "tr", "sw"}
    assert set(config.evaluation.retrieval) == {"de", "tr", "sw"}


def test_a_column_of_json_lines_is_the_text_that_its_lines_are(world, tmp_path):
    plain = read_texts(checked_config(world))
    for language, files in world["text"].items():
        lines = [line for file in files for line in Path(file).read_text(encoding="utf-8").splitlines()]
        rows = [json.dumps({"text": "not this", "body": line}) for line in lines]
        (tmp_path / f"{language}.jsonl").write_text("\n".join(rows), encoding="utf-8")
    named = {language: [str(tmp_path / f"{language}.jsonl")] for language in world["text"]}
    column = read_texts(checked_config({**world, "text": named, "column": "body"}))
    assert (column.sentences, column.held_out) == (plain.sentences, plain.held_out)
    with pytest.raises(CorpusError, match="no column 'other'; its columns are 'text', 'body'"):
        read_texts(checked_config({**world, "text": named, "column": "other"}))
