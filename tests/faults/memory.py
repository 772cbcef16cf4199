"""Run every command that reads a model where the system itself refuses more memory than `--max-memory` allows.

`python tests/faults/memory.py [--kinds refused,without,kept,line] [NAME …]` prints a line of JSON per run. The model
has 205 MB of weights, nearly all of them embeddings. Every command is run three times, each in a child that is forked
from this process, which has imported everything and computed nothing:

- *refused*: half of the weights are allowed, and no more can be had: it must say so, not fail;
- *without*: the same room and no bound, which shows that the room is really too small;
- *kept*: enough is allowed, and little more can be had (what torch and Python take for themselves): it must end well;
- *line*: a tiny model, and texts of which one line has 100,000 words. `LINE_BYTES` are allowed, and 15 % more can be
  had: it must end well, or refuse by name.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pyarrow
import yaml
from kill import _import_everything, _in_child

sys.path.insert(0, str(Path(__file__).parents[1]))

VOCABULARY, HIDDEN = 800_000, 64
WEIGHTS = 4 * VOCABULARY * HIDDEN  # bytes
REFUSED = WEIGHTS // 2
LINE_WORDS, LINE_BYTES = 100_000, 800_000_000
BESIDE = 200_000_000  # bytes that torch, Python and what is read beside the model may take
QUICK = "--epochs 1 --batch-size 32 --device cpu"


@dataclass(frozen=True)
class Command:
    """A command line, and how many times the weights it is allowed where it shall end well (0: it only is refused)."""

    line: str
    enough: float = 1.5


COMMANDS = {
    "extract": Command("extract {w}/wide {w}/en.conllu --device cpu"),
    "compare": Command("compare {w}/wide --corpus {w}/en.conllu --measures cka --workers 1 --groups 2 --device cpu"),
    "diff": Command(f"diff {{w}}/wide tiny={{w}}/bert --corpus {{w}}/en.conllu --tasks upos --workers 1 {QUICK}"),
    "redundancy": Command(f"redundancy {{w}}/wide {{w}}/en.conllu --task upos {QUICK}"),
    "probe": Command(f"probe {{w}}/wide {{w}}/en.conllu --task upos --no-random-twin {QUICK}"),
    "probe-languages": Command(
        f"probe-languages {{w}}/wide --corpora {{w}}/en.conllu,{{w}}/de.conllu --task upos --no-subsets {QUICK}"
    ),
    "rank": Command(f"rank {{w}}/wide {{w}}/en.conllu --task upos --methods lca,random {QUICK}"),
    "ablate": Command(f"ablate {{w}}/wide {{w}}/en.conllu --task upos --draws 1 {QUICK}"),
    "describe": Command("describe {w}/wide {w}/en.conllu --neurons 1:2 --device cpu"),
    "prune": Command("prune {w}/wide --keep 1 --by cka --corpus {w}/en.conllu --device cpu", 2.5),
    "trim": Command("trim {w}/wide {w}/text.txt", 2.5),
    "transfer": Command("transfer {w}/wide {w}/en.conllu --task upos --device cpu", 2.5),
    "finetune": Command(f"finetune {{w}}/wide {{w}}/en.conllu --task upos {QUICK}", 4.5),
    "adapt": Command(
        "adapt {w}/wide {w}/nli --language tr --task sentence --strategy freeze+0 --epochs 1 "
        "--batch-size 8 --device cpu",
        6,
    ),
    "distill": Command("distill --config {w}/distill.yaml --optimiser steps=2 --text batch_size=2 --device cpu", 12),
    "evaluate retrieval": Command(
        "evaluate retrieval {w}/wide {w}/text.txt --translations {w}/text.txt --layers last --device cpu"
    ),
    "evaluate perplexity": Command("evaluate perplexity {w}/wide {w}/text.txt --device cpu", 3),
    "study": Command("study similarity --models {w}/wide --device cpu", 0),
}


def main() -> None:
    """Run some commands, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="commands; all by default")
    parser.add_argument("--kinds", default="refused,without,kept")
    options = parser.parse_args()
    _import_everything()
    with tempfile.TemporaryDirectory(prefix="residuum-memory-") as folder:
        root = Path(folder)
        if _in_child(lambda: write_world(root), root / "log"):
            raise SystemExit((root / "log").read_text())
        for name in options.names or COMMANDS:
            for kind in options.kinds.split(","):
                if kind not in ("kept", "line") or COMMANDS[name].enough:
                    status, said = attempt(name, kind, root)
                    print(json.dumps({"command": name, "kind": kind, "status": status, "said": said}), flush=True)


def attempt(name: str, kind: str, root: Path) -> tuple[int, str]:
    """Run a command in the room of its kind; gives its exit status and its last words."""
    command = COMMANDS[name]
    enough = int(command.enough * WEIGHTS)
    allowed = {"refused": REFUSED, "without": None, "kept": enough, "line": LINE_BYTES}[kind]
    room = {"kept": enough + BESIDE, "line": LINE_BYTES * 115 // 100}.get(kind, REFUSED)
    world = root / "long" if kind == "line" else root

    def run() -> None:
        from residuum.cli import main as residuum

        pyarrow.array([1])  # for its first number it sets a gigabyte of addresses aside
        pages = int(Path("/proc/self/statm").read_text().split()[5])  # files that are mapped count as none of these
        held = pages * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_DATA, (held + room, held + room))
        bound = [] if allowed is None else ["--max-memory", f"{allowed / 1e9}"]
        out = root / f"{name}-{kind}".replace(" ", "-")
        sys.argv = ["residuum", *command.line.format(w=world).split(), "--out", str(out), *bound]
        residuum()

    status = _in_child(run, root / "log")
    return status, " ".join((root / "log").read_text(errors="replace").split())[-600:]


def write_world(root: Path) -> None:
    """A model of many weights, one of few, and something to read."""
    import torch
    import transformers as hf

    from made_stores import conllu, known_data
    from residuum.samples import sample_text
    from teachers import save_teacher
    from tiny import TEXT, WINDOW, build_tokenizer, save_model

    tokenizer = build_tokenizer("wordpiece")
    sizes = {"hidden_size": HIDDEN, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": HIDDEN}
    torch.manual_seed(0)
    config = hf.BertConfig(vocab_size=VOCABULARY, max_position_embeddings=WINDOW, pad_token_id=0, **sizes)
    hf.BertForMaskedLM(config).save_pretrained(root / "wide")
    tokenizer.save_pretrained(root / "wide")
    save_model("bert", root / "bert")
    save_teacher("bert", root / "long" / "wide")
    save_model("bert", root / "long" / "bert")
    data = known_data(40)
    words, tags = ([row[i % len(row)] for i in range(LINE_WORDS)] for row in (data.sentences[0], data.tags[0]))
    for folder, sentences, labels, lines in (
        (root, data.sentences, data.tags, TEXT),
        (root / "long", [*data.sentences, words], [*data.tags, tags], [*TEXT, " ".join(words)]),
    ):
        for language in ("en", "de"):
            (folder / f"{language}.conllu").write_text(conllu(sentences, labels))
        (folder / "text.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (folder / "nli").mkdir()
        for name, language, split in (("train-en", "en", "train"), ("dev-en", "en", "dev"), ("dev-tr", "tr", "dev")):
            text = sample_text("nli", language=language, size=24, split=split)
            (folder / "nli" / f"{name}.tsv").write_text(text, encoding="utf-8")
        texts = {"en": str(folder / "text.txt"), "tr": str(folder / "text.txt")}
        distillation = {"teacher": str(folder / "wide"), "texts": texts, "preset": "monoshot", "text": {"held_out": 2}}
        (folder / "distill.yaml").write_text(yaml.safe_dump(distillation))


if __name__ == "__main__":
    main()
