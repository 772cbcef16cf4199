"""`distill` from end to end: students that load, curves, exact resumption, several processes, clear refusals."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch
import transformers as hf
import yaml
from safetensors.torch import load_file

from residuum.cli import main
from residuum.distillation import distill
from residuum.distillation.distilling import plan
from residuum.errors import ModelError, SettingError, StoreError
from residuum.reports.sections import section
from residuum.results import read_run

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


@pytest.fixture(scope="module")
def done(tmp_path_factory, teacher_folder, texts):
    """One whole run of the default method, with scores on the way."""
    out = tmp_path_factory.mktemp("run")
    config = {
        "teacher": str(teacher_folder("xlm-roberta")),
        "texts": {language: texts[language] for language in ("en", "tr")},
        "preset": "monoalignment",
        "vocabulary": {"trim": True},
        "text": {"batch_size": 3, "held_out": 2, "shuffle_buffer": 8},
        "optimiser": {"steps": 6, "log_every": 2, "learning_rate": 0.001},
        "evaluation": {"every": 3, "pairs": {"tr-en": [texts["tr"], texts["en"]]}},
    }
    return config, out, distill(config, out, device="cpu", progress=False)


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
    assert set(result.scores["step"]) == {3, 6}
    assert set(result.scores["subject"]) == {"en/en", "tr/tr", "tr-en", "en-tr"}
    parameters = result.run.tables["parameters"].set_index("part")["parameters"]
    assert parameters["total"] == parameters["en"] + parameters["tr"] - parameters["shared"]
    page = section(read_run(out))
    assert {panel.title for panel in page.panels} == {"How the losses fell", "What the students could do"}
    assert "monoalignment" in page.findings[0].text


def test_students_learn(done):
    """The sum of the losses is lower at the end than at the start: steps move weights the right way."""
    loss = done[2].losses.query("term == 'loss'").sort_values("step")["value"].tolist()
    assert loss[-1] < loss[0]


def test_the_same_run_returns_at_once_and_another_is_refused(done):
    config, out, _ = done
    before = (out / "students" / "en" / "model.safetensors").stat().st_mtime_ns
    distill(config, out, device="cpu", progress=False)
    assert (out / "students" / "en" / "model.safetensors").stat().st_mtime_ns == before
    with pytest.raises(StoreError, match="holds another run"):
        distill({**config, "seed": 1}, out, device="cpu", progress=False)


def weights(out):
    return {name: load_file(out / "students" / name / "model.safetensors") for name in ("en", "tr")}


def test_a_run_that_is_killed_ends_with_the_weights_of_one_that_was_not(values, tmp_path):
    config = values(optimiser={"steps": 12, "log_every": 4, "checkpoint_every": 2})
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "residuum", "distill", str(path), "--device", "cpu", "--out"]
    process = subprocess.Popen([*command, str(tmp_path / "killed")], env=ENVIRONMENT)
    deadline = time.monotonic() + 120
    while not list((tmp_path / "killed" / "checkpoints").glob("step-*")) and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "killed" / "result.json").exists()
    subprocess.run([*command, str(tmp_path / "killed")], env=ENVIRONMENT, check=True, capture_output=True)
    subprocess.run([*command, str(tmp_path / "whole")], env=ENVIRONMENT, check=True, capture_output=True)
    killed, whole = weights(tmp_path / "killed"), weights(tmp_path / "whole")
    for name in whole:
        assert all(torch.equal(killed[name][key], value) for key, value in whole[name].items())


@pytest.mark.slow
def test_two_processes_give_what_one_with_twice_the_batch_gives(values, tmp_path):
    for processes, size in ((1, 4), (2, 2)):
        config = values(text={"batch_size": size, "held_out": 2, "shuffle_buffer": 8})
        path = tmp_path / f"{processes}.yaml"
        path.write_text(yaml.safe_dump(config))
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
        command = [sys.executable, *launcher, "-m", "residuum", "distill", str(path), "--device", "cpu", "--out"]
        subprocess.run([*command, str(tmp_path / str(processes))], env=ENVIRONMENT, check=True, capture_output=True)
    one, two = weights(tmp_path / "1"), weights(tmp_path / "2")
    for name in one:
        for key, value in one[name].items():
            torch.testing.assert_close(two[name][key], value, rtol=1e-4, atol=2e-6)


def test_a_plan_counts_measures_and_draws(values):
    found = plan(values(), device="cpu")
    assert found.parameters["total"] == found.parameters["en"] + found.parameters["tr"] - found.parameters["shared"]
    assert found.seconds_per_step > 0
    assert "teacher  1 2 3 4\nstudent  · 1 · 2" in str(found)


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

    languages = [word for name, path in config["texts"].items() for word in ("--language", f"{name}={path}")]
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({"text": config["text"]}))
    common = ["--teacher", config["teacher"], *languages, "--preset", "monoalignment", "--device", "cpu"]
    assert command(tmp_path / "c.yaml", *common, "--dry-run") == 0
    assert "student layers 1 learn from no layer" in capfd.readouterr().out
    assert command(tmp_path / "c.yaml", *common) == 1
    assert capfd.readouterr().err == (
        "residuum: No folder to write was given; add --out, or --dry-run to see what the run would cost.\n"
    )
    assert command("--teacher", "t", "--preset", "hinton", "--out", tmp_path / "x") == 1
    assert "texts: Field required" in capfd.readouterr().err


def test_a_teacher_without_a_head_is_offered_presets_that_need_none(values, tiny_folder, tmp_path):
    headless = values(teacher=str(tiny_folder("bert")))
    with pytest.raises(ModelError, match=r"has no language-model head .* choose a preset without them: .*tinybert"):
        distill(headless, tmp_path / "a", device="cpu", progress=False)
    result = distill({**headless, "preset": "tinybert"}, tmp_path / "b", device="cpu", progress=False)
    assert hf.AutoModel.from_pretrained(result.students["en"]).config.num_hidden_layers == 1


def test_recipes_that_move_one_student_after_the_other_run_in_one_process(values, monkeypatch, tmp_path):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SettingError, match="it runs in one process, found 2"):
        distill(values(recipe="thesis"), tmp_path, device="cpu")
