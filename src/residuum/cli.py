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
from residuum.errors import ResiduumError, SettingError

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

SourceName = Annotated[
    str,
    typer.Argument(
        help="A model, an activation store, or a folder with the stores train, dev and test.", metavar="SOURCE"
    ),
]
TaskName = Annotated[
    str,
    typer.Option(
        help="upos, xpos, deprel, chunk, ner, sem, ccg, a UD feature such as Number, or a sentence task: sst2, mrpc, "
        "stsb, qqp, mnli, qnli, rte, sentence, regression."
    ),
]
Dev = Annotated[Path | None, typer.Option(help="The development part, where CORPUS is the training part alone.")]
Test = Annotated[Path | None, typer.Option(help="The test part, where CORPUS is the training part alone.")]
Layers = Annotated[str, typer.Option(help="'all', 'last' or numbers such as 0,4-6; 0 is the embeddings.")]
Seeds = Annotated[int, typer.Option(help="How often each probe is trained, each time from other weights.", min=1)]
Epochs = Annotated[int, typer.Option(help="How often a probe sees the training part.", min=1)]
BatchSize = Annotated[int, typer.Option(help="Words (or sentences) per step of a probe.", min=1)]
LearningRate = Annotated[float, typer.Option(help="Of Adam, for probes.")]
Standardize = Annotated[bool, typer.Option("--standardize", help="Give each neuron mean 0 and deviation 1 first.")]
Norm = Annotated[
    Literal["squared", "published"], typer.Option(help="λ2‖θ‖², as the papers write, or λ2‖θ‖, as their code does.")
]
HeldMemory = Annotated[float, typer.Option(help="Gigabytes of activations held at once; more is read in windows.")]
Activations = Annotated[
    Path | None, typer.Option(help="Where a model's activations are kept; in OUT by default. Runs may share it.")
]


evaluate_app = typer.Typer(
    help="Measure how well models align languages, or predict text.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(evaluate_app, name="evaluate")

study_app = typer.Typer(help="Run the whole chain of one paper.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(study_app, name="study")


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
def redundancy(
    source: SourceName,
    out: Out,
    corpus: Annotated[
        str | None, typer.Argument(help="What a model reads, and what has the labels of a task.", metavar="CORPUS")
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(help="Find also what this task needs: upos, chunk, a UD feature, sst2, … (see `probe`)."),
    ] = None,
    dev: Dev = None,
    test: Test = None,
    layers: Layers = "all",
    thresholds: Annotated[
        str, typer.Option(help="Where clusters are cut: neurons this far apart on average, 1 − |corr|, count as one.")
    ] = "0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9",
    representatives: Annotated[
        Literal["random", "medoid", "first"], typer.Option(help="Which neuron of a cluster a probe sees.")
    ] = "random",
    keep: Annotated[float, typer.Option(help="The share of all neurons' score that is enough.")] = 0.99,
    focus: Annotated[float, typer.Option(help="The threshold whose clusters are drawn.")] = 0.3,
    pictures: Annotated[int, typer.Option(help="How many clusters are drawn.", min=0)] = 3,
    agreement: Annotated[
        str | None, typer.Option(help="Thresholds at which k-means and DBSCAN cluster too (slow), such as 0.3,0.7.")
    ] = None,
    penalty: Annotated[str, typer.Option(help="λ1,λ2 of the elastic net.")] = "1e-5,1e-5",
    norm: Norm = "squared",
    seeds: Seeds = 3,
    epochs: Epochs = 10,
    batch_size: BatchSize = 128,
    learning_rate: LearningRate = 1e-3,
    standardize: Standardize = False,
    max_memory: HeldMemory = 4.0,
    activations: Activations = None,
    seed: Seed = 0,
    device: Device = "auto",
    format: Format = None,
    split: Annotated[str | None, typer.Option(help="Without a task: which part of the corpus is read.")] = None,
    limit: Limit = None,
    fresh: Fresh = False,
) -> None:
    """Find which neurons and layers say the same, and the few that a task needs."""
    from residuum.maths.probing import Recipe
    from residuum.redundancies import redundancy as run

    _quiet()
    parts: dict[str, Any] = {} if task is None else {"dev": dev, "test": test}
    result = run(
        source,
        corpus,
        task,
        thresholds=_numbers(thresholds),
        representatives=representatives,
        keep=keep,
        focus=focus,
        pictures=pictures,
        agreement=_numbers(agreement) if agreement else (),
        seeds=seeds,
        seed=seed,
        penalty=penalty,
        recipe=Recipe(epochs, batch_size, learning_rate, norm, standardize),
        out=out,
        activations=activations,
        max_memory=int(max_memory * 1e9),
        split=split,
        fresh=fresh,
        say=typer.echo,
        layers=layers,
        format=format,
        limit=limit,
        device=device,
        **parts,
    )
    typer.echo(result.text())
    typer.echo(f"The tables are in {out}.")


@app.command()
def probe(
    source: SourceName,
    corpus: CorpusPath,
    task: TaskName,
    out: Out,
    dev: Dev = None,
    test: Test = None,
    layers: Layers = "all",
    subsets: Annotated[bool, typer.Option(help="Whether to probe subsets of layers too: halves, alternate, …")] = True,
    random_twin: Annotated[
        bool, typer.Option("--random-twin", help="Probe the same model with random weights too.")
    ] = False,
    description_length: Annotated[
        bool, typer.Option("--description-length", help="Measure the bits that the labels cost given each layer.")
    ] = False,
    keep: Annotated[float, typer.Option(help="The share of all layers' score that is enough for one layer.")] = 0.99,
    penalty: Annotated[str, typer.Option(help="λ1,λ2 of the elastic net, or search (on the dev part).")] = "1e-5,1e-5",
    norm: Norm = "squared",
    seeds: Seeds = 3,
    epochs: Epochs = 10,
    batch_size: BatchSize = 128,
    learning_rate: LearningRate = 1e-3,
    standardize: Standardize = False,
    max_memory: HeldMemory = 4.0,
    activations: Activations = None,
    seed: Seed = 0,
    device: Device = "auto",
    format: Format = None,
    limit: Limit = None,
    fresh: Fresh = False,
) -> None:
    """Measure what each layer knows of a task, with control task, baselines and intervals."""
    from residuum.maths.probing import Recipe
    from residuum.probes import probe as run

    _quiet()
    result = run(
        source,
        corpus,
        task,
        out=out,
        seeds=seeds,
        seed=seed,
        penalty=penalty,
        recipe=Recipe(epochs, batch_size, learning_rate, norm, standardize),
        subsets=subsets,
        random_twin=random_twin,
        description_length=description_length,
        keep=keep,
        activations=activations,
        max_memory=int(max_memory * 1e9),
        fresh=fresh,
        say=typer.echo,
        layers=layers,
        dev=dev,
        test=test,
        format=format,
        limit=limit,
        device=device,
    )
    typer.echo(result.text())
    typer.echo(f"The tables are in {out}.")


@app.command("probe-languages")
def probe_languages(
    corpora: Annotated[
        list[str],
        typer.Argument(help="Parallel treebanks, one a language; the first is learnt from.", metavar="TREEBANK …"),
    ],
    model: Annotated[list[str], typer.Option("--model", "-m", help="A model; give this option once for each.")],
    task: TaskName,
    out: Out,
    source: Annotated[str | None, typer.Option(help="The language to learn from, such as en.")] = None,
    thresholds: Annotated[
        str, typer.Option(help="Clustering thresholds, separated by commas; 0 keeps all neurons.")
    ] = "0,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,0.95",
    representatives: Annotated[
        Literal["random", "medoid", "first"], typer.Option(help="Which neuron stands for its cluster.")
    ] = "random",
    subsets: Annotated[bool, typer.Option(help="Whether to probe subsets of layers too.")] = True,
    layers: Layers = "all",
    penalty: Annotated[str, typer.Option(help="λ1,λ2 of the elastic net.")] = "1e-5,1e-5",
    norm: Norm = "squared",
    seeds: Seeds = 3,
    epochs: Epochs = 10,
    batch_size: BatchSize = 128,
    learning_rate: LearningRate = 1e-3,
    standardize: Standardize = False,
    max_memory: HeldMemory = 4.0,
    activations: Activations = None,
    seed: Seed = 0,
    device: Device = "auto",
    limit: Limit = None,
    fresh: Fresh = False,
) -> None:
    """Learn a task in one language and test it in others, from ever fewer neurons."""
    from residuum.batteries import parse_penalty
    from residuum.maths.probing import Recipe
    from residuum.probes import probe_languages as run

    _quiet()
    penalties = parse_penalty(penalty)
    if penalties is None:
        raise typer.BadParameter("across languages the penalties are given; find them with `probe --penalty search`.")
    result = run(
        model,
        corpora,
        task,
        source=source,
        out=out,
        thresholds=_numbers(thresholds),
        representatives=representatives,
        subsets=subsets,
        seeds=seeds,
        seed=seed,
        penalty=penalties,
        recipe=Recipe(epochs, batch_size, learning_rate, norm, standardize),
        layers=layers,
        limit=limit,
        activations=activations,
        max_memory=int(max_memory * 1e9),
        device=device,
        fresh=fresh,
        say=typer.echo,
    )
    typer.echo(result.text())
    typer.echo(f"The tables are in {out}.")


@app.command()
def rank(
    source: SourceName,
    corpus: CorpusPath,
    task: TaskName,
    out: Out,
    dev: Dev = None,
    test: Test = None,
    layers: Layers = "all",
    methods: Annotated[
        str, typer.Option(help="Rankings: lca, probeless, gaussian, iou, mean_difference, random.")
    ] = "lca,probeless,gaussian,iou,mean_difference,random",
    by: Annotated[str, typer.Option(help="The ranking that the minimal set and the neuron cards follow.")] = "lca",
    shares: Annotated[
        str, typer.Option(help="Shares of neurons to test alone, from the top and from the bottom.")
    ] = "0.01,0.05,0.1,0.2",
    delta: Annotated[float, typer.Option(help="Accuracy that the minimal set may lose.", min=0, max=1)] = 0.01,
    neurons: Annotated[
        str, typer.Option(help="Neurons to describe, such as 3:17,5:2; else the first of the ranking.")
    ] = "",
    cards: Annotated[int, typer.Option(help="How many neurons to describe where none is named.", min=0)] = 10,
    sample: Annotated[int, typer.Option(help="Words for the gaussian and iou rankings.", min=2)] = 20_000,
    penalty: Annotated[str, typer.Option(help="λ1,λ2 of the elastic net, or search (on the dev part).")] = "1e-5,1e-5",
    norm: Norm = "squared",
    seeds: Seeds = 3,
    epochs: Epochs = 10,
    batch_size: BatchSize = 128,
    learning_rate: LearningRate = 1e-3,
    standardize: Standardize = False,
    max_memory: HeldMemory = 4.0,
    activations: Activations = None,
    seed: Seed = 0,
    device: Device = "auto",
    format: Format = None,
    limit: Limit = None,
    fresh: Fresh = False,
) -> None:
    """Find the neurons that a task needs, how few suffice, where they lie and which words they react to."""
    from residuum.maths.probing import Recipe
    from residuum.ranking import rank_neurons as run

    _quiet()
    result = run(
        source,
        corpus,
        task,
        methods=_names(methods),
        by=by,
        shares=_numbers(shares),
        delta=delta,
        penalty=penalty,
        seeds=seeds,
        sample=sample,
        neurons=_names(neurons),
        cards=cards,
        recipe=Recipe(epochs, batch_size, learning_rate, norm, standardize),
        out=out,
        activations=activations,
        max_memory=int(max_memory * 1e9),
        seed=seed,
        fresh=fresh,
        say=typer.echo,
        layers=layers,
        dev=dev,
        test=test,
        format=format,
        limit=limit,
        device=device,
    )
    typer.echo(result.text())
    typer.echo(f"The tables are in {out}.")


@app.command()
def ablate(
    model: ModelName,
    corpus: CorpusPath,
    task: TaskName,
    out: Out,
    dev: Dev = None,
    test: Test = None,
    neurons: Annotated[
        str, typer.Option(help="Neurons to silence, such as 3:17,5:2; else the top and bottom of an LCA ranking.")
    ] = "",
    shares: Annotated[str, typer.Option(help="Shares of the ranking to silence, such as 0.05,0.1.")] = "0.05",
    within: Annotated[
        str, typer.Option(help="The layers whose neurons are ranked: 'all', 'last' or numbers such as 0-3.")
    ] = "all",
    how: Annotated[
        Literal["zero", "mean", "keep"],
        typer.Option(help="Set neurons to zero, to their means, or keep them and zero the others of their layers."),
    ] = "zero",
    retrain: Annotated[
        bool, typer.Option("--retrain", help="Let probes learn from the ablated model, too (slow).")
    ] = False,
    draws: Annotated[int, typer.Option(help="How many sets of the same size are drawn by lot.", min=0)] = 3,
    penalty: Annotated[str, typer.Option(help="λ1,λ2 of the elastic net.")] = "1e-5,1e-5",
    norm: Norm = "squared",
    epochs: Epochs = 10,
    batch_size: BatchSize = 128,
    learning_rate: LearningRate = 1e-3,
    standardize: Standardize = False,
    max_memory: HeldMemory = 4.0,
    activations: Activations = None,
    seed: Seed = 0,
    device: Device = "auto",
    format: Format = None,
    limit: Limit = None,
    fresh: Fresh = False,
) -> None:
    """Silence neurons in the running model and measure a task again: is what they encode also used?"""
    from residuum.maths.probing import Recipe
    from residuum.ranking import ablate as run

    _quiet()
    result = run(
        model,
        corpus,
        task,
        neurons=_names(neurons),
        shares=_numbers(shares),
        within=within,
        how=how,
        retrain=retrain,
        draws=draws,
        penalty=penalty,
        recipe=Recipe(epochs, batch_size, learning_rate, norm, standardize),
        out=out,
        activations=activations,
        max_memory=int(max_memory * 1e9),
        seed=seed,
        device=device,
        fresh=fresh,
        say=typer.echo,
        dev=dev,
        test=test,
        format=format,
        limit=limit,
    )
    typer.echo(result.text())
    typer.echo(f"The tables are in {out}.")


@evaluate_app.command("retrieval")
def evaluate_retrieval(
    models_and_pairs: Annotated[
        list[str],
        typer.Argument(
            help="One model for both languages, or one for each; then the pairs of sentences: a folder with files such "
            "as tatoeba.tur-eng.tur and .eng, a table of two columns, or a text file (see --translations).",
            metavar="MODEL [MODEL_TRG] PAIRS",
        ),
    ],
    out: Out,
    score: Annotated[str, typer.Option(help="cosine, bertscore, or both separated by a comma.")] = "cosine,bertscore",
    layers: Annotated[
        str,
        typer.Option(
            help="'all' blocks averaged, 'each' layer alone, or numbers such as 1,3,5-7 (3:6 is layer 3 of the first "
            "model with 6 of the second); several choices are separated by ';'."
        ),
    ] = "all",
    translations: Annotated[
        Path | None, typer.Option(help="The text file of the second language, where PAIRS is one of the first.")
    ] = None,
    only: Annotated[
        str | None, typer.Option(help="Pairs of a folder, such as tur-eng,swh-eng; all by default.")
    ] = None,
    text: Annotated[str, typer.Option(help="A table's column of the first language, by name or number from 0.")] = "0",
    pair: Annotated[str, typer.Option(help="A table's column of the second language.")] = "1",
    special_tokens: Annotated[
        bool, typer.Option(help="Whether [CLS], [SEP] and their like count in the mean that `cosine` compares.")
    ] = True,
    resamples: Annotated[int, typer.Option(help="Bootstrap samples of each interval.", min=2)] = 1000,
    max_memory: Annotated[float, typer.Option(help="Gigabytes of token states; more wait in files.", min=0)] = 2.0,
    seed: Seed = 0,
    device: Device = "auto",
    limit: Limit = None,
    fresh: Fresh = False,
) -> None:
    """Let every sentence look for its translation among all others, in both directions."""
    from residuum.evaluation import evaluate_retrieval as run
    from residuum.evaluation import read_pairs

    *models, pairs = models_and_pairs
    if not 1 <= len(models) <= 2:
        raise typer.BadParameter(f"found {len(models)} models and pairs; expected one or two models, then the pairs.")
    _quiet()
    result = run(
        models[0],
        read_pairs(
            pairs,
            translations,
            only=only.split(",") if only else None,
            text=_column(text),
            pair=_column(pair),
            limit=limit,
        ),
        target_model=models[1] if len(models) == 2 else None,
        score=score,
        layers=layers,
        special_tokens=special_tokens,
        resamples=resamples,
        max_memory=int(max_memory * 1e9),
        device=device,
        seed=seed,
        out=out,
        fresh=fresh,
    )
    for row in result.frame.to_dict("records"):
        typer.echo(
            f"{row['query']} → {row['candidates']}  {row['score']:9}  layers {row['layers']:5}  "
            f"accuracy {row['accuracy']:.3f} ({row['low']:.3f} to {row['high']:.3f})  MRR {row['mrr']:.3f}"
        )
    typer.echo(f"{len(result.frame):,} values are in {out}.")


@evaluate_app.command("perplexity")
def evaluate_perplexity(
    model: ModelName,
    texts: Annotated[
        list[str],
        typer.Argument(
            help="Texts, a sentence a line; NAME=FILE gives one a name, such as tr=news.txt.", metavar="TEXT …"
        ),
    ],
    out: Out,
    masking: Annotated[
        Literal["sampled", "each"],
        typer.Option(help="For masked models: hide a share of the tokens at once, or each token alone (slow)."),
    ] = "sampled",
    share: Annotated[float, typer.Option(help="The share of tokens that is hidden.", min=0, max=1)] = 0.15,
    resamples: Annotated[int, typer.Option(help="Bootstrap samples of each interval.", min=2)] = 1000,
    seed: Seed = 0,
    device: Device = "auto",
    limit: Limit = None,
    fresh: Fresh = False,
) -> None:
    """Measure how well a language model predicts texts: masked or causal, as the model is."""
    from residuum.evaluation import evaluate_perplexity as run

    _quiet()
    result = run(
        model,
        _named_texts(texts),
        masking=masking,
        share=share,
        limit=limit,
        resamples=resamples,
        device=device,
        seed=seed,
        out=out,
        fresh=fresh,
    )
    for row in result.frame.to_dict("records"):
        between = f"({row['low']:.2f} to {row['high']:.2f})"
        typer.echo(f"{row['text']}: perplexity {row['perplexity']:.2f} {between}, {row['tokens']:,} tokens")
    typer.echo(f"{len(result.frame):,} perplexities are in {out}.")


@app.command()
def prune(
    model: ModelName,
    out: Out,
    drop: Annotated[
        str | None,
        typer.Option(help="Layers to drop: top:6, bottom:6, alternate or a list such as 1,4-6; with --by: how many."),
    ] = None,
    keep: Annotated[str | None, typer.Option(help="Layers to keep instead, written the same way.")] = None,
    by: Annotated[
        Literal["cka", "angular", "probe"] | None,
        typer.Option(
            help="Measure which: those whose output is most like their input (cka), the neighbours that turn the "
            "states least (angular), or those that add least to a probe (probe)."
        ),
    ] = None,
    corpus: Annotated[str | None, typer.Option(help="The text to measure on.")] = None,
    task: Annotated[str | None, typer.Option(help="What the probe predicts, such as upos or sst2.")] = None,
    limit: Limit = None,
    seed: Seed = 0,
    device: Device = "auto",
    fresh: Fresh = False,
) -> None:
    """Write a model with fewer layers, chosen by position or by measurement."""
    from residuum.pruning import prune as run

    _quiet()
    result = run(
        model,
        out,
        drop=drop,
        keep=keep,
        by=by,
        corpus=corpus,
        task=task,
        limit=limit,
        seed=seed,
        device=device,
        fresh=fresh,
    )
    summary = result.run.summary
    kept = ", ".join(map(str, result.kept))
    typer.echo(f"Layers {kept} of {summary['layers']} are kept.")
    typer.echo(
        f"{summary['parameters before']:,} parameters became {summary['parameters after']:,}; the model is in {out}."
    )


@app.command()
def transfer(
    model: ModelName,
    corpus: CorpusPath,
    task: TaskName,
    out: Out,
    dev: Dev = None,
    test: Test = None,
    steps: Annotated[
        str, typer.Option(help="Which steps to take: layers, clusters, neurons, separated by commas.")
    ] = "layers,clusters,neurons",
    layer_loss: Annotated[
        float, typer.Option(help="Share of the score of all layers that leaving out layers may cost.", min=0, max=1)
    ] = 0.01,
    neuron_loss: Annotated[
        float, typer.Option(help="Share of the kept layers' score that leaving out neurons may cost.", min=0, max=1)
    ] = 0.01,
    budget: Annotated[
        str | None,
        typer.Option(help="Instead of a loss: layers=3, neurons=300, bytes=60MB or ms=2.5 (per sentence)."),
    ] = None,
    thresholds: Annotated[str, typer.Option(help="Clustering thresholds to try, separated by commas.")] = "0.3,0.5,0.7",
    representatives: Annotated[
        Literal["random", "medoid", "first"], typer.Option(help="Which neuron stands for its cluster.")
    ] = "medoid",
    trim: Annotated[
        bool, typer.Option("--trim", help="Keep only the embeddings of pieces that the training texts use.")
    ] = False,
    narrow: Annotated[
        bool, typer.Option("--narrow", help="Also measure the model without hidden dimensions that no neuron needs.")
    ] = False,
    onnx: Annotated[bool, typer.Option("--onnx", help="Also write model.onnx, checked against the model.")] = False,
    pooling: Annotated[
        Literal["last", "first", "mean", "max"], typer.Option(help="A word from its sub-words.")
    ] = "last",
    position: Annotated[
        Literal["auto", "cls", "last", "mean"], typer.Option(help="Which token stands for a sentence.")
    ] = "auto",
    penalty: Annotated[str, typer.Option(help="λ1,λ2 of the elastic net.")] = "1e-5,1e-5",
    norm: Norm = "squared",
    epochs: Epochs = 10,
    batch_size: BatchSize = 128,
    learning_rate: LearningRate = 1e-3,
    standardize: Standardize = False,
    max_memory: HeldMemory = 4.0,
    activations: Annotated[
        Path | None, typer.Option(help="Where the activations are kept; else they are removed at the end.")
    ] = None,
    seed: Seed = 0,
    device: Device = "auto",
    format: Format = None,
    limit: Limit = None,
    fresh: Fresh = False,
) -> None:
    """Write the smallest model that does a task: fewer layers, and a classifier on few neurons."""
    from residuum.feature_transfer import transfer as run
    from residuum.maths.probing import Recipe

    _quiet()
    result = run(
        model,
        corpus,
        task,
        out,
        steps=_names(steps),
        layer_loss=layer_loss,
        neuron_loss=neuron_loss,
        thresholds=_numbers(thresholds),
        representatives=representatives,
        budget=budget,
        trim=trim,
        narrow=narrow,
        onnx=onnx,
        penalty=penalty,
        recipe=Recipe(epochs, batch_size, learning_rate, norm, standardize),
        pooling=pooling,
        position=position,
        activations=activations,
        max_memory=int(max_memory * 1e9),
        seed=seed,
        device=device,
        fresh=fresh,
        say=typer.echo,
        dev=dev,
        test=test,
        format=format,
        limit=limit,
    )
    typer.echo(result.text())
    typer.echo(f"`residuum predict {out} < texts` uses it; README.md there says more.")


@app.command()
def predict(
    folder: Annotated[Path, typer.Argument(help="A folder that `transfer` wrote.", metavar="DIR")],
    batch_size: Annotated[int, typer.Option(help="Texts read at a time; 1 answers every line at once.", min=1)] = 32,
    device: Device = "auto",
) -> None:
    """Label the texts of standard input, one a line (pairs: two segments with a tab between)."""
    from residuum.feature_transfer.streaming import label_lines

    _quiet()
    for answer in label_lines(folder, sys.stdin, batch_size=batch_size, device=device):
        print(answer, flush=True)


@app.command()
def finetune(
    model: ModelName,
    task: Annotated[
        str,
        typer.Argument(
            help="cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte; upos, chunk, ner or other word labels; or sentence, "
            "regression, choice for data of your own.",
            metavar="TASK",
        ),
    ],
    out: Out,
    data: Annotated[
        str | None, typer.Option(help="A folder of splits, a file or a hub name; GLUE's tasks are on the hub.")
    ] = None,
    dev: Annotated[Path | None, typer.Option(help="The development part, where --data is the training part.")] = None,
    test: Annotated[Path | None, typer.Option(help="The test part, where --data is the training part.")] = None,
    freeze: Annotated[
        str | None,
        typer.Option(help="What does not learn: bottom:6 (with the embeddings), top:4, embeddings, 1,4-6; join by +."),
    ] = None,
    drop: Annotated[
        str | None, typer.Option(help="Layers to drop first: top:6, bottom:6, alternate or a list such as 1,4-6.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many models to train, each from a seed of its own.", min=1)] = 1,
    epochs: Annotated[float, typer.Option(help="Passes over the training part.")] = 3.0,
    batch_size: Annotated[int, typer.Option(help="Examples per step.", min=1)] = 8,
    learning_rate: Annotated[float, typer.Option(help="The largest step size of AdamW.")] = 5e-5,
    schedule: Annotated[
        Literal["linear", "cosine", "constant"], typer.Option(help="How the learning rate falls.")
    ] = "linear",
    warmup: Annotated[float, typer.Option(help="Share of the steps (or, from 1, steps) that it rises.")] = 0.0,
    weight_decay: Annotated[float, typer.Option(help="Of matrices; biases and norms are not decayed.")] = 0.0,
    accumulation: Annotated[int, typer.Option(help="Batches whose gradients make one step.", min=1)] = 1,
    precision: Annotated[
        Literal["float32", "bfloat16", "float16"], typer.Option(help="What the model computes in.")
    ] = "float32",
    max_length: Annotated[int, typer.Option(help="Tokens of an example that are read.", min=8)] = 128,
    evaluate_every: Annotated[
        int | None, typer.Option(help="Steps between development scores; an epoch by default.", min=1)
    ] = None,
    cache: Annotated[bool, typer.Option(help="Compute the outputs of a frozen bottom only once.")] = True,
    cache_memory: Annotated[float, typer.Option(help="Gigabytes of them in memory; more go to disk.")] = 1.0,
    format: Format = None,
    limit: Limit = None,
    seed: Seed = 0,
    device: Device = "auto",
    fresh: Fresh = False,
) -> None:
    """Teach a model a task, whole or with layers frozen or dropped, and write the one that scored best."""
    from residuum.finetuning import finetune as run
    from residuum.tuning import LearningSettings

    _quiet()
    settings = LearningSettings(
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        schedule=schedule,
        warmup=warmup,
        weight_decay=weight_decay,
        accumulation=accumulation,
        precision=precision,
        evaluate_every=evaluate_every,
    )
    result = run(
        model,
        task,
        out,
        data=data,
        dev=dev,
        test=test,
        format=format,
        limit=limit,
        freeze=freeze,
        drop=drop,
        seeds=seeds,
        seed=seed,
        max_length=max_length,
        settings=settings,
        cache=cache,
        cache_memory=int(cache_memory * 1e9),
        device=device,
        fresh=fresh,
        say=lambda text: typer.echo(text, err=True),
    )
    for row in result.scores.to_dict("records"):
        typer.echo(f"seed {row['seed']}, {row['part']}: {row['metric']} {row['value']:.4f}")
    typer.echo(f"The model is in {', '.join(map(str, result.folders))}.")


@app.command()
def distill(
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The folder to write; not needed with --dry-run.")
    ] = None,
    config: Annotated[
        Path | None, typer.Argument(help="A YAML file of settings; options below override it.", metavar="[CONFIG]")
    ] = None,
    teacher: Annotated[str | None, typer.Option(help="The teacher: a model folder or a hub name.")] = None,
    language: Annotated[
        list[str] | None, typer.Option(help="A language and its text, such as tr=tr.txt; once for each language.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="The loss by name: monoalignment, monoshot, hinton, tinybert, distilbert, …")
    ] = None,
    recipe: Annotated[
        Literal["corrected", "thesis", "published"] | None,
        typer.Option(help="Averages per token (corrected), algorithm 1 as written, or as the published code does."),
    ] = None,
    layers: Annotated[int | None, typer.Option(help="Layers of a student; half of the teacher's.", min=1)] = None,
    share: Annotated[
        Literal["none", "embeddings", "all"] | None, typer.Option(help="What students share; all makes one student.")
    ] = None,
    trim_vocabulary: Annotated[
        bool, typer.Option("--trim-vocabulary", help="Keep only the pieces that the texts use.")
    ] = False,
    steps: Annotated[int | None, typer.Option(help="How often the weights are moved.", min=1)] = None,
    batch_size: Annotated[int | None, typer.Option(help="Lines per language in a step.", min=1)] = None,
    seed: Annotated[int | None, typer.Option(help="Draws everything that is random.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show parameters, memory, time a step and the layer map.")
    ] = False,
    device: Device = "auto",
    fresh: Fresh = False,
) -> None:
    """Distil one multilingual teacher into small students of your languages that share a space."""
    from residuum.distillation.distilling import distill as run
    from residuum.distillation.distilling import plan
    from residuum.distillation.settings import merged_settings

    _quiet()
    settings = merged_settings(
        config,
        {
            "teacher": teacher,
            "texts": _named_texts(language) if language else None,
            "preset": preset,
            "recipe": recipe,
            "share": share,
            "seed": seed,
            "shape.layers": layers,
            "vocabulary.trim": trim_vocabulary or None,
            "optimiser.steps": steps,
            "text.batch_size": batch_size,
        },
    )
    if dry_run:
        typer.echo(str(plan(settings, device=device)))
        return
    if out is None:
        raise SettingError("No folder to write was given; add --out, or --dry-run to see what the run would cost.")
    result = run(settings, out, device=device, fresh=fresh)
    for name, folder in result.students.items():
        typer.echo(f"Student {name} is in {folder}.")
    for name, value in result.run.summary.items():
        if name.startswith(("perplexity", "retrieval")):
            typer.echo(f"{name}: {value:.4g}")


@study_app.command("distillation")
def study_distillation(
    config: Annotated[Path, typer.Argument(help="A YAML file as `distill` takes it.", metavar="CONFIG")],
    out: Out,
    tables: Annotated[str, typer.Option(help="Tables of Bui (2022): 4.7 (losses), 4.8 (ablations).")] = "4.7,4.8",
    device: Device = "auto",
    fresh: Fresh = False,
) -> None:
    """Distil with every loss and without every part of the method, and compare the scores."""
    from residuum.studies.monolingual_students import study_distillation as run

    _quiet()
    found = run(config, out, tables=_names(tables), device=device, fresh=fresh, say=typer.echo)
    for row in found.tables["scores"].to_dict("records"):
        typer.echo(f"{row['row']}: {row['score']} {row['subject']} {row['value']:.4g}")


@app.command()
def trim(
    model: ModelName,
    text: Annotated[
        list[str], typer.Option(help="A text whose pieces are kept: a file, a folder or a hub name; may be repeated.")
    ],
    out: Out,
    minimum_count: Annotated[int, typer.Option(help="Keep pieces that occur at least so often.", min=1)] = 1,
    fresh: Fresh = False,
) -> None:
    """Write a model without the vocabulary that some texts do not use; it splits those texts as before."""
    from residuum.trimming import trim as run

    _quiet()
    summary = run(model, text, out, minimum_count=minimum_count, fresh=fresh).run.summary
    typer.echo(f"{summary['pieces after']:,} of {summary['pieces before']:,} pieces are kept.")
    typer.echo(f"{summary['parameters saved']:,} parameters ({summary['share saved']:.0%}) are saved.")
    typer.echo(f"Characters without a piece become {summary['characters without a piece become']}.")
    typer.echo(f"{summary['lines split in another way']:,} lines are split in another way; the model is in {out}.")


@app.command()
def pretrain(
    config: Annotated[Path, typer.Argument(help="A YAML file of settings.", metavar="CONFIG")],
    out: Out,
    as_is: Annotated[
        bool, typer.Option("--as-is", help="Write the model of the last checkpoint without training on.")
    ] = False,
    device: Device = "auto",
    fresh: Fresh = False,
) -> None:
    """Train a tokenizer and a language model from scratch, on text and translations."""
    from residuum.pretraining import pretrain as run

    _quiet()
    result = run(config, out, device=device, as_is=as_is, fresh=fresh)
    for name, value in result.run.summary.items():
        typer.echo(f"{name}: {value:,}")
    typer.echo(f"The model is in {result.model}.")


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


def _named_texts(texts: list[str]) -> Any:
    """Texts by name where all are given as NAME=FILE, else as they are."""
    named = [text.partition("=") for text in texts]
    return {name: path for name, _, path in named} if all(path for _, _, path in named) else texts


def _names(text: str) -> list[str]:
    """`3:17,5:2` as a list."""
    return [part.strip() for part in text.split(",") if part.strip()]


def _numbers(text: str) -> list[float]:
    """`0,0.1` as numbers."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"found {text!r}; expected numbers separated by commas.") from None
