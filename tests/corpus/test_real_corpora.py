"""The readers on real treebanks and tasks, where `RESIDUUM_DATA` has them."""

import conllu
import pytest

from residuum.corpus import read_corpus, read_parallel

PUD = [
    "English",
    "Finnish",
    "French",
    "German",
    "Japanese",
    "Polish",
    "Portuguese",
    "Russian",
    "Spanish",
    "Swedish",
]
PUD.append("Turkish")


@pytest.mark.parametrize(
    ("path", "split", "sentences"),
    [
        ("treebanks/UD_English-EWT", "train", 12_544),
        ("treebanks/UD_English-EWT", "dev", 2_001),
        ("treebanks/UD_English-EWT", "test", 2_077),
        ("treebanks/UD_Turkish-BOUN", "dev", 979),
        ("treebanks/UD_Turkish-BOUN", "test", 979),
        ("treebanks/UD_Swahili-OPUSGV/GlobalVoices.ken.sw.8_30.conllu", None, 500),
        ("treebanks/UD_Swahili-OPUSGV/GlobalVoices.ken.sw.sample.conllu", None, 99),
        ("token/conll2000", "train", 8_936),
        ("token/conll2000", "test", 2_012),
        ("token/pmb-4.0.0/en", "train", 7_745),
        ("token/pmb-4.0.0/en", "dev", 1_174),
        ("token/pmb-4.0.0/en", "test", 1_053),
        ("glue/SST-2", "train", 67_349),
        ("glue/SST-2", "dev", 872),
        ("glue/RTE", "train", 2_490),
        ("glue/STS-B", "dev", 1_500),
        ("glue/STS-B", "test", 1_379),
        ("glue/MRPC/msr_paraphrase_train.txt", None, 4_076),
        ("glue/MRPC/msr_paraphrase_test.txt", None, 1_725),
        ("glue/MRPC/train.tsv", None, 3_667),
        ("glue/MNLI/dev.jsonl", None, 9_815),
        ("glue/MNLI/sample_train.json", None, 8_999),
        ("glue/QNLI/sample_dev.json", None, 1_000),
        ("crosslingual/panx/train-de.tsv", None, 20_000),
        ("crosslingual/panx/dev-ur.tsv", None, 1_000),
    ],
)
def test_every_sentence_is_read(data, path, split, sentences):
    assert len(read_corpus(data / path, split=split)) == sentences


@pytest.mark.parametrize("language", ["English", "Finnish", "Japanese", "Polish"])
def test_a_treebank_reads_as_the_conllu_package_reads_it(data, language):
    (path,) = (data / f"treebanks/UD_{language}-PUD").glob("*.conllu")
    corpus = read_corpus(path)
    sentences = conllu.parse(path.read_text(encoding="utf-8"))
    words = [[token for token in tokens if isinstance(token["id"], int)] for tokens in sentences]
    assert corpus.sentences == [[token["form"] for token in tokens] for tokens in words]
    assert corpus.word_labels("upos") == [[token["upos"] for token in tokens] for tokens in words]
    assert corpus.word_labels("deprel") == [[token["deprel"] for token in tokens] for tokens in words]
    assert corpus.word_labels("NumType") == [[(token["feats"] or {}).get("NumType") for token in t] for t in words]
    assert corpus.ids == [tokens.metadata["sent_id"] for tokens in sentences]


@pytest.mark.parametrize("language", PUD)
def test_the_text_of_a_treebank_is_its_text_comment(data, language):
    (path,) = (data / f"treebanks/UD_{language}-PUD").glob("*.conllu")
    comments = [line[9:] for line in path.read_text(encoding="utf-8").split("\n") if line.startswith("# text = ")]
    corpus = read_corpus(path, spacing="text")
    assert [corpus.text(index) for index in range(len(corpus))] == comments
    assert "texts that the tokens do not spell" not in corpus.skipped
    for index, words in enumerate(corpus.sentences):
        starts = [start for start, _ in corpus.spans(index)]
        assert starts == sorted(starts)
        assert len(starts) == len(words)


def test_the_parallel_treebanks_are_in_step(data):
    corpora = read_parallel({name: data / f"treebanks/UD_{name}-PUD" for name in PUD})
    assert [len(corpus) for corpus in corpora.values()] == [1_000] * len(PUD)
    parts = [tuple(part.ids) for corpus in corpora.values() for part in corpus.split([900, 100], seed=0)]
    assert len(set(parts)) == 2


def test_partly_annotated_labels_are_none_elsewhere(data):
    corpus = read_corpus(data / "treebanks/UD_Swahili-OPUSGV/GlobalVoices.ken.sw.8_30.conllu")
    deprels = [label for labels in corpus.word_labels("deprel") for label in labels]
    assert None in deprels
    assert "nsubj" in deprels
    assert None not in [label for labels in corpus.word_labels("upos") for label in labels]


def test_bibles_are_aligned_verse_by_verse(data):
    names = {"en": "eng-engwebp", "de": "deu-deu1912", "sw": "swh-swhulb"}
    corpora = read_parallel({key: data / f"text/ebible/{name}.txt" for key, name in names.items()})
    assert len({tuple(corpus.ids) for corpus in corpora.values()}) == 1
    assert len(corpora["en"]) > 30_000


def test_natural_language_inference_has_three_balanced_classes_in_every_language(data):
    paths = {language: data / f"crosslingual/xnli/dev-{language}.tsv" for language in ("en", "tr", "ur")}
    corpora = read_parallel(paths, text=0, pair=1, label=2)
    assert {len(corpus) for corpus in corpora.values()} == {2_490}
    assert corpora["ur"].targets() == corpora["en"].targets()
    assert {corpora["en"].targets().count(label) for label in ("entailment", "neutral", "contradiction")} == {830}


def test_graded_similarity_is_read_as_numbers_from_0_to_5(data):
    scores = read_corpus(data / "glue/STS-B", split="train").targets()
    assert all(isinstance(score, float) and 0 <= score <= 5 for score in scores)


def test_semantic_tags_have_no_space_and_words_may(data):
    corpus = read_corpus(data / "token/pmb-4.0.0/en", split="dev")
    tags = {tag for tags in corpus.word_labels("sem") for tag in tags if tag is not None}
    assert {"PRO", "CON", "NOW"} <= tags
    assert any(" " in word for words in corpus.sentences for word in words)
    assert not any("~" in word for words in corpus.sentences for word in words)
