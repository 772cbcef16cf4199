"""The disk, the clock and other processes at their worst: nothing is lost, and nothing wrong is read as right."""

import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import residuum
from made_stores import known_data
from residuum.activations.store import ActivationStore, open_store
from residuum.errors import StoreError
from residuum.evaluation.encoding import Scratch
from residuum.models.vocabularies import count_pieces, cut_vocabulary
from residuum.shrinking.pruning import prune
from residuum.shrinking.trimming import trim
from residuum.storage.files import (
    files_for,
    folder_name,
    hold_folder,
    private_folder,
    read_json,
    release_folder,
    remove_folder,
    whole_folder,
    write_json,
)
from residuum.storage.results import Run, finished_run, read_run, scratch, write_run
from teachers import tokenizer_of
from tiny import TEXT, save_model

CONFIG = {"seed": 0}
TABLE = pd.DataFrame({"name": ["cka", "größe", None], "value": [0.5, 0.25, np.nan], "layer": [0, 1, 2]})
RUN = Run("compare", CONFIG, {"cka": 0.5}, {"similarity": TABLE}, {"map": np.eye(3)})

HOLD = """
import sys
from pathlib import Path
from residuum.storage.files import hold_folder
hold_folder(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that is writing to a folder."""
    folder = tmp_path / "out"
    process = subprocess.Popen([sys.executable, "-c", HOLD, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    yield folder, process
    process.kill()
    process.communicate()


def test_two_processes_never_write_to_one_folder(holder):
    folder, process = holder
    with pytest.raises(StoreError, match=r"Another process is writing to .*out; wait until it has ended"):
        finished_run(folder, "compare", CONFIG)
    with pytest.raises(StoreError, match="Another process is writing to"):
        known_data(n_sentences=2).store(folder)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert finished_run(folder, "compare", CONFIG) is None
    release_folder(folder)


def test_a_finished_run_can_be_read_while_its_folder_is_held(holder):
    folder, _ = holder
    write_run(folder, RUN)
    assert read_run(folder).summary == {"cka": 0.5}
    assert finished_run(folder, "compare", CONFIG) is not None


def test_one_process_may_begin_a_run_again_and_writing_it_lets_others_in(tmp_path):
    assert finished_run(tmp_path, "compare", CONFIG) is None
    assert finished_run(tmp_path, "compare", CONFIG) is None
    write_run(tmp_path, RUN)
    other = subprocess.run([sys.executable, "-c", HOLD, tmp_path], input=b"", capture_output=True)
    assert other.stdout == b"held\n"


def test_of_the_processes_of_one_training_only_the_first_holds_the_folder(holder, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    hold_folder(holder[0])


def test_starting_over_takes_the_mark_of_the_finished_run_away_at_once(tmp_path):
    """Killed then, the folder holds files of two runs, and must not count as either."""
    write_run(tmp_path, RUN)
    assert finished_run(tmp_path, "compare", CONFIG, fresh=True) is None
    with pytest.raises(StoreError, match="not a finished run"):
        read_run(tmp_path)
    release_folder(tmp_path)


def test_what_a_kill_after_the_last_word_left_is_removed_and_a_user_s_folder_is_not(tmp_path):
    write_run(tmp_path, RUN)
    with scratch(tmp_path, CONFIG) as folder:
        (folder / "half").write_text("")
        name = folder.name
    (tmp_path / name).mkdir()
    (tmp_path / ".files.7.part").mkdir()
    for own in ("scratch-mine", "checkpoints"):
        (tmp_path / own).mkdir()
    assert finished_run(tmp_path, "compare", CONFIG) is not None
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"scratch-mine", "checkpoints"}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A run, and the bytes of its files."""
    folder = write_run(tmp_path_factory.mktemp("written"), RUN)
    return folder, {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    "file", ["similarity.parquet", "tensors.safetensors", "result.json", "environment.json", "config.yaml"]
)
@settings(max_examples=100)
@given(data=st.data())
def test_no_changed_bit_of_a_result_is_read_as_right(written, file, data):
    folder, whole = written
    content = bytearray(whole[file])
    place = data.draw(st.integers(0, 8 * len(content) - 1))
    content[place // 8] ^= 1 << place % 8
    (folder / file).write_bytes(content)
    try:
        again = read_run(folder)
    except StoreError as error:
        said = str(error)
    else:
        said = file
        assert (again.command, again.config, again.summary) == (RUN.command, RUN.config, RUN.summary)
        assert again.environment == RUN.environment
        pd.testing.assert_frame_equal(again.tables["similarity"], TABLE)
        np.testing.assert_array_equal(again.tensors["map"], RUN.tensors["map"])
    finally:
        (folder / file).write_bytes(whole[file])
    assert file in said


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return known_data(n_sentences=6).store(tmp_path_factory.mktemp("store") / "acts", shard_words=12)


@settings(max_examples=60)
@given(data=st.data())
def test_no_changed_bit_of_a_shard_is_read_as_right(store, data):
    path = data.draw(st.sampled_from(sorted(store.path.glob("shard-*"))))
    whole = path.read_bytes()
    place = data.draw(st.integers(0, 8 * len(whole) - 1))
    flipped = bytearray(whole)
    flipped[place // 8] ^= 1 << place % 8
    path.write_bytes(data.draw(st.sampled_from([bytes(flipped), whole[: place // 8]])))
    try:
        with pytest.raises(StoreError, match=path.name):
            list(open_store(store.path).batches())
    finally:
        path.write_bytes(whole)


@settings(max_examples=100)
@given(data=st.data())
def test_no_changed_bit_of_a_manifest_is_read_as_right(store, data):
    path = store.path / "manifest.json"
    whole = path.read_bytes()
    place = data.draw(st.integers(0, 8 * len(whole) - 1))
    flipped = bytearray(whole)
    flipped[place // 8] ^= 1 << place % 8
    path.write_bytes(flipped)
    try:
        with pytest.raises(StoreError, match="acts"):
            open_store(store.path)
    finally:
        path.write_bytes(whole)


def test_a_changed_array_is_built_again(store):
    expected = np.array(store.array())
    (path,) = store.path.glob("array-*.npy")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    np.testing.assert_array_equal(open_store(store.path).array(), expected)
    path.with_suffix(".json").write_text("[")
    np.testing.assert_array_equal(open_store(store.path).array(), expected)


def test_temporary_arrays_are_kept_where_nobody_else_can_put_one(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert private_folder().stat().st_mode & 0o777 == 0o700
    private_folder().chmod(0o777)
    with pytest.raises(StoreError, match="open to, others; set TMPDIR"):
        private_folder()


def test_a_folder_is_replaced_and_removed_at_one_stroke(tmp_path):
    for text in ("old", "new"):
        with whole_folder(tmp_path / "a") as temporary:
            (temporary / "x").write_text(text)
    assert (tmp_path / "a" / "x").read_text() == "new"
    with pytest.raises(KeyboardInterrupt), whole_folder(tmp_path / "a") as temporary:
        raise KeyboardInterrupt
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    remove_folder(tmp_path / "a")
    remove_folder(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_files_go_to_their_folder_together_or_not_at_all(tmp_path):
    (tmp_path / "kept").write_text("a user's own")
    with pytest.raises(KeyboardInterrupt), files_for(tmp_path) as temporary:
        (temporary / "weights").write_text("half")
        raise KeyboardInterrupt
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    with files_for(tmp_path) as temporary:
        (temporary / "weights").write_text("whole")
    assert {path.name for path in tmp_path.iterdir()} == {"kept", "weights"}


def test_a_folder_that_can_only_be_read_is_refused_before_anything_is_computed(small_disk):
    write_run(small_disk / "done", RUN)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert finished_run(small_disk / "done", "compare", CONFIG) is not None
    with pytest.raises(StoreError, match="No permission to write"):
        finished_run(small_disk / "new", "compare", CONFIG)
    with pytest.raises(StoreError, match="No permission to write"):
        finished_run(small_disk / "done", "compare", CONFIG, fresh=True)
    release_folder(small_disk / "done")


def test_a_full_disk_leaves_no_run_that_looks_finished(small_disk):
    large = Run("compare", CONFIG, tensors={"map": np.zeros(100_000)})
    with pytest.raises(StoreError, match="The disk is full"):
        write_run(small_disk / "run", large)
    with pytest.raises(StoreError, match="not a finished run"):
        read_run(small_disk / "run")
    assert not list((small_disk / "run").glob(".*"))


def fill(disk, left):
    """Leave only so many bytes on a disk of 300 kB."""
    (disk / "filling").write_bytes(b"x" * (300 * 1024 - left))


def test_a_full_disk_is_one_line_where_a_whole_folder_is_copied(small_disk, run):
    fill(small_disk, left=30_000)
    status, _, err = run("sample", "teacher", "--out", small_disk / "teacher")
    assert status == 1
    assert err.startswith("residuum: The disk is full")
    assert [path.name for path in small_disk.iterdir()] == ["filling"]


def test_a_full_disk_is_an_error_before_scratch_space_is_mapped_and_not_a_dead_process(small_disk):
    with pytest.raises(StoreError, match="The disk is full"):
        Scratch(small_disk, memory=0).zeros(100_000, 4)
    fitting = Scratch(small_disk / "..", memory=0).zeros(10, 4)
    assert fitting.sum() == 0


def test_a_full_disk_is_an_error_before_an_array_is_mapped_and_leaves_nothing(small_disk, tmp_path):
    store = known_data(n_sentences=60).store(tmp_path / "acts")
    fill(small_disk, left=4096)
    with pytest.raises(StoreError, match="The disk is full"):
        store._ensure_array(small_disk / "array.npy", store.layers)
    assert [path.name for path in small_disk.iterdir()] == ["filling"]


EXPORT = """
import sys
from pathlib import Path
from residuum import ActivationStore, export_activations
from residuum.errors import StoreError
store, target = ActivationStore.open(sys.argv[1]), Path(sys.argv[2])
for left in (0, 2, 8, 16, 24, 240):
    target.with_name("filling").write_bytes(b"x" * 1024 * (300 - left))
    try:
        print(export_activations(store, target).name)
    except StoreError as error:
        print(str(error).partition(":")[0])
    print(*sorted(path.name for path in target.parent.iterdir()))
"""


@pytest.mark.parametrize("suffix", [".hdf5", ".npz", ".json", ".arrow"])
def test_a_full_disk_leaves_nothing_of_an_export_and_kills_no_process(suffix, small_disk, tmp_path):
    store = known_data(n_sentences=60).store(tmp_path / "acts", shard_words=12)
    command = [sys.executable, "-c", EXPORT, store.path, small_disk / f"x{suffix}"]
    said = subprocess.run(command, capture_output=True, text=True)
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.splitlines() == ["The disk is full", "filling"] * 5 + [f"x{suffix}", f"filling x{suffix}"]


@pytest.mark.parametrize("verb", ["prune", "trim"])
def test_a_model_is_written_whole_or_not_at_all_however_little_space_is_left(small_disk, tmp_path, verb):
    """The tokenizer's Rust code knows no OSError: what is raised there is an Exception that says `os error 28`."""
    model, text = save_model("bert", tmp_path / "bert"), tmp_path / "text.txt"
    text.write_text("\n".join(TEXT), encoding="utf-8")
    write = partial(prune, drop="top:1") if verb == "prune" else partial(trim, texts=text)
    subprocess.run(["mount", "-o", "remount,size=1m", str(small_disk)], check=True)
    said = []
    for left in (4, 20, 32, 48, 64, 80, 100, 200, 400):
        (small_disk / "filling").write_bytes(b"x" * 1024 * (1024 - left))
        try:
            said.append(write(model, out=small_disk / "out").run.command)
        except StoreError as error:
            said.append(str(error).partition(":")[0])
        assert (small_disk / "out" / "result.json").exists() == (said[-1] == verb)
        assert not list((small_disk / "out").glob(".*"))
        release_folder(small_disk / "out")
        remove_folder(small_disk / "out")
    assert set(said) == {"The disk is full", verb}
    assert said == sorted(said)


def test_a_full_folder_of_temporary_files_is_said(small_disk, monkeypatch):
    tokenizer = tokenizer_of("bert")
    monkeypatch.setattr("tempfile.tempdir", str(small_disk))
    fill(small_disk, left=4096)
    with pytest.raises(StoreError, match="The disk is full: .*residuum-.* could not be written"):
        cut_vocabulary(tokenizer, count_pieces(tokenizer, TEXT))


def test_an_older_or_newer_format_is_refused_by_its_number(tmp_path, store):
    write_run(tmp_path, RUN)
    record = tmp_path / "result.json"
    write_json(record, {**read_json(record), "version": 2})
    with pytest.raises(StoreError, match=r"has format version 2; this residuum reads 1. Run its command again"):
        read_run(tmp_path)
    manifest = store.path / "manifest.json"
    whole = manifest.read_text()
    write_json(manifest, {**read_json(manifest), "version": 0})
    with pytest.raises(StoreError, match="has format version 0; this residuum reads version 1. Extract it again"):
        ActivationStore.open(store.path)
    manifest.write_text(whole)


def test_no_result_depends_on_the_clock_or_on_the_dates_of_files():
    sources = Path(residuum.__file__).parent.rglob("*.py")
    looking = re.compile(r"\btime\.time\(|st_[mca]time|getmtime|datetime\.(now|today|utcnow)")
    assert [str(path) for path in sources if looking.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("name", ["..", ".", "../x", "/etc", "a/../../b", ".hidden", "a\nb", "a b", "owner/name@main"])
def test_a_name_of_a_model_or_language_is_one_folder_inside(tmp_path, name):
    made = folder_name(name)
    assert (tmp_path / made).resolve().parent == tmp_path.resolve()
    assert made not in ("", ".", "..")
    assert folder_name(made) == made


def test_names_that_are_folders_already_stay_what_they_are():
    for name in ("bert", "Türkçe", "xlm-roberta-base", "v1.5_b", "full-source+new-head"):
        assert folder_name(name) == name
