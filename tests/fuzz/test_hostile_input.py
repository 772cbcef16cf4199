"""Input that means harm: bombs, paths that lead out, code in disguise. Each is refused, in one clear line."""

import gzip
import json
import lzma
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import residuum
from made_stores import known_data
from residuum.activations.exchange import import_activations
from residuum.activations.store import open_store, read_manifest
from residuum.corpus import read_corpus
from residuum.corpus import text_files as files
from residuum.errors import CorpusError, ModelError, SettingError, StoreError
from residuum.models.loading import load_model, parse_layers
from residuum.shrinking.classifier import read_classifier
from residuum.storage import compression as packed
from residuum.storage.files import read_json, write_json
from residuum.storage.results import Run, read_run, write_run
from residuum.training.checkpoints import Progress, load_checkpoint, open_run, write_checkpoint


def refused(path, **options):
    with pytest.raises(CorpusError) as caught:
        read_corpus(path, **options)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 1000
    return str(caught.value)


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_a_line_without_an_end_is_given_up_before_it_fills_the_memory(tmp_path, pack, monkeypatch):
    assert files.MAX_LINE_BYTES == 10_000_000
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 100_000)
    path = tmp_path / "bomb.txt"
    path.write_bytes(pack(b"a" * 300_000))
    assert path.stat().st_size < 1000
    assert "line 1: longer than 100,000 bytes" in refused(path, format="lines")


@pytest.mark.parametrize("format", ["lines", "json"])
def test_a_file_that_unpacks_beyond_all_measure_is_given_up(tmp_path, format, monkeypatch):
    monkeypatch.setattr(packed, "MOST_UNPACKED", 1000)
    path = tmp_path / "bomb.txt"
    path.write_bytes(lzma.compress((b"a" * 999 + b"\n") * 3000))
    assert "unpacks to more than 500 times its size" in refused(path, format=format)


def test_text_that_shrinks_as_text_does_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(packed, "MOST_UNPACKED", 1_000)
    (tmp_path / "text.txt").write_bytes(gzip.compress(b"".join(b"line %d\n" % i for i in range(5000))))
    assert len(read_corpus(tmp_path / "text.txt", format="lines")) == 5000


@pytest.mark.parametrize("format", ["json", "jsonl"])
@pytest.mark.parametrize("text", ['{"text": ' + "9" * 5000 + "}", "[" * 100_000, '{"text": "\\ud800"}'])
def test_json_that_no_program_should_have_written_is_said(tmp_path, format, text):
    (tmp_path / "x.txt").write_text(text)
    refused(tmp_path / "x.txt", format=format)


def test_numbers_of_thousands_of_digits_are_no_numbers_of_words(tmp_path):
    path = tmp_path / "x.conllu"
    path.write_text("9" * 5000 + "-" + "9" * 5000 + "\ta" + "\t_" * 8 + "\n")
    assert "expected the id 1 of the next word" in refused(path)
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({"question": "a", "choice1": "b", "choice2": "c", "label": "9" * 5000}))
    assert "expected one of 2 candidates" in refused(path)
    path.write_text('{"text": "a", "score": 1' + "0" * 400 + "}")
    assert "expected a number" in refused(path, regression=True)


def test_a_range_of_layers_without_end_is_no_range():
    with pytest.raises(SettingError, match="neither a number nor a range"):
        parse_layers("0-99999999999", 12)


@pytest.fixture
def store(tmp_path):
    return known_data(n_sentences=4).store(tmp_path / "acts", shard_words=10)


def rewritten(store, change):
    path = store.path / "manifest.json"
    manifest = read_json(path)
    change(manifest)
    write_json(path, manifest)
    return store.path


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m.update(layers=["../../etc/passwd"]), "layers.0: found '../../etc/passwd'"),
        (lambda m: m.update(layers=[2, 1, 0]), "contradicts itself: 3 layers .ascending: False."),
        (lambda m: m.update(widths=[8]), "contradicts itself: 3 layers"),
        (lambda m: m["settings"].update(dtype="object"), "dtype 'object' must be of"),
        (lambda m: m["model"].update(name=["a"]), "model.name is no text"),
        (lambda m: m["shards"][0].update(audit={"words": []}), "words: found list of 0"),
        (lambda m: m["shards"].pop(0), "not one run of sentences after another"),
        (lambda m: m["shards"][0].update(first=-1), "not one run of sentences after another"),
        (lambda m: m["shards"][0].update(rows=-5), "fewer than no rows"),
        (lambda m: m.update(surprise=1), "'surprise' is not known"),
    ],
)
def test_a_manifest_that_lies_is_refused_by_the_field(store, change, said):
    with pytest.raises(StoreError, match=said):
        read_manifest(rewritten(store, change))


def test_rows_that_are_not_in_the_shards_are_missed_at_once(store):
    def claim(manifest):
        manifest["shards"][0]["rows"] = 10**12

    claimed = open_store(rewritten(store, claim))
    with pytest.raises(StoreError, match=r"words and shards of 1,000,0.* rows"):
        _ = claimed.row_words
    with pytest.raises(StoreError, match=r"holds layer-0 of shape .* expected \(1000000000000, 8\)"):
        claimed.shard(0)


@pytest.mark.parametrize(
    "tables",
    [*({name: "0"} for name in ("../secret", "/etc/passwd", "a/b", "..", "")), ["../secret"], {"a": 3}, [3], None],
)
def test_no_table_of_a_result_lies_outside_its_folder(tmp_path, tables):
    write_run(tmp_path, Run("compare", {}, tables={"similarity": pd.DataFrame({"a": [1]})}))
    write_json(tmp_path / "result.json", {**read_json(tmp_path / "result.json"), "tables": tables})
    with pytest.raises(StoreError, match=r"is not the name of a table|tables[.a]*: found|cannot be read"):
        read_run(tmp_path)


class Harmful:
    """What a pickle would run when it is read."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def test_no_pickle_is_ever_run(tiny_folder, tmp_path):
    folder, mark = tmp_path / "model", tmp_path / "ran"
    shutil.copytree(tiny_folder("bert"), folder)
    (folder / "model.safetensors").unlink()
    torch.save({"weight": Harmful(mark)}, folder / "pytorch_model.bin")
    for options in ({}, {"allow_pickle": True}):  # on request only weights are read: whatever else is in it is refused
        with pytest.raises(ModelError):
            load_model(folder, **options)
    np.savez(
        tmp_path / "x.npz", **dict.fromkeys(("activations", "layers", "sentence", "word"), np.array([Harmful(mark)]))
    )
    with pytest.raises(StoreError, match=r"x.npz cannot be read"):
        import_activations(tmp_path / "x.npz", tmp_path / "out")
    assert not mark.exists()


def test_a_model_s_own_code_is_not_run(tiny_folder, tmp_path):
    folder, mark = tmp_path / "model", tmp_path / "ran"
    shutil.copytree(tiny_folder("bert"), folder)
    (folder / "harmful.py").write_text(f"import os\nos.mkdir({str(mark)!r})\n")
    config = json.loads((folder / "config.json").read_text())
    own = {"AutoConfig": "harmful.Config", "AutoModel": "harmful.Model"}
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "harmful", "auto_map": own}))
    with pytest.raises(ModelError, match="Cannot load"):
        load_model(folder)
    assert not mark.exists()


NONSENSE = ("[", "[]", '"a"', "[" * 100_000)


@pytest.mark.parametrize(
    ("file", "content"),
    [(file, content) for file in ("config.json", "tokenizer.json", "tokenizer_config.json") for content in NONSENSE]
    + [("config.json", '{"model_type": []}'), ("config.json", '{"model_type": "bert", "hidden_size": "x"}')],
)
def test_a_model_folder_of_nonsense_is_a_clear_error(tiny_folder, tmp_path, file, content):
    shutil.copytree(tiny_folder("bert"), tmp_path / "model")
    (tmp_path / "model" / file).write_text(content)
    with pytest.raises(ModelError, match="model"):
        load_model(tmp_path / "model")


def test_only_the_safe_ways_to_read_are_in_the_source():
    harmful = re.compile(
        r"pickle\.loads?\(|yaml\.(load|unsafe_load|full_load)\(|torch\.load\(|allow_pickle=True|trust_remote_code=True"
        r"|\beval\(|\bexec\(|os\.system|shell=True"
    )
    sources = Path(residuum.__file__).parent.rglob("*.py")
    found = {p.name: m[0] for p in sources if (m := harmful.search(_without_methods(p.read_text(encoding="utf-8"))))}
    assert found == {}


def _without_methods(source: str) -> str:
    """A module's `eval()` method is none of Python's."""
    return re.sub(r"\.(eval|exec)\(", ".method(", source)


def test_a_classifier_that_does_not_fit_itself_is_refused(tmp_path):
    from safetensors.numpy import save_file

    facts = {"version": 1, "task": "upos", "labels": ["a", "b"], "unit": "word", "pooling": "last", "position": "auto"}
    (tmp_path / "classifier.json").write_text(json.dumps({**facts, "pairs": False, "layer": 1, "neurons": 2}))
    good = {
        "weight": np.ones((2, 2), np.float32),
        "bias": np.ones(2, np.float32),
        "layers": np.array([0, 1]),
        "indices": np.array([3, 4]),
    }
    save_file(good, tmp_path / "classifier.safetensors")
    assert read_classifier(tmp_path)[0].n_neurons == 2
    for change in (
        {"weight": np.ones((3, 2), np.float32)},
        {"bias": np.array([1.0, np.nan], np.float32)},
        {"layers": np.array([0.0, 1.0])},
        {"indices": np.array([-1, 4])},
        {"surprise": np.ones(1)},
    ):
        save_file({**good, **change}, tmp_path / "classifier.safetensors")
        with pytest.raises(StoreError, match=r"classifier.safetensors .*; copy the folder again"):
            read_classifier(tmp_path)


def test_progress_of_a_training_that_lies_is_refused(tmp_path):
    module = torch.nn.Linear(2, 2)
    open_run(tmp_path, {"seed": 0})
    write_checkpoint(tmp_path, {"m": module}, torch.optim.AdamW(module.parameters()), Progress(step=1))
    path = tmp_path / "checkpoints" / "step-000000001" / "progress.json"
    for value, said in (
        ({"version": 1, "step": "one"}, "step: found 'one'"),
        ({"version": 1, "steps": 1}, "'steps' is not known"),
        ({"version": 1, "pending": {"loss": [1.0]}}, "not pairs of a sum and a weight"),
        ({"version": 7, "step": 1}, "has format version 7; this residuum reads version 1"),
        ({"step": 1}, "has format version None; this residuum reads version 1"),
        ([], "list of 0"),
    ):
        path.write_text(json.dumps(value))
        with pytest.raises(StoreError, match=said):
            load_checkpoint(tmp_path, {"m": module})
