"""Every command that writes as it is given on the command line, on models and texts so tiny that it takes seconds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from made_stores import conllu
from residuum import adapt, evaluate_retrieval, extract, load_model, read_corpus, read_pairs
from residuum.activations.exchange import export_activations
from residuum.samples import sample, sample_text
from teachers import save_teacher, write_texts
from tiny import save_model

QUICK = "--epochs 2 --batch-size 32 --device cpu"
TREEBANK = {"en": 24, "tr": 24}
ALIGNED = ("1", "2", "3", "4")
SMALL = "--scale small --data {w}/data --models {w}/bert --device cpu"


@dataclass(frozen=True)
class Command:
    """A command; its folder stands where it says `{out}`, else after `--out`. One of minutes is seldom killed."""

    name: str
    arguments: str
    minutes: bool = False

    def words(self, world: Path, out: Path) -> list[str]:
        """The words of the command line."""
        whole = self.arguments if "{out}" in self.arguments else f"{self.arguments} --out {{out}}"
        return [word.format(w=world, out=out) for word in whole.split()]


COMMANDS = (
    Command("extract", "extract {w}/bert {w}/en.conllu --shard-words 16 --batch-tokens 64 --attention"),
    Command("extract workers", "extract {w}/bert {w}/en.conllu --shard-words 16 --batch-tokens 64 --workers 2"),
    Command("compare", "compare {w}/bert {w}/other --corpus {w}/en.conllu --measures paper,attention --workers 1"),
    Command("diff", f"diff {{w}}/bert {{w}}/other --corpus {{w}}/en.conllu --tasks upos --workers 1 {QUICK}"),
    Command("redundancy", f"redundancy {{w}}/bert {{w}}/en.conllu --task upos --agreement 0.4,0.6 {QUICK}"),
    Command("probe", f"probe {{w}}/bert {{w}}/en.conllu --task upos --description-length --no-random-twin {QUICK}"),
    Command(
        "probe-languages",
        "probe-languages {w}/xlmr --corpora {w}/en.conllu,{w}/tr.conllu --task upos --source en --no-subsets "
        f"{QUICK}",
    ),
    Command("rank", f"rank {{w}}/bert {{w}}/en.conllu --task upos --methods lca,probeless,random {QUICK}"),
    Command("ablate", f"ablate {{w}}/bert {{w}}/en.conllu --task upos --draws 2 {QUICK}"),
    Command("describe", "describe {w}/bert {w}/en.conllu --neurons 1:2,2:0 --device cpu"),
    Command("prune", "prune {w}/bert --by cka --keep 2 --corpus {w}/en.conllu --device cpu"),
    Command("trim", "trim {w}/xlmr {w}/texts/en.txt"),
    Command("shrink", "shrink {w}/bert --text {w}/texts/en.txt --layers 1 --heal 6 --heal-batch 4 --device cpu"),
    Command("transfer", "transfer {w}/bert {w}/en.conllu --task upos --device cpu"),
    Command(
        "finetune",
        "finetune {w}/bert {w}/polarity.tsv --task sentence --epochs 2 --batch-size 8 --evaluate-every 3 --seeds 2 "
        "--freeze bottom:1 --cache-memory 0 --device cpu",
    ),
    Command("pretrain", "pretrain --config {w}/pretrain.yaml --device cpu"),
    Command("distill", "distill --config {w}/distill.yaml --device cpu"),
    Command(
        "adapt",
        "adapt {w}/xlmr {w}/nli --target tr={w}/turkish --task sentence --epochs 1 --batch-size 8 "
        "--strategy full-source,adapter-source --few-shot 4 --draws 1 --few-shot-epochs 1 --device cpu",
    ),
    Command(
        "evaluate retrieval",
        "evaluate retrieval {w}/xlmr {w}/texts/en.txt --translations {w}/texts/tr.txt --device cpu",
    ),
    Command(
        "evaluate adapted",
        "evaluate adapted {w}/adapted/full-source/seed-0 {w}/nli/test-tr.tsv --device cpu",
    ),
    Command("evaluate perplexity", "evaluate perplexity {w}/teacher en={w}/texts/en.txt --device cpu"),
    Command(
        "evaluate correlate",
        f"evaluate correlate {' '.join(f'{name}={{w}}/aligned/{name}' for name in ALIGNED)} "
        f"{' '.join(f'--downstream {name}=0.{name}' for name in ALIGNED)}",
    ),
    Command("import", "import {w}/store.npz --corpus {w}/en.conllu"),
    *(Command(f"export {kind}", f"export {{w}}/store {{out}}/store.{kind}") for kind in ("npz", "hdf5", "arrow")),
    Command("report", "report {w}/aligned/1 {w}/aligned/2 --figures svg --out {out}/page.html"),
    Command("sample", "sample nli --language tr --size 200 --out {out}/nli.tsv"),
    Command("sample teacher", "sample teacher --out {out}/teacher"),
    Command("study similarity", f"study similarity {SMALL} --tasks sst2"),
    Command("study redundancy", f"study redundancy {SMALL} --tasks upos,sst2"),
    Command("study transfer-learning", f"study transfer-learning {SMALL} --tasks upos,sst2"),
    Command("study distilled", f"study distilled {SMALL} --models {{w}}/other"),
    Command("study monolingual", "study monolingual --models {w}/teacher --device cpu", minutes=True),
)


def write_world(folder: Path) -> None:
    """The models and texts that the commands read."""
    folder.mkdir(parents=True)
    save_model("bert", folder / "bert", seed=0)
    save_model("bert", folder / "other", seed=1)
    save_model("xlm-roberta", folder / "xlmr", seed=0)
    save_model("xlm-roberta", folder / "turkish", seed=1)
    save_teacher("xlm-roberta", folder / "teacher")
    texts = write_texts(folder / "texts", "en", "tr", repeats=6)
    for language, size in TREEBANK.items():
        _write_treebank(folder / f"{language}.conllu", language=language, size=size)
    (folder / "polarity.tsv").write_text(sample_text("polarity", size=40), encoding="utf-8")
    _write_adapted(folder)
    _write_data(folder / "data")
    _write_runs(folder)
    (folder / "distill.yaml").write_text(yaml.safe_dump(_distillation(folder, texts)))
    (folder / "pretrain.yaml").write_text(yaml.safe_dump(_pretraining(texts)))


def _write_treebank(path: Path, **options: Any) -> None:
    corpus = sample("treebank", **options)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(conllu(corpus.sentences, corpus.labels["upos"]), encoding="utf-8")


def _write_adapted(folder: Path) -> None:
    """Sentence pairs in two languages, and a student that has learnt them."""
    (folder / "nli").mkdir()
    for language, part in (("en", "train"), ("en", "dev"), ("tr", "train"), ("tr", "dev"), ("tr", "test")):
        text = sample_text("nli", language=language, size=12, split=part)
        (folder / "nli" / f"{part}-{language}.tsv").write_text(text, encoding="utf-8")
    adapt(
        folder / "xlmr",
        folder / "nli",
        "sentence",
        folder / "adapted",
        target={"tr": folder / "turkish"},
        strategy="full-source",
        epochs=1.0,
        batch_size=8,
        device="cpu",
        progress=False,
    )


def _write_data(folder: Path) -> None:
    """The data of a study at the scale small, which are smaller than what it takes at the scale sample."""
    (folder / "glue/SST-2").mkdir(parents=True)
    for split, size in (("train", 24), ("dev", 12), ("test", 12)):
        _write_treebank(folder / f"treebanks/UD_English-EWT/en_ewt-ud-{split}.conllu", size=size, split=split)
        text = sample_text("polarity", size=size, split=split)
        (folder / f"glue/SST-2/{split}.tsv").write_text(text, encoding="utf-8")
    for name, language in (("English", "en"), ("Turkish", "tr")):
        _write_treebank(folder / f"treebanks/UD_{name}-PUD/{language}_pud.conllu", language=language, size=16)


def _write_runs(folder: Path) -> None:
    """A store and its export, and how some models align two languages."""
    store = extract(load_model(folder / "bert", device="cpu"), read_corpus(folder / "en.conllu"), folder / "store")
    export_activations(store, folder / "store.npz")
    pairs = read_pairs(folder / "texts/en.txt", translations=folder / "texts/tr.txt")
    for name in ALIGNED:
        twin = load_model(folder / "xlmr", random_init=True, seed=int(name), device="cpu")
        evaluate_retrieval(twin, pairs, score="cosine", out=folder / "aligned" / name)


def _distillation(folder: Path, texts: dict[str, str]) -> dict[str, object]:
    return {
        "teacher": str(folder / "teacher"),
        "texts": texts,
        "preset": "monoshot",
        "text": {"batch_size": 2, "held_out": 2, "shuffle_buffer": 8},
        "optimiser": {"steps": 6, "log_every": 2, "checkpoint_every": 2, "warmup": 0},
        "evaluation": {"every": 3},
        "teacher_cache": str(folder / "lessons"),
    }


def _pretraining(texts: dict[str, str]) -> dict[str, object]:
    return {
        "text": {language: [path] for language, path in texts.items()},
        "tokenizer": {"pieces": 40},
        "network": {"layers": 2, "hidden": 16, "heads": 2, "feed_forward": 32, "window": 48},
        "objectives": [{"kind": "mlm", "batch": 4, "length": 24}],
        "training": {"steps": 6, "learning_rate": 0.005, "checkpoint_every": 2, "log_every": 2},
        "evaluation": {"every": 3, "held_out": 4},
    }
