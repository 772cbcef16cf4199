"""The runner: order, resumption, costs, errors, and the page at the end; with steps that only count."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from typer.testing import CliRunner

from residuum.activations.exchange import import_activations
from residuum.cli import app
from residuum.errors import CorpusError, MemoryLimitError, ModelError, SettingError, StoreError
from residuum.models.loading import load_model
from residuum.samples import sample_text
from residuum.settings import from_mapping
from residuum.storage.results import Run, finished_run, read_run, write_run
from residuum.studies import StudyName, StudySettings
from residuum.studies.claims import Claim, Evidence, Measurement, Rule
from residuum.studies.data import SampleData
from residuum.studies.documents import (
    GLUE,
    Document,
    PrintedData,
    PrintedNumber,
    PrintedTargets,
    PrintedTreebanks,
    StudyStep,
    Workload,
)
from residuum.studies.exhibits import Exhibit, gathered
from residuum.studies.running import DOCUMENTS, study, study_models
from residuum.studies.steps import SCALES, StudyContext, block_count, finetune_step, model_family
from tiny import save_model

NAMES = ("first", "second", "third")
EXAMPLES = {"train": 8, "dev": 1, "test": 3}
DATA = PrintedData("letters", learnt=9, tested=3)


def text_of(context):
    """What the steps of the chain depend on: the only text of the data that is given."""
    files = sorted(context.data.root.rglob("*.conllu")) if context.scale.name != "sample" else []
    return "".join(file.read_text(encoding="utf-8") for file in files)


class Stopped(Exception):
    """What a power cut would be."""


@pytest.fixture
def chain(monkeypatch):
    """A study of three steps, the calls that did work, and a switch that stops it at a step."""
    done: list[str] = []
    stop_at: set[str] = set()

    def work(step, context):
        name = step.kind
        out, config = context.folder(step), {"name": name, "seed": context.seed, "text": text_of(context)}
        if run := finished_run(out, "compare of a test", config, fresh=context.fresh):
            return run
        if name in stop_at:
            raise Stopped
        done.append(name)
        summary = {"value": 1.0, "examples": EXAMPLES}
        run = Run("compare of a test", config, summary, {"numbers": pd.DataFrame({"value": [len(name)]})})
        write_run(out, run)
        return run

    def value(run, model):
        return float(run.tables["numbers"]["value"].iloc[0])

    def letters(results):
        """Length of a name."""
        return Evidence.exact({"tiny": value(results.only("second"), "tiny")})

    def step(name, context):
        model = context.first if name == "second" else ""
        return StudyStep(name, f"The {name} step", work, Workload(read=10), model)

    document = Document(
        name="similarity",
        title="A chain of three",
        source="Nobody (2000)",
        steps=lambda context: tuple(step(name, context) for name in NAMES),
        exhibits=(
            Exhibit("Figure 1", "Three", ("third",), lambda results: gathered(results, "third", "numbers")),
            Exhibit("Table 1", "One", ("first",), lambda results: gathered(results, "first", "numbers")),
            Exhibit("Table 2", "None", ("fourth",), lambda results: gathered(results, "fourth", "numbers")),
        ),
        claims=(
            Claim("§1", "Names are long.", Rule(3.0), letters),
            Claim("§2", "Names are short.", Rule(3.0, above=False), letters),
            Claim("§3", "There are two.", Rule(0.0), lambda results: "there is one"),
        ),
        models={"tiny": 1e6},
        printed=(PrintedNumber("Table 9", "Letters of second", 6.0, "tiny", DATA, {"kind": "second"}, value),),
        needs=("treebanks",),
    )
    monkeypatch.setitem(DOCUMENTS, "similarity", document)
    return done, stop_at


def test_steps_run_in_order_with_progress(chain, tmp_path, capsys):
    done, _ = chain
    found = study("similarity", tmp_path / "out")
    said = capsys.readouterr().err.splitlines()
    assert done == list(NAMES)
    assert [line.split()[0] for line in said] == ["1/3", "2/3", "3/3"]
    assert all("about" in line for line in said)
    assert found.run.tables["steps"]["step"].tolist() == ["first", "second-teacher", "third"]


def test_the_bound_of_memory_is_that_of_every_step(tmp_path):
    with pytest.raises(MemoryLimitError, match=r"^The step 'loading' of teacher needs .+ --max-memory allows 1\.0 MB"):
        study("similarity", tmp_path / "out", max_memory=1_000_000)


def test_what_was_finished_before_a_stop_is_not_done_again(chain, tmp_path, capsys):
    done, stop_at = chain
    stop_at.add("third")
    with pytest.raises(Stopped):
        study("similarity", tmp_path / "out")
    assert done == ["first", "second"]
    assert not (tmp_path / "out" / "result.json").exists()
    stop_at.clear()
    capsys.readouterr()
    study("similarity", tmp_path / "out")
    said = capsys.readouterr().err.splitlines()
    assert done == list(NAMES)
    assert [("finished before" in line) for line in said] == [True, True, False]
    study("similarity", tmp_path / "out", fresh=True)
    assert done == [*NAMES, *NAMES]


def test_verdicts_are_computed_and_reasons_are_given(chain, tmp_path):
    found = study("similarity", tmp_path / "out")
    frame = found.frame.set_index("where")
    assert frame["verdict"].to_dict() == {"§1": "holds", "§2": "does not hold", "§3": "not measured"}
    assert frame.loc["§1", "ours"] == 6.0
    assert frame.loc["§1", "cases"] == "1 of 1"
    assert frame.loc["§3", "note"] == "there is one"
    assert frame["document"].isna().all()
    assert found.run.summary["holds"] == 1
    assert "holds  §1: Names are long. Length of a name: 6 (claim: above 3); true in 1 of 1 cases." in found.text()
    assert found.cases["case"].tolist() == ["tiny", "tiny"]


def test_exhibits_stand_in_the_order_of_the_document_and_so_does_the_page(chain, tmp_path):
    found = study("similarity", tmp_path / "out")
    assert found.exhibits[["document", "table", "step"]].to_numpy().tolist() == [
        ["Figure 1", "figure-1", "third"],
        ["Table 1", "table-1", "first"],
        ["Table 2", "", ""],
    ]
    assert found.run.tables["figure-1"]["value"].tolist() == [len("third")]
    assert (tmp_path / "out" / "table-1.csv").read_text(encoding="utf-8").split() == ["value", str(len("first"))]
    page = found.page.read_text(encoding="utf-8")
    assert "A chain of three" in page
    assert "Names are short. Length of a name: 6 (claim: below 3); true in 0 of 1 cases." in page
    assert 'data-verdict="does not hold"' in page


def test_fewer_examples_are_another_run_of_the_study(chain, tmp_path):
    found = study("similarity", tmp_path / "out", examples=7)
    assert found.run.config["examples"] == 7
    with pytest.raises(StoreError, match="holds another run"):
        study("similarity", tmp_path / "out")


def test_the_size_of_the_paper_is_started_only_when_its_cost_is_agreed_to(chain, tmp_path, capsys):
    done, _ = chain
    with pytest.raises(SettingError, match=r"starts only with --yes. Expected: 3 steps over 30 sentences with tiny: "):
        study("similarity", tmp_path / "out", scale="paper", data=tmp_path)
    assert not done
    assert "with tiny: " in capsys.readouterr().err
    found = study("similarity", tmp_path / "out", scale="paper", data=tmp_path, yes=True)
    numbers = found.frame.set_index("where").loc["Table 9"]
    assert (numbers["document"], numbers["ours"], numbers["verdict"]) == (6.0, 6.0, "holds")
    assert numbers["note"] == "tiny on letters, as in the document"


def test_numbers_of_the_document_stand_beside_its_models_under_any_name(chain, tmp_path):
    models = [{"name": "Tiny", "path": "owner/tiny"}]
    found = study("similarity", tmp_path / "out", scale="paper", data=tmp_path, models=models, yes=True)
    assert found.frame.set_index("where").loc["Table 9", "ours"] == 6.0


def test_numbers_of_the_document_stand_only_beside_its_own_models(chain, tmp_path):
    found = study("similarity", tmp_path / "out", scale="paper", data=tmp_path, models=["other"], yes=True)
    assert "Table 9" not in found.frame["where"].tolist()


@pytest.mark.parametrize(
    "data", [PrintedData("letters", learnt=8, tested=3), PrintedData("letters", learnt=9, tested=4)]
)
def test_numbers_of_the_document_stand_only_beside_its_own_data(chain, tmp_path, monkeypatch, data):
    document = DOCUMENTS["similarity"]
    printed = tuple(replace(number, data=data) for number in document.printed)
    monkeypatch.setitem(DOCUMENTS, "similarity", replace(document, printed=printed))
    found = study("similarity", tmp_path / "out", scale="paper", data=tmp_path, yes=True)
    assert "Table 9" not in found.frame["where"].tolist()
    assert found.frame["document"].isna().all()


def test_no_document_prints_a_number_of_data_that_a_study_does_not_read():
    numbers = [number for document in DOCUMENTS.values() for number in document.printed]
    tasks = {number.step["task"] for number in numbers if "task" in number.step}
    assert tasks <= {*GLUE, "xnli", "wikiann", "xcopa", "upos", "deprel"}
    assert not tasks & {"xpos", "sem", "chunk"}  # the Penn Treebank, another release, another size


def test_numbers_of_retrieval_and_transfer_stand_only_beside_as_many_sentences():
    data = PrintedTargets("pairs", {"tur-eng": 1000})
    for sentences, expected in ((1000, True), (200, False)):
        table = pd.DataFrame({"pair": ["tur-eng"], "sentences": [sentences]})
        assert data.matches(Run("evaluate retrieval", {}, {}, {"retrieval": table})) is expected
    adapted = Run("adapt", {}, {"target examples": {"tr": {"dev": 2490, "test": 5010}}})
    assert PrintedTargets("XNLI", {"tr": 2490}).matches(adapted)
    assert not PrintedTargets("XNLI", {"tr": 2490, "sw": 2490}).matches(adapted)


def test_numbers_of_treebanks_stand_only_beside_as_many_sentences():
    data = PrintedTreebanks("PUD", learnt=900, held_out=100)
    assert data.matches(Run("probe-languages", {"sentences": {"train": 900, "held out": 100}}, {}))
    assert not data.matches(Run("probe-languages", {"sentences": {"train": 90, "held out": 10}}, {}))


def test_a_number_far_from_the_documents_does_not_hold(chain, tmp_path, monkeypatch):
    document = DOCUMENTS["similarity"]
    printed = tuple(replace(number, value=7.0, tolerance=0.5) for number in document.printed)
    monkeypatch.setitem(DOCUMENTS, "similarity", replace(document, printed=printed))
    found = study("similarity", tmp_path / "out", scale="paper", data=tmp_path, yes=True)
    assert found.frame.set_index("where").loc["Table 9", "verdict"] == "does not hold"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"name": "nothing"}, SettingError, "name is 'nothing'; expected one of similarity, redundancy"),
        ({"scale": "huge"}, SettingError, "scale is 'huge'; expected one of sample, small, paper"),
        ({"data": "x"}, SettingError, "the scale sample uses the sample grammar; choose small"),
        ({"examples": 0}, SettingError, "examples is 0; expected a whole number at least 1"),
        ({"tasks": ["rte"]}, SettingError, "tasks is rte, but the scale sample uses the sample grammar; choose small"),
        ({"scale": "small"}, SettingError, r"The scale small needs data \(--data\): a folder with treebanks"),
        (
            {"scale": "small", "data": "."},
            SettingError,
            r"The scale small needs models \(--models\), such as tiny; found none",
        ),
        (
            {"scale": "small", "data": "no-such", "models": "m"},
            CorpusError,
            "no-such is not a folder; expected one with",
        ),
        ({"models": ["m", "m"]}, SettingError, "2 models but 1 names"),
        ({"models": ["./no-such"]}, ModelError, "./no-such does not exist; expected a model folder or a hub name"),
    ],
)
def test_mistakes_are_named(chain, tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        study(**{"name": "similarity", "out": tmp_path / "out", **options})


def test_a_folder_of_another_study_is_not_written_over(chain, tmp_path):
    study("similarity", tmp_path / "out")
    with pytest.raises(StoreError, match=r"holds another run \(seed 0 → 1; data sample"):
        study("similarity", tmp_path / "out", seed=1)


def test_a_finished_step_that_does_not_hold_its_table_is_named_with_the_study(chain, tmp_path):
    out = study("similarity", tmp_path / "out").folder
    step = read_run(out / "second-teacher")
    write_run(out / "second-teacher", replace(step, tables={}))
    with pytest.raises(StoreError, match=r"out is not a complete run of `study similarity`: .*'numbers'\)\. Run"):
        study("similarity", out)


@pytest.mark.parametrize("models", ["", "models: none", "models: {tiny: {files: [1]}}", "models: {1: {files: a}}"])
def test_a_folder_whose_settings_are_not_whole_is_not_written_over(chain, tmp_path, models):
    (tmp_path / "config.yaml").write_text(f"command: study\n{models}\n")
    with pytest.raises(StoreError, match=r"holds another run \(.*choose another folder or pass --fresh"):
        study("similarity", tmp_path)


@pytest.fixture
def given(tmp_path):
    """The settings of a study on a model and data of one's own."""
    (tmp_path / "data/treebanks/UD_English-EWT").mkdir(parents=True)
    (tmp_path / "data/treebanks/UD_English-EWT/en-dev.conllu").write_text("one", encoding="utf-8")
    (tmp_path / "encoder").mkdir()
    (tmp_path / "encoder/config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
    return {"scale": "small", "models": tmp_path / "encoder", "data": tmp_path / "data"}


def change_text(data):
    (data / "treebanks/UD_English-EWT/en-dev.conllu").write_text("two", encoding="utf-8")


def test_a_study_goes_on_where_its_data_and_its_model_were_moved(chain, given, tmp_path):
    done, stop_at = chain
    stop_at.add("third")
    with pytest.raises(Stopped):
        study("similarity", tmp_path / "out", **given)
    stop_at.clear()
    (tmp_path / "there").mkdir()
    moved = {"data": given["data"].rename(tmp_path / "there/data"), "models": given["models"].rename(tmp_path / "new")}
    found = study("similarity", tmp_path / "out", **{**given, **moved})
    assert done == list(NAMES)
    assert found.run.tables["steps"]["step"].tolist() == ["first", "second-encoder", "third"]
    assert found.run.config["models"]["encoder"]["model"] == str(tmp_path / "new")
    assert found.run.config["data"]["folder"] == str(tmp_path / "there/data")


def test_what_was_read_from_a_text_that_has_changed_is_done_again(chain, given, tmp_path, capsys):
    done, _ = chain
    study("similarity", tmp_path / "out", **given)
    (given["data"] / "notes.txt").write_text("not read by any study", encoding="utf-8")
    study("similarity", tmp_path / "out", **given)
    assert done == list(NAMES)
    change_text(given["data"])
    found = study("similarity", tmp_path / "out", **given)
    said = capsys.readouterr().err.splitlines()
    assert done == [*NAMES, *NAMES]
    assert [line for line in said if "again" in line][1].strip().startswith("second-encoder is run again: its models,")
    study("similarity", tmp_path / "out", **given)
    assert done == [*NAMES, *NAMES]
    assert found.run.config["data"]["files"] != ""


def test_other_data_elsewhere_are_another_study_even_where_the_first_was_stopped(chain, given, tmp_path):
    done, stop_at = chain
    stop_at.add("second")
    with pytest.raises(Stopped):
        study("similarity", tmp_path / "out", **given)
    other = shutil.copytree(given["data"], tmp_path / "other")
    change_text(other)
    with pytest.raises(StoreError, match=r"holds another run \(data .*data.* → .*other.*choose another folder or pass"):
        study("similarity", tmp_path / "out", **{**given, "data": other})
    with pytest.raises(StoreError, match=r"holds another run \(seed 0 → 1\)"):
        study("similarity", tmp_path / "out", **given, seed=1)
    assert done == ["first"]


def test_the_folder_of_another_command_is_not_taken_for_a_study(chain, tmp_path):
    write_run(tmp_path / "out", Run("compare", {}))
    with pytest.raises(StoreError, match="holds a run of `compare`"):
        study("similarity", tmp_path / "out")


def test_the_command_line_runs_the_same_study(chain, tmp_path):
    result = CliRunner().invoke(app, ["study", "similarity", "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "1/3  The first step" in result.output
    assert "report.html in a browser" in result.output


def in_hub_cache(cache, name, folder):
    """A model folder in the layout of the hub's cache, under a hub name."""
    home = cache / f"models--{name.replace('/', '--')}"
    (home / "refs").mkdir(parents=True)
    (home / "refs" / "main").write_text("0" * 40, encoding="utf-8")
    shutil.copytree(folder, home / "snapshots" / ("0" * 40))


@pytest.fixture
def treebank_folder(tmp_path):
    """Parallel treebanks and two English ones, in the layout of `--data`."""
    parts = ("train", "dev", "test")
    folders = {"UD_English-EWT": ("en_ewt", *parts), "UD_English-GSD": ("en_gsd", *parts)}
    folders |= {"UD_English-PUD": ("en_pud", "test"), "UD_German-PUD": ("de_pud", "test")}
    for folder, names in folders.items():
        for part in names[1:]:
            path = tmp_path / "data/treebanks" / folder / f"{names[0]}-ud-{part}.conllu"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(sample_text("treebank", language=names[0][:2], size=12, split=part), encoding="utf-8")
    return tmp_path / "data"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("tiny_sample")
def test_a_model_that_cannot_be_loaded_is_compared_by_its_activations(tiny_folder, tiny, tmp_path):
    text = SampleData(tiny).text
    lower, upper = (torch.nn.LSTM(6, 3, batch_first=True, bidirectional=True) for _ in range(2))
    rows = []
    with torch.no_grad():
        for words in text.sentences:
            first = lower(torch.randn(1, len(words), 6))[0]
            rows.append(torch.stack([first[0], upper(first)[0][0]], dim=1).numpy())
    sentence = np.repeat(np.arange(len(text)), [len(words) for words in text.sentences])
    words = np.array([word for sentence in text.sentences for word in sentence])
    arrays = {"activations": np.concatenate(rows), "layers": np.arange(1, 3), "sentence": sentence, "word": words}
    np.savez(tmp_path / "elmo.npz", **arrays)
    import_activations(tmp_path / "elmo.npz", tmp_path / "elmo")
    models = [f"ELMo={tmp_path / 'elmo'}", f"tiny={tiny_folder('bert')}"]
    options = {"models": models, "device": "cpu", "steps": ["compare", "attention", "random"]}
    found = study("similarity", tmp_path / "out", **options)
    assert set(found.run.tables["figure-1"]["model_a"]) == {"ELMo", "tiny"}
    assert set(found.run.tables["figure-2"]["model_a"]) == {"tiny", "tiny (random)"}
    assert set(found.run.tables["figure-4"]["model_a"]) == {"tiny"}
    across = found.frame.set_index("finding").loc["Neurons are alike within a model and differ across models."]
    assert across["verdict"] != "not measured"  # ELMo is a family of its own
    with pytest.raises(SettingError, match="ELMo is a folder of activations, but redundancy loads its models"):
        study("redundancy", tmp_path / "other", models=models)


@pytest.mark.parametrize(
    ("name", "steps", "tables", "families"),
    [
        (
            "distilled",
            ["compare", "languages"],
            {"figure-5.1", "figure-5.2", "figure-5.4", "figures-b.1-to-b.3", "figures-b.4-to-b.6", "rq3", "rq4"},
            {"bert", "roberta", "gpt2", "xlnet", "xlm-roberta"},
        ),
        ("similarity", ["compare", "attention"], {"figure-1", "figure-4", "figure-8", "figure-10"},
         {"bert", "gpt2", "xlnet"}),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_the_recipes_run_with_the_hub_names_of_their_models(
    name, steps, tables, families, tiny_folder, treebank_folder, tmp_path, monkeypatch
):
    recipe = yaml.safe_load((Path(__file__).parents[2] / "recipes" / f"study-{name}.yaml").read_text(encoding="utf-8"))
    for number, model in enumerate(recipe["models"]):
        path = model["path"]
        kind = next(key for key in ("distilbert", "roberta", "gpt2", "xlnet", "openai", "bert") if key in path)
        kind = {"openai": "gpt"}.get(kind, "xlm-roberta" if "xlm-r" in path else kind)
        kind = "gpt2" if path == "distilgpt2" else kind
        folder = save_model(kind, tmp_path / "tiny" / str(number), seed=number)
        in_hub_cache(tmp_path / "hub", path, folder)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(StudyContext, "workers", 1)  # starting processes takes longer than the work
    options = {**recipe, "data": treebank_folder, "steps": steps, "yes": True, "limit": 8, "device": "cpu"}
    options |= {"languages": ["de"], "seeds": 1} if name == "distilled" else {}
    found = study(name, tmp_path / "out", **options)
    assert tables <= set(found.run.tables)
    assert {model_family(model["path"]) for model in recipe["models"]} >= families
    assert {block_count(model["path"]) for model in recipe["models"]} == {3}
    if name == "distilled":
        panels = set(found.run.tables["figure-5.2"]["panel"])
        assert {"(a) original models", "(b) BERT and distilBERT", "(e) mBERT and distilmBERT"} <= panels
        assert found.run.tables["figure-5.1"]["model"].nunique() == 10
        multilingual = {"mBERT", "XLM-RoBERTa", "distilmBERT"}
        columns = set(found.run.tables["table-b.1"].columns[2:])
        assert columns == {f"Germanic {code} {model}" for code in ("en", "de") for model in multilingual}
        notes = dict(zip(found.frame["finding"], found.frame["note"], strict=True))
        assert not any("GPT-2 repeats" in finding and note for finding, note in notes.items())
    else:
        verdicts = found.frame.loc[found.frame["where"].str.startswith("§5.1, figure 1"), "verdict"]
        assert "not measured" not in verdicts.tolist()


@pytest.mark.parametrize(("name", "teachers"), [("distilled", 4), ("similarity", 0)])
def test_the_recipes_name_the_models_of_their_documents(name, teachers, tmp_path):
    recipe = Path(__file__).parents[2] / "recipes" / f"study-{name}.yaml"
    values = yaml.safe_load(recipe.read_text(encoding="utf-8"))
    settings = from_mapping(StudySettings, {"name": name, "out": tmp_path, **values})
    models = study_models(settings.models)
    assert {model.path for model in models.values()} >= set(DOCUMENTS[name].models)
    assert sum(bool(model.teacher) for model in models.values()) == teachers
    names = {model.path: label for label, model in models.items()}
    for student, teacher in DOCUMENTS[name].teachers.items():
        assert models[names[student]].teacher == names[teacher]


def test_every_study_can_be_named():
    assert get_args(StudyName) == tuple(DOCUMENTS)


def test_some_steps_can_be_run_alone_and_claims_say_what_they_miss(chain, tmp_path):
    done, _ = chain
    found = study("similarity", tmp_path / "out", steps=["first", "third"])
    assert done == ["first", "third"]
    assert set(found.frame["verdict"]) == {"not measured"}
    assert "the step second was left out" in found.frame["note"].tolist()
    assert found.exhibits["step"].tolist() == ["third", "first", ""]
    assert study("similarity", tmp_path / "out").frame["verdict"].tolist() == ["holds", "does not hold", "not measured"]
    assert done == ["first", "third", "second"]


def test_models_are_named_in_every_way(tmp_path):
    (tmp_path / "encoder").mkdir()
    folder = str(tmp_path / "encoder")
    models = study_models([f"a={folder}", {"b": folder}, {"path": folder, "name": "c", "teacher": "a"}, folder])
    assert list(models) == ["a", "b", "c", "encoder"]
    assert models["c"].teacher == "a"
    assert study_models([f"a={folder}", f"b={folder}"], {"b": "a"})["b"].teacher == "a"


@pytest.mark.parametrize(
    ("models", "teachers", "message"),
    [
        (["a=x/y"], {"b": "a"}, r"teachers names b, which is not a model of the study \(a\)"),
        (["a=x/y", "b=x/z"], {"b": "c"}, "The teacher c is not a model of the study; its models are a, b"),
        ([{"path": "x/y", "teach": "a"}], {}, "A model has no setting 'teach'; did you mean 'teacher'"),
    ],
)
def test_teachers_are_models_of_the_study(models, teachers, message):
    with pytest.raises(SettingError, match=message):
        study_models(models, teachers)


def test_a_study_is_configured_by_a_file_with_named_models(chain, tmp_path):
    (tmp_path / "encoder").mkdir()
    (tmp_path / "encoder/config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
    lines = ["scale: sample", "models:", f"  - {{name: base, path: {tmp_path / 'encoder'}, architecture: own}}"]
    (tmp_path / "study.yaml").write_text("\n".join(lines), encoding="utf-8")
    words = ["study", "similarity", "--config", str(tmp_path / "study.yaml"), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert list(read_run(tmp_path / "out").config["models"]) == ["base"]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("similarity", {"tasks": ["upos"]}, "The study similarity does not use upos; its tasks are sst2, mrpc"),
        ("monolingual", {"tasks": ["sst2"]}, "The study monolingual does not use sst2; its tasks are those of the doc"),
        (
            "distilled",
            {"tasks": ["sst2"]},
            "The study distilled does not use sst2; its tasks are upos, xpos, deprel, dep",
        ),
        ("redundancy", {"test_treebank": "x"}, "The study redundancy tests on each corpus's own part; leave --test-tr"),
        ("monolingual", {"models": ["a=x/y", "b=x/z"]}, "monolingual distils one teacher; found 2 models: a, b"),
        ("similarity", {"languages": ["tr"]}, "The study similarity reads English only; leave --languages out"),
        ("monolingual", {"languages": ["xx"]}, "The sample grammar has no target language xx; it has de, tr and sw"),
        ("similarity", {"text": "train"}, "text is train, but the scale sample uses the sample grammar; choose small"),
        ("distilled", {"examples": 9}, "The study distilled trains on no sentence task; leave --examples out"),
        ("redundancy", {"steps": ["frozen"]}, "The study has no step frozen; its steps are compare, finetune, redund"),
    ],
)
@pytest.mark.usefixtures("tiny_sample")
def test_an_option_that_a_study_cannot_honour_is_an_error(name, options, message, tmp_path):
    needs_data = {"tasks", "test_treebank"} & set(options)
    data = {"scale": "small", "data": tmp_path, "models": "m"} if needs_data else {}
    with pytest.raises(SettingError, match=message):
        study(name, tmp_path / "out", **data, **options)


def test_a_score_after_fine_tuning_is_the_mean_of_the_seeds_of_the_scale(tiny_folder, tmp_path):
    scale = replace(SCALES["sample"], seeds=2, sentences=20, examples=40, epochs=1.0)
    context = StudyContext(scale, {"tiny": str(tiny_folder("bert"))}, SampleData(scale), tmp_path, device="cpu")
    task = next(iter(context.data.sentence_tasks))
    step = finetune_step(context, "tiny", task)
    assert step.load.trained == 2 * 40
    run = step.work(step, context)
    scores = run.tables["scores"].query("part == 'test' and metric == 'accuracy'")
    assert list(scores["seed"]) == [0, 1]
    assert Measurement.test_score(run).value == pytest.approx(scores["value"].mean())
    assert context.finetuned("tiny", task) == tmp_path / f"finetune-tiny-{task}" / "seed-0"
    assert load_model(context.finetuned("tiny", task)).n_layers == 3


def test_the_model_of_one_seed_is_in_the_folder_of_its_step(sample_context):
    assert sample_context.finetuned("m", "sst2") == sample_context.out / "finetune-m-sst2"
