"""The runner: order, resumption, costs, errors, and the page at the end; with steps that only count."""

import shutil
from dataclasses import replace
from functools import partial

import pandas as pd
import pytest
from typer.testing import CliRunner

from residuum.cli import app
from residuum.cli.studies import STUDIES
from residuum.errors import CorpusError, MemoryLimitError, ModelError, SettingError, StoreError
from residuum.storage.results import Run, finished_run, read_run, write_run
from residuum.studies import documents
from residuum.studies.declarations import GLUE, Claim, Data, Document, Exhibit, Load, Printed, Step, step_name
from residuum.studies.running import study
from residuum.studies.verdicts import Measured, Rule

NAMES = ("first", "second", "third")
EXAMPLES = {"train": 8, "dev": 1, "test": 3}
DATA = Data("letters", learnt=9, tested=3)


def text_of(kit):
    """What the steps of the chain depend on: the only text of the data that is given."""
    files = sorted(kit.data.root.rglob("*.conllu")) if kit.scale.name != "sample" else []
    return "".join(file.read_text(encoding="utf-8") for file in files)


class Stopped(Exception):
    """What a power cut would be."""


@pytest.fixture
def chain(monkeypatch):
    """A study of three steps, the calls that did work, and a switch that stops it at a step."""
    done: list[str] = []
    stop_at: set[str] = set()

    def work(name, model, kit):
        out, config = kit.out / step_name(name, model), {"name": name, "seed": kit.seed, "text": text_of(kit)}
        if run := finished_run(out, "compare of a test", config, fresh=kit.fresh):
            return run
        if name in stop_at:
            raise Stopped
        done.append(name)
        summary = {"value": 1.0, "examples": EXAMPLES}
        run = Run("compare of a test", config, summary, {"numbers": pd.DataFrame({"value": [len(name)]})})
        write_run(out, run)
        return run

    def value(run):
        return float(run.tables["numbers"]["value"].iloc[0])

    def letters(results):
        return Measured.counted({"tiny": value(results.of("second")[0][1])})

    def step(name, kit):
        model = kit.first if name == "second" else ""
        return Step(name, f"The {name} step", partial(work, name, model), Load(read=10), model)

    document = Document(
        name="similarity",
        title="A chain of three",
        source="Nobody (2000)",
        steps=lambda kit: tuple(step(name, kit) for name in NAMES),
        exhibits=(Exhibit("Figure 1", "Three", "third", "numbers"), Exhibit("Table 1", "One", "first", "numbers")),
        claims=(
            Claim("§1", "Names are long.", letters, Rule(3.0)),
            Claim(
                "§2",
                "Names are short.",
                letters,
                Rule(3.0, above=False),
            ),
            Claim("§3", "There are two.", lambda results: "there is one", Rule(0.0)),
        ),
        models={"tiny": 1e6},
        printed=(Printed("Table 9", "Letters of second", 6.0, "tiny", DATA, {"kind": "second"}, value),),
        needs=("treebanks",),
    )
    monkeypatch.setitem(documents.DOCUMENTS, "similarity", document)
    return done, stop_at


def test_steps_run_in_order_with_progress(chain, tmp_path):
    done, _ = chain
    said = []
    found = study("similarity", tmp_path / "out", say=said.append)
    assert done == list(NAMES)
    assert [line.split()[0] for line in said] == ["1/3", "2/3", "3/3"]
    assert all("about" in line for line in said)
    assert found.run.tables["steps"]["step"].tolist() == ["first", "second-teacher", "third"]


def test_the_bound_of_memory_is_that_of_every_step(tmp_path):
    with pytest.raises(MemoryLimitError, match=r"^The step 'loading' of teacher needs .+ --max-memory allows 1\.0 MB"):
        study("similarity", tmp_path / "out", max_memory=1_000_000)


def test_what_was_finished_before_a_stop_is_not_done_again(chain, tmp_path):
    done, stop_at = chain
    stop_at.add("third")
    with pytest.raises(Stopped):
        study("similarity", tmp_path / "out")
    assert done == ["first", "second"]
    assert not (tmp_path / "out" / "result.json").exists()
    stop_at.clear()
    said = []
    study("similarity", tmp_path / "out", say=said.append)
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
    assert "holds  §1: Names are long. (6.000 [6.000, 6.000], expected > 3, so in 1 of 1)" in found.text()
    assert found.cases["case"].tolist() == ["tiny", "tiny"]


def test_exhibits_stand_in_the_order_of_the_document_and_so_does_the_page(chain, tmp_path):
    found = study("similarity", tmp_path / "out")
    assert found.exhibits[["document", "step"]].to_numpy().tolist() == [["Figure 1", "third"], ["Table 1", "first"]]
    page = found.page.read_text(encoding="utf-8")
    assert "A chain of three" in page
    assert "Names are short. Ours is 6 (6 to 6 over all cases), expected &lt; 3; so in 0 of 1 cases." in page
    assert 'data-verdict="does not hold"' in page


def test_fewer_examples_are_another_run_of_the_study(chain, tmp_path):
    found = study("similarity", tmp_path / "out", examples=7)
    assert found.run.config["examples"] == 7
    with pytest.raises(StoreError, match="holds another run"):
        study("similarity", tmp_path / "out")


def test_the_size_of_the_paper_is_started_only_when_its_cost_is_agreed_to(chain, tmp_path):
    done, _ = chain
    said = []
    with pytest.raises(SettingError, match=r"not started unasked.*hours.*--yes"):
        study("similarity", tmp_path / "out", scale="paper", data=tmp_path, say=said.append)
    assert not done
    assert any("tiny (1 million)" in line for line in said)
    found = study("similarity", tmp_path / "out", scale="paper", data=tmp_path, yes=True)
    numbers = found.frame.set_index("where").loc["Table 9"]
    assert (numbers["document"], numbers["ours"], numbers["verdict"]) == (6.0, 6.0, "holds")
    assert numbers["note"] == "tiny on letters, as the document"


def test_numbers_of_the_document_stand_only_beside_its_own_models(chain, tmp_path):
    found = study("similarity", tmp_path / "out", scale="paper", data=tmp_path, models=["other"], yes=True)
    assert "Table 9" not in found.frame["where"].tolist()


@pytest.mark.parametrize("data", [Data("letters", learnt=8, tested=3), Data("letters", learnt=9, tested=4)])
def test_numbers_of_the_document_stand_only_beside_its_own_data(chain, tmp_path, monkeypatch, data):
    document = documents.DOCUMENTS["similarity"]
    printed = tuple(replace(one, data=data) for one in document.printed)
    monkeypatch.setitem(documents.DOCUMENTS, "similarity", replace(document, printed=printed))
    found = study("similarity", tmp_path / "out", scale="paper", data=tmp_path, yes=True)
    assert "Table 9" not in found.frame["where"].tolist()
    assert found.frame["document"].isna().all()


def test_no_document_prints_a_number_of_data_that_a_study_does_not_read():
    tasks = {one.step["task"] for document in documents.DOCUMENTS.values() for one in document.printed}
    assert tasks <= set(GLUE)
    assert not tasks & {"upos", "sem", "chunk"}  # the Penn Treebank, another release, another size


def test_a_number_far_from_the_documents_does_not_hold(chain, tmp_path, monkeypatch):
    document = documents.DOCUMENTS["similarity"]
    printed = tuple(replace(one, value=7.0, tolerance=0.5) for one in document.printed)
    monkeypatch.setitem(documents.DOCUMENTS, "similarity", replace(document, printed=printed))
    found = study("similarity", tmp_path / "out", scale="paper", data=tmp_path, yes=True)
    assert found.frame.set_index("where").loc["Table 9", "verdict"] == "does not hold"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"name": "nothing"}, SettingError, "no study 'nothing'; choose one of similarity, redundancy"),
        ({"scale": "huge"}, SettingError, "no scale 'huge'; choose one of sample, small, paper"),
        ({"data": "x"}, SettingError, "the scale sample uses what ships; choose small"),
        ({"examples": 0}, SettingError, "Found 0 examples; expected at least 1"),
        ({"tasks": ["rte"]}, SettingError, "tasks are rte, but the scale sample uses what ships; choose small"),
        ({"scale": "small"}, SettingError, r"The scale small needs data \(--data\): a folder with treebanks"),
        (
            {"scale": "small", "data": "."},
            SettingError,
            r"The scale small needs models \(--models\), such as tiny; found none",
        ),
        ({"scale": "small", "data": "no-such", "models": "m"}, CorpusError, "no-such is no folder; expected one with"),
        ({"models": ["m", "m"]}, SettingError, "2 models but 1 names"),
        ({"models": ["./no-such"]}, ModelError, "./no-such does not exist; expected a model folder or a hub name"),
    ],
)
def test_mistakes_are_named(chain, tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        study(**{"name": "similarity", "out": tmp_path / "out", **options})


def test_a_folder_of_another_study_is_not_written_over(chain, tmp_path):
    study("similarity", tmp_path / "out")
    with pytest.raises(StoreError, match=r"holds another run .*; seed 0 → 1"):
        study("similarity", tmp_path / "out", seed=1)


def test_a_finished_step_that_does_not_hold_its_table_is_named_with_the_study(chain, tmp_path):
    out = study("similarity", tmp_path / "out").folder
    step = read_run(out / "second-teacher")
    write_run(out / "second-teacher", replace(step, tables={}))
    with pytest.raises(StoreError, match=r"out is no whole run of `study similarity`: .*'numbers'\)\. Run `study sim"):
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


def test_what_was_read_from_a_text_that_has_changed_is_done_again(chain, given, tmp_path):
    done, _ = chain
    study("similarity", tmp_path / "out", **given)
    (given["data"] / "notes.txt").write_text("not read by any study", encoding="utf-8")
    study("similarity", tmp_path / "out", **given)
    assert done == list(NAMES)
    change_text(given["data"])
    said = []
    found = study("similarity", tmp_path / "out", say=said.append, **given)
    assert done == [*NAMES, *NAMES]
    assert [line for line in said if "again" in line][1].strip().startswith("second-encoder is done again: its models,")
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


def test_every_study_has_a_command():
    assert set(STUDIES) == set(documents.DOCUMENTS)
