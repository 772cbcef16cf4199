"""Files that a command left behind, or that were given to it, in a state that it did not write: one clear line each."""

import json
import shutil
import subprocess
import sys
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.numpy import load_file, save_file

from made_stores import known_data
from residuum.activations import foreign
from residuum.activations.exchange import export_activations, import_activations
from residuum.adaptation.adapted import read_record
from residuum.adaptation.corpora import read_part
from residuum.comparison.estimates import _load_contexts, _save_contexts, load_moments, save_moments
from residuum.corpus import read_corpus
from residuum.corpus.tasks import Task
from residuum.distillation.preparation import load_teacher
from residuum.distillation.settings import DistillSettings
from residuum.errors import CorpusError, ModelError, SettingError, StoreError
from residuum.maths.moments import MomentsAccumulator
from residuum.maths.profiles import ContextAccumulator
from residuum.maths.selection import SetScore
from residuum.models.loading import load_model
from residuum.models.surgery import load_whole
from residuum.probing.orders import remembered_scores
from residuum.shrinking.classifier import read_classifier
from residuum.storage import compression as packed
from residuum.storage.compression import arrow_bytes
from residuum.storage.files import checksum, write_json
from residuum.storage.results import Run, read_run, write_run
from residuum.studies.running import block_parameters
from residuum.studies.steps import block_count, model_family
from residuum.training.checkpoints import Progress, open_run, resume, write_checkpoint
from residuum.training.encoding import Problem
from residuum.training.networks import load_with_head
from residuum.training.optimisation import TrainingSettings, build_optimiser, trainable_groups

NONSENSE = ("[", "[]", '"a"', "\xff", "[" * 100_000)


def write_npz(path, *, rows=3, hidden=4, value=0.0):
    words = np.array(["a"] * rows)
    shape = (rows, 1, hidden)
    np.savez_compressed(
        path,
        activations=np.full(shape, value, dtype=np.float32),
        layers=np.array([0]),
        sentence=np.zeros(rows, np.int64),
        word=words,
    )


def test_an_archive_that_unpacks_beyond_all_measure_is_given_up_before_it_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(packed, "MOST_UNPACKED", 10_000)
    write_npz(tmp_path / "good.npz")
    assert import_activations(tmp_path / "good.npz", tmp_path / "good").n_rows == 3
    write_npz(tmp_path / "bomb.npz", rows=1000, hidden=2000)
    assert (tmp_path / "bomb.npz").stat().st_size < 12_000
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("it was unpacked"))
    with pytest.raises(StoreError, match=r"unpacks to 8,0.* bytes or more, over 500 times its size"):
        import_activations(tmp_path / "bomb.npz", tmp_path / "out")


def test_no_more_of_an_archive_is_unpacked_than_it_says_it_has(tmp_path):
    write_npz(tmp_path / "lie.npz", rows=1000, hidden=200)
    data = (tmp_path / "lie.npz").read_bytes()
    with zipfile.ZipFile(tmp_path / "lie.npz") as archive:
        true = archive.getinfo("activations.npy").file_size
    (tmp_path / "lie.npz").write_bytes(data.replace(true.to_bytes(4, "little"), (200).to_bytes(4, "little")))
    with pytest.raises(StoreError, match="damaged or of another kind"):
        import_activations(tmp_path / "lie.npz", tmp_path / "out")


def write_arrow(path, packing, *, rows=3, hidden=4, batches=1, notes=None):
    """Activations in record batches; `notes` is a column that is not read."""
    columns = {
        "sentence": pa.array(np.zeros(rows, np.int64)),
        "word": pa.array([""] * rows),
        "layer-0": pa.FixedSizeListArray.from_arrays(np.zeros(rows * hidden, np.float32), hidden),
    }
    if notes is not None:
        columns["notes"] = notes
    batch = pa.record_batch(columns)
    options = pa.ipc.IpcWriteOptions(compression=packing)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema, options=options) as file:
        for _ in range(batches):
            file.write_batch(batch)
    return path


REPEATED = pa.array(["a" * 8_000_000, "b"]).dictionary_encode().take(pa.array([1, 1, 1]))


@pytest.mark.parametrize(
    "size", [{"rows": 500_000}, {"hidden": 1_000_000}, {"rows": 20_000, "batches": 40}, {"notes": REPEATED}]
)
def test_an_arrow_file_that_unpacks_beyond_all_measure_is_given_up_before_it_is_unpacked(tmp_path, monkeypatch, size):
    monkeypatch.setattr(packed, "MOST_UNPACKED", 10_000)
    path = write_arrow(tmp_path / "bomb.arrow", "zstd", **size)
    assert path.stat().st_size < 30_000
    monkeypatch.setattr(foreign, "_arrow_batches", lambda *_: pytest.fail("it was unpacked"))
    with pytest.raises(StoreError, match=r"unpacks to [\d,]+ bytes or more, over 500 times its size"):
        import_activations(path, tmp_path / "out")


def test_what_a_packed_arrow_file_unpacks_to_is_what_it_takes_unpacked(tmp_path):
    rows = pa.array(["note"] * 4000).dictionary_encode()
    sizes = {}
    for packing in (None, "lz4", "zstd"):
        path = write_arrow(tmp_path / f"{packing}.arrow", packing, rows=4000, hidden=20, batches=3, notes=rows)
        sizes[packing] = sum(arrow_bytes(path))
        assert import_activations(path, tmp_path / str(packing)).n_rows == 12_000
    whole = (tmp_path / "None.arrow").stat().st_size
    assert (tmp_path / "zstd.arrow").stat().st_size < whole / 20
    assert all(0.99 * whole < size < 1.01 * whole for size in sizes.values())


def test_a_table_of_results_that_unpacks_beyond_all_measure_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(packed, "MOST_UNPACKED", 1_000_000)
    good = pd.DataFrame({"name": ["a", "b", None] * 2000, "value": np.arange(6000.0)})
    bomb = pd.DataFrame({"name": ["a" * 50_000] * 2000})
    write_run(tmp_path / "good", Run("compare", {}, tables={"names": good}))
    pd.testing.assert_frame_equal(read_run(tmp_path / "good").tables["names"], good)
    write_run(tmp_path / "bomb", Run("compare", {}, tables={"names": bomb}))
    assert (tmp_path / "bomb" / "names.parquet").stat().st_size < 20_000
    monkeypatch.setattr(pd, "read_parquet", lambda *_, **__: pytest.fail("it was unpacked"))
    with pytest.raises(StoreError, match=r"names.parquet unpacks to more than 500 times its size"):
        read_run(tmp_path / "bomb")


def test_a_line_of_json_activations_that_never_ends_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(foreign, "LONGEST_LINE", 1000)
    path = tmp_path / "x.json"
    feature = {"token": "a", "layers": [{"index": 0, "values": [0.5]}]}
    lines = [json.dumps({"features": [feature] * n}) + "\n" for n in (1, 3, 30)]
    path.write_text("".join(lines[:2]))
    assert import_activations(path, tmp_path / "good").n_rows == 4
    path.write_text("".join(lines))
    with pytest.raises(StoreError, match="line 3: longer than 1,000 characters"):
        import_activations(path, tmp_path / "bad")


@pytest.mark.parametrize("column", [["a" * 50_000] * 2000, [["a" * 50_000] * 4] * 500], ids=["texts", "lists"])
def test_a_text_that_parquet_says_once_for_thousands_of_rows_is_counted_before_it_is_repeated(
    tmp_path, monkeypatch, column
):
    monkeypatch.setattr(packed, "MOST_UNPACKED", 1_000_000)
    name = "tokens" if isinstance(column[0], list) else "text"
    path = tmp_path / "bomb.parquet"
    pd.DataFrame({name: column}).to_parquet(path, compression="zstd")
    assert path.stat().st_size < 20_000
    with pytest.raises(CorpusError, match="unpacks to more than 500 times its size"):
        read_corpus(path)


def test_a_page_of_parquet_is_given_up_before_it_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(packed, "MOST_UNPACKED", 1_000_000)
    path, run = tmp_path / "page.parquet", tmp_path / "run"
    pages = {"compression": "zstd", "use_dictionary": False, "data_page_size": 1 << 30}
    pd.DataFrame({"text": ["a " * 50_000_000]}).to_parquet(path, **pages)
    write_run(run, Run("compare", {}, tables={"names": pd.DataFrame({"text": ["a"]})}))
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda *_, **__: pytest.fail("it was unpacked"))
    with pytest.raises(CorpusError, match="unpacks to more than 500 times its size"):
        read_corpus(path)
    record = json.loads((run / "result.json").read_text())
    del record["xxh3"]
    write_json(run / "result.json", {**record, "tables": {"names": checksum(path)}})
    path.rename(run / "names.parquet")
    with pytest.raises(StoreError, match=r"names.parquet unpacks to more than 500 times its size"):
        read_run(run)


def test_a_damaged_footer_of_parquet_does_not_end_the_process(tmp_path):
    path = tmp_path / "words.parquet"
    pq.write_table(pa.table({"tokens": [["a", "b"], ["c"], None], "text": ["x", None, "z"]}), path)
    whole = path.read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    script = """
import sys
from pathlib import Path
from residuum.corpus import read_corpus
from residuum.errors import ResiduumError

path, footer = Path(sys.argv[1]), int(sys.argv[2])
whole = path.read_bytes()
for place in range(footer, footer + 64):
    for bit in range(8):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
        try:
            read_corpus(path)
        except ResiduumError:
            pass
"""
    ended = subprocess.run(
        [sys.executable, "-c", script, path, str(footer)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr[-500:]


def test_parquet_that_repeats_what_texts_repeat_is_read_as_it_was_written(tmp_path):
    tokens, tags = [["The", "fox"], ["the", "the", "dog"], []] * 700, [["A", None], ["A", "A", "B"], []] * 700
    pd.DataFrame({"tokens": tokens, "tags": tags}).to_parquet(tmp_path / "words.parquet")
    words = read_corpus(tmp_path / "words.parquet")
    kept = [i for i, row in enumerate(tokens) if row]
    assert words.sentences == [tokens[i] for i in kept]
    assert words.labels["tags"] == [tags[i] for i in kept]
    table = {"text": ["a b", "c", "a b"] * 700, "label": ["x", "y", None] * 700, "score": [0.5, 1.5, 2.5] * 700}
    pd.DataFrame(table).to_parquet(tmp_path / "texts.parquet")
    texts = read_corpus(tmp_path / "texts.parquet", label="label")
    assert texts.sentences[:3] == [["a", "b"], ["c"], ["a", "b"]]
    assert texts.targets("label")[:3] == ["x", "y", None]


def test_names_of_columns_that_are_no_text_are_said(tmp_path):
    path = tmp_path / "x.parquet"
    pd.DataFrame({"tokens": [["a"]], "text": ["a b"]}).to_parquet(path)
    path.write_bytes(path.read_bytes().replace(b"text", b"te\xe5t"))
    with pytest.raises(CorpusError, match=r"x\.parquet is not a whole parquet file: .*utf-8"):
        read_corpus(path)


@pytest.mark.parametrize("content", NONSENSE)
def test_a_study_says_which_config_it_cannot_read(tmp_path, content):
    (tmp_path / "config.json").write_text(content, encoding="latin-1")
    for ask in (model_family, block_count):
        with pytest.raises((ModelError, StoreError), match=r"config\.json"):
            ask(tmp_path)


@pytest.mark.parametrize("count", [None, "12", 0, -1, 1.5, True, 10**30, []])
def test_a_study_believes_no_impossible_number_of_blocks(tmp_path, count):
    (tmp_path / "config.json").write_text(json.dumps({"num_hidden_layers": count, "model_type": [count]}))
    with pytest.raises(ModelError, match=r"config\.json has num_hidden_layers .*; expected a whole number from 1"):
        block_count(tmp_path)
    with pytest.raises(ModelError, match=r"config\.json has model_type .*; expected a name"):
        model_family(tmp_path)


def test_a_study_reads_what_a_config_says_and_goes_without_one(tmp_path):
    assert (model_family("no/folder"), block_count("no/folder")) == ("", 12)
    (tmp_path / "config.json").write_text('{"n_layer": 6, "model_type": "gpt2"}')
    assert (model_family(tmp_path), block_count(tmp_path)) == ("gpt2", 6)


def test_a_study_says_which_weights_it_cannot_count(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"\x09" * 20)
    with pytest.raises(ModelError, match=r"model\.safetensors are damaged .*; copy the model again"):
        block_parameters(str(tmp_path), {})


def test_labels_that_are_no_text_are_named(tmp_path):
    (tmp_path / "test-tr.tsv").write_text("one\tsays\ntwo\tsays\n")
    (tmp_path / "test_labels.txt").write_bytes(b"neutral\n\xff\xfe\n")
    with pytest.raises(CorpusError, match=r"test_labels\.txt is not UTF-8: byte 0xff at position 8"):
        read_part("xnli", tmp_path / "test-tr.tsv")


@pytest.fixture
def begun(tmp_path):
    """A training that was stopped after a step, its parts, and the file of its optimiser."""
    module = torch.nn.Linear(2, 2)
    optimiser = build_optimiser(trainable_groups(module), TrainingSettings(steps=1))
    module(torch.ones(1, 2)).sum().backward()
    optimiser.step()
    open_run(tmp_path, {})
    write_checkpoint(tmp_path, {"m": module}, optimiser, Progress(step=1))
    return tmp_path, {"m": module}, optimiser


def test_an_optimiser_goes_on_as_it_was_left(begun):
    out, modules, optimiser = begun
    again = build_optimiser(trainable_groups(modules["m"]), TrainingSettings(steps=1))
    assert resume(out, modules, again).step == 1
    for parameter, state in optimiser.state.items():
        assert all(torch.equal(value, again.state[parameter][name]) for name, value in state.items())


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"x.exp_avg": np.ones(2, np.float32)}, "'x.exp_avg'"),
        ({"": np.ones(2, np.float32)}, "''"),
        ({"99.exp_avg": np.ones(2, np.float32)}, "'99.exp_avg'"),
        ({"0.exp_avg": np.ones((3, 2), np.float32)}, "'0.exp_avg'"),
        ({"0.exp_avg": np.ones((2, 2), np.float64)}, "'0.exp_avg'"),
        ({"0.step": None}, "'0.step'"),
        ({"1.exp_avg_sq": None}, "'1.exp_avg_sq'"),
        ({"1.surprise": np.ones(2, np.float32)}, "'1.surprise'"),
    ],
)
def test_an_optimiser_that_does_not_fit_is_refused_by_the_tensor(begun, change, named):
    out, modules, optimiser = begun
    path = out / "checkpoints" / "step-000000001" / "optimiser.safetensors"
    tensors = {name: value for name, value in {**load_file(path), **change}.items() if value is not None}
    save_file(tensors, path)
    with pytest.raises(StoreError, match=f"optimiser.safetensors does not fit the parameters of this run: {named}"):
        resume(out, modules, optimiser)


@pytest.mark.parametrize("content", ["[]", "{", '{"3": "a"}', '{"3": null}', '{"x": 0.5}', '{"3": [0.5]}'])
def test_scores_of_a_search_that_are_none_are_refused(tmp_path, content):
    (tmp_path / "lca.json").write_text(content)
    with pytest.raises(StoreError, match=r"lca\.json"):
        remembered_scores(lambda sizes: [], tmp_path / "lca.json")


def test_scores_of_a_search_are_found_again(tmp_path):
    (tmp_path / "lca.json").write_text('{"3": [0.5, 0.1, 0.01]}')
    new = SetScore(0.25, 0.0, 0.0)
    scorer = remembered_scores(lambda sizes: [new for _ in sizes], tmp_path / "lca.json")
    assert scorer([3, 4]) == [SetScore(0.5, 0.1, 0.01), new]


@pytest.mark.parametrize(
    "change",
    [
        {"mean": None},
        {"n": np.array([3])},
        {"n": np.array(-3)},
        {"n": np.array(3.0)},
        {"widths": np.array([3, 3])},
        {"widths": np.array([], dtype=np.int64)},
        {"third": np.ones((2, 4))},
        {"scatter.0.1": np.ones((2, 3))},
        {"scatter.1.0": np.ones((2, 3))},
        {"scatter.x": np.ones((2, 3))},
        {"fourth": np.ones((2, 2), np.float32)},
        {"surprise": np.ones(1)},
    ],
)
def test_moments_that_are_none_are_refused(tmp_path, change):
    moments = MomentsAccumulator((3, 2))
    moments.update(np.random.default_rng(0).normal(size=(6, 5)))
    path = tmp_path / "moments.safetensors"
    save_moments(moments.result(), path)
    assert load_moments(path).widths == (3, 2)
    tensors = {name: value for name, value in {**load_file(path), **change}.items() if value is not None}
    save_file(tensors, path)
    with pytest.raises(StoreError, match="holds other tensors than the moments of layers"):
        load_moments(path)


@pytest.mark.parametrize(
    "change", [{"sums": None}, {"sums": np.ones((4, 4))}, {"counts": np.ones(4)}, {"surprise": np.ones(1)}]
)
def test_sums_of_contexts_that_are_none_are_refused(tmp_path, change):
    contexts = ContextAccumulator(4, (3, 2))
    contexts.update(np.array([0, 1]), [np.ones((2, 3)), np.ones((2, 2))])
    path = tmp_path / "contexts.safetensors"
    _save_contexts(contexts.result(), path)
    assert _load_contexts(contexts.result(), path).counts.tolist() == [1, 1, 0, 0]
    tensors = {name: value for name, value in {**load_file(path), **change}.items() if value is not None}
    save_file(tensors, path)
    with pytest.raises(StoreError, match="holds other tensors than the sums of a group's words"):
        _load_contexts(contexts.result(), path)


@pytest.mark.parametrize(("file", "read"), [("classifier.json", read_classifier), ("adaptation.json", read_record)])
@pytest.mark.parametrize(("content", "found"), [('{"version": 7}', "7"), ("{}", "None"), ("[]", "None")])
def test_a_folder_of_another_format_version_is_refused_by_its_number(tmp_path, file, read, content, found):
    (tmp_path / file).write_text(content)
    with pytest.raises(StoreError, match=f"{file} has format version {found}; this residuum reads version 1"):
        read(tmp_path)


def test_activations_are_not_exported_to_an_address(tmp_path):
    store = known_data(n_sentences=2).store(tmp_path / "acts")
    with pytest.raises(SettingError, match="s3://bucket/x.npz is an address; expected a local file"):
        export_activations(store, "s3://bucket/x.npz")
    assert export_activations(store, f"file://{tmp_path}/x.npz") == tmp_path / "x.npz"
    assert (tmp_path / "x.npz").exists()


@pytest.mark.parametrize("random_init", [False, True])
def test_a_config_of_more_blocks_than_any_model_has_is_refused_before_they_are_built(
    tiny_folder, tmp_path, random_init
):
    shutil.copytree(tiny_folder("bert"), tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    (tmp_path / "model" / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 10**9}))
    said = "has num_hidden_layers 1000000000; expected at most 1,000"
    with pytest.raises(ModelError, match=said):
        load_model(tmp_path / "model", random_init=random_init)
    with pytest.raises(ModelError, match=said):
        load_whole(tmp_path / "model")
    with pytest.raises(ModelError, match=said):
        load_with_head(tmp_path / "model", Problem(Task("upos"), "tagging", ("A", "B")))
    settings = DistillSettings(tmp_path / "model", {"en": "en.txt"}, preset="monoshot")
    with pytest.raises(ModelError, match=said):
        load_teacher(settings.teacher, settings.loss)


def test_a_network_that_loads_and_does_not_run_is_a_clear_error(tiny_folder, tmp_path):
    shutil.copytree(tiny_folder("bert"), tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    (tmp_path / "model" / "config.json").write_text(json.dumps({**config, "chunk_size_feed_forward": 7}))
    with pytest.raises(ModelError, match="Cannot load .* chunk"):
        load_model(tmp_path / "model")


def test_a_gguf_file_of_nonsense_is_a_clear_error(tiny_folder, tmp_path):
    shutil.copytree(tiny_folder("bert"), tmp_path / "model")
    (tmp_path / "model" / "x.gguf").write_bytes(b"GGUF" + b"\xff" * 40)
    with pytest.raises(ModelError, match=r"x\.gguf"):
        load_model(tmp_path / "model" / "x.gguf")
