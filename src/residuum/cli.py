"""The command line: one function a command, each a thin call of the Python function of the same name.

Nothing heavy is imported before a command runs, so that `residuum --help` answers at once.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from residuum import __version__
from residuum.errors import ResiduumError

app = typer.Typer(
    name="residuum",
    help="Find what a transformer repeats, and keep only what it needs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)

ModelName = Annotated[str, typer.Argument(help="A model folder, a .gguf file or a hub name.", metavar="MODEL")]
CorpusPath = Annotated[
    str,
    typer.Argument(help="A treebank, column file, table, text file, folder of splits or hub name.", metavar="CORPUS"),
]
Out = Annotated[Path, typer.Option("--out", "-o", help="The folder to write.")]
Format = Annotated[str | None, typer.Option(help="The corpus' format, where its name does not tell.")]
Split = Annotated[str | None, typer.Option(help="Which part of the corpus: train, dev or test.")]
Limit = Annotated[int | None, typer.Option(help="Read only the first sentences.", min=1)]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
Seed = Annotated[int, typer.Option(help="Draws everything that is random.")]
Workers = Annotated[int | None, typer.Option(help="Processes on this machine; all cores by default.", min=1)]
Fresh = Annotated[bool, typer.Option("--fresh", help="Start over, whatever the folder holds.")]


class Interrupted(BaseException):
    """Ctrl-C, under a name that no library on the way catches."""


def main() -> None:
    """Run the command line; a user's mistake is one line on standard error and exit status 1."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    signal.signal(signal.SIGINT, _interrupt)
    try:
        app()
    except ResiduumError as error:
        _fail(str(error))
    except Interrupted:
        _fail("Interrupted. What was finished is kept; the same command goes on from there.")
    except MemoryError:
        _fail("Out of memory. Use fewer layers (--layers), a smaller --batch-tokens or a corpus with --limit.")


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"residuum {__version__}")
        raise typer.Exit


@app.command()
def extract(
    model: ModelName,
    corpus: CorpusPath,
    out: Out,
    layers: Annotated[str, typer.Option(help="'all', 'last' or numbers such as 0,4-6; 0 is the embeddings.")] = "all",
    pooling: Annotated[
        Literal["last", "first", "mean", "max"], typer.Option(help="A word from its sub-words.")
    ] = "last",
    unit: Annotated[Literal["word", "sentence"], typer.Option(help="What a row is.")] = "word",
    position: Annotated[
        Literal["auto", "cls", "last", "mean"], typer.Option(help="Which token stands for a sentence.")
    ] = "auto",
    attention: Annotated[bool, typer.Option("--attention", help="Keep word-by-word attention too.")] = False,
    dtype: Annotated[
        Literal["float32", "float16", "bfloat16"], typer.Option(help="How numbers are stored.")
    ] = "float32",
    batch_tokens: Annotated[int, typer.Option(help="Tokens per batch.", min=1)] = 1024,
    shard_words: Annotated[int, typer.Option(help="Words per file.", min=1)] = 4096,
    max_loss: Annotated[float, typer.Option(help="Share of words that may go without a representation.")] = 0.0,
    random_init: Annotated[bool, typer.Option("--random-init", help="The twin with random weights.")] = False,
    seed: Seed = 0,
    device: Device = "auto",
    text: Annotated[str | None, typer.Option(help="The column of the sentence, in a table.")] = None,
    pair: Annotated[str | None, typer.Option(help="The column of the second sentence, in a table.")] = None,
    format: Format = None,
    split: Split = None,
    limit: Limit = None,
    fresh: Fresh = False,
) -> None:
    """Write the activations of every word (or sentence) of a corpus."""
    from residuum.activations.extraction import extract as run
    from residuum.corpus import read_corpus
    from residuum.models import load_model

    _quiet()
    sentences = read_corpus(corpus, format=format, split=split, limit=limit, text=_column(text), pair=_column(pair))
    network = load_model(model, random_init=random_init, seed=seed, device=device, attention=attention)
    store = run(
        network,
        sentences,
        out,
        layers=layers,
        attention=attention,
        pooling=pooling,
        dtype=dtype,
        unit=unit,
        position=position,
        batch_tokens=batch_tokens,
        shard_words=shard_words,
        max_loss=max_loss,
        fresh=fresh,
    )
    left_out = ", ".join(f"{count:,} {what}" for what, count in sentences.skipped.items() if count)
    typer.echo(f"{sentences.name}: {store.audit}" + (f"; not read: {left_out}" if left_out else "") + ".")
    typer.echo(f"{store.n_rows:,} {store.unit}s × {len(store.layers)} layers of {store.name} are in {out}.")


@app.command()
def compare(
    sources: Annotated[list[str], typer.Argument(help="Activation stores; or models, with --corpus.", metavar="A B …")],
    out: Out,
    measures: Annotated[str, typer.Option(help="paper, attention, all, or names separated by commas.")] = "paper",
    corpus: Annotated[str | None, typer.Option(help="The text that models read; stores have their own.")] = None,
    random_twins: Annotated[
        bool, typer.Option("--random-twins", help="Add a twin with random weights for every model.")
    ] = False,
    groups: Annotated[int, typer.Option(help="Groups of sentences for the jackknife.", min=1)] = 10,
    intervals: Annotated[bool, typer.Option(help="Whether to compute intervals.")] = True,
    null: Annotated[bool, typer.Option("--null", help="Add each value's counterpart under permuted words.")] = False,
    top_k: Annotated[int | None, typer.Option(help="Average only the k most similar neurons.", min=1)] = None,
    variance: Annotated[float | None, typer.Option(help="Share of variance that SVCCA and PWCCA keep.")] = None,
    sample: Annotated[int, typer.Option(help="Words for rsa, knn and cka_rbf.", min=4)] = 1000,
    max_memory: Annotated[float | None, typer.Option(help="Gigabytes for sums; less means more passes.")] = None,
    workers: Workers = None,
    seed: Seed = 0,
    device: Device = "auto",
    format: Format = None,
    split: Split = None,
    limit: Limit = None,
    fresh: Fresh = False,
) -> None:
    """Measure how alike all layers of some models are, with intervals."""
    from residuum.comparison.comparing import ATTENTION, chosen_measures
    from residuum.comparison.comparing import compare as run
    from residuum.corpus import read_corpus
    from residuum.models import load_model

    _quiet()
    things: list[Any] = list(sources)
    text = None
    if corpus is not None:
        text = read_corpus(corpus, format=format, split=split, limit=limit)
        attention = bool(set(chosen_measures(measures)) & set(ATTENTION))
        twins = (False, True) if random_twins else (False,)
        things = [
            load_model(source, random_init=twin, seed=seed, device=device, attention=attention)
            for source in sources
            for twin in twins
        ]
    options = {name: value for name, value in {"top_k": top_k, "variance": variance}.items() if value is not None}
    result = run(
        things,
        text,
        measures=measures,
        out=out,
        groups=groups,
        intervals=intervals,
        null=null,
        sample=sample,
        seed=seed,
        workers=workers,
        max_memory=None if max_memory is None else int(max_memory * 1e9),
        fresh=fresh,
        **options,
    )
    for key, value in result.run.summary.items():
        typer.echo(f"{key}: {value:,}" if isinstance(value, int) else f"{key}: {value}")
    typer.echo(f"{len(result.frame):,} values of {result.frame['measure'].nunique()} measures are in {out}.")


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders that other commands wrote.", metavar="RUN …")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The HTML file to write.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="What stands at the top.")] = None,
) -> None:
    """Draw what other commands measured: one HTML page that needs nothing else."""
    from residuum.reports import report as run

    typer.echo(f"{run(runs, out, title=title)} is written.")


@app.command()
def demo(out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write.")] = Path("demo")) -> None:
    """Run the main job on what ships with the package, and write one report."""
    from residuum.studies.demo import demo as run

    _quiet()
    page = run(out, say=typer.echo)
    typer.echo(f"Open {page.resolve()} in a browser.")


@app.command()
def sample(
    task: Annotated[str, typer.Argument(help="treebank, ner, nli, copa, translation, polarity, tense or text.")],
    language: Annotated[str, typer.Option(help="en, de, tr or sw; for translation a pair such as tr-en.")] = "en",
    size: Annotated[int, typer.Option(help="How many sentences or examples.", min=1)] = 1000,
    split: Annotated[Literal["train", "dev", "test"], typer.Option(help="Meanings of one are in no other.")] = "train",
    disjoint_lexemes: Annotated[
        bool, typer.Option("--disjoint-lexemes", help="Content words of one split are in no other.")
    ] = False,
    seed: Seed = 0,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file to write; standard output by default.")
    ] = None,
) -> None:
    """Write parallel sample data whose truth is known: the same seed says the same things in every language."""
    from residuum.files import whole_file
    from residuum.samples import sample_text

    text = sample_text(task, language=language, size=size, seed=seed, split=split, disjoint_lexemes=disjoint_lexemes)
    if out is None:
        typer.echo(text, nl=False)
        return
    with whole_file(out) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
    typer.echo(f"{out} is written.")


@app.command()
def verify(store: Annotated[Path, typer.Argument(help="An activation store.", metavar="DIR")]) -> None:
    """Read every file of a store again and check it against its manifest."""
    from residuum.activations.store import ActivationStore

    opened = ActivationStore.open(store)
    faults = opened.verify()
    for fault in faults:
        typer.echo(f"residuum: {fault}", err=True)
    if faults:
        raise typer.Exit(1)
    typer.echo(f"{store} is whole: {len(opened.manifest.shards)} shards, {opened.n_rows:,} {opened.unit}s.")


@app.command("import")
def import_(
    source: Annotated[Path, typer.Argument(help="NeuroX .hdf5 or .json, .npz, .arrow or .feather.", metavar="FILE")],
    out: Out,
    corpus: Annotated[str | None, typer.Option(help="The corpus whose words the activations belong to.")] = None,
    format: Format = None,
    split: Split = None,
    fresh: Fresh = False,
) -> None:
    """Turn activations that another program wrote into a store."""
    from residuum.activations.exchange import import_activations
    from residuum.corpus import read_corpus

    sentences = None if corpus is None else read_corpus(corpus, format=format, split=split)
    store = import_activations(source, out, corpus=sentences, fresh=fresh)
    typer.echo(f"{store.n_rows:,} words × {len(store.layers)} layers of {store.name} are in {out}.")


@app.command()
def export(
    store: Annotated[Path, typer.Argument(help="An activation store.", metavar="DIR")],
    target: Annotated[Path, typer.Argument(help="A .hdf5, .json, .npz or .arrow file to write.", metavar="FILE")],
) -> None:
    """Write a store's activations for another program: NeuroX HDF5 or JSON, npz, Arrow."""
    from residuum.activations.exchange import export_activations
    from residuum.activations.store import ActivationStore

    export_activations(ActivationStore.open(store), target)
    typer.echo(f"{target} is written.")


def _interrupt(*_: object) -> None:
    raise Interrupted


def _fail(message: str) -> None:
    print(f"residuum: {message}", file=sys.stderr)
    raise SystemExit(1)


def _quiet() -> None:
    """Keep other libraries' progress bars and notices off the screen."""
    import warnings

    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    warnings.filterwarnings("ignore")


def _column(name: str | None) -> Any:
    """A column's name, or its number in a file without a header."""
    return int(name) if name is not None and name.isdecimal() else name
