"""`--max-memory` holds where the system itself refuses more: a process of limited address space ends well."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from made_stores import made_store

pytestmark = pytest.mark.slow

LAYERS, WIDTH, WORDS = 12, 512, 1500
JOINT = LAYERS * (LAYERS + 1) // 2 * WIDTH**2 * 8  # bytes of the scatter of all pairs of layers: 164 MB
FEATURES = WORDS * LAYERS * WIDTH * 4  # 37 MB

SCRIPT = """
import resource, sys
from pathlib import Path
import numpy as np, pandas, scipy.linalg, sklearn, torch
from residuum.comparison.comparing import compare
from residuum.maths.probing import Recipe
from residuum.probes import probe
from residuum.activations.store import ActivationStore

np.ones((600, 600)) @ np.ones((600, 600))  # what BLAS keeps for itself is there before the limit
torch.ones(600, 600) @ torch.ones(600, 600)
scipy.linalg.eigh(np.eye(600))
held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
command, store, room, max_memory = sys.argv[1], ActivationStore.open(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
resource.setrlimit(resource.RLIMIT_AS, (held + room, held + room))
try:
    if command == "compare":
        result = compare([store], measures="cka", groups=3, workers=1, max_memory=max_memory or None, progress=False)
        print(len(result.frame))
    else:
        labels = [["AB"[len(word) % 2] for word in words] for words in store.sentences]
        settings = {"seeds": 1, "subsets": False, "recipe": Recipe(epochs=1)}
        print(len(probe(store, labels, max_memory=max_memory or 1 << 40, **settings).frame))
except (MemoryError, RuntimeError) as error:
    sys.exit(f"out of memory: {error}")
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    rng = np.random.default_rng(0)
    sentences = [[("w" * (1 + n % 7)) + str(n % 11) for n in range(s, s + 10)] for s in range(0, WORDS, 10)]
    activations = rng.standard_normal((WORDS, LAYERS, WIDTH)).astype(np.float32)
    return made_store(tmp_path_factory.mktemp("memory") / "wide", sentences, activations, shard_words=100)


def run(command: str, store: Path, room: int, max_memory: int) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-c", SCRIPT, command, str(store), str(room), str(max_memory)]
    return subprocess.run(arguments, capture_output=True, text=True, env={"OMP_NUM_THREADS": "1", "HOME": "/tmp"})


def test_a_comparison_keeps_within_its_memory(store):
    room = 2 * JOINT
    kept = run("compare", store.path, room, JOINT)
    assert kept.returncode == 0, kept.stderr
    assert int(kept.stdout) == LAYERS**2
    without = run("compare", store.path, room, 0)
    assert "out of memory" in without.stderr, "the limit limits nothing"


def test_probes_keep_within_their_memory(store):
    room = 3 * FEATURES
    kept = run("probe", store.path, room, FEATURES // 8)
    assert kept.returncode == 0, kept.stderr
    assert int(kept.stdout) == LAYERS + 1
