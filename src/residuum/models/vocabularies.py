"""Cut a vocabulary down to the pieces that a text uses: the tokenizer reads that text as before.

- Unigram: the best path of a text uses kept pieces only, so it stays the best of fewer paths. The piece of lowest score
  is kept too, since the score of an unknown character is set by it.
- BPE: every merge that makes a kept piece is kept with its parts, so each merge that the text takes is still there, in
  the same order. Single bytes are always kept.
- WordPiece: the longest match of a text is kept, so it stays the longest.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from residuum.errors import CorpusError, ModelError
from residuum.storage.files import clear_disk_errors

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

KINDS = ("Unigram", "BPE", "WordPiece")
LINES_AT_ONCE = 1000
TOKEN_LISTS = ("bad_words_ids", "force_words_ids", "suppress_tokens", "begin_suppress_tokens")
"""Settings of generation that hold token ids."""


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The kept pieces: `kept[new id]` is the old id, ascending; `tokenizer` writes new ids."""

    kept: np.ndarray
    tokenizer: PreTrainedTokenizerBase
    fallback: str  # what a character without a piece becomes: "bytes" or "unknown"

    def new_ids(self, old_size: int) -> np.ndarray:
        """New id of each old one; the unknown piece (or, without one, the padding) stands for what was cut."""
        unknown = next((i for i in (self.tokenizer.unk_token_id, self.tokenizer.pad_token_id) if i is not None), 0)
        ids = np.full(old_size, unknown, dtype=np.int64)
        ids[self.kept] = np.arange(len(self.kept))
        return ids


def count_pieces(tokenizer: PreTrainedTokenizerBase, lines: Iterable[str]) -> np.ndarray:
    """How often each piece occurs in a text, by id."""
    counts = np.zeros(len(tokenizer), dtype=np.int64)
    empty = True
    for block in _blocks(lines):
        empty = False
        encoded: Any = tokenizer(block, add_special_tokens=False, verbose=False)["input_ids"]
        ids = [i for sentence in encoded for i in sentence]
        counts += np.bincount(np.asarray(ids, dtype=np.int64), minlength=len(counts))
    if empty:
        raise CorpusError("There is no line of text to take a vocabulary from; expected at least one.")
    return counts


def cut_vocabulary(
    tokenizer: PreTrainedTokenizerBase, counts: np.ndarray, minimum_count: int = 1, always: Sequence[str] = ()
) -> Vocabulary:
    """Keep the pieces that occur at least `minimum_count` times, and what the tokenizer cannot do without.

    Texts that are `always` read, such as the prompts of a sentence-transformers model, keep all of their pieces.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ModelError(f"{type(tokenizer).__name__} is not a fast tokenizer; only those can be trimmed.")
    state = json.loads(backend.to_str())
    model = state["model"]
    if model.get("type") not in KINDS:
        raise ModelError(f"The tokenizer's model is {model.get('type')}; only {', '.join(KINDS)} can be trimmed.")
    if model["type"] == "Unigram":
        pieces = {piece: i for i, (piece, _) in enumerate(model["vocab"])}
    else:
        pieces = dict(model["vocab"])
    needed = count_pieces(tokenizer, always) if always else np.zeros_like(counts)
    wanted = {piece for piece, i in pieces.items() if counts[i] >= minimum_count or needed[i]}
    wanted |= {token["content"] for token in state["added_tokens"]} | set(tokenizer.all_special_tokens)
    wanted |= _indispensable(state, pieces)
    if state["model"]["type"] == "BPE":
        wanted = _parts(state["model"], wanted)
    ids = {**pieces, **{token["content"]: token["id"] for token in state["added_tokens"]}}
    kept = np.array(sorted({ids[piece] for piece in wanted if piece in ids}))
    fallback = "bytes" if _keeps_bytes(state) else "unknown"
    return Vocabulary(kept, _rebuilt(tokenizer, _cut_state(state, kept)), fallback)


def cut_model(model: PreTrainedModel, vocabulary: Vocabulary) -> PreTrainedModel:
    """The same model with only the embeddings (and output rows) of the kept pieces."""
    import copy

    import torch

    config = copy.deepcopy(model.config)
    old_size, config.vocab_size = config.vocab_size, len(vocabulary.kept)
    if vocabulary.kept.max() >= old_size:
        raise ModelError(
            f"The tokenizer has a piece {vocabulary.kept.max()}; the model has only {old_size} embeddings."
        )
    new_ids = vocabulary.new_ids(old_size)
    for name, value in config.to_dict().items():
        if name.endswith("_token_id"):
            setattr(config, name, _with_new_ids(value, new_ids))
    with torch.random.fork_rng(devices=[]):
        small: Any = type(model)(config)
    if hasattr(small, "pooler") and getattr(model, "pooler", None) is None:
        small.pooler = None  # taken off when the weights of a model lack it
    rows, shapes = torch.from_numpy(vocabulary.kept), {key: value.shape for key, value in small.state_dict().items()}
    weights = dict(model.state_dict())
    for key, value in weights.items():
        if value.shape != shapes[key]:  # the axis of another length is the vocabulary; biases of pairs have it second
            axis = next(i for i, size in enumerate(value.shape) if size != shapes[key][i])
            weights[key] = value.index_select(axis, rows.to(value.device))
    small.load_state_dict(weights)
    small.tie_weights()
    if model.can_generate():
        small.generation_config = copy.deepcopy(model.generation_config)
        for name, value in small.generation_config.to_dict().items():
            if name.endswith("_token_id") or name in TOKEN_LISTS:
                setattr(small.generation_config, name, _with_new_ids(value, new_ids))
    return small.eval()


def _with_new_ids(ids: Any, new_ids: np.ndarray) -> Any:
    """A setting that holds a token id, or lists of them, for the new vocabulary."""
    if isinstance(ids, list):
        return [_with_new_ids(i, new_ids) for i in ids]
    return int(new_ids[ids]) if isinstance(ids, int) and 0 <= ids < len(new_ids) else ids


def changed_lines(before: PreTrainedTokenizerBase, vocabulary: Vocabulary, lines: Iterable[str]) -> int:
    """How many lines the new tokenizer splits in another way than the old one did."""
    changed = 0
    for block in _blocks(lines):
        old: Any = before(block, add_special_tokens=False, verbose=False)["input_ids"]
        new: Any = vocabulary.tokenizer(block, add_special_tokens=False, verbose=False)["input_ids"]
        changed += sum(vocabulary.kept[b].tolist() != a for a, b in zip(old, new, strict=True))
    return changed


def _blocks(lines: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(lines)
    while block := list(islice(rest, LINES_AT_ONCE)):
        yield block


def _keeps_bytes(state: dict[str, Any]) -> bool:
    """Whether every character can be written in bytes: byte-level pieces, or byte fallback."""
    parts = [state.get("pre_tokenizer") or {}]
    parts += parts[0].get("pretokenizers", [])
    return bool(state["model"].get("byte_fallback")) or any(part.get("type") == "ByteLevel" for part in parts)


def _indispensable(state: dict[str, Any], pieces: dict[str, int]) -> set[str]:
    """What must be kept whatever the text uses."""
    model = state["model"]
    kept = {model["unk_token"]} if model.get("unk_token") else set()
    if model.get("byte_fallback"):
        kept |= {piece for piece in pieces if piece.startswith("<0x") and piece.endswith(">")}
    if model["type"] == "Unigram":
        unknown = model.get("unk_id")
        kept |= set() if unknown is None else {model["vocab"][unknown][0]}
        kept.add(min(model["vocab"], key=lambda entry: entry[1])[0])
    if model["type"] == "BPE" and _keeps_bytes(state):
        kept |= {piece for piece in pieces if len(piece) == 1}
    return kept


def _parts(model: dict[str, Any], wanted: set[str]) -> set[str]:
    """The pieces from which BPE merges the wanted ones, and theirs, down to characters."""
    makers: dict[str, list[str]] = {}
    prefix = model.get("continuing_subword_prefix") or ""
    for left, right in map(_merge, model["merges"]):
        makers.setdefault(left + right.removeprefix(prefix), []).extend((left, right))
    found, rest = set(wanted), list(wanted)
    while rest:
        new = [part for part in makers.get(rest.pop(), ()) if part not in found]
        found.update(new)
        rest += new
    return found


def _merge(entry: str | list[str]) -> tuple[str, str]:
    """A merge, which older files write as one text with a space between its parts."""
    left, right = entry.split(" ") if isinstance(entry, str) else entry
    return left, right


def _cut_state(state: dict[str, Any], kept: np.ndarray) -> dict[str, Any]:
    """The tokenizer's own description with fewer pieces and new ids."""
    new = {int(old): i for i, old in enumerate(kept)}
    tokens = [{**token, "id": new[token["id"]]} for token in state["added_tokens"]]
    padding = state.get("padding")
    if padding:
        padding = {**padding, "pad_id": new[padding["pad_id"]]}
    processor = _renumbered(state.get("post_processor"), new)
    return {
        **state,
        "added_tokens": tokens,
        "padding": padding,
        "post_processor": processor,
        "model": _cut_pieces(state["model"], new),
    }


def _cut_pieces(model: dict[str, Any], new: dict[int, int]) -> dict[str, Any]:
    if model["type"] == "Unigram":
        vocab = [entry for i, entry in enumerate(model["vocab"]) if i in new]
        return {**model, "vocab": vocab, "unk_id": None if model["unk_id"] is None else new[model["unk_id"]]}
    vocab = {piece: new[i] for piece, i in model["vocab"].items() if i in new}
    if model["type"] == "WordPiece":
        return {**model, "vocab": vocab}
    prefix = model.get("continuing_subword_prefix") or ""
    merges = [pair for pair in map(_merge, model["merges"]) if pair[0] + pair[1].removeprefix(prefix) in vocab]
    return {**model, "vocab": vocab, "merges": [pair for pair in merges if pair[0] in vocab and pair[1] in vocab]}


def _renumbered(processor: Any, new: dict[int, int]) -> Any:
    """A post-processor with new ids: they stand in `ids` lists and in pairs such as ["</s>", 2]."""
    if isinstance(processor, dict):
        return {
            key: [new[i] for i in value] if key == "ids" else _renumbered(value, new)
            for key, value in processor.items()
        }
    if isinstance(processor, list) and len(processor) == 2 and isinstance(processor[0], str):
        return [processor[0], new[processor[1]]] if isinstance(processor[1], int) else processor
    return [_renumbered(part, new) for part in processor] if isinstance(processor, list) else processor


def _rebuilt(tokenizer: PreTrainedTokenizerBase, state: dict[str, Any]) -> PreTrainedTokenizerBase:
    """The tokenizer that its files, with another tokenizer.json, give."""
    from transformers import PreTrainedTokenizerFast

    with tempfile.TemporaryDirectory(prefix="residuum-") as folder, clear_disk_errors(Path(folder)):
        tokenizer.save_pretrained(folder)
        for path in Path(folder).iterdir():  # older files would bring the old pieces back
            if path.name not in ("tokenizer_config.json", "special_tokens_map.json"):
                path.unlink()
        (Path(folder) / "tokenizer.json").write_text(json.dumps(state, ensure_ascii=False), encoding="utf-8")
        path = Path(folder) / "tokenizer_config.json"
        config = json.loads(path.read_text(encoding="utf-8"))
        for key in ("added_tokens_decoder", "tokenizer_class", "auto_map"):
            config.pop(key, None)  # a list of added tokens by old ids; tokenizer.json has them all
        path.write_text(json.dumps(config, ensure_ascii=False), encoding="utf-8")
        rebuilt = PreTrainedTokenizerFast.from_pretrained(folder)
    rebuilt.model_max_length = tokenizer.model_max_length
    return rebuilt
