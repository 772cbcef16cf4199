"""Several corpora in step."""

import pytest

from residuum.corpus import read_parallel
from residuum.errors import CorpusError, SettingError


def treebank(folder, language: str, ids: list[str], with_ids: bool = True):
    path = folder / f"{language}_pud-ud-test.conllu"
    path.write_text(
        "".join(
            (f"# sent_id = {sent_id}\n" if with_ids else "") + f"1\t{language}{sent_id}\t_\tX\t_\t_\t0\troot\t_\t_\n\n"
            for sent_id in ids
        )
    )
    return path


def text(folder, name: str, *lines: str):
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_treebanks_with_the_same_ids_are_in_step(tmp_path):
    paths = [treebank(tmp_path, language, ["n1", "n2", "n3"]) for language in ("en", "tr", "fi")]
    corpora = read_parallel(paths)
    assert list(corpora) == ["en", "tr", "fi"]
    assert {tuple(corpus.ids) for corpus in corpora.values()} == {("n1", "n2", "n3")}
    assert list(read_parallel({"English": paths[0], "Turkish": paths[1]})) == ["English", "Turkish"]


def test_the_first_sentence_that_differs_is_named(tmp_path):
    en = treebank(tmp_path, "en", ["n1", "n2", "n3"])
    tr = treebank(tmp_path, "tr", ["n1", "n3", "n2"])
    with pytest.raises(CorpusError, match="en and tr are not in step: sentence 2 is n2 in en, but n3 in tr"):
        read_parallel([en, tr])


def test_a_missing_sentence_is_named(tmp_path):
    en, tr = treebank(tmp_path, "en", ["n1", "n2"]), treebank(tmp_path, "tr", ["n1"])
    with pytest.raises(CorpusError, match="sentence 2 is n2 in en, but missing in tr"):
        read_parallel([en, tr])
    with pytest.raises(CorpusError, match="sentence 2 is missing in tr, but n2 in en"):
        read_parallel([tr, en])


def test_a_corpus_without_ids_is_checked_by_length(tmp_path):
    en = treebank(tmp_path, "en", ["n1", "n2"])
    assert len(read_parallel([treebank(tmp_path, "tr", ["x", "y"], with_ids=False), en])) == 2
    shorter = treebank(tmp_path, "sw", ["x"], with_ids=False)
    with pytest.raises(CorpusError, match="not in step: en has 2, sw has 1 sentences; expected as many in each"):
        read_parallel([en, shorter])


def test_lines_that_are_blank_in_one_file_are_left_out_of_all(tmp_path):
    en = text(tmp_path, "verses.en", "one", "", "three", "four", "five")
    de = text(tmp_path, "verses.de", "eins", "zwei", "", "vier", "fünf")
    sw = text(tmp_path, "verses.sw", "moja", "", "tatu", "nne", "tano")
    corpora = read_parallel({"en": en, "de": de, "sw": sw})
    assert {tuple(corpus.ids) for corpus in corpora.values()} == {("1", "4", "5")}
    assert corpora["de"].sentences == [["eins"], ["vier"], ["fünf"]]
    assert corpora["de"].skipped == {"blank lines": 1, "sentences that another corpus lacks": 1}
    assert corpora["en"].skipped == {"blank lines": 1, "sentences that another corpus lacks": 1}


def test_limit_counts_the_sentences_that_are_in_step(tmp_path):
    en = text(tmp_path, "t.en", "one", "", "three", "four")
    de = text(tmp_path, "t.de", "", "zwei", "drei", "vier")
    assert read_parallel({"en": en, "de": de}, limit=1)["de"].sentences == [["drei"]]


def test_files_with_different_numbers_of_lines_are_not_in_step(tmp_path):
    en, de = text(tmp_path, "t.en", "one", "", "three"), text(tmp_path, "t.de", "eins", "zwei")
    with pytest.raises(CorpusError, match="en has 3, de has 2 sentences"):
        read_parallel({"en": en, "de": de})


def test_files_that_share_no_line_are_reported(tmp_path):
    en, de = text(tmp_path, "t.en", "one", ""), text(tmp_path, "t.de", "", "zwei")
    with pytest.raises(CorpusError, match="No sentence is in all of en, de; each is blank in at least one"):
        read_parallel({"en": en, "de": de})


def test_the_options_reach_every_corpus(tmp_path):
    paths = {name: text(tmp_path, f"{name}.tsv", f"{name} a\tx\tyes", f"{name} b\ty\tno") for name in ("en", "de")}
    corpora = read_parallel(paths, text=0, pair=1, label=2)
    assert corpora["en"].targets() == corpora["de"].targets() == ["yes", "no"]
    assert corpora["de"].sentences[1] == ["de", "b"]


def test_parallel_corpora_are_split_at_the_same_sentences(tmp_path):
    ids = [f"n{number}" for number in range(50)]
    corpora = read_parallel([treebank(tmp_path, language, ids) for language in ("en", "tr")])
    english, turkish = (corpus.split([45, 5], seed=4) for corpus in corpora.values())
    assert [part.ids for part in english] == [part.ids for part in turkish]


def test_what_cannot_be_parallel_is_refused(tmp_path):
    path = text(tmp_path, "t.txt", "one")
    with pytest.raises(SettingError, match="expected several paths, or a mapping"):
        read_parallel(str(path))
    with pytest.raises(SettingError, match="Found 1 parallel corpus; expected at least 2"):
        read_parallel([path])
    with pytest.raises(SettingError, match=r"have the same name \(t, t\); name them by a mapping"):
        read_parallel([path, path])
    with pytest.raises(SettingError, match="language is 'en', but there are several corpora"):
        read_parallel([path, path], language="en")
