"""Cards: read by huggingface_hub itself, true to what the folder holds, with the base model's owner and licence."""

import huggingface_hub
import pytest
import yaml
from huggingface_hub import ModelCard
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from residuum.corpus.tasks import Task
from residuum.distillation.distilling import distill
from residuum.errors import ModelError, SettingError
from residuum.models.cards import CardScore, card_facts, check_hub, hub_id, pipeline_of, push_to_hub, write_card
from residuum.shrinking.pruning import prune
from residuum.shrinking.transferring import transfer
from residuum.shrinking.trimming import trim
from residuum.training.finetuning import finetune
from teachers import LINES, save_teacher
from tiny import save_model


def base(folder, **matter):
    folder.joinpath("README.md").write_text(f"---\n{yaml.safe_dump(matter)}---\n\n# Base\n")
    return folder


def facts(folder) -> dict:
    """What huggingface_hub reads; it refuses scores without a name, and YAML that is none."""
    card = ModelCard.load(folder / "README.md")
    assert card.data.to_dict()["library_name"]
    return card.data.to_dict()


def test_a_pruned_model_has_the_card_of_what_it_is(tmp_path):
    source = save_teacher("bert", tmp_path / "models--owner--base" / "snapshots" / "abc", layers=2)
    base(source, license="apache-2.0", language=["tr", "sw"])
    prune(source, tmp_path / "out", drop="top:1")
    found = facts(tmp_path / "out")
    assert found["base_model"] == "owner/base"
    assert found["license"] == "apache-2.0"
    assert found["language"] == ["tr", "sw"]
    assert found["pipeline_tag"] == "fill-mask"
    assert found["tags"] == ["residuum", "pruning"]
    text = (tmp_path / "out" / "README.md").read_text()
    assert "Layers 1 of 2 are kept" in text
    assert str(tmp_path) not in text  # a card travels; paths of this machine mean nothing elsewhere


def test_a_trimmed_model_names_its_texts_and_its_grandparent(tmp_path):
    source = base(save_teacher("bert", tmp_path / "pruned", layers=1), base_model="owner/base", license="mit")
    (tmp_path / "tr.txt").write_text("\n".join(LINES["tr"]), encoding="utf-8")
    trim(source, tmp_path / "tr.txt", tmp_path / "out")
    found = facts(tmp_path / "out")
    assert (found["base_model"], found["license"]) == ("owner/base", "mit")
    text = (tmp_path / "out" / "README.md").read_text()
    assert "- tr.txt" in text
    assert str(tmp_path) not in text


@pytest.mark.parametrize(
    "matter",
    ["date: 2024-13-45", "x: !!int ''", "a: &a [*a]", "[" * 3000, "license: [", "- mit", "x: !!python/name:os.system"],
)
def test_front_matter_of_nonsense_is_that_of_no_card(tmp_path, matter):
    (tmp_path / "README.md").write_text(f"---\n{matter}\n---\n# A model\n")
    assert card_facts(tmp_path) == {}


def test_a_local_model_without_a_card_claims_nothing(tmp_path):
    source = save_teacher("bert", tmp_path / "mine", layers=2)
    prune(source, tmp_path / "out", drop="top:1")
    found = facts(tmp_path / "out")
    assert "base_model" not in found
    assert "license" not in found


@pytest.mark.parametrize(
    ("kind", "family", "expected"),
    [
        (AutoModelForCausalLM, "gpt2", "text-generation"),
        (AutoModelForCausalLM, "llama", "text-generation"),
        (AutoModelForSequenceClassification, "bert", "text-classification"),
        (None, "bert", "feature-extraction"),
        (None, "t5", None),
    ],
)
def test_the_pipeline_is_the_one_that_reads_the_folder(kind, family, expected, tmp_path):
    folder = save_model(family, tmp_path / "model")
    if kind is not None:
        kind.from_config(kind.from_pretrained(folder).config).save_pretrained(folder)
    assert pipeline_of(folder) == expected
    (folder / "modules.json").write_text("[]")
    assert pipeline_of(folder) == (expected if expected == "text-classification" else "sentence-similarity")


def test_scores_languages_and_datasets_are_kept_where_a_hub_can_read_them(tmp_path):
    folder = save_model("bert", tmp_path / "model")
    scores = [CardScore("STS", "stsb dev", "spearmanr", 0.5), CardScore("STS", "stsb dev", "pearsonr", 0.25)]
    matter = {"languages": ["en", "Klingon"], "datasets": ["owner/data", "some file.txt"], "scores": scores}
    write_card(folder, "A <b>model</b>\nof mine", {"": "What it is.", "More": "text", "Empty": ""}, **matter)
    found = ModelCard.load(folder / "README.md").data
    assert found.language == ["en"]
    assert found.datasets == ["owner/data"]
    assert found.metrics == ["spearmanr", "pearsonr"]
    assert [result.metric_value for result in found.eval_results] == [0.5, 0.25]
    assert found.eval_results[0].task_type == "feature-extraction"
    text = (folder / "README.md").read_text()
    assert "# A &lt;b&gt;model&lt;/b&gt; of mine" in text
    assert "Empty" not in text


def test_the_owner_of_a_base_model_is_kept():
    assert hub_id("sentence-transformers/all-MiniLM-L6-v2@v2") == "sentence-transformers/all-MiniLM-L6-v2"
    assert hub_id("no such folder/with/slashes") is None


class Hub:
    """Stands for the hub: notes what it is asked."""

    def __init__(self):
        self.asked = []

    def __call__(self):
        return self

    def __getattr__(self, name):
        return lambda *given, **named: self.asked.append((name, given, named)) or "https://hub/owner/name"


def test_a_model_is_sent_to_a_private_repository_or_a_branch(tmp_path, monkeypatch, run):
    hub = Hub()
    monkeypatch.setattr(huggingface_hub, "HfApi", hub)
    source = save_teacher("bert", tmp_path / "mine", layers=2)
    run("prune", source, "--drop", "top:1", "--out", tmp_path / "out", "--push-to-hub", "owner/name@v1")
    assert [name for name, *_ in hub.asked] == ["whoami", "create_repo", "create_branch", "upload_folder"]
    assert hub.asked[1] == ("create_repo", ("owner/name",), {"private": True, "exist_ok": True})
    sent = hub.asked[3][2]
    assert (sent["repo_id"], sent["folder_path"], sent["revision"]) == ("owner/name", str(tmp_path / "out"), "v1")
    prune(source, tmp_path / "out", drop="top:1", push_to_hub="owner/other")  # a finished run is sent, not run again
    assert hub.asked[-1][2]["repo_id"] == "owner/other"


def test_every_student_has_a_repository_of_its_own_and_a_finished_run_is_sent(tmp_path, monkeypatch):
    hub = Hub()
    monkeypatch.setattr(huggingface_hub, "HfApi", hub)
    (tmp_path / "text.txt").write_text("\n".join(LINES["en"]))
    texts = dict.fromkeys(("en", "tr"), tmp_path / "text.txt")
    teacher = save_teacher("xlm-roberta", tmp_path / "teacher", layers=2)
    settings = {
        "losses": {"hidden_mse": 1.0},
        "text": {"batch_size": 2, "held_out": 0},
        "optimiser": {"steps": 1},
        "device": "cpu",
    }
    for target in (None, "owner/name@v1"):
        distill(teacher, texts, tmp_path / "out", **settings, push_to_hub=target)
    sent = [named for name, _, named in hub.asked if name == "upload_folder"]
    assert [(part["repo_id"], part["folder_path"], part["revision"]) for part in sent] == [
        (f"owner/name-{name}", str(tmp_path / "out" / "students" / name), "v1") for name in ("en", "tr")
    ]


def test_a_fine_tuned_and_a_transferred_model_are_sent(tmp_path, monkeypatch):
    hub = Hub()
    monkeypatch.setattr(huggingface_hub, "HfApi", hub)
    model = base(save_teacher("bert", tmp_path / "model", layers=2), base_model="owner/base", license="mit")
    rows = [(line, str(n % 2)) for n, line in enumerate(LINES["en"] * 20)]
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))
    task = Task("label", unit="sentence")
    finetune(model, tmp_path / "train.tsv", task, tmp_path / "tuned", epochs=1, device="cpu", push_to_hub="owner/tuned")
    options = {"seeds": 1, "recipe": "converged", "push_to_hub": "owner/small"}
    transfer(model, tmp_path / "train.tsv", task, tmp_path / "small", **options, device="cpu")
    sent = [(named["repo_id"], named["folder_path"]) for name, _, named in hub.asked if name == "upload_folder"]
    assert sent == [("owner/tuned", str(tmp_path / "tuned")), ("owner/small", str(tmp_path / "small"))]
    for folder in ("tuned", "small"):
        card = facts(tmp_path / folder)
        assert (card["base_model"], card["license"]) == ("owner/base", "mit")
        assert "accuracy" in card["metrics"]


def test_what_cannot_be_sent_is_refused_before_anything_is_computed(tmp_path, monkeypatch):
    source = save_teacher("bert", tmp_path / "mine", layers=2)
    for target in ("name", "owner/na me", "a/b/c"):
        with pytest.raises(SettingError, match="push_to_hub is .*; expected owner/name"):
            prune(source, tmp_path / "out", drop="top:1", push_to_hub=target)
    with pytest.raises(ModelError, match="owner/name cannot be written: .*Log in first: hf auth login"):
        check_hub("owner/name")  # tests are offline and have no token
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: (_ for _ in ()).throw(OSError("no network")))
    with pytest.raises(ModelError, match="could not be sent to owner/name: no network"):
        push_to_hub(source, "owner/name")
    assert not (tmp_path / "out").exists()
