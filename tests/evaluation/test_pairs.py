"""Pairs of translations from folders, files and tables."""

import pytest

from residuum.errors import CorpusError, SettingError
from residuum.evaluation.pairs import corpus_pairs, read_pairs
from residuum.samples import sample, sample_text


@pytest.fixture
def folder(tmp_path):
    for name, lines in {
        "tatoeba.tur-eng.tur": "Merhaba.\nİyi  günler!\nEvet.\n",
        "tatoeba.tur-eng.eng": "Hello.\nGood day!\nYes.\n",
        "tatoeba.swh-eng.swh": "Ndiyo.\n\nHapana.\n",
        "tatoeba.swh-eng.eng": "Yes.\nLost.\nNo.\n",
        "README.md": "not a text of pairs\n",
        "tatoeba.deu-eng.deu": "Allein.\n",
    }.items():
        (tmp_path / name).write_text(lines, encoding="utf-8")
    return tmp_path


def test_a_folder_gives_every_pair_whose_two_files_are_there(folder):
    swahili, turkish = read_pairs(folder)
    assert (turkish.name, turkish.languages) == ("tur-eng", ("tur", "eng"))
    assert turkish.source[1] == "İyi  günler!"  # as it is written
    assert turkish.target[1] == "Good day!"
    assert swahili.name == "swh-eng"


def test_a_pair_with_a_blank_side_is_left_out_and_counted(folder):
    (swahili,) = read_pairs(folder, only=["swh-eng"])
    assert (swahili.source, swahili.target) == (["Ndiyo.", "Hapana."], ["Yes.", "No."])
    assert swahili.left_out == 1


def test_one_pair_of_a_folder_is_read_by_what_its_names_have_in_common(folder):
    (turkish,) = read_pairs(folder / "tatoeba.tur-eng")
    assert turkish.fingerprint == read_pairs(folder, only=["tur-eng"])[0].fingerprint
    assert turkish.fingerprint != read_pairs(folder, only=["tur-eng"], limit=2)[0].fingerprint


def test_two_text_files_are_named_by_their_endings_or_names(folder, tmp_path):
    (pairs,) = read_pairs(folder / "tatoeba.tur-eng.tur", folder / "tatoeba.tur-eng.eng")
    assert pairs.languages == ("tur", "eng")
    for name in ("one.txt", "two.txt"):
        (tmp_path / name).write_text("a\nb\n")
    assert read_pairs(tmp_path / "one.txt", tmp_path / "two.txt")[0].languages == ("one", "two")


def test_tables_are_read_by_column_with_and_without_a_header(tmp_path):
    plain = tmp_path / "plain.tsv"
    plain.write_text(sample_text("translation", language="tr-en", size=5), encoding="utf-8")
    (pairs,) = read_pairs(plain)
    assert len(pairs) == 5
    assert pairs.languages == ("source", "target")
    named = tmp_path / "named.tsv"
    named.write_text("id\ttr\ten\n1\tEvet\tYes\n2\tHayır\tNo\n", encoding="utf-8")
    (pairs,) = read_pairs(named, text="tr", pair="en")
    assert (pairs.languages, pairs.source) == (("tr", "en"), ["Evet", "Hayır"])


def test_mistakes_say_what_was_found(folder, tmp_path):
    with pytest.raises(CorpusError, match="nowhere does not exist; expected a folder of pairs"):
        read_pairs(tmp_path / "nowhere")
    with pytest.raises(SettingError, match="has no pair fra-eng; it has swh-eng, tur-eng"):
        read_pairs(folder, only=["fra-eng"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(CorpusError, match="holds no pairs; expected files such as"):
        read_pairs(tmp_path / "empty")
    (tmp_path / "short.txt").write_text("one line\n")
    with pytest.raises(CorpusError, match="not in step"):
        read_pairs(folder / "tatoeba.tur-eng.tur", tmp_path / "short.txt")


def test_a_corpus_with_second_segments_gives_pairs():
    corpus = sample("translation", language="tr-en", size=3)
    pairs = corpus_pairs(corpus, ("tr", "en"))
    assert pairs.name == "tr-en"
    assert pairs.source == [corpus.text(i) for i in range(3)]
    assert pairs.target == [corpus.pair_text(i) for i in range(3)]
    with pytest.raises(CorpusError, match="has no second segments"):
        corpus_pairs(sample("text", size=3), ("en", "de"))
