"""Commands about single neurons."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from residuum.cli.app import app
from residuum.cli.arguments import gigabytes, names, numbers, quiet_libraries
from residuum.cli.estimates import only_estimated
from residuum.cli.groups import Learning, Reading, Where, grouped
from residuum.cli.options import (
    Activations,
    CorpusPath,
    Device,
    Estimate,
    Format,
    Fresh,
    HeldMemory,
    Layers,
    Limit,
    MaxLoss,
    ModelName,
    Out,
    Seed,
    Seeds,
    SourceName,
    Split,
    TaskName,
)


@app.command()
@grouped
def rank(
    source: SourceName,
    corpus: CorpusPath,
    task: TaskName,
    out: Out,
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
    random_twin: Annotated[
        bool, typer.Option("--random-twin", help="Score the same model with random weights too.")
    ] = False,
    sample: Annotated[int, typer.Option(help="Words for the gaussian and iou rankings.", min=2)] = 20_000,
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
    """Find the neurons that a task needs, how few suffice, where they lie and which words they react to."""
    from residuum.probing.rank_costs import rank_cost
    from residuum.probing.ranking import rank_neurons as run

    quiet_libraries()
    with where.opened() as engine:
        options: dict[str, Any] = {
            "methods": names(methods),
            "by": by,
            "shares": numbers(shares),
            "sample": sample,
            "seeds": seeds,
            "penalty": penalty,
            "random_twin": random_twin,
            "recipe": learning.recipe,
            "max_memory": gigabytes(max_memory),
            "workers": engine,
            "layers": layers,
            **reading.options,
        }
        if only_estimated(estimate, None, lambda: rank_cost(source, corpus, task, **options)):
            return
        result = run(
            source,
            corpus,
            task,
            delta=delta,
            neurons=names(neurons),
            cards=cards,
            out=out,
            activations=activations,
            max_loss=reading.max_loss,
            seed=seed,
            fresh=fresh,
            say=typer.echo,
            **options,
        )
    with result.looked_at():
        typer.echo(result.text())
        typer.echo(f"The tables are in {out}.")


@app.command()
@grouped
def describe(
    source: Annotated[str, typer.Argument(help="A model, or an activation store.", metavar="SOURCE")],
    neurons: Annotated[str, typer.Option(help="The neurons, such as 3:17,5:2.")],
    out: Out,
    corpus: Annotated[str | None, typer.Argument(help="What a model reads.", metavar="CORPUS")] = None,
    max_memory: HeldMemory = None,
    activations: Activations = None,
    *,
    where: Where,
    device: Device = "auto",
    format: Format = None,
    split: Split = None,
    limit: Limit = None,
    max_loss: MaxLoss = 0.0,
    estimate: Estimate = False,
    fresh: Fresh = False,
) -> None:
    """Show which words some neurons react to, and in which sentences most; no labels are needed."""
    from residuum.probing.descriptions import neuron_cards as run
    from residuum.probing.rank_costs import cards_cost

    quiet_libraries()
    with where.opened() as engine:
        options: dict[str, Any] = {
            "max_memory": gigabytes(max_memory),
            "workers": engine,
            "format": format,
            "split": split,
            "limit": limit,
            "device": device,
        }
        if only_estimated(estimate, None, lambda: cards_cost(source, corpus, names(neurons), **options)):
            return
        settings: dict[str, Any] = {"activations": activations, "max_loss": max_loss, "fresh": fresh}
        result = run(source, corpus, names(neurons), out=out, **settings, **options)
    with result.looked_at():
        typer.echo(result.text())
        typer.echo(f"The tables are in {out}.")


@app.command()
@grouped
def ablate(
    model: ModelName,
    corpus: CorpusPath,
    task: TaskName,
    out: Out,
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
    seeds: Seeds = 3,
    *,
    learning: Learning,
    max_memory: HeldMemory = None,
    activations: Activations = None,
    seed: Seed = 0,
    reading: Reading,
    estimate: Estimate = False,
    fresh: Fresh = False,
) -> None:
    """Silence neurons in the running model and measure a task again: is what they encode also used?"""
    from residuum.probing.lesions import ablate as run
    from residuum.probing.rank_costs import ablate_cost

    quiet_libraries()
    options: dict[str, Any] = {
        "neurons": names(neurons),
        "shares": numbers(shares),
        "retrain": retrain,
        "draws": draws,
        "seeds": seeds,
        "recipe": learning.recipe,
        "max_memory": gigabytes(max_memory),
        "seed": seed,
        **reading.options,
    }
    if only_estimated(estimate, None, lambda: ablate_cost(model, corpus, task, **options)):
        return
    result = run(
        model,
        corpus,
        task,
        within=within,
        how=how,
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
