"""Every family and every verb: the table in the documentation is what tiny models of these families do."""

import os
import re
from pathlib import Path

import pytest
import torch
import transformers as hf
from test_checkpoints import FORMS, PAIRS

import residuum
from residuum.corpus import Corpus
from residuum.corpus.tasks import named_task
from residuum.errors import ModelError, ResiduumError
from residuum.evaluation.perplexity import evaluate_perplexity
from residuum.models.ablation import ablated
from residuum.models.loading import first_layers, load_model, probe_batch
from residuum.models.surgery import keep_layers, load_whole, save_whole
from residuum.models.vocabularies import changed_lines, count_pieces, cut_model, cut_vocabulary
from residuum.training.encoding import Problem
from residuum.training.networks import load_with_head
from tiny import FAMILIES, SIZES, TEXT, WINDOW, build_tokenizer, save_model

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "models.md"
PAIR = FAMILIES["marian"][2]
DECODER = {**SIZES, "num_key_value_heads": 1, "max_position_embeddings": WINDOW}
RELATIVE = {"max_position_embeddings": WINDOW, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
MORE = {
    "deberta": ("wordpiece", hf.DebertaConfig, {**SIZES, **RELATIVE}),
    "deberta-v2": (
        "unigram",
        hf.DebertaV2Config,
        {**SIZES, **RELATIVE, "position_buckets": 8, "norm_rel_ebd": "layer_norm", "share_att_key": True},
    ),
    "camembert": ("unigram", hf.CamembertConfig, FAMILIES["xlm-roberta"][2]),
    "xlm-roberta-xl": ("unigram", hf.XLMRobertaXLConfig, FAMILIES["xlm-roberta"][2]),
    "mobilebert": (
        "wordpiece",
        hf.MobileBertConfig,
        {**FAMILIES["bert"][2], "embedding_size": 8, "intra_bottleneck_size": 16, "true_hidden_size": 16},
    ),
    "longformer": ("bytes", hf.LongformerConfig, {**FAMILIES["roberta"][2], "attention_window": [4, 4, 4]}),
    "flaubert": ("bpe", hf.FlaubertConfig, FORMS["xlm"][2]),
    "bart": ("bytes", hf.BartConfig, PAIR),
    "mbart": ("unigram eos", hf.MBartConfig, PAIR),
    "m2m100": ("unigram eos", hf.M2M100Config, PAIR),
    "mistral": ("plain bytes", hf.MistralConfig, DECODER),
    "phi3": ("plain bytes", hf.Phi3Config, DECODER),
    "gemma2": ("plain bytes", hf.Gemma2Config, {**DECODER, "head_dim": 8, "sliding_window": 8}),
    "gpt-neox": ("plain bytes", hf.GPTNeoXConfig, FAMILIES["bert"][2]),
    "gpt-neo": (
        "plain bytes",
        hf.GPTNeoConfig,
        {
            "hidden_size": 16,
            "num_layers": 3,
            "num_heads": 2,
            "attention_types": [[["global", "local", "global"], 1]],
            "window_size": 8,
            "max_position_embeddings": WINDOW,
        },
    ),
    "opt": (
        "plain bytes",
        hf.OPTConfig,
        {
            "hidden_size": 16,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            "ffn_dim": 24,
            "max_position_embeddings": WINDOW,
            "word_embed_proj_dim": 16,
        },
    ),
    "bloom": ("plain bytes", hf.BloomConfig, {"hidden_size": 16, "n_layer": 3, "n_head": 2}),
    "falcon": (
        "plain bytes",
        hf.FalconConfig,
        {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2},
    ),
    "mixtral": ("plain bytes", hf.MixtralConfig, {**DECODER, "num_local_experts": 2, "num_experts_per_tok": 1}),
    "mamba": ("plain bytes", hf.MambaConfig, {"hidden_size": 16, "num_hidden_layers": 3, "state_size": 4}),
}
"""Families beside those that the other tests read."""
MARKS = ("<!-- families -->\n", "<!-- end of families -->")


def read(folder: Path, out: Path) -> None:
    model = load_model(folder)
    states = model.read(probe_batch(model.module), range(model.n_layers + 1)).hidden
    assert len(states) == 4
    assert all(state.isfinite().all() for state in states)


def read_attention(folder: Path, out: Path) -> None:
    model = load_model(folder, attention=True)
    weights = model.read(probe_batch(model.module), [1, 2], attention=True).attention
    assert [w.shape[1:] for w in weights] == [(model.n_heads, 8, 8)] * 2
    torch.testing.assert_close(weights[0].sum(-1), torch.ones_like(weights[0].sum(-1)))


def cut(folder: Path, out: Path) -> None:
    whole = load_model(folder)
    batch = probe_batch(whole.module)
    expected = whole.read(batch, [2]).hidden[0]
    torch.testing.assert_close(first_layers(whole, 2).read(batch, [2]).hidden[0], expected)


def ablate(folder: Path, out: Path) -> None:
    model = load_model(folder)
    batch = probe_batch(model.module)
    with ablated(model, ["0:1", "2:3", "3:0"]) as lesioned:
        states = lesioned.read(batch, [0, 2, 3]).hidden
    assert not any(s[..., n].any() for s, n in zip(states, (1, 3, 0), strict=True))


def prune(folder: Path, out: Path) -> None:
    network, tokenizer = load_whole(folder)
    keep_layers(network, [1, 2])
    save_whole(network, tokenizer, out)
    assert load_model(out).n_layers == 2


def narrow(folder: Path, out: Path) -> None:
    text = Corpus(name="text", sentences=[line.split() for line in TEXT])
    made = residuum.prune(folder, out, ffn=0.5, corpus=text, device="cpu", progress=False)
    before, after = made.run.tables["stages"]["parameters"]
    assert after < before
    assert load_model(out).n_layers == 3


def trim(folder: Path, out: Path) -> None:
    network, tokenizer = load_whole(folder)
    vocabulary = cut_vocabulary(tokenizer, count_pieces(tokenizer, TEXT[:2]))
    save_whole(cut_model(network, vocabulary), vocabulary.tokenizer, out)
    assert changed_lines(tokenizer, vocabulary, TEXT[:2]) == 0
    assert load_model(out).module.get_input_embeddings().num_embeddings == len(vocabulary.kept) < len(tokenizer)


def tune(folder: Path, out: Path) -> None:
    network, tokenizer = load_with_head(folder, Problem(named_task("sentence"), "classification", ("a", "b")))
    batch = tokenizer(TEXT[:2], return_tensors="pt", padding=True)
    batch.pop("token_type_ids", None)
    assert network(**batch).logits.shape == (2, 2)


def predict_text(folder: Path, out: Path) -> None:
    found = evaluate_perplexity(
        folder, Corpus(name="text", sentences=[line.split() for line in TEXT[:2]]), progress=False
    )
    assert 1 < found.frame["perplexity"][0] < 1e4


VERBS = {
    "extract, compare, probe": read,
    "attention": read_attention,
    "first k layers": cut,
    "ablate": ablate,
    "prune": prune,
    "prune --ffn": narrow,
    "trim": trim,
    "finetune": tune,
    "perplexity": predict_text,
}


def save_checkpoint(family: str, folder: Path) -> None:
    """A tiny model of a family with a language-modelling head where transformers has one, and its tokenizer."""
    if family in FAMILIES:
        save_model(family, folder)
        config = hf.AutoConfig.from_pretrained(folder)
    else:
        kind, made_class, sizes = {**FORMS, **MORE}[family]
        tokenizer = build_tokenizer(kind)
        special = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}
        special |= {"decoder_start_token_id": tokenizer.pad_token_id}
        config_class = getattr(made_class, "config_class", made_class)
        config = config_class(**{"vocab_size": len(tokenizer), **special, **sizes})
        tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    if family.endswith("encoder"):
        FORMS[family][1](config).save_pretrained(folder)
        return
    pairs = (hf.AutoModelForSeq2SeqLM,) if config.is_encoder_decoder else ()
    for auto in (*pairs, hf.AutoModelForMaskedLM, hf.AutoModelForCausalLM):
        if type(config) in auto._model_mapping:
            auto.from_config(config).save_pretrained(folder)
            tokenizer = hf.AutoTokenizer.from_pretrained(folder)
            if (auto is hf.AutoModelForMaskedLM or family == "xlnet") and tokenizer.mask_token is None:
                tokenizer.mask_token = tokenizer.unk_token  # real ones have a mask of their own
                tokenizer.save_pretrained(folder)
            return


def row_of(family: str, root: Path) -> list[str]:
    """What each verb does with a family: "yes", or why not."""
    folder = root / "model"
    save_checkpoint(family, folder)
    cells = []
    for number, work in enumerate(VERBS.values()):
        try:
            work(folder, root / f"out-{number}")
        except ResiduumError as error:
            cells.append(in_general(str(error).replace(str(folder), "The model")))
        else:
            cells.append("yes")
    return cells


def in_general(reason: str) -> str:
    """The first sentence of an error, without the names of classes and tensors."""
    reason = re.sub(r"\s+", " ", reason).partition(". ")[0].rstrip(".")
    reason = re.sub(r"is an? \w+Model, which has", "has", reason)
    named = r"\b[A-Z]\w+(Model|Config|For(CausalLM|MaskedLM|ConditionalGeneration)|WithLMHeadModel)\b"
    reason = re.sub(named, "this network", reason)
    return reason[0].upper() + reason[1:]


def table(rows: dict[str, list[str]]) -> str:
    """Markdown: families × verbs, gaps numbered, and the reasons below."""
    reasons = list(dict.fromkeys(cell for cells in rows.values() for cell in cells if cell != "yes"))
    lines = [f"| family | {' | '.join(VERBS)} |", "|---" * (1 + len(VERBS)) + "|"]
    for family, cells in rows.items():
        shown = ("yes" if cell == "yes" else f"no ({1 + reasons.index(cell)})" for cell in cells)
        lines.append(f"| {family} | {' | '.join(shown)} |")
    return "\n".join([*lines, "", *(f"{number}. {reason}." for number, reason in enumerate(reasons, 1)), ""])


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # by DeBERTa in transformers
def test_the_table_of_families_is_what_they_do(tmp_path):
    families = [*FAMILIES, *(form for form in (*FORMS, *MORE) if form not in FAMILIES)]
    found = table({family: row_of(family, tmp_path / family.replace(" ", "-")) for family in families})
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(MARKS[0])
    written, after = rest.split(MARKS[1])
    if os.environ.get("RESIDUUM_WRITE_TABLES"):
        PAGE.write_text(f"{before}{MARKS[0]}\n{found}\n{MARKS[1]}{after}", encoding="utf-8")
    else:
        assert written.strip() == found.strip()


def test_layers_of_mamba_are_numbered_as_those_of_all_others(tmp_path):
    save_checkpoint("mamba", tmp_path / "model")
    model = load_model(tmp_path / "model")
    batch = probe_batch(model.module)
    embeddings, *_ = model.read(batch, range(model.n_layers + 1)).hidden
    torch.testing.assert_close(embeddings, model.module.get_input_embeddings()(batch["input_ids"]))


def test_the_table_tells_a_gap_from_what_works(tmp_path):
    cells = dict(zip(VERBS, row_of("t5", tmp_path), strict=True))
    assert cells["extract, compare, probe"] == "yes"
    assert "encoder and a decoder" in cells["prune"]
    assert PAIRS
    with pytest.raises(ModelError):
        prune(tmp_path / "model", tmp_path / "again")
