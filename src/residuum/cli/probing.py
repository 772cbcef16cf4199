"""Commands that look for what layers and neurons know."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from residuum.cli.app import app
from residuum.cli.arguments import named_values, numbers, quiet_libraries, two_numbers
from residuum.cli.estimates import only_estimated
from residuum.cli.options import (
    Activations,
    BatchSize,
    CorpusPath,
    Dev,
    Device,
    EngineName,
    Epochs,
    Estimate,
    Format,
    Fresh,
    HeldMemory,
    Layers,
    LearningRate,
    Limit,
    Norm,
    Out,
    Processes,
    Scheduler,
    Seed,
    Seeds,
    SourceName,
    Standardize,
    TaskName,
    Test,
)


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
    clusters: Annotated[
        Literal["average", "kmeans", "dbscan"],
        typer.Option(help="By which clusters neurons are left out: average linkage, or (slow) k-means or DBSCAN."),
    ] = "average",
    keep: Annotated[
        float, typer.Option(help="The share of all neurons' score that is enough for clusters and minimal sets.")
    ] = 0.99,
    keep_layers: Annotated[
        float, typer.Option(help="The share of all neurons' score that is enough for a layer alone.")
    ] = 0.99,
    focus: Annotated[float, typer.Option(help="The threshold whose clusters are drawn.")] = 0.3,
    pictures: Annotated[int, typer.Option(help="How many clusters are drawn.", min=0)] = 3,
    agreement: Annotated[
        str | None, typer.Option(help="Thresholds at which k-means and DBSCAN cluster too (slow), such as 0.3,0.7.")
    ] = None,
    random_twin: Annotated[
        bool, typer.Option("--random-twin", help="Probe the same model with random weights too; it reads CORPUS again.")
    ] = False,
    penalty: Annotated[str, typer.Option(help="λ1,λ2 of the elastic net.")] = "1e-5,1e-5",
    norm: Norm = "squared",
    seeds: Seeds = 3,
    epochs: Epochs = 10,
    batch_size: BatchSize = 128,
    learning_rate: LearningRate = 1e-3,
    standardize: Standardize = False,
    max_memory: HeldMemory = 4.0,
    activations: Activations = None,
    workers: Processes = None,
    engine: EngineName = "local",
    scheduler: Scheduler = None,
    seed: Seed = 0,
    device: Device = "auto",
    format: Format = None,
    split: Annotated[str | None, typer.Option(help="Without a task: which part of the corpus is read.")] = None,
    limit: Limit = None,
    estimate: Estimate = False,
    fresh: Fresh = False,
) -> None:
    """Find which neurons and layers say the same, and the few that a task needs."""
    from residuum.engine import opened_engine
    from residuum.maths.probing import Recipe
    from residuum.redundancies import redundancy as run
    from residuum.task_costs import redundancy_cost

    quiet_libraries()
    parts: dict[str, Any] = {} if task is None else {"dev": dev, "test": test}
    with opened_engine(engine, workers, scheduler) as where:
        if estimate:
            cost = redundancy_cost(
                source,
                corpus,
                task,
                thresholds=numbers(thresholds),
                random_twin=random_twin,
                seeds=seeds,
                recipe=Recipe(epochs, batch_size, learning_rate, norm, standardize),
                max_memory=int(max_memory * 1e9),
                workers=where,
                split=split,
                layers=layers,
                format=format,
                limit=limit,
                device=device,
                **parts,
            )
            typer.echo(str(cost))
            return
        result = run(
            source,
            corpus,
            task,
            thresholds=numbers(thresholds),
            representatives=representatives,
            clusters=clusters,
            keep=keep,
            keep_layers=keep_layers,
            focus=focus,
            pictures=pictures,
            agreement=numbers(agreement) if agreement else (),
            random_twin=random_twin,
            seeds=seeds,
            seed=seed,
            penalty=penalty,
            recipe=Recipe(epochs, batch_size, learning_rate, norm, standardize),
            out=out,
            activations=activations,
            max_memory=int(max_memory * 1e9),
            split=split,
            workers=where,
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
        bool | None,
        typer.Option(
            "--random-twin/--no-random-twin",
            help="Whether to probe the same model with random weights too.  [default: where SOURCE is a model]",
            show_default=False,
        ),
    ] = None,
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
    workers: Processes = None,
    engine: EngineName = "local",
    scheduler: Scheduler = None,
    seed: Seed = 0,
    device: Device = "auto",
    format: Format = None,
    limit: Limit = None,
    estimate: Estimate = False,
    fresh: Fresh = False,
) -> None:
    """Measure what each layer knows of a task, with control task, baselines and intervals."""
    from residuum.engine import opened_engine
    from residuum.maths.probing import Recipe
    from residuum.probes import probe as run
    from residuum.task_costs import probe_cost
    from residuum.twins import why_no_twin

    quiet_libraries()
    with opened_engine(engine, workers, scheduler) as where:
        if estimate:
            cost = probe_cost(
                source,
                corpus,
                task,
                seeds=seeds,
                penalty=penalty,
                recipe=Recipe(epochs, batch_size, learning_rate, norm, standardize),
                subsets=subsets,
                random_twin=why_no_twin(source) is None if random_twin is None else random_twin,
                description_length=description_length,
                max_memory=int(max_memory * 1e9),
                workers=where,
                layers=layers,
                dev=dev,
                test=test,
                format=format,
                limit=limit,
                device=device,
            )
            typer.echo(str(cost))
            return
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
            workers=where,
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
    families: Annotated[
        str | None,
        typer.Option(help="Families of languages, where they are not known or shall be others: sw=Bantu,eu=Basque."),
    ] = None,
    shares: Annotated[str, typer.Option(help="The shares of sentences to learn from and to hold out.")] = "0.9,0.1",
    random_twin: Annotated[
        bool,
        typer.Option("--random-twin", help="Probe the models with random weights too; they read all treebanks again."),
    ] = False,
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
    workers: Processes = None,
    engine: EngineName = "local",
    scheduler: Scheduler = None,
    seed: Seed = 0,
    device: Device = "auto",
    limit: Limit = None,
    estimate: Estimate = False,
    fresh: Fresh = False,
) -> None:
    """Learn a task in one language and test it in others, from ever fewer neurons."""
    from residuum.batteries import parse_penalty
    from residuum.engine import opened_engine
    from residuum.maths.probing import Recipe
    from residuum.probes import probe_languages as run
    from residuum.probes.costs import languages_cost

    quiet_libraries()
    penalties = parse_penalty(penalty)
    if penalties is None:
        raise typer.BadParameter("across languages the penalties are given; find them with `probe --penalty search`.")
    with opened_engine(engine, workers, scheduler) as where:
        options: dict[str, Any] = {
            "source": source,
            "thresholds": numbers(thresholds),
            "subsets": subsets,
            "shares": two_numbers(shares),
            "random_twin": random_twin,
            "seeds": seeds,
            "seed": seed,
            "recipe": Recipe(epochs, batch_size, learning_rate, norm, standardize),
            "layers": layers,
            "limit": limit,
            "max_memory": int(max_memory * 1e9),
            "device": device,
            "workers": where,
        }
        if only_estimated(estimate, None, lambda: languages_cost(model, corpora, task, **options)):
            return
        result = run(
            model,
            corpora,
            task,
            out=out,
            representatives=representatives,
            families=named_values(families) if families else None,
            penalty=penalties,
            activations=activations,
            fresh=fresh,
            say=typer.echo,
            **options,
        )
    typer.echo(result.text())
    typer.echo(f"The tables are in {out}.")
