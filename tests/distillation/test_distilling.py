"""`distill` from end to end: students that load, curves, exact resumption, several processes, clear refusals."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers as hf
import yaml
from safetensors.torch import load_file

from residuum.cli import main
from residuum.distillation.distilling import (
    _counted_pass,
    count_step,
    described_fingerprint,
    distill,
    verdict,
    with_fingerprints,
)
from residuum.distillation.exporting import export_students
from residuum.distillation.preparation import prepare
from residuum.distillation.settings import read_settings
from residuum.distillation.steps import DistillationStep
from residuum.errors import CorpusError, ModelError, OtherRunError, SettingError, StoreError
from residuum.reporting.report import section
from residuum.storage.results import read_run
from residuum.training.loop import kept_for_backward
from teachers import LINES, save_teacher
from tiny import save_model

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


@pytest.fixture(scope="module")
def done(tmp_path_factory, teacher_folder, texts):
    """One whole run of the default method, with scores on the way."""
    out = tmp_path_factory.mktemp("run")
    config = {
        "teacher": str(teacher_folder("xlm-roberta")),
        "texts": {language: texts[language] for language in ("en", "tr")},
        "preset": "monoalignment",
        "device": "cpu",
        "vocabulary": {"trim": True},
        "text": {"batch_size": 3, "held_out": 2, "shuffle_buffer": 8},
        "optimiser": {"steps": 6, "log_every": 2, "learning_rate": 0.001},
        "evaluation": {"every": 3, "pairs": {"tr-en": [texts["tr"], texts["en"]]}},
    }
    return config, out, distill(read_settings(config, out=out, progress=False))


def test_students_load_with_plain_transformers_and_have_their_own_tokenizer(done):
    _, out, result = done
    assert set(result.students) == {"en", "tr"}
    for folder in result.students.values():
        model, tokenizer = hf.AutoModelForMaskedLM.from_pretrained(folder), hf.AutoTokenizer.from_pretrained(folder)
        assert model.config.num_hidden_layers == 2
        assert len(tokenizer) == model.config.vocab_size < 107
        assert model(**tokenizer("Watoto wanasoma", return_tensors="pt")).logits.shape[-1] == len(tokenizer)
        card = (folder / "README.md").read_text()
        for part in ("monoalignment", "parameters", "fingerprint", "perplexity", "Limits", "2 → 4"):
            assert part in card
    assert not (out / "checkpoints").exists()


def test_curves_scores_and_parameters_are_tables(done):
    _, out, result = done
    assert set(result.losses["term"]) >= {"loss", "learning_rate", "mlm", "soft", "hidden_mse", "embedding_mse"}
    assert set(result.losses["step"]) == {2, 4, 6}
    assert set(result.scores["step"]) == {0, 3, 6}
    assert set(result.scores["subject"]) == {"en/en", "tr/tr", "tr-en", "en-tr"}
    parameters = result.run.tables["parameters"].set_index("part")["parameters"]
    assert parameters["total"] == parameters["en"] + parameters["tr"] - parameters["shared"]
    page = section(read_run(out))
    assert {panel.title for panel in page.panels} == {"Training loss", "Scores of the students"}
    perplexity = next(view for view in page.panels[1].views if view.key == "perplexity")
    lines = {str(trace.name): list(trace.y) for trace in perplexity.figure.data if trace.name}
    levels = [values for name, values in lines.items() if name.startswith("teacher, ")]
    expected = result.run.summary["teacher scores"]
    for values, name in zip(levels, ("en/en", "tr/tr"), strict=True):
        assert values == pytest.approx([expected[f"perplexity {name}"]] * 2, rel=1e-4)
    assert "monoalignment" in next(finding.text for finding in page.findings if finding.topic == "Weights of the loss")


@pytest.mark.parametrize("trim", [False, True])
def test_the_teacher_is_scored_as_a_student_that_is_its_copy(trim, values, texts):
    """Also with a trimmed vocabulary: the teacher then chooses among the same tokens."""
    config = values(shape={"layers": 4}, vocabulary={"trim": trim})
    config["evaluation"] = {"pairs": {"tr-en": [texts["tr"], texts["en"]]}}
    prepared = prepare(read_settings(config))
    scores, teacher = prepared.scores(), prepared.scores(prepared.teacher.model)
    assert set(scores) == {"perplexity en/en", "perplexity tr/tr", "retrieval tr-en", "retrieval en-tr"}
    assert teacher == pytest.approx(scores, rel=1e-4)


def test_scores_stand_beside_those_of_the_teacher(done):
    _, out, result = done
    teacher = result.run.summary["teacher scores"]
    assert set(teacher) == {name for name in result.run.summary if name.startswith(("perplexity", "retrieval"))}
    start = result.run.summary["start scores"]
    assert start == result.scores.query("step == 0").set_index(["score", "subject"])["value"].round(6).pipe(by_name)
    shown = f"(teacher: {teacher['perplexity en/en']:.4g}, before training: {start['perplexity en/en']:.4g})"
    assert shown in result.text()
    assert shown in (result.students["en"] / "README.md").read_text()
    findings = " ".join(finding.text for finding in section(read_run(out)).findings)
    assert f"(teacher {teacher['retrieval tr-en']:.3f})" in findings


def by_name(values):
    return {" ".join(key): value for key, value in values.items()}


def test_a_run_ends_with_a_verdict_and_the_next_command(done):
    text = done[2].text()
    scores, teacher = done[2].run.summary, done[2].run.summary["teacher scores"]
    kept = [scores[name] / teacher[name] for name in ("retrieval tr-en", "retrieval en-tr") if teacher[name]]
    assert f"{min(kept):.0%} to {max(kept):.0%} of the teacher's retrieval accuracy" in text or len(kept) < 2
    students, (tr, en) = done[2].students, done[0]["evaluation"]["pairs"]["tr-en"]
    told = (
        f"Next: residuum evaluate retrieval {students['tr']} {tr} --translations {en} --target-model {students['en']}"
    )
    assert told in text
    assert verdict({}, {}, {}).startswith("Verdict: nothing was measured")
    worse = verdict({"perplexity a/a": 3.0, "retrieval a-b": 0.3}, {"retrieval a-b": 0.6}, {"perplexity a/a": 2.0})
    assert worse == (
        "Verdict on the students: they keep 50% of the teacher's retrieval accuracy, and perplexity is lower than "
        "before training in 0 of 1 cases."
    )


def test_monoalignment_of_one_language_says_what_it_is(values, texts, tmp_path):
    config = values(texts={"en": texts["en"]}, preset="monoalignment", optimiser={"steps": 1})
    text = distill(read_settings(config, out=tmp_path / "out", progress=False)).text()
    assert "with one student this run matched the teacher's last layer and embeddings, and nothing more" in text


def test_gradients_are_the_same_with_checkpointing(values):
    gradients = []
    for checkpointing in (False, True):
        prepared = prepare(read_settings(values(optimiser={"gradient_checkpointing": checkpointing})))
        assert prepared.students[0].model.module.is_gradient_checkpointing == checkpointing
        prepared.step(prepared.batches(0)).total.backward()
        named = [(n, p.grad) for student in prepared.students for n, p in student.model.module.named_parameters()]
        gradients.append({(place, name): gradient for place, (name, gradient) in enumerate(named)})
    for key, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][key], gradient, rtol=1e-5, atol=1e-7)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch's own, while it traces
def test_compiled_networks_have_the_same_loss_and_gradients_and_are_written(values, monkeypatch, tmp_path):
    compiled, original = [], torch.nn.Module.compile

    def with_eager_kernels(module, **options):  # traced and guarded as ever, but without a compiler of C++
        compiled.append(module)
        original(module, backend="eager", **options)

    monkeypatch.setattr(torch.nn.Module, "compile", with_eager_kernels)
    results = []
    for compiling in (False, True):
        prepared = prepare(read_settings(values(optimiser={"compile": compiling})))
        total = prepared.step(prepared.batches(0)).total
        total.backward()
        weight = prepared.students[0].model.blocks[0].attention.self.query.weight
        results.append((total.detach(), weight.grad))
    assert len(compiled) == 3  # the teacher and two students
    torch.testing.assert_close(results[1], results[0])
    export_students(prepared, tmp_path, {"en": "", "tr": ""}, {})
    student = hf.AutoModelForMaskedLM.from_pretrained(tmp_path / "students" / "en")
    torch.testing.assert_close(student.base_model.encoder.layer[0].attention.self.query.weight, weight.detach())


def test_a_run_stops_when_retrieval_no_longer_improves_and_keeps_the_best_students(values, texts, tmp_path):
    config = values(optimiser={"steps": 12, "learning_rate": 0.5, "warmup": 0})
    config["evaluation"] = {"every": 1, "patience": 2, "pairs": {"tr-en": [texts["tr"], texts["en"]]}}
    result = distill(read_settings(config, out=tmp_path / "out", progress=False))
    summary = result.run.summary
    assert summary["steps"] == summary["best step"] + 2 < 12
    measured = result.scores.query("score == 'retrieval'").groupby("step")["value"].mean()
    assert measured[summary["best step"]] == pytest.approx(measured[summary["steps"]])  # the best are what is written
    with pytest.raises(SettingError, match="evaluation.patience watches retrieval"):
        read_settings(values(evaluation={"patience": 2}))


RECIPES = {  # a tiny teacher of the same architecture, and what must shrink with it
    "xlmr-en-tr-sw": ("xlm-roberta", {}),
    "mmbert-en-tr-sw": ("modernbert", {"shape": {"layers": 6}}),
    "bert-distilbert": ("bert", {}),
    "minilm": ("bert", {"shape": {"layers": 6, "hidden_size": 8, "heads": 2, "intermediate_size": 12}}),
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_runs_with_a_stand_in_of_its_architecture(name, texts, tmp_path):
    family, shapes = RECIPES[name]
    recipe = yaml.safe_load((Path(__file__).parents[2] / "recipes" / f"{name}.yaml").read_text(encoding="utf-8"))
    read_settings(recipe)  # as it is written
    changes = {} if family == "modernbert" else {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    pairs = {pair: [texts[side] for side in pair.split("-")] for pair in recipe.get("evaluation", {}).get("pairs", {})}
    own = {
        **recipe,
        "teacher": str(save_teacher(family, tmp_path / "teacher", layers=12, **changes)),
        "texts": {language: texts[language] for language in recipe["texts"]},
        "text": {**recipe["text"], "batch_size": 2, "max_length": 24, "held_out": min(recipe["text"]["held_out"], 2)},
        "optimiser": {**recipe["optimiser"], "steps": 2, "warmup": 0, "accumulation": 1},
        "evaluation": {**recipe.get("evaluation", {}), "every": 1, "pairs": pairs},
        "device": "cpu",
        **shapes,
    }
    layers = own["shape"]["layers"]
    result = distill(read_settings(own, out=tmp_path / "out", progress=False))
    assert set(result.students) == set(recipe["texts"])
    for folder in result.students.values():
        assert hf.AutoModelForMaskedLM.from_pretrained(folder).config.num_hidden_layers == layers


def test_students_learn(done):
    """The sum of the losses is lower at the end than at the start: steps move weights the right way."""
    loss = done[2].losses.query("term == 'loss'").sort_values("step")["value"].tolist()
    assert loss[-1] < loss[0]


def test_the_same_run_returns_at_once_and_another_is_refused(done):
    config, out, _ = done
    before = (out / "students" / "en" / "model.safetensors").stat().st_mtime_ns
    distill(read_settings(config, out=out, progress=False))
    assert (out / "students" / "en" / "model.safetensors").stat().st_mtime_ns == before
    with pytest.raises(StoreError, match="holds another run"):
        distill(read_settings({**config, "seed": 1}, out=out, progress=False))


def weights(out):
    return {name: load_file(out / "students" / name / "model.safetensors") for name in ("en", "tr")}


KILLED = """
import os, signal
from residuum.training import loop

step = loop._Loop.step

def step_and_die(self):
    step(self)
    if self.progress.step == 5:
        os.kill(os.getpid(), signal.SIGKILL)

loop._Loop.step = step_and_die
from residuum.cli import main
main()
"""


def test_a_run_that_is_killed_ends_with_the_weights_of_one_that_was_not(values, tmp_path):
    config = values(optimiser={"steps": 12, "log_every": 4, "checkpoint_every": 2})
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "residuum", "distill", "--config", str(path), "--device", "cpu", "--out"]
    killed = [sys.executable, "-c", KILLED, *command[3:], str(tmp_path / "killed")]
    assert subprocess.run(killed, env=ENVIRONMENT, capture_output=True).returncode == -signal.SIGKILL
    assert list((tmp_path / "killed" / "checkpoints").glob("step-*"))
    assert not (tmp_path / "killed" / "result.json").exists()
    subprocess.run([*command, str(tmp_path / "killed")], env=ENVIRONMENT, check=True, capture_output=True)
    subprocess.run([*command, str(tmp_path / "whole")], env=ENVIRONMENT, check=True, capture_output=True)
    killed, whole = weights(tmp_path / "killed"), weights(tmp_path / "whole")
    for name in whole:
        assert all(torch.equal(killed[name][key], value) for key, value in whole[name].items())


# Without --multi_gpu accelerate starts a single process where there is no GPU, whatever the number of processes.
ACCELERATE = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_machines=1", "--mixed_precision=no"]
ACCELERATE += ["--dynamo_backend=no", "--main_process_port=0"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "launch"),
    [
        ("corrected", ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]),
        ("thesis", [*ACCELERATE, "--num_processes=2"]),
    ],
)
def test_two_processes_give_what_one_with_twice_the_batch_gives(recipe, launch, values, tmp_path):
    for processes, size in ((1, 4), (2, 2)):
        config = values(text={"batch_size": size, "held_out": 2, "shuffle_buffer": 8}, recipe=recipe)
        path = tmp_path / f"{processes}.yaml"
        path.write_text(yaml.safe_dump(config))
        launcher = launch if processes == 2 else []
        command = [
            sys.executable,
            *launcher,
            "-m",
            "residuum",
            "distill",
            "--config",
            str(path),
            "--device",
            "cpu",
            "--out",
        ]
        subprocess.run([*command, str(tmp_path / str(processes))], env=ENVIRONMENT, check=True, capture_output=True)
    one, two = weights(tmp_path / "1"), weights(tmp_path / "2")
    for name in one:
        for key, value in one[name].items():
            torch.testing.assert_close(two[name][key], value, rtol=1e-4, atol=2e-6)


def test_a_plan_counts_measures_and_draws(values):
    found = distill.estimate(**values())
    assert found.parameters["total"] == found.parameters["en"] + found.parameters["tr"] - found.parameters["shared"]
    assert found.seconds_per_step > 0
    assert "teacher  1 2 3 4\nstudent  · 1 · 2" in str(found)


def test_operations_are_counted_for_another_device(values):
    """Against the formula: 2 per weight and token, 4·tokens·width for attention, three times that with the way back."""
    text, width, inner, length = {"batch_size": 2, "held_out": 2, "max_length": 24}, 16, 24, 24
    block = 2 * length * (4 * width**2 + 2 * width * inner) + 4 * length**2 * width
    lines = 2 * 2  # of both languages
    without = count_step(prepare(read_settings(values(preset="tinybert", text=text))))
    assert without[0] == lines * (4 + 3 * 2) * block
    with_head = count_step(prepare(read_settings(values(preset="hinton", text=text))))
    assert with_head[0] == pytest.approx(without[0] + lines * 4 * 2 * 0.15 * length * 107 * width)
    again = {"gradient_checkpointing": True, "accumulation": 2}
    twice = count_step(prepare(read_settings(values(preset="tinybert", text=text, optimiser=again))))
    assert twice[0] == 2 * lines * (4 + 4 * 2) * block
    assert twice[1] < without[1]
    plan = distill.estimate(**values(preset="tinybert", text=text, flops=1e9))
    assert plan.seconds_per_step == pytest.approx(without[0] / 1e9)
    assert plan.memory == without[1]
    assert "3 steps at 1e+09 FLOP/s, every line 24 tokens long" in str(plan)


@pytest.mark.parametrize("family", ["bert", "modernbert", "llama"])
def test_the_memory_of_a_pass_is_that_of_a_real_one(family, values):
    student = prepare(read_settings(values(family, losses={"hidden_mse": 1.0}))).students[0].model
    ids = torch.ones((1, 24), dtype=torch.long)
    with kept_for_backward(list(student.module.parameters())) as kept:
        states = student.run(ids, torch.ones_like(ids)).hidden
        torch.stack([state.sum() for state in states]).sum().backward()
    counted, real = _counted_pass(student, 24, half=False, learns=True)[1], sum(kept.values())
    assert real <= counted < 1.4 * real  # a fused attention, which is not counted on, keeps no probabilities
    assert _counted_pass(student, 24, half=True, learns=True)[1] < 0.85 * counted  # norms stay in float32


def test_a_network_that_cannot_be_counted_says_what_to_do(values):
    with pytest.raises(ModelError, match=r"The operations of GPT2LMHeadModel cannot be counted .* leave flops out"):
        count_step(prepare(read_settings(values("gpt2", preset="hinton"))))


def test_the_command_line_plans_and_refuses_in_one_line(values, monkeypatch, capfd, tmp_path):
    config = values()

    def command(*arguments):
        monkeypatch.setattr(sys, "argv", ["residuum", "distill", *map(str, arguments)])
        handler = signal.getsignal(signal.SIGINT)
        try:
            main()
            return 0
        except SystemExit as exit:
            return exit.code or 0
        finally:
            signal.signal(signal.SIGINT, handler)

    texts = [f"{name}={path}" for name, path in config["texts"].items()]
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({"text": config["text"]}))
    common = [
        config["teacher"],
        *texts,
        "--preset",
        "monoalignment",
        "--device",
        "cpu",
        "--config",
        tmp_path / "c.yaml",
    ]
    assert command(*common, "--estimate", "--out", tmp_path / "none") == 0
    assert "student layers 1 learn from no layer" in capfd.readouterr().out
    assert not (tmp_path / "none").exists()
    assert command(*common, "--estimate") == 0  # an estimate writes nothing, so it needs no folder
    assert "time per step" in capfd.readouterr().out
    assert command(*common) == 2
    assert capfd.readouterr().err == "residuum: Missing --out; see --help.\n"
    named = {"text": config["text"], "optimiser": config["optimiser"], "out": str(tmp_path / "named")}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(named))
    assert command(*common, "--vocabulary", "trim=true", "--optimiser", "steps=2") == 0
    shown = capfd.readouterr().out
    assert f"student en: {tmp_path / 'named' / 'students' / 'en'}\n" in shown
    run = read_run(tmp_path / "named")
    assert (run.config["optimiser"]["steps"], run.config["optimiser"]["warmup"]) == (2, 0)  # the option and the file
    saved = run.summary["trimming"]["en"]["parameters saved"]
    assert f"Trimming saved {saved:,} parameters of student en; characters without a token become unknown." in shown
    assert command("t", "--preset", "hinton", "--out", tmp_path / "x") == 2
    assert "Missing LANGUAGE=TEXT" in capfd.readouterr().err


def test_the_folder_stands_in_the_settings_or_beside_them(values, tmp_path):
    config = values(out=str(tmp_path / "named"))
    assert distill(read_settings(config, progress=False)).folder == tmp_path / "named"
    assert distill(read_settings(config, out=tmp_path / "given", progress=False)).folder == tmp_path / "given"
    (tmp_path / "named").rename(tmp_path / "moved")
    assert (
        distill(read_settings(config, out=tmp_path / "moved", progress=False)).run.summary["steps"] == 3
    )  # the same run
    with pytest.raises(SettingError, match="out is missing"):
        distill(read_settings(values()))


@pytest.fixture
def headless(tmp_path):
    """A teacher whose checkpoint has neither a head nor a pooler."""
    folder = save_model("bert", tmp_path / "headless")
    model = hf.AutoModel.from_pretrained(folder)
    model.pooler = None
    model.save_pretrained(folder)
    return folder


def test_students_of_a_sentence_model_are_sentence_models(values, headless, tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    modules = [Transformer(str(headless)), Pooling(16, "mean"), Normalize()]
    teacher = tmp_path / "teacher"
    SentenceTransformer(modules=modules, prompts={"query": "q: "}, device="cpu").save(str(teacher))
    config = values(teacher=str(teacher), preset="tinybert", **THIN)
    distill(read_settings(config, out=tmp_path / "run", progress=False))
    for language in ("en", "tr"):
        student = SentenceTransformer(str(tmp_path / "run" / "students" / language), device="cpu")
        assert [type(part).__name__ for part in student] == ["Transformer", "Pooling", "Normalize"]
        assert student.prompts["query"] == "q: "


def stop_at(monkeypatch, step):
    """Let the losses of a step fail, as a kill between two checkpoints would."""
    calls, original = [], DistillationStep.__call__

    def call(self, batches):
        calls.append(1)
        if len(calls) == step:
            raise RuntimeError("stopped")
        return original(self, batches)

    monkeypatch.setattr(DistillationStep, "__call__", call)


THIN = {"shape": {"hidden_size": 8, "heads": 2}, "initialise": "random"}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"preset": "tinybert", "headless": True}, id="a teacher without head and pooler"),
        pytest.param({**THIN, "preset": "monoshot"}, id="thinner students with projections"),
        pytest.param({"preset": "monoshot", "teacher_cache": "cache"}, id="a cache that is half filled"),
    ],
)
def test_a_run_that_was_stopped_goes_on_to_the_same_weights(values, headless, changes, monkeypatch, tmp_path):
    if changes.pop("headless", False):
        changes["teacher"] = str(headless)
    config = values(**changes, optimiser={"steps": 9, "log_every": 3, "checkpoint_every": 2})

    def run(name):
        cache = {"teacher_cache": str(tmp_path / name / "cache")} if "teacher_cache" in config else {}
        distill(read_settings({**config, **cache}, out=tmp_path / name, progress=False))

    run("whole")
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="stopped"):
        stop_at(patch, 6)
        run("stopped")
    assert [f.name for f in (tmp_path / "stopped" / "checkpoints").glob("step-*")] == ["step-000000004"]
    run("stopped")
    whole, stopped = weights(tmp_path / "whole"), weights(tmp_path / "stopped")
    for name in whole:
        assert whole[name].keys() == stopped[name].keys()
        assert all(torch.equal(stopped[name][key], value) for key, value in whole[name].items())


def test_a_warm_up_in_steps_counts_steps_and_not_turns(values, tmp_path):
    """recipe thesis: two turns a step, rates 0, ¼, ½, ¾ and then 1."""
    optimiser = {"steps": 3, "log_every": 1, "warmup": 2, "schedule": "constant", "learning_rate": 1.0e-3}
    result = distill(
        read_settings(values(recipe="thesis", preset="hinton", optimiser=optimiser), out=tmp_path, progress=False)
    )
    rates = result.losses.query("term == 'learning_rate'").groupby("step")["value"].mean()
    assert rates.tolist() == pytest.approx([0.125e-3, 0.625e-3, 1e-3])


def test_what_trimming_saved_is_the_difference_of_the_parameters(values, tmp_path):
    for tie in (True, False):
        whole, small = (
            distill(
                read_settings(
                    values(tie=tie, vocabulary={"trim": trim}), out=tmp_path / f"{tie} {trim}", progress=False
                )
            )
            for trim in (False, True)
        )
        counts = [run.run.tables["parameters"].set_index("part")["parameters"] for run in (whole, small)]
        assert "trimming" not in whole.run.summary
        for name, found in small.run.summary["trimming"].items():
            assert found["parameters saved"] == counts[0][name] - counts[1][name] > 0
            assert found["pieces after"] < found["pieces before"] == 107
            assert found["characters without a piece become"] == "unknown"
            card = (small.students[name] / "README.md").read_text()
            assert f"which saves {found['parameters saved']:,} parameters; characters without a piece" in card


def test_retrieval_averages_the_blocks_and_not_the_embeddings(values, texts):
    prepared = prepare(read_settings(values(evaluation={"pairs": {"tr-en": [texts["tr"], texts["en"]]}})))
    student, monitor = prepared.students[0], prepared.monitor
    batch = monitor.encoders["en"].plain(LINES["en"][:1])
    with torch.no_grad():
        hidden = student.model.module(**batch, output_hidden_states=True).hidden_states
        vectors = monitor._vectors(student, "en", LINES["en"][:1])
    torch.testing.assert_close(vectors[0], (hidden[1][0].mean(0) + hidden[2][0].mean(0)) / 2)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"report_to": ["telegraph"]}, SettingError, "report_to names 'telegraph'; installed trackers"),
        ({"optimiser": {"precision": "float16"}}, SettingError, "a CPU cannot train in"),
        ({"evaluation": {"pairs": {"en-tr": ["no/such/en.txt", "no/such/tr.txt"]}}}, CorpusError, "does not exist"),
        (
            {"losses": {"contrastive": 1}, "translations": {"en-tr": ["no/such/en.txt", "no/such/tr.txt"]}},
            CorpusError,
            "does not exist",
        ),
    ],
)
def test_what_cannot_be_done_here_is_told_before_the_teacher_is_loaded(values, change, error, message, tmp_path):
    with pytest.raises(error, match=message):
        distill(read_settings(values(teacher=str(tmp_path / "none"), **change), out=tmp_path))


def test_pieces_of_translations_are_kept_by_trimming(values, tmp_path):
    for language, line in (("en", LINES["en"][0]), ("tr", "東京 は 日本 の 首都 です 。")):
        (tmp_path / f"{language}.txt").write_text(f"{line}\n" * 3, encoding="utf-8")
    pairs = {"tr-en": [str(tmp_path / "tr.txt"), str(tmp_path / "en.txt")]}
    for share in ("none", "embeddings"):
        changes = {"losses": {"mlm": 0.5, "contrastive": 0.5}, "vocabulary": {"trim": True}, "share": share}
        prepared = prepare(read_settings(values(translations=pairs, **changes)))
        tokens = prepared.tokenizer("東京 は 日本", add_special_tokens=False)["input_ids"]
        assert set(tokens) <= set(prepared.vocabularies["tr"].kept)
        assert (set(tokens) <= set(prepared.vocabularies["en"].kept)) == (share == "embeddings")


def test_another_text_of_the_same_name_is_another_run(values, tmp_path):
    (tmp_path / "en.txt").write_text("\n".join(LINES["en"] * 5), encoding="utf-8")
    config = values(texts={"en": str(tmp_path / "en.txt")}, preset="hinton")
    distill(read_settings(config, out=tmp_path / "out", progress=False))
    (tmp_path / "en.txt").write_text("\n".join(LINES["tr"] * 5), encoding="utf-8")
    with pytest.raises(StoreError, match="holds another run"):
        distill(read_settings(config, out=tmp_path / "out", progress=False))


def test_a_teacher_and_texts_that_were_moved_are_the_same_run_and_a_teacher_that_changed_is_another(values, tmp_path):
    (tmp_path / "en.txt").write_text("\n".join(LINES["en"] * 5), encoding="utf-8")
    config = values(texts={"en": str(tmp_path / "en.txt")}, preset="hinton")
    teacher = Path(shutil.copytree(config["teacher"], tmp_path / "teacher"))
    config["teacher"] = str(teacher)
    first = distill(read_settings(config, out=tmp_path / "out", progress=False))
    moved = {"teacher": str(teacher.rename(tmp_path / "moved")), "texts": {"en": str(tmp_path / "moved.txt")}}
    (tmp_path / "en.txt").rename(tmp_path / "moved.txt")
    again = distill(read_settings({**config, **moved}, out=tmp_path / "out", progress=False))
    assert again.run.environment == first.run.environment
    assert again.frame.equals(first.frame)
    settings = tmp_path / "moved" / "config.json"
    settings.write_text(settings.read_text(encoding="utf-8") + " ", encoding="utf-8")
    with pytest.raises(OtherRunError, match=r"holds another run \(teacher_files \w+ → \w+\)"):
        distill(read_settings({**config, **moved}, out=tmp_path / "out", progress=False))


def test_a_teacher_with_an_unknown_head_teaches_by_terms_that_need_none(values, tmp_path):
    save_teacher("modernbert", tmp_path / "modernbert")
    config = {**values(losses={"hidden_mse": 0.5, "embedding_mse": 0.5}), "teacher": str(tmp_path / "modernbert")}
    result = distill(read_settings(config, out=tmp_path / "out", progress=False))
    student = hf.AutoModel.from_pretrained(result.students["en"])
    teacher = hf.AutoConfig.from_pretrained(tmp_path / "modernbert")
    assert student.config.layer_types == [teacher.layer_types[layer - 1] for layer in (2, 4)]  # of the layers it copies
    learnt = distill(read_settings({**config, "losses": {"mlm": 1.0}}, out=tmp_path / "mlm", progress=False))
    assert hf.AutoModelForMaskedLM.from_pretrained(learnt.students["en"]).head.dense.weight.shape == (16, 16)
    config["teacher"] = str(save_teacher("albert", tmp_path / "albert"))
    with pytest.raises(ModelError, match="The head of AlbertForMaskedLM is not known; .*without mlm and soft"):
        distill(read_settings({**config, "losses": {"mlm": 1.0}}, out=tmp_path / "unknown", progress=False))


def test_a_hub_dataset_has_no_fingerprint_and_the_card_says_so():
    config = {"teacher": "t", "texts": {"en": "owner/name"}, "preset": "hinton"}
    assert with_fingerprints(read_settings(config).identity())["fingerprints"] == {"en": None}
    assert described_fingerprint(None) == "no fingerprint is known: a hub dataset may change"


def test_a_teacher_without_a_head_is_offered_presets_that_need_none(values, tiny_folder, tmp_path):
    headless = values(teacher=str(tiny_folder("bert")))
    with pytest.raises(ModelError, match=r"has no language-model head .* choose a preset without them: .*tinybert"):
        distill(read_settings(headless, out=tmp_path / "a", progress=False))
    result = distill(
        read_settings({**headless, "preset": "tinybert"}, out=tmp_path / "b", device="cpu", progress=False)
    )
    assert hf.AutoModel.from_pretrained(result.students["en"]).config.num_hidden_layers == 1
