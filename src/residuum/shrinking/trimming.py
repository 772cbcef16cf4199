"""`trim`: a model without the vocabulary that some texts do not use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd

from residuum.corpus.streams import TextOptions, text_fingerprint, text_lines
from residuum.errors import SettingError
from residuum.models.cards import check_hub, plain, push_to_hub, write_card
from residuum.models.loading import check_weights, weights_fingerprint
from residuum.models.sentences import lines_as_read, read_sentence_layout
from residuum.models.surgery import check_elsewhere, check_written, load_whole, save_whole, to_stored_precision
from residuum.models.vocabularies import changed_lines, count_pieces, cut_model, cut_vocabulary
from residuum.settings import command
from residuum.shrinking.planning import Sample
from residuum.shrinking.pruning import stage_row
from residuum.shrinking.settings import TrimSettings
from residuum.storage.results import Result, Run, finished_run, write_run

SHOWN = 256
"""Lines on which both models are compared."""


@dataclass(frozen=True, eq=False)
class Trimming(Result):
    """A trimmed model: its folder, the tokens that it kept, and what that saved."""

    run: Run
    folder: Path

    @property
    def frame(self) -> pd.DataFrame:
        """Each kept token: its old and new id, and how often the texts use it."""
        return self.run.tables["pieces"]

    def text(self) -> str:
        """What was kept and saved."""
        summary = self.run.summary
        return (
            f"{summary['pieces after']:,} of {summary['pieces before']:,} tokens are kept, which saves "
            f"{summary['parameters saved']:,} parameters ({summary['share saved']:.0%}).\n"
            f"Characters without a token become {summary['characters without a piece become']}. "
            f"{summary['lines split in another way']:,} lines are split differently. The model is in {self.folder}."
        )


@command(TrimSettings)
def trim(settings: TrimSettings) -> Trimming:
    """Write `model` with only the tokens that the texts use (at least `minimum` times) into the folder `out`.

    The texts (plain, .gz, .xz, JSON lines, parquet, folders, hub names) are split as before, which is checked line by
    line. The folder loads with plain `from_pretrained` and has its own tokenizer.
    """
    model, out, sources = settings.model, Path(settings.out), settings.texts
    check_elsewhere(model, out)
    check_hub(settings.push_to_hub)
    if not sources:
        raise SettingError("No text was given; trimming needs the texts whose tokens are kept.")
    check_weights([model], settings.max_memory, settings.precision)
    network, tokenizer = load_whole(model, precision=settings.precision)
    options = TextOptions(**settings.reading)
    config = {
        "model": f"{Path(model).name} {weights_fingerprint(network)}",
        "texts": [str(source) for source in sources],
        "fingerprints": [text_fingerprint(source, options) for source in sources],
        **settings.identity(),
    }
    if run := finished_run(out, "trim", config, fresh=settings.fresh):
        check_written(out)
        push_to_hub(out, settings.push_to_hub)
        return Trimming(run, out)
    layout = read_sentence_layout(model)
    counts = count_pieces(tokenizer, lines_as_read(_lines(sources, options), layout))
    prompts = [] if layout is None else layout.prompt_texts
    vocabulary = cut_vocabulary(tokenizer, counts, settings.minimum, prompts)
    small = cut_model(network, vocabulary)
    changed = changed_lines(tokenizer, vocabulary, lines_as_read(_lines(sources, options), layout))
    shown = list(islice(_lines(sources, options), SHOWN))
    stages = _stages(model, (network, tokenizer), (small, vocabulary.tokenizer), shown)
    to_stored_precision(small, model)
    save_whole(small, vocabulary.tokenizer, out, source=model)
    before, after, ids = network.num_parameters(), small.num_parameters(), range(len(vocabulary.kept))
    summary = {
        "pieces before": network.config.vocab_size,
        "pieces after": len(vocabulary.kept),
        "parameters before": before,
        "parameters after": after,
        "parameters saved": before - after,
        "share saved": round(1 - after / before, 4),
        "characters without a piece become": vocabulary.fallback,
        "lines split in another way": changed,
    }
    columns = {
        "piece": vocabulary.tokenizer.convert_ids_to_tokens(list(ids)),
        "old_id": vocabulary.kept,
        "new_id": list(ids),
        "count": counts[vocabulary.kept],
    }
    run = Run("trim", config, summary, {"pieces": pd.DataFrame(columns), "stages": stages})
    trimming = Trimming(run, out)
    texts = "\n".join(f"- {plain(Path(source).name if Path(source).exists() else str(source))}" for source in sources)
    limits = "Text of other languages or topics is split into smaller tokens, or becomes unknown."
    sections = {"": trimming.text().partition(" The model is in")[0], "Texts": texts, "Limits": limits}
    write_card(out, f"{Path(model).name}, trimmed", sections, source=model, tags=["vocabulary-trimming"])
    write_run(out, run)
    push_to_hub(out, settings.push_to_hub)
    return trimming


def _stages(model: Any, before: Any, after: Any, lines: list[str]) -> pd.DataFrame:
    """Size and quality of both models, each with its own tokenizer, on the first lines of the texts."""
    samples: list[Any] = [None, None]
    if not before[0].config.is_encoder_decoder:  # which has no one vector of a sentence
        samples = [Sample.of(network, tokenizer, lines, model) for network, tokenizer in (before, after)]
    vectors = samples[0].vectors(before[0]) if samples[0] else None
    named = zip(("original", "trimmed"), (before, after), samples, strict=True)
    rows = [
        stage_row(stage, network, sample, vectors) | {"pieces": len(tokenizer)}
        for stage, (network, tokenizer), sample in named
    ]
    return pd.DataFrame(rows)


def _lines(sources: Iterable[str | Path], options: TextOptions) -> Iterator[str]:
    return (text for source in sources for _, text in text_lines(source, options))
