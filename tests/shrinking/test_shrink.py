"""`shrink` from end to end on tiny models: plan, cut, heal, verify, ship."""

import json

import numpy as np
import pytest
import torch
import transformers as hf

from residuum.corpus import Corpus
from residuum.errors import OtherRunError, ResiduumError, SettingError
from residuum.reporting.report import report, section
from residuum.shrinking import shrink as module
from residuum.shrinking.healing import prediction_loss
from residuum.shrinking.measuring import LiveBytes
from residuum.shrinking.pruning import prune
from residuum.shrinking.settings import ShrinkSettings
from residuum.shrinking.shrink import Reduction, choose, sample_size, shrink
from residuum.storage.results import read_run
from tiny import TEXT, save_model


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "lines.txt"
    words = " ".join(TEXT).split()
    lines = [" ".join(words[i : i + 3 + i % 5]) for i in range(60)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """A tiny sentence-transformers model of four blocks."""
    folder = save_model("bert", tmp_path_factory.mktemp("model") / "bert", num_hidden_layers=4)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True})
    )
    modules = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    return folder


def test_a_sentence_encoder_is_shrunk_healed_and_still_one(encoder, text, run, tmp_path):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("\n".join(f"{a}\t{b}" for a, b in zip(TEXT[:8] * 2, TEXT[1:9] * 2, strict=True)), "utf-8")
    data = tmp_path / "sts.tsv"
    rows = [f"{TEXT[i % 8]}\t{TEXT[(i * 3) % 8]}\t{(i * 7) % 5}.5" for i in range(30)]
    data.write_text("\n".join(["sentence1\tsentence2\tlabel", *rows]), "utf-8")
    out = tmp_path / "out"
    words = ["--text", text, "--layers", "2", "--heal", "20", "--heal-batch", "8", "--pairs", pairs, "--no-compensate"]
    status, shown, err = run("shrink", encoder, *words, "--task", "stsb", "--data", data, "--out", out)
    assert status == 0, err
    result = read_run(out)
    stages = result.tables["stages"].set_index("stage")
    assert list(stages.index) == ["original", "pruned", "healed"]
    assert stages.loc["original", "fidelity"] == pytest.approx(1, abs=1e-6)
    assert stages.loc["healed", "fidelity"] > stages.loc["pruned", "fidelity"]
    assert {"retrieval", "stsb_low", "ms_1", "ms_32", "mb_1", "speedup_32_high"} <= set(stages.columns)
    assert "healed: 2 layers" in shown
    assert hf.AutoModel.from_pretrained(out).config.num_hidden_layers == 2
    assert (out / "modules.json").exists()
    assert "| healed | 2 |" in (out / "README.md").read_text()
    assert not list(out.glob("scratch-*"))
    options = {"heal": 20, "heal_batch": 8, "pairs": pairs, "task": "stsb", "data": data, "compensate": False}
    assert shrink(encoder, text, out, layers=2, **options).run.folder
    page = section(result)
    assert page.facts["parameters after"] == f"{result.summary['parameters after']:,}"
    assert report(result, out=tmp_path / "page.html").exists()


def test_a_trimmed_masked_model_learns_from_the_whole_vocabulary(text, tmp_path):
    source = save_model("bert", tmp_path / "bert")
    network = hf.BertForMaskedLM(hf.AutoConfig.from_pretrained(source))
    network.save_pretrained(source)
    few = tmp_path / "few.txt"
    few.write_text("\n".join(text.read_text("utf-8").splitlines()[:12]), "utf-8")
    result = shrink(source, few, tmp_path / "out", layers=2, trim=True, heal=10, heal_batch=4, progress=False)
    written = hf.AutoModelForMaskedLM.from_pretrained(tmp_path / "out")
    assert written.config.vocab_size == result.run.summary["pieces after"] < network.config.vocab_size
    assert np.isfinite(result.frame["perplexity"]).all()
    assert result.run.tables["healing"]["predictions"].notna().all()


def test_predictions_are_compared_over_the_kept_pieces():
    teacher, student = torch.randn(5, 9), torch.randn(5, 4)
    kept = torch.tensor([0, 3, 4, 8])
    expected = torch.nn.functional.kl_div(
        student.log_softmax(1), teacher[:, kept].log_softmax(1), reduction="batchmean", log_target=True
    )
    torch.testing.assert_close(prediction_loss(student, teacher, kept), expected)
    assert prediction_loss(teacher[:, kept], teacher, kept).abs() < 1e-6


@pytest.mark.parametrize("step", ["_cut", "heal", "verify", "_ship"])
def test_a_kill_resumes_to_the_same_weights(step, encoder, text, tmp_path, monkeypatch):
    options = {"layers": 3, "heal": 4, "heal_batch": 4, "progress": False}
    whole = shrink(encoder, text, tmp_path / "whole", **options)
    monkeypatch.setattr(
        "residuum.shrinking.healing.losses_of" if step == "heal" else f"{module.__name__}.{step}", _kill
    )
    with pytest.raises(KeyboardInterrupt):
        shrink(encoder, text, tmp_path / "killed", **options)
    monkeypatch.undo()
    monkeypatch.setattr(module, "make_plan", _kill)  # the plan is not made again
    if step != "_cut":
        monkeypatch.setattr(module, "fit_to_original", _kill)  # nor is the cut
    resumed = shrink(encoder, text, tmp_path / "killed", **options)
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "killed")]
    assert files[0] == files[1]
    assert resumed.run.summary["fidelity"] == whole.run.summary["fidelity"]


def _kill(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ({"layers": 4}, "layers is 4; the model has 4, so the nearest limit is --layers 3"),
        ({"parameters": 10}, "10 parameters cannot be reached; the nearest is --parameters"),
        ({"parameters": 10**9}, "parameters already; give a limit below that"),
        ({}, "shrink needs a target; pass exactly one of speedup, parameters, layers and keep"),
        ({"layers": 2, "keep": 0.9}, "Found layers and keep; pass exactly one"),
        ({"layers": 2, "task": "stsb"}, "a task needs its data"),
        ({"layers": 2, "task": "upos", "data": "tags.conllu"}, "The task is 'upos'; shrink judges pairs"),
    ],
)
def test_limits_that_cannot_be_kept_name_the_nearest(limit, message, encoder, text, tmp_path):
    with pytest.raises(SettingError, match=message):
        shrink(encoder, text, tmp_path / "out", heal=0, progress=False, **limit)


def test_other_translations_or_pairs_are_another_run(encoder, text, tmp_path):
    pairs, data, out = tmp_path / "pairs.tsv", tmp_path / "sts.tsv", tmp_path / "out"
    options = {"layers": 2, "heal": 0, "pairs": pairs, "task": "stsb", "data": data, "progress": False}

    def write(first, second):
        pairs.write_text(
            "\n".join(f"{a}\t{b}" for a, b in zip(TEXT[:8], TEXT[first : first + 8], strict=True)), "utf-8"
        )
        rows = [f"{TEXT[i % 8]}\t{TEXT[(i * second) % 8]}\t{(i * 7) % 5}.5" for i in range(30)]
        data.write_text("\n".join(["sentence1\tsentence2\tlabel", *rows]), "utf-8")

    write(1, 3)
    shrink(encoder, text, out, **options)
    for first, second in ((2, 3), (1, 5)):
        write(first, second)
        with pytest.raises(OtherRunError):
            shrink(encoder, text, out, **options)


def test_a_task_that_cannot_be_read_is_told_before_anything_is_healed(encoder, text, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "make_plan", _kill)
    alone = tmp_path / "alone.tsv"
    alone.write_text("text\tlabel\n" + "\n".join(f"{line}\t{i % 5}.5" for i, line in enumerate(TEXT)), "utf-8")
    for data, message in ((tmp_path / "nowhere", "nowhere"), (alone, "has no second sentences for stsb")):
        with pytest.raises(ResiduumError, match=message):
            shrink(encoder, text, tmp_path / "out", layers=2, task="stsb", data=data, progress=False)


@pytest.mark.parametrize("by", ["angular", "cka"])
def test_blocks_go_by_what_their_states_say(by, encoder, text, tmp_path):
    result = shrink(encoder, text, tmp_path / "out", layers=2, by=by, heal=0, progress=False)
    pruned = prune(
        encoder, tmp_path / "pruned", keep=2, by=by, progress=False,
        corpus=Corpus("lines", [line.split() for line in text.read_text("utf-8").splitlines()]),
    )  # fmt: skip
    assert len(result.run.summary["kept"]) == 2
    if by == "angular":  # a run of neighbours
        gone = sorted({1, 2, 3, 4} - set(result.run.summary["kept"]))
        assert gone[1] == gone[0] + 1
    assert result.run.tables["curve"]["layers"].tolist() == pruned.run.tables["curve"]["layers"].tolist() == [4, 3, 2]


def test_heads_and_merged_blocks_are_planned_too(text, tmp_path):
    source = save_model("llama", tmp_path / "llama", num_key_value_heads=2, head_dim=8)
    network = hf.LlamaForCausalLM(hf.AutoConfig.from_pretrained(source))
    network.save_pretrained(source)
    result = shrink(source, text, tmp_path / "out", layers=2, heads=0.5, heal=0, progress=False)
    config = hf.AutoConfig.from_pretrained(tmp_path / "out")
    assert (config.num_hidden_layers, config.num_attention_heads, config.num_key_value_heads) == (2, 1, 1)
    chosen = result.plan.loc[result.plan["chosen"]].iloc[0]
    assert chosen["parameters"] == result.run.summary["parameters after"]
    merged = shrink(source, text, tmp_path / "merged", layers=2, merge=True, compensate=False, heal=0, progress=False)
    plain = shrink(source, text, tmp_path / "plain", layers=2, compensate=False, heal=0, progress=False)
    assert merged.run.summary["kept"] == plain.run.summary["kept"]
    assert merged.run.summary["fidelity"] != plain.run.summary["fidelity"]


def test_the_plan_is_shown_with_its_curve(encoder, text, run, tmp_path):
    status, _, err = run("shrink", encoder, "--text", text, "--layers", "2", "--heal", "0", "--out", tmp_path / "out")
    assert status == 0
    rows = [line for line in err.splitlines() if "█" in line]
    assert len(rows) == 2
    assert rows[1].endswith("←")
    assert rows[0].count("█") >= rows[1].count("█") > 0


def test_compensation_keeps_more_of_the_original(encoder, text, tmp_path):
    options = {"layers": 2, "heal": 40, "heal_batch": 8, "progress": False}
    without = shrink(encoder, text, tmp_path / "without", compensate=False, **options)
    result = shrink(encoder, text, tmp_path / "with", **options)
    assert without.run.summary["kept"] == result.run.summary["kept"]
    assert result.frame["stage"].tolist() == ["original", "pruned", "healed"]
    pruned, healed = (frame["fidelity"].to_numpy()[1:] for frame in (without.frame, result.frame))
    assert healed[0] > pruned[0]
    assert healed[1] > healed[0]
    table = result.run.tables["compensation"]
    assert table["layer"].tolist() == result.run.summary["kept"]


def test_other_mistakes_are_one_line(encoder, tiny_folder, run, text, tmp_path):
    empty = tmp_path / "empty.txt"
    empty.write_text("\n \n")
    cases = [
        (encoder, ["--text", empty, "--layers", "2"], "has no line; give some text"),
        (tiny_folder("albert"), ["--text", text, "--layers", "2"], "it cannot be cut"),
        (tiny_folder("xlnet"), ["--text", text, "--layers", "2", "--ffn", "0.5"], "Feed-forward neurons of XLNetModel"),
    ]
    for source, words, message in cases:
        status, _, err = run("shrink", source, *words, "--out", tmp_path / "out")
        assert status == 1
        assert message in err
        assert len(err.strip().splitlines()) == 1


def test_the_choice_is_the_best_within_the_limit():
    candidates = [
        Reduction(2, "1,2", 1.0, 0.9, 200, 1.5),
        Reduction(2, "1,2", 0.5, 0.8, 150, 1.9),
        Reduction(1, "1", 1.0, 0.7, 100, 2.5),
    ]
    settings = {"model": "m", "text": "t", "out": "o"}
    assert choose(candidates, ShrinkSettings(**settings, parameters="160"), 300) == candidates[1]
    assert choose(candidates, ShrinkSettings(**settings, speedup=2), 300) == candidates[2]
    assert choose(candidates, ShrinkSettings(**settings, keep=0.75), 300) == candidates[1]
    with pytest.raises(SettingError, match=r"speed-up of 3 cannot be reached; the nearest is --speedup 2.5 \(1 layers"):
        choose(candidates, ShrinkSettings(**settings, speedup=3), 300)
    assert ShrinkSettings(**settings, parameters="1.5M").parameters == 1_500_000


def test_planning_reads_at_most_three_times_the_text():
    for n_lines, n_layers, dropped in ((1000, 12, 6), (1000, 30, 6), (5000, 12, 11)):
        lines = sample_size(n_lines, n_layers, dropped)
        passes = sum((n_layers - n) * (n_layers - n - 1) / n_layers for n in range(dropped)) + 2 * dropped + 2
        assert lines <= 256
        assert lines * passes <= 3 * n_lines or lines == 16


def test_live_bytes_are_those_of_tensors_that_live_together():
    with LiveBytes() as live:
        a = torch.ones(1000)
        b = a + 1
        del a
        c = b * 2
        del b, c
    assert live.peak == 8000


def test_onnx_is_written_and_checked(encoder, text, tmp_path):
    pytest.importorskip("onnxruntime")
    options = {"layers": 2, "heal": 0, "progress": False, "onnx": True}
    result = shrink(encoder, text, tmp_path / "out", **options)
    assert result.run.summary["largest difference of ONNX"] < 1e-4
    assert (tmp_path / "out" / "model.onnx").exists()
