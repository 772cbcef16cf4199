"""Commands that look for what layers and neurons know."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from residuum.cli.app import app
from residuum.cli.arguments import gigabytes, named_values, numbers, quiet_libraries, two_numbers
from residuum.cli.estimates import only_estimated
from residuum.cli.groups import Learning, Reading, Where, grouped
from residuum.cli.options import (
    Activations,
    CorpusPath,
    Device,
    Estimate,
    Fresh,
    HeldMemory,
    Layers,
    Limit,
    MaxLoss,
    Out,
    Seed,
    Seeds,
    SourceName,
    TaskName,
)


@app.command()
@grouped
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
    seeds: Seeds = 3,
    *,
    learning: Learning,
    max_memory: HeldMemory = None,
    activations: Activations = None,
    where: Where,
    seed: Seed = 0,
    reading: Reading,
    split: Annotated[str | None, typer.Option(help="Without a task: which part of the corpus is read.")] = None,
    estimate: Estimate = False,
    fresh: Fresh = False,
) -> None:
    """Find which neurons and layers say the same, and the few that a task needs."""
    from residuum.probing.redundancy import redundancy as run
    from residuum.probing.task_costs import redundancy_cost

    quiet_libraries()
    options = {key: value for key, value in reading.options.items() if task is not None or key not in ("dev", "test")}
    with where.opened() as engine:
        options |= {
            "thresholds": numbers(thresholds),
            "clusters": clusters,
            "focus": focus,
            "agreement": numbers(agreement) if agreement else (),
            "random_twin": random_twin,
            "seeds": seeds,
            "recipe": learning.recipe,
            "max_memory": gigabytes(max_memory),
            "workers": engine,
            "split": split,
            "layers": layers,
        }
        if only_estimated(estimate, None, lambda: redundancy_cost(source, corpus, task, **options)):
            return
        result = run(
            source,
            corpus,
            task,
            representatives=representatives,
            keep=keep,
            keep_layers=keep_layers,
            pictures=pictures,
            seed=seed,
            penalty=penalty,
            out=out,
            activations=activations,
            max_loss=reading.max_loss,
            fresh=fresh,
            say=typer.echo,
            **options,
        )
    with result.looked_at():
        typer.echo(result.text())
        typer.echo(f"The tables are in {out}.")


@app.command()
@grouped
def probe(
    source: SourceName,
    corpus: CorpusPath,
    task: TaskName,
    out: Out,
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
    seeds: Seeds = 3,
    *,
    learning: Learning,
    max_memory: HeldMemory = None,
    activations: Activations = None,
    where: Where,
    seed: Seed = 0,
    reading: Reading,
    estimate: Estimate = False,
    fresh: Fresh = False,
) -> None:
    """Measure what each layer knows of a task, with control task, baselines and intervals."""
    from residuum.probing.probing import probe as run
    from residuum.probing.task_costs import probe_cost
    from residuum.probing.twins import why_no_twin

    quiet_libraries()
    twin = why_no_twin(source) is None if random_twin is None else random_twin
    with where.opened() as engine:
        options: dict[str, Any] = {
            "seeds": seeds,
            "penalty": penalty,
            "recipe": learning.recipe,
            "subsets": subsets,
            "description_length": description_length,
            "max_memory": gigabytes(max_memory),
            "workers": engine,
            "layers": layers,
            **reading.options,
        }
        if only_estimated(estimate, None, lambda: probe_cost(source, corpus, task, random_twin=twin, **options)):
            return
        result = run(
            source,
            corpus,
            task,
            out=out,
            seed=seed,
            random_twin=random_twin,
            keep=keep,
            activations=activations,
            max_loss=reading.max_loss,
            fresh=fresh,
            say=typer.echo,
            **options,
        )
    with result.looked_at():
        typer.echo(result.text())
        typer.echo(f"The tables are in {out}.")


@app.command("probe-languages")
@grouped
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
    seeds: Seeds = 3,
    *,
    learning: Learning,
    max_memory: HeldMemory = None,
    activations: Activations = None,
    where: Where,
    seed: Seed = 0,
    device: Device = "auto",
    limit: Limit = None,
    max_loss: MaxLoss = 0.0,
    estimate: Estimate = False,
    fresh: Fresh = False,
) -> None:
    """Learn a task in one language and test it in others, from ever fewer neurons."""
    from residuum.probing.batteries import parse_penalty
    from residuum.probing.languages import probe_languages as run
    from residuum.probing.probe_costs import languages_cost

    quiet_libraries()
    penalties = parse_penalty(penalty)
    if penalties is None:
        raise typer.BadParameter("across languages the penalties are given; find them with `probe --penalty search`.")
    with where.opened() as engine:
        options: dict[str, Any] = {
            "source": source,
            "thresholds": numbers(thresholds),
            "subsets": subsets,
            "shares": two_numbers(shares),
            "random_twin": random_twin,
            "seeds": seeds,
            "seed": seed,
            "recipe": learning.recipe,
            "layers": layers,
            "limit": limit,
            "max_memory": gigabytes(max_memory),
            "device": device,
            "workers": engine,
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
            max_loss=max_loss,
            fresh=fresh,
            say=typer.echo,
            **options,
        )
    with result.looked_at():
        typer.echo(result.text())
        typer.echo(f"The tables are in {out}.")
