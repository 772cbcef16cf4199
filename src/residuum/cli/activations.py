"""Commands that write and check activations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from residuum.cli.app import app
from residuum.cli.arguments import column, gigabytes, quiet_libraries
from residuum.cli.estimates import only_estimated
from residuum.cli.options import (
    CorpusPath,
    Device,
    EngineName,
    Estimate,
    Format,
    Fresh,
    Limit,
    MaxLoss,
    MaxMemory,
    ModelName,
    Out,
    Processes,
    Scheduler,
    Seed,
    Split,
)


@app.command()
def extract(
    model: ModelName,
    corpus: CorpusPath,
    out: Annotated[
        str, typer.Option("--out", "-o", help="The folder to write, or an address such as s3://bucket/acts.")
    ],
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
    max_loss: MaxLoss = 0.0,
    random_init: Annotated[bool, typer.Option("--random-init", help="The twin with random weights.")] = False,
    workers: Processes = None,
    engine: EngineName = "local",
    scheduler: Scheduler = None,
    seed: Seed = 0,
    device: Device = "auto",
    text: Annotated[str | None, typer.Option(help="The column of the sentence, in a table.")] = None,
    pair: Annotated[str | None, typer.Option(help="The column of the second sentence, in a table.")] = None,
    format: Format = None,
    split: Split = None,
    limit: Limit = None,
    max_memory: MaxMemory = None,
    estimate: Estimate = False,
    fresh: Fresh = False,
) -> None:
    """Write the activations of every word (or sentence) of a corpus."""
    from residuum.activations.estimates import extract_cost
    from residuum.activations.extraction import extract as run
    from residuum.corpus import read_corpus
    from residuum.engine import opened_engine
    from residuum.models.loading import load_model

    quiet_libraries()
    sentences = read_corpus(corpus, format=format, split=split, limit=limit, text=column(text), pair=column(pair))
    room = gigabytes(max_memory)
    network = load_model(model, random_init=random_init, seed=seed, device=device, attention=attention, max_memory=room)
    settings: dict[str, Any] = {
        "layers": layers,
        "attention": attention,
        "pooling": pooling,
        "dtype": dtype,
        "unit": unit,
        "position": position,
        "batch_tokens": batch_tokens,
        "shard_words": shard_words,
    }
    with opened_engine(engine, workers, scheduler) as where:
        bound = max_memory if estimate else None  # what is not only estimated knows what it holds without measuring
        if only_estimated(estimate, bound, lambda: extract_cost(network, sentences, workers=where, **settings)):
            return
        settings |= {"max_loss": max_loss, "max_memory": room, "fresh": fresh}
        store = run(network, sentences, out, workers=where, **settings)
    left_out = ", ".join(f"{count:,} {what}" for what, count in sentences.skipped.items() if count)
    typer.echo(f"{sentences.name}: {store.audit}" + (f"; not read: {left_out}" if left_out else "") + ".")
    typer.echo(f"{store.n_rows:,} {store.unit}s × {len(store.layers)} layers of {store.name} are in {out}.")


@app.command()
def verify(
    store: Annotated[str, typer.Argument(help="An activation store: a folder or an address.", metavar="STORE")],
) -> None:
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
    max_memory: Annotated[
        float | None, typer.Option(help="Gigabytes that may be held: shards are made to fit, or it is refused.")
    ] = None,
    estimate: Estimate = False,
    fresh: Fresh = False,
) -> None:
    """Turn activations that another program wrote into a store."""
    from residuum.activations.exchange import import_activations, import_cost
    from residuum.corpus import read_corpus

    room = gigabytes(max_memory)
    if estimate:
        typer.echo(str(import_cost(source, max_memory=room)))
        return
    sentences = None if corpus is None else read_corpus(corpus, format=format, split=split)
    store = import_activations(source, out, corpus=sentences, max_memory=room, fresh=fresh)
    typer.echo(f"{store.n_rows:,} words × {len(store.layers)} layers of {store.name} are in {out}.")


@app.command()
def export(
    store: Annotated[str, typer.Argument(help="An activation store: a folder or an address.", metavar="STORE")],
    target: Annotated[str, typer.Argument(help="A .hdf5, .json, .npz or .arrow file to write.", metavar="FILE")],
) -> None:
    """Write a store's activations for another program: NeuroX HDF5 or JSON, npz, Arrow."""
    from residuum.activations.exchange import export_activations
    from residuum.activations.store import ActivationStore

    export_activations(ActivationStore.open(store), target)
    typer.echo(f"{target} is written.")
