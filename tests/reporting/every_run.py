"""One made-up run of every command that has a section, with a given word where labels come from data."""

from __future__ import annotations

import pandas as pd
from report_runs import comparison_run
from study_runs import study_run
from test_difference_section import difference_run
from test_pretraining_section import pretraining_run
from test_probing_sections import languages_run, probing_run
from test_ranking_report import ablation_run, described_run, ranking_run
from test_redundancies import redundancy_run
from test_transfer_section import transfer_run

from residuum.storage.results import Run


def every_run(word: str) -> list[Run]:
    """The word is a model, a language, a label, a class, a piece or a name, as the command has it."""
    return [
        ablation_run(),
        adaptation_run(word),
        comparison_run({word: 3, "other": 4}, ["cka", "neuron"]),
        _with_word(described_run(), "card_contexts", "label", word),
        difference_run(),
        distillation_run(word),
        finetuning_run(word),
        pretraining_run(),
        pruning_run(),
        evaluation_run("adapted", word),
        evaluation_run("correlate", word),
        evaluation_run("perplexity", word),
        evaluation_run("retrieval", word),
        _with_word(probing_run(word), "classes", "class", word),
        languages_run(word),
        _with_word(ranking_run(), "card_classes", "label", word),
        redundancy_run(word=word),
        shrinking_run(word),
        study_run(),
        Run("study distillation", {}, {"rows": 1}, {"scores": _scores(word).assign(row=word, parameters=10)}),
        _with_word(transfer_run(), "curve", "step", word),
        trimming_run(word),
    ]


def adaptation_run(word: str, more: int = 40) -> Run:
    strategies, languages = ["full", word, *(f"strategy {number}" for number in range(more))], [word, "de"]
    keys = [(s, x, k, part) for s in strategies for x in languages for k in (0, 5) for part in ("test", "dev")]
    means = pd.DataFrame(keys, columns=["strategy", "language", "k", "part"])
    means = means.assign(metric="accuracy", value=0.5 + means["k"] / 50, low=0.4, high=0.7, n=3)
    kept = means[["strategy", "language"]].assign(seed=0)
    tables = {
        "means": means,
        "scores": means.drop(columns=["low", "high", "n"]).assign(seed=0, draw=0),
        "trainings": kept.assign(parameters=10, **{"parameters trained": 5, "source dev": 0.9}),
        "curves": kept.assign(step=1, metric="accuracy", value=0.5),
    }
    config = {"strategies": strategies, "targets": languages, "seeds": [0], "few_shot": [5], "teacher": None}
    summary = {"task": word, "metric": "accuracy", "training examples": 9, "notes": [word]}
    return Run("adapt", config, {**summary, "test accuracy": dict.fromkeys(strategies, 0.5)}, tables)


def distillation_run(word: str) -> Run:
    losses = [(step, word, "en", term, 1 / step) for step in (1, 2) for term in ("loss", word)]
    tables = {
        "losses": pd.DataFrame(losses, columns=["step", "student", "language", "term", "value"]),
        "scores": _scores(word).assign(step=1),
        "parameters": pd.DataFrame({"part": [word], "parameters": [5]}),
    }
    summary = {"teacher": word, "students": [word], "parameters of all students": 5, "teacher parameters": 10}
    summary |= {"steps": 2, "weights": {word: 1.0}, "layer map": {"0": 0}, f"perplexity {word}": 3.0}
    return Run("distill", {"preset": "", "recipe": word}, summary, tables)


def finetuning_run(word: str) -> Run:
    places = pd.DataFrame({"seed": 0, "step": [1, 2], "epoch": [0.5, 1.0]})
    tables = {
        "scores": pd.DataFrame({"seed": [0], "part": ["test"], "metric": [word], "value": [0.9]}),
        "curves": places.assign(metric=word, value=[0.5, 0.9]),
        "history": places.assign(loss=[2.0, 1.0], learning_rate=0.1),
    }
    config = {"model": word, "seeds": [0], "drop": [], "freeze": []}
    summary = {
        "task": word,
        "kind": "single",
        "metric": word,
        f"test {word}": 0.9,
        f"test {word} baseline": 0.5,
        f"dev {word}": 0.9,
        "layers": 3,
    }
    summary |= {"parameters trained": 10, "examples": {"train": 9}, "cut short": {"train": 0}, "notes": [word]}
    return Run("finetune", config, summary, tables)


def pruning_run() -> Run:
    layers = pd.DataFrame({"layer": [1, 2, 3], "kept": [True, False, True], "value": [0.1, 0.9, 0.2]})
    summary = {"kept": [1, 3], "layers": 3, "parameters before": 30, "parameters after": 20}
    return Run("prune", {"model": "m", "by": "cka"}, summary, {"layers": layers})


def evaluation_run(kind: str, word: str) -> Run:
    bounds = {"low": 0.2, "high": 0.6}
    layers = {"layers": ["0", "1", "0-1"], "layer": pd.array([0, 1, None], "Int64"), "accuracy": [0.3, 0.5, 0.4]}
    pair = {"pair": f"en-{word}", "query": "en", "candidates": word, "score": "cosine", "sentences": 9, "mrr": 0.5}
    same = {"direction": word, "score": "cosine", "layers": "0", "p_value": 0.1, "runs": 4, "value": 0.4}
    tables = {
        "adapted": ("scores", pd.DataFrame({"metric": [word], "value": [0.5]})),
        "correlate": ("correlations", pd.DataFrame({"measure": ["pearson", "spearman"]}).assign(**same, **bounds)),
        "perplexity": ("perplexity", pd.DataFrame({"text": [word], "lines": 5, "tokens": 50, "loss": 1.0})),
        "retrieval": ("retrieval", pd.DataFrame(layers).assign(**pair, **bounds)),
    }
    name, table = tables[kind]
    table = table.assign(perplexity=2.7, **bounds) if kind == "perplexity" else table
    return Run(f"evaluate {kind}", {}, {"model": word, "models": [word], "task": word, "examples": 9}, {name: table})


def trimming_run(word: str) -> Run:
    pieces = pd.DataFrame({"piece": [word, "b"], "old_id": [0, 5], "new_id": [0, 1], "count": [6, 3]})
    summary = {"pieces after": 2, "pieces before": 10, "share saved": 0.4, "parameters after": 60}
    return Run("trim", {}, {**summary, "lines split in another way": 0}, {"pieces": pieces})


def shrinking_run(word: str) -> Run:
    bounds = {"fidelity_low": 0.8, "fidelity_high": 1.0, "ms_32": 2.0, "mb_32": 9.0}
    stages = pd.DataFrame({"stage": ["original", "pruned", "healed"], "layers": [4, 2, 2], "parameters": [40, 20, 20]})
    plan = {"layers": [3, 2], "ffn": [1.0, 0.5], "quality": [0.9, 0.7], "parameters": [30, 20], "speedup": [1.3, 2.0]}
    curve = pd.DataFrame({"layers": [4, 3], "fidelity": [1.0, 0.9], "fidelity_low": 0.8, "fidelity_high": 1.0})
    summary = {"layers": 4, "kept": [1, 4], "feed-forward": 0.5, "parameters before": 40, "parameters after": 20}
    tables = {
        "stages": stages.assign(fidelity=[1.0, 0.8, 0.9], **bounds),
        "plan": pd.DataFrame(plan).assign(chosen=[False, True]),
        "curve": curve,
    }
    config = {"model": word, "task": None}
    return Run("shrink", config, {**summary, "fidelity": 0.9, "speed-up": [2.0, 1.9, 2.1]}, tables)


def _scores(word: str) -> pd.DataFrame:
    return pd.DataFrame({"score": ["perplexity", word], "subject": word, "value": [3.0, 0.5]})


def _with_word(run: Run, table: str, column: str, word: str) -> Run:
    """The first value of a column of a table is the word wherever it stands."""
    frame = run.tables[table]
    first = frame[column].iloc[0]
    run.tables[table] = frame.assign(**{column: frame[column].replace({first: word})})
    return run
