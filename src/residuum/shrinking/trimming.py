"""`trim`: a model without the vocabulary that some texts do not use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from residuum.corpus.streams import text_fingerprint, text_lines
from residuum.costs import Cost, Step, timed
from residuum.errors import SettingError
from residuum.models.vocabularies import Vocabulary, changed_lines, count_pieces, cut_model, cut_vocabulary
from residuum.storage.results import Result, Run, finished_run, write_run

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from transformers import PreTrainedModel

FIRST_LINES = 5000
"""Lines that are split to time the rest."""


@dataclass(frozen=True, eq=False)
class Trimmed(Result):
    """A trimmed model's run: what was kept and what it saved. The model itself is the run's folder."""

    run: Run
    folder: Path

    @property
    def frame(self) -> pd.DataFrame:
        """Each kept piece, as `pieces` has them."""
        return self.run.tables["pieces"]

    @property
    def pieces(self) -> pd.DataFrame:
        """Each kept piece: its old and new id and how often the texts use it."""
        return self.run.tables["pieces"]


def trim(
    model: str | Path,
    texts: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    minimum_count: int = 1,
    fresh: bool = False,
) -> Trimmed:
    """Write `model` with only the pieces that the texts use (at least `minimum_count` times) into the folder `out`.

    The texts (files, .gz, .xz, folders, hub names) are split as before, which is checked line by line; the folder
    loads with plain `from_pretrained` and has its own tokenizer.
    """
    from residuum.models.loading import weights_fingerprint
    from residuum.models.surgery import check_elsewhere, check_written, load_whole, save_whole

    check_elsewhere(model, out)
    sources = [texts] if isinstance(texts, str | Path) else list(texts)
    if not sources:
        raise SettingError("No text was given; trimming needs the texts whose pieces shall be kept.")
    network, tokenizer = load_whole(model)
    config = {
        "model": f"{Path(model).name} {weights_fingerprint(network)}",
        "texts": [str(source) for source in sources],
        "fingerprints": [text_fingerprint(source) for source in sources],
        "minimum_count": minimum_count,
    }
    if run := finished_run(out, "trim", config, fresh=fresh):
        check_written(Path(out))
        return Trimmed(run, Path(out))
    counts = count_pieces(tokenizer, _lines(sources))
    vocabulary = cut_vocabulary(tokenizer, counts, minimum_count)
    small = cut_model(network, vocabulary)
    changed = changed_lines(tokenizer, vocabulary, _lines(sources))
    save_whole(small, vocabulary.tokenizer, out)
    summary = trimming_summary(network, small, vocabulary, changed)
    run = Run("trim", config, summary, {"pieces": piece_table(vocabulary, counts)})
    write_run(out, run)
    return Trimmed(run, Path(out))


def trim_cost(model: str | Path, texts: str | Path | Sequence[str | Path], *, minimum_count: int = 1) -> Cost:
    """What `trim` would take: pieces are counted and lines compared in the first ones, and the others only counted."""
    from residuum.models.surgery import load_whole

    sources = [texts] if isinstance(texts, str | Path) else list(texts)
    network, tokenizer = load_whole(model)
    lines: list[str] = []
    n_lines = 0
    for n_lines, line in enumerate(_lines(sources), 1):
        if n_lines <= FIRST_LINES:
            lines.append(line)
    counts: list[np.ndarray] = []
    counting = timed(lambda: counts.append(count_pieces(tokenizer, lines)))
    vocabulary = cut_vocabulary(tokenizer, counts[0], minimum_count)
    comparing = timed(lambda: changed_lines(tokenizer, vocabulary, lines))
    more, weights = n_lines / max(1, len(lines)), 4 * network.num_parameters()
    steps = (
        Step("counting pieces", counting * more, memory=weights),
        Step("smaller model", timed(lambda: cut_model(network, vocabulary)), memory=2 * weights, disk=weights),
        Step("comparing lines", comparing * more, memory=2 * weights),
    )
    return Cost(f"{Path(model).name}: {n_lines:,} lines", steps)


def trimming_summary(
    network: PreTrainedModel, small: PreTrainedModel, vocabulary: Vocabulary, changed: int
) -> dict[str, Any]:
    """Parameters and pieces before and after."""
    before, after = network.num_parameters(), small.num_parameters()
    return {
        "pieces before": network.config.vocab_size,
        "pieces after": len(vocabulary.kept),
        "parameters before": before,
        "parameters after": after,
        "parameters saved": before - after,
        "share saved": round(1 - after / before, 4),
        "characters without a piece become": vocabulary.fallback,
        "lines split in another way": changed,
    }


def piece_table(vocabulary: Vocabulary, counts: np.ndarray) -> pd.DataFrame:
    """piece, old id, new id, count."""
    import pandas as pd

    new = range(len(vocabulary.kept))
    return pd.DataFrame(
        {
            "piece": vocabulary.tokenizer.convert_ids_to_tokens(list(new)),
            "old_id": vocabulary.kept,
            "new_id": list(new),
            "count": counts[vocabulary.kept],
        }
    )


def _lines(sources: Iterable[str | Path]) -> Iterator[str]:
    return (text for source in sources for _, text in text_lines(source))
