"""Activations from and for other programs."""

import json

import h5py
import numpy as np
import pyarrow
import pytest

from residuum.activations.exchange import export_activations, import_activations
from residuum.activations.extraction import extract
from residuum.activations.foreign import read_foreign
from residuum.activations.store import ActivationStore
from residuum.corpus import Corpus
from residuum.errors import MemoryLimitError, SettingError, StoreError
from residuum.models.loading import load_model

SENTENCES = [["the", "fox"], ["a", "small", "dog"], ["the", "fox"], ["größer"]]


@pytest.fixture
def store(tiny_folder, tmp_path):
    corpus = Corpus(name="test", sentences=SENTENCES)
    return extract(load_model(tiny_folder("bert")), corpus, tmp_path / "acts", layers="1-2", shard_words=4)


@pytest.mark.parametrize("suffix", ["hdf5", "json", "npz", "arrow", "feather"])
def test_what_is_exported_comes_back_unchanged(suffix, store, tmp_path):
    file = export_activations(store, tmp_path / f"out.{suffix}")
    again = import_activations(file, tmp_path / "again", shard_words=3)
    np.testing.assert_allclose(again.array(), store.array(), atol=1e-7)
    assert again.sentences == SENTENCES
    assert again.layers == ([0, 1] if suffix == "hdf5" else [1, 2])


def test_an_array_whose_words_are_scattered_is_read_whole_and_comes_back_too(store, tmp_path):
    arrays = {**np.load(export_activations(store, tmp_path / "rows.npz"))}
    np.savez(tmp_path / "columns.npz", **arrays | {"activations": np.asfortranarray(arrays["activations"])})
    np.savez_compressed(tmp_path / "packed.npz", **arrays)
    for name in ("columns", "packed"):
        np.testing.assert_array_equal(
            import_activations(tmp_path / f"{name}.npz", tmp_path / name).array(), store.array()
        )
    rows, columns = (read_foreign(tmp_path / f"{name}.npz").held for name in ("rows", "columns"))
    assert (rows, columns) == (16 * 3 * 2 * 16, 16 * 8 * 2 * 16), "the longest sentence, and all words"


def test_an_export_is_what_numpy_writes(store, tmp_path):
    with np.load(export_activations(store, tmp_path / "out.npz")) as file:
        np.testing.assert_array_equal(file["activations"], store.array())
        assert file["sentence"].tolist() == [0, 0, 1, 1, 1, 2, 2, 3]


@pytest.mark.parametrize("suffix", ["hdf5", "json", "npz", "arrow"])
def test_shards_are_made_to_fit_the_memory_and_what_cannot_be_is_refused(suffix, store, tmp_path):
    file = export_activations(store, tmp_path / f"out.{suffix}")
    word, held = 8 * 2 * 16, read_foreign(file).held
    small = import_activations(file, tmp_path / "small", max_memory=held + 3 * word)
    assert [shard.rows for shard in small.manifest.shards] == [2, 3, 3]
    np.testing.assert_allclose(small.array(), store.array(), atol=1e-7)
    said = rf"^The step 'import' of out.{suffix}: 2 layers of 16 neurons needs .+ --max-memory allows .+smaller pieces"
    with pytest.raises(MemoryLimitError, match=said):
        import_activations(file, tmp_path / "none", max_memory=held + 2 * word)
    assert not (tmp_path / "none").exists()


def test_an_archive_that_is_damaged_at_its_end_makes_no_whole_store(store, tmp_path):
    file = export_activations(store, tmp_path / "out.npz")
    data, last = file.read_bytes(), store.array()[-1, -1, -1].tobytes()
    file.write_bytes(data.replace(last, np.float32(7).tobytes()))
    with pytest.raises(StoreError, match=r"Bad CRC.+damaged or of another kind"):
        import_activations(file, tmp_path / "again")
    with pytest.raises(StoreError):
        ActivationStore.open(tmp_path / "again")


def test_hdf5_has_the_layout_of_neurox(store, tmp_path):
    with h5py.File(export_activations(store, tmp_path / "out.hdf5")) as file:
        index = json.loads(file["sentence_to_index"][0])
        assert index == {"the fox": "0", "a small dog": "1", "the fox (Occurrence 2)": "2", "größer": "3"}
        assert file["1"].shape == (2, 3, 16)
        np.testing.assert_array_equal(file["1"][:].swapaxes(0, 1), store.array()[2:5])


def test_json_has_the_layout_of_neurox(store, tmp_path):
    lines = export_activations(store, tmp_path / "out.json").read_text().splitlines()
    record = json.loads(lines[1])
    assert record["linex_index"] == 1
    assert [f["token"] for f in record["features"]] == ["a", "small", "dog"]
    assert record["features"][2]["layers"][0]["values"] == pytest.approx(store.array()[4, 0].tolist())


def test_words_with_spaces_need_the_corpus(store, tmp_path):
    with h5py.File(tmp_path / "odd.hdf5", "w") as file:
        file.create_dataset("0", data=np.zeros((1, 2, 4), dtype=np.float32))
        file.create_dataset("sentence_to_index", data=[json.dumps({"New York is": "0"})])
    with pytest.raises(StoreError, match="does not tell the words of sentence 1 apart; give the corpus"):
        import_activations(tmp_path / "odd.hdf5", tmp_path / "out")
    corpus = Corpus(name="c", sentences=[["New York", "is"]])
    assert import_activations(tmp_path / "odd.hdf5", tmp_path / "out", corpus=corpus).n_rows == 2


def test_a_corpus_of_another_length_is_refused(store, tmp_path):
    file = export_activations(store, tmp_path / "out.npz")
    with pytest.raises(StoreError, match="has 4 sentences, the corpus 1"):
        import_activations(file, tmp_path / "a", corpus=Corpus(name="c", sentences=[["x"]]))
    longer = [["x"] * (len(s) + 1) for s in SENTENCES]
    with pytest.raises(StoreError, match=r"Sentence 1 of .* has shape \(2, 2, 16\) instead of \(3, 2, 16\)"):
        import_activations(file, tmp_path / "b", corpus=Corpus(name="c", sentences=longer))


@pytest.mark.parametrize("suffix", ["hdf5", "json", "npz", "arrow"])
def test_a_file_of_another_kind_is_refused(suffix, tmp_path):
    file = tmp_path / f"odd.{suffix}"
    file.write_text("nothing of the kind")
    with pytest.raises(StoreError, match=r"odd\."):
        import_activations(file, tmp_path / "out")


def test_unknown_suffixes_missing_files_and_sentence_rows_are_refused(store, tiny_folder, tmp_path):
    with pytest.raises(SettingError, match=r"suffix '.xls'; known are .hdf5"):
        export_activations(store, tmp_path / "out.xls")
    with pytest.raises(StoreError, match="does not exist"):
        import_activations(tmp_path / "none.npz", tmp_path / "out")
    corpus = Corpus(name="test", sentences=SENTENCES)
    sentences = extract(load_model(tiny_folder("bert")), corpus, tmp_path / "s", unit="sentence")
    with pytest.raises(SettingError, match="only words can be exported"):
        export_activations(sentences, tmp_path / "out.npz")


def test_an_arrow_file_without_sentences_is_named(tmp_path):
    schema = pyarrow.schema(
        {"sentence": pyarrow.int64(), "word": pyarrow.string(), "layer-0": pyarrow.list_(pyarrow.float32(), 4)}
    )
    with pyarrow.ipc.new_file(tmp_path / "none.arrow", schema):
        pass
    with pytest.raises(StoreError, match=r"none\.arrow has no sentences"):
        import_activations(tmp_path / "none.arrow", tmp_path / "out")
