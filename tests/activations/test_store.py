"""The store: whole or absent, resumable, checked, streamed."""

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import residuum.activations.store as store_module
from residuum.activations.extraction import extract
from residuum.activations.store import ActivationStore, check_same_words, open_store, plan_shards, shard_path
from residuum.corpus import Corpus
from residuum.errors import SettingError, StoreError
from residuum.models.loading import load_model
from residuum.storage.files import read_json

RANDOM = random.Random(0)
SENTENCES = [
    [RANDOM.choice(["the", "fox", "dog", "reads", "a", "small", "text"]) for _ in range(RANDOM.randint(1, 9))]
    for _ in range(60)
]


@pytest.fixture
def model(tiny_folder):
    return load_model(tiny_folder("bert"))


def corpus(sentences=SENTENCES) -> Corpus:
    return Corpus(name="test", sentences=sentences)


def contents(folder) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if not p.name.startswith("array")}


def test_blocks_stream_what_the_array_holds(model, tmp_path):
    store = extract(model, corpus(), tmp_path / "acts", shard_words=40)
    assert len(store.manifest.shards) > 3
    whole = store.array()
    assert isinstance(whole, np.memmap)
    assert whole.shape == (sum(map(len, SENTENCES)), 4, 16)
    np.testing.assert_array_equal(np.concatenate(list(store.batches())), whole)
    np.testing.assert_array_equal(np.concatenate(list(store.batches(layers=[2]))), whole[:, [2]])
    np.testing.assert_array_equal(
        np.concatenate(list(store.batches(neurons=["3:15", "0:2"]))),
        np.stack([whole[:, 3, 15], whole[:, 0, 2]], axis=1),
    )


def test_shards_hold_whole_sentences_and_do_not_depend_on_the_model():
    shards = plan_shards(SENTENCES, 40)
    assert [s.first for s in shards] == [0, *(s.stop for s in shards[:-1])]
    assert shards[-1].stop == len(SENTENCES)
    assert all(sum(map(len, SENTENCES[s.first : s.stop])) <= 40 for s in shards)
    assert plan_shards([["w"] * 99, ["w"]], 40)[0].stop == 1


def test_a_finished_store_is_opened_at_once(model, tmp_path, monkeypatch):
    extract(model, corpus(), tmp_path / "acts")
    monkeypatch.setattr(type(model), "read", lambda *_: pytest.fail("the model ran again"))
    assert extract(model, corpus(), tmp_path / "acts").n_rows == sum(map(len, SENTENCES))


def test_another_run_into_the_same_folder_is_refused_until_told_to_start_over(model, tmp_path):
    extract(model, corpus(), tmp_path / "acts")
    with pytest.raises(StoreError, match="pooling last → mean.*--fresh"):
        extract(model, corpus(), tmp_path / "acts", pooling="mean")
    with pytest.raises(StoreError, match="holds other activations \\(corpus"):
        extract(model, corpus(SENTENCES[:3]), tmp_path / "acts")
    store = extract(model, corpus(SENTENCES[:3]), tmp_path / "acts", fresh=True)
    assert store.n_rows == sum(map(len, SENTENCES[:3]))


def test_a_folder_of_something_else_is_left_alone(model, tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(StoreError, match="is not empty and holds no activations"):
        extract(model, corpus(), tmp_path)
    with pytest.raises(StoreError, match="is not empty"):
        extract(model, corpus(), tmp_path, fresh=True)
    assert (tmp_path / "thesis.txt").read_text() == "precious"


SMALL_SHARDS = {"shard_words": 60, "batch_tokens": 64}


@pytest.mark.parametrize("write", range(1, 12))
def test_stopped_between_any_two_writes_it_resumes_to_the_same_bytes(write, model, tmp_path, monkeypatch):
    expected = contents(extract(model, corpus(), tmp_path / "whole", **SMALL_SHARDS).path)
    cut = stopped(write, model, tmp_path / "cut", monkeypatch)
    if (cut / "manifest.json").exists():
        with pytest.raises(StoreError, match="unfinished"):
            ActivationStore.open(cut)
    assert contents(extract(model, corpus(), cut, **SMALL_SHARDS).path) == expected


@pytest.mark.parametrize("now", [0.0, 4e9])
def test_the_clock_may_jump_while_a_run_is_stopped(now, model, tmp_path, monkeypatch):
    expected = contents(extract(model, corpus(), tmp_path / "whole", **SMALL_SHARDS).path)
    cut = stopped(7, model, tmp_path / "cut", monkeypatch)
    for path in [cut, *cut.rglob("*")]:
        os.utime(path, (now, now))
    monkeypatch.setattr(time, "time", lambda: now)
    assert contents(extract(model, corpus(), cut, **SMALL_SHARDS).path) == expected


def stopped(write, model, folder, monkeypatch):
    """The folder of an extraction that was stopped when it began its n-th file."""
    original, count = store_module.whole_file, [0]

    def dying(path):
        count[0] += 1
        if count[0] == write:
            raise KeyboardInterrupt
        return original(path)

    with monkeypatch.context() as patched:
        patched.setattr(store_module, "whole_file", dying)
        patched.setattr(store_module, "write_json", lambda p, v: _write_json(dying, p, v))
        with pytest.raises(KeyboardInterrupt):
            extract(model, corpus(), folder, **SMALL_SHARDS)
    return folder


def _write_json(whole_file, path, value):
    with whole_file(path) as temporary:
        temporary.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def test_killed_between_any_two_shards_it_resumes_to_the_same_bytes(tiny_folder, tmp_path):
    """Real processes, really killed (-9) when a shard is about to be noted; `kill.py` kills at any time."""
    script = tmp_path / "run.py"
    script.write_text(
        textwrap.dedent(f"""
        import os, signal, sys
        import torch
        from residuum.activations.extraction import extract
        from residuum.activations.store import StoreWriter
        from residuum.corpus import Corpus
        from residuum.models.loading import load_model
        torch.set_num_threads(1)
        notes, note = int(sys.argv[2]), StoreWriter.note

        def counted(writer, written):
            global notes
            notes -= 1
            if notes == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            note(writer, written)

        StoreWriter.note = counted
        sentences = {SENTENCES * 4!r}
        extract(load_model({str(tiny_folder("bert"))!r}), Corpus(name="test", sentences=sentences), sys.argv[1],
                shard_words=20, batch_tokens=32, progress=False)
        """)
    )

    def status(folder, notes):
        return subprocess.run([sys.executable, script, tmp_path / folder, str(notes)], capture_output=True).returncode

    assert status("whole", 0) == 0
    assert [status("cut", notes) for notes in (1, 3, 0)] == [-signal.SIGKILL, -signal.SIGKILL, 0]
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


@pytest.mark.parametrize("damage", ["cut", "flipped", "missing", "words"])
def test_damage_is_found_and_never_read_as_right(damage, model, tmp_path):
    store = extract(model, corpus(), tmp_path / "acts", shard_words=100)
    file = shard_path(store.path, 1) if damage != "words" else store.path / "words.jsonl"
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 1
    {
        "cut": lambda: file.write_bytes(raw[:-10]),
        "flipped": lambda: file.write_bytes(raw),
        "missing": file.unlink,
        "words": lambda: file.write_text(file.read_text().replace("fox", "fix")),
    }[damage]()
    store = open_store(store.path)
    expected = {"cut": "bytes instead of", "flipped": "altered", "missing": "missing", "words": "altered"}[damage]
    [fault] = store.verify()
    assert expected in fault
    with pytest.raises(StoreError, match=expected):
        assert list(store.batches()) if damage != "words" else store.sentences


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: "not json", "cannot be read as JSON"),
        (lambda m: json.dumps([1, 2]), "not a manifest of activations"),
        (lambda m: json.dumps({**m, "version": 99}), "format version 99; this residuum reads version 1"),
        (lambda m: json.dumps({k: v for k, v in m.items() if k != "layers"}), "is damaged"),
        (lambda m: json.dumps({**m, "surprise": 1}), "is damaged"),
        (lambda m: json.dumps({**m, "xxh3": "0" * 16}), "is damaged or was edited"),
    ],
)
def test_a_damaged_manifest_is_named(change, message, model, tmp_path):
    store = extract(model, corpus(), tmp_path / "acts")
    manifest = store.path / "manifest.json"
    manifest.write_text(change(read_json(manifest)))
    with pytest.raises(StoreError, match=message):
        open_store(store.path)


def test_what_is_no_store_is_named(tmp_path):
    with pytest.raises(StoreError, match="does not exist"):
        open_store(tmp_path / "nothing")
    with pytest.raises(StoreError, match="has no manifest"):
        open_store(tmp_path)


def test_unknown_layers_and_neurons_are_refused(model, tmp_path):
    store = extract(model, corpus(), tmp_path / "acts", layers="0,2-3")
    with pytest.raises(SettingError, match=r"Layer 14 is not in .*acts \(it has 0, 2–3\); extract it with --layers 14"):
        store.array([14])
    with pytest.raises(SettingError, match="Neuron 2:16 does not exist: layer 2 has neurons 0–15"):
        list(store.batches(neurons=["2:16"]))
    with pytest.raises(SettingError, match="not of the form layer:index"):
        list(store.batches(neurons=["two"]))
    with pytest.raises(StoreError, match="holds no attention; extract it with --attention"):
        store.read_attention(0, 1)


def test_stores_over_different_words_refuse_to_be_compared(model, tmp_path):
    other = [list(s) for s in SENTENCES]
    other[7] = ["another", "sentence"]
    a, b, c = (extract(model, corpus(s), tmp_path / str(i)) for i, s in enumerate([SENTENCES, other, SENTENCES[:5]]))
    check_same_words([a, a])
    with pytest.raises(StoreError, match="sentence 8 is .* and 'another sentence' in the other"):
        check_same_words([a, b])
    with pytest.raises(StoreError, match="60 and 5 sentences"):
        check_same_words([a, c])
    d = extract(model, corpus(), tmp_path / "sentences", unit="sentence")
    with pytest.raises(StoreError, match="a row per word"):
        check_same_words([a, d])


def test_a_read_only_store_still_gives_an_array(model, tmp_path, monkeypatch):
    store = extract(model, corpus(), tmp_path / "acts")
    original = store_module.whole_file

    def refusing(path):
        if path.parent == store.path:
            raise StoreError("No permission")
        return original(path)

    monkeypatch.setattr(store_module, "whole_file", refusing)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert store.array().shape[0] == store.n_rows
