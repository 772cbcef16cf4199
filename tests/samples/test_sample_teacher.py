"""The teacher that ships: what it is, that it fits, and that it says what its card says."""

import math

import pytest
import torch
import transformers as hf

from residuum.errors import ModelError
from residuum.evaluation.pairs import corpus_pairs, read_pairs
from residuum.evaluation.retrieval import evaluate_retrieval
from residuum.samples import LANGUAGES, corpora, sample, teacher_folder

GOALS = {"deu": 0.80, "tur": 0.68, "swh": 0.30}


@pytest.fixture(scope="module")
def loaded():
    return hf.AutoModelForMaskedLM.from_pretrained(teacher_folder(), output_loading_info=True)


@pytest.fixture
def teacher(loaded):
    return loaded[0]


def test_it_loads_with_plain_transformers_and_has_six_layers_for_students_to_choose_from(loaded):
    teacher, found = loaded
    assert not found["missing_keys"]
    assert teacher.config.model_type == "xlm-roberta"
    assert teacher.config.num_hidden_layers == 6
    assert teacher.num_parameters() <= 7_000_000


def test_it_fits_into_the_package():
    assert sum(file.stat().st_size for file in teacher_folder().iterdir()) < 16e6
    assert (teacher_folder() / "model.safetensors").stat().st_size <= 14e6


@pytest.mark.parametrize("language", LANGUAGES)
def test_its_tokenizer_gives_back_every_language_and_knows_all_of_the_grammars_letters(language):
    tokenizer = hf.AutoTokenizer.from_pretrained(teacher_folder())
    corpus = sample("text", language=language, size=100)
    for i in range(len(corpus)):
        ids = tokenizer(corpus.text(i))["input_ids"]
        assert tokenizer.unk_token_id not in ids
        assert tokenizer.decode(ids, skip_special_tokens=True) == corpus.text(i)


@pytest.mark.parametrize("language", LANGUAGES)
def test_it_fills_gaps_far_better_than_chance(teacher, language):
    tokenizer = hf.AutoTokenizer.from_pretrained(teacher_folder())
    corpus = sample("text", language=language, size=6, split="test")
    surprise = torch.cat([surprises(teacher, tokenizer(corpus.text(i))["input_ids"], tokenizer) for i in range(6)])
    assert surprise.mean() < math.log(teacher.config.vocab_size) - 1  # nats


def surprises(model, ids, tokenizer):
    """−log p of each piece of a sentence, masked alone."""
    whole, places = torch.tensor(ids), torch.arange(1, len(ids) - 1)
    masked = whole.repeat(len(places), 1)
    masked[torch.arange(len(places)), places] = tokenizer.mask_token_id
    with torch.inference_mode():
        logits = model(masked).logits[torch.arange(len(places)), places]
    return torch.nn.functional.cross_entropy(logits.float(), whole[places], reduction="none")


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_translations_find_each_other(language):
    corpus = sample("translation", language=f"{language}-en", size=100, split="test")
    found = evaluate_retrieval(
        teacher_folder(), corpus_pairs(corpus, (language, "en")), score="cosine", layers="each", progress=False
    )
    assert found.frame["accuracy"].max() > 0.5


@pytest.mark.parametrize("language", GOALS)
def test_it_reaches_on_tatoeba_what_its_card_says(language, data):
    pairs = read_pairs(data / "crosslingual" / "tatoeba", only=[f"{language}-eng"])
    found = evaluate_retrieval(teacher_folder(), pairs, score="cosine", layers="each", progress=False).frame
    assert found.loc[found["direction"] == "forward", "accuracy"].max() >= GOALS[language]


def test_its_card_says_data_licences_command_and_scores():
    card = (teacher_folder() / "README.md").read_text(encoding="utf-8")
    for part in ("CC0", "CC BY", "residuum pretrain", "in a retrieval set", "perplexity sw", "retrieval tr layer"):
        assert part in card


def test_a_missing_teacher_says_how_to_make_it(tmp_path, monkeypatch):
    monkeypatch.setattr(corpora, "_FOLDER", tmp_path)
    with pytest.raises(ModelError, match="holds no model.safetensors.*recipes/sample-teacher.yaml"):
        teacher_folder()
