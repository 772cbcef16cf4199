"""`--max-memory` holds where the system itself refuses more: a process of limited address space ends well.

Each bound has its negative control: the same work in the same room without the bound runs out of memory.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf

from made_stores import made_store
from residuum.activations.correlation import clustering_bytes
from residuum.activations.exchange import export_activations
from residuum.activations.store import ActivationStore
from tiny import build_tokenizer

LAYERS, WIDTH, WORDS = 12, 512, 6000
JOINT = LAYERS * (LAYERS + 1) // 2 * WIDTH**2 * 8  # bytes of the scatter of all pairs of layers: 164 MB
FEATURES = WORDS * LAYERS * WIDTH * 4  # 147 MB
CLUSTERED = 3  # layers whose neurons are clustered
TREE = clustering_bytes(CLUSTERED * WIDTH, [WIDTH] * CLUSTERED)  # 38 MB
PAIRS, BLOCKS = 2000, 12
MEANS = 2 * PAIRS * (BLOCKS + 1) * WIDTH * 4  # 106 MB
SAMPLED = 2 * 1000 * LAYERS * WIDTH * 4 + (2 * LAYERS + 3) * 1000**2 * 8  # 265 MB: words, and numbers of their pairs
UNBOUND = 1 << 40

SCRIPT = """
import resource, sys
from pathlib import Path
import numpy as np, pandas, scipy.cluster.hierarchy, scipy.linalg, sklearn, torch
import h5py, pyarrow.ipc
from residuum.activations.exchange import export_activations, import_activations
from residuum.activations.store import ActivationStore
from residuum.comparison.compare import compare
from residuum.errors import MemoryLimitError
from residuum.evaluation.pairs import SentencePairs
from residuum.evaluation.retrieval import evaluate_retrieval
from residuum.models.loading import load_model
from residuum.probing.probe import probe
from residuum.probing.rank import rank
from residuum.probing.redundancy import redundancy

np.ones((600, 600)) @ np.ones((600, 600))  # what BLAS keeps for itself is there before the limit
torch.ones(600, 600) @ torch.ones(600, 600)
scipy.linalg.eigh(np.eye(600))
command, source, room, max_memory = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
kind, place = (resource.RLIMIT_DATA, 5) if command == "retrieval" else (resource.RLIMIT_AS, 0)
opened = {"retrieval": load_model, "import": Path}.get(command, ActivationStore.open)
thing = opened(source)
held = int(Path("/proc/self/statm").read_text().split()[place]) * resource.getpagesize()
resource.setrlimit(kind, (held + room, held + room))  # files that are mapped count as address space, not as data
settings = {"max_memory": max_memory, "recipe": "paper", "epochs": 1, "seeds": 1, "progress": False}
labels = [] if command in ("retrieval", "import") else [["AB"[len(w) % 2] for w in words] for words in thing.sentences]
try:
    if command.startswith("compare"):
        bound = {"max_memory": None if max_memory >= 1 << 40 else max_memory}
        measures = "rsa" if command == "compare samples" else "cka"
        found = compare([thing], measures=measures, groups=3, workers=1, progress=False, **bound).frame
    elif command in ("probe", "describe labels"):
        lengths = command == "describe labels"
        found = probe(thing, labels, subsets=False, description_length=lengths, **settings).frame
    elif command in ("rank", "rank by sample"):
        methods = ["gaussian", "iou"] if command == "rank by sample" else ["lca"]
        found = rank(thing, labels, methods=methods, by=methods[0], shares=[0.01], cards=0, **settings).frame
    elif command == "import":
        bound = None if max_memory >= 1 << 40 else max_memory
        found = import_activations(source, sys.argv[6], max_memory=bound).sentences
    elif command == "export":
        found = thing.sentences
        export_activations(thing, sys.argv[6])
    elif command == "redundancy":
        found = redundancy(thing, pictures=0, max_memory=max_memory, progress=False).frame
    else:
        text = [f"the fox {i}" for i in range(int(sys.argv[5]))]
        pairs = SentencePairs(("a", "b"), text, text)
        bound = {"max_memory": max_memory, "progress": False}
        found = evaluate_retrieval(thing, pairs, score="cosine", resamples=2, **bound).frame
    print(len(found))
except MemoryLimitError as error:
    sys.exit(f"refused: {error}")
except (MemoryError, RuntimeError, np.linalg.LinAlgError) as error:
    sys.exit(f"out of memory: {error}")
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return random_store(tmp_path_factory.mktemp("memory") / "wide", WORDS, LAYERS)


@pytest.fixture(scope="module")
def small_store(tmp_path_factory):
    """Few words, but many neurons to cluster."""
    return random_store(tmp_path_factory.mktemp("memory") / "short", 300, CLUSTERED)


def random_store(folder: Path, words: int, layers: int) -> ActivationStore:
    sentences = [[("w" * (1 + n % 7)) + str(n % 11) for n in range(s, s + 10)] for s in range(0, words, 10)]
    activations = np.random.default_rng(0).standard_normal((words, layers, WIDTH), dtype=np.float32)
    return made_store(folder, sentences, activations, shard_words=100)


@pytest.fixture(scope="module")
def wide_model(tmp_path_factory):
    """A model of many neurons and few weights."""
    folder, tokenizer = tmp_path_factory.mktemp("memory") / "model", build_tokenizer("wordpiece")
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": BLOCKS, "num_attention_heads": 8, "intermediate_size": 8}
    torch.manual_seed(0)
    hf.BertModel(hf.BertConfig(vocab_size=len(tokenizer), max_position_embeddings=64, **sizes)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def run(
    command: str, source: Path, room: int, max_memory: int, out: Path | None = None
) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-c", SCRIPT, command, str(source), str(room), str(max_memory), str(PAIRS), str(out)]
    return subprocess.run(arguments, capture_output=True, text=True, env={"OMP_NUM_THREADS": "1", "HOME": "/tmp"})


@pytest.mark.slow
def test_redundancy_keeps_within_its_memory_or_says_what_it_needs(small_store):
    kept = run("redundancy", small_store.path, 2 * TREE, TREE)
    assert kept.returncode == 0, kept.stderr
    refused = run("redundancy", small_store.path, TREE // 2, TREE // 2)
    assert "refused: The step 'clustering' of 1,536 neurons" in refused.stderr
    without = run("redundancy", small_store.path, TREE // 2, UNBOUND)
    assert "out of memory" in without.stderr, "the limit limits nothing"


@pytest.mark.slow
def test_a_comparison_keeps_within_its_memory(store):
    room = 2 * JOINT
    kept = run("compare", store.path, room, JOINT)
    assert kept.returncode == 0, kept.stderr
    assert int(kept.stdout) == LAYERS**2
    without = run("compare", store.path, room, UNBOUND)
    assert "out of memory" in without.stderr, "the limit limits nothing"


@pytest.mark.slow
def test_a_comparison_of_sampled_words_keeps_within_its_memory_or_says_what_it_needs(store):
    room = 4 * SAMPLED // 3
    kept = run("compare samples", store.path, room, SAMPLED)
    assert kept.returncode == 0, kept.stderr
    refused = run("compare samples", store.path, SAMPLED // 2, SAMPLED // 2)
    assert "refused: The step 'rsa' of 6,000 words × 12 layers needs" in refused.stderr
    without = run("compare samples", store.path, SAMPLED // 2, UNBOUND)
    assert "out of memory" in without.stderr, "the limit limits nothing"


@pytest.mark.slow
@pytest.mark.parametrize("command", ["probe", "describe labels", "rank"])
def test_probes_and_rankings_keep_within_their_memory(command, store):
    kept = run(command, store.path, FEATURES, FEATURES // 8)
    assert kept.returncode == 0, kept.stderr
    without = run(command, store.path, FEATURES, UNBOUND)
    assert "out of memory" in without.stderr, "the limit limits nothing"


@pytest.mark.slow
def test_rankings_by_sampled_words_keep_within_their_memory_or_say_what_they_need(store):
    room = 2 * FEATURES
    kept = run("rank by sample", store.path, room, 7 * FEATURES // 8)
    assert kept.returncode == 0, kept.stderr
    assert int(kept.stdout) == 3 * LAYERS * WIDTH
    refused = run("rank by sample", store.path, room, FEATURES // 2)
    assert "refused: The step 'gaussian order' of 1,000 sampled words × 6,144 neurons" in refused.stderr
    without = run("rank by sample", store.path, room, UNBOUND)
    assert "out of memory" in without.stderr, "the limit limits nothing"


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["npz", "hdf5", "arrow"])
def test_an_import_keeps_within_its_memory(suffix, store, tmp_path):
    file, room = export_activations(store, tmp_path / f"wide.{suffix}"), FEATURES // 2
    kept = run("import", file, room, FEATURES // 4, tmp_path / "kept")
    assert kept.returncode == 0, kept.stderr
    assert int(kept.stdout) == WORDS // 10
    without = run("import", file, room, UNBOUND, tmp_path / "without")
    assert "out of memory" in without.stderr, "the limit limits nothing"


@pytest.mark.slow
def test_an_array_that_is_read_whole_is_refused_where_it_does_not_fit(store, tmp_path):
    with np.load(store.path.with_suffix(".npz")) as file:
        np.savez(tmp_path / "odd.npz", **{**file, "activations": np.asfortranarray(file["activations"])})
    refused = run("import", tmp_path / "odd.npz", FEATURES, FEATURES, tmp_path / "out")
    assert "refused: The step 'import' of odd.npz: 12 layers of 512 neurons needs" in refused.stderr


@pytest.mark.slow
def test_an_export_holds_little_of_a_store(store, tmp_path):
    kept = run("export", store.path, FEATURES // 2, UNBOUND, tmp_path / "out.npz")
    assert kept.returncode == 0, kept.stderr


@pytest.mark.slow
def test_retrieval_keeps_within_its_memory(wide_model):
    kept = run("retrieval", wide_model, MEANS // 2, MEANS // 8)
    assert kept.returncode == 0, kept.stderr
    without = run("retrieval", wide_model, MEANS // 2, UNBOUND)
    assert "out of memory" in without.stderr, "the limit limits nothing"
