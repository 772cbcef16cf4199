"""Commands that compare models."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from residuum.cli.app import app
from residuum.cli.arguments import gigabytes, names, numbers, quiet_libraries
from residuum.cli.estimates import only_estimated
from residuum.cli.groups import Learning, Reading, grouped
from residuum.cli.options import (
    Activations,
    Device,
    EngineName,
    Estimate,
    Format,
    Fresh,
    HeldMemory,
    Layers,
    Limit,
    MaxLoss,
    Out,
    Scheduler,
    Seed,
    Seeds,
    Split,
    Workers,
)


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
    max_memory: Annotated[
        float | None, typer.Option(help="Gigabytes that may be held: less means more passes, or it is refused.")
    ] = None,
    workers: Workers = None,
    engine: EngineName = "local",
    scheduler: Scheduler = None,
    seed: Seed = 0,
    device: Device = "auto",
    format: Format = None,
    split: Split = None,
    limit: Limit = None,
    max_loss: MaxLoss = 0.0,
    estimate: Estimate = False,
    fresh: Fresh = False,
) -> None:
    """Measure how alike all layers of some models are, with intervals, and draw it."""
    from residuum.comparison.comparing import ATTENTION, chosen_measures, compare_cost
    from residuum.comparison.comparing import compare as run
    from residuum.corpus import read_corpus
    from residuum.engine import opened_engine
    from residuum.models.loading import check_weights, load_model
    from residuum.reporting.reporting import report

    quiet_libraries()
    things: list[Any] = list(sources)
    text = None
    if corpus is not None:
        text = read_corpus(corpus, format=format, split=split, limit=limit)
        attention = bool(set(chosen_measures(measures)) & set(ATTENTION))
        twins = (False, True) if random_twins else (False,)
        check_weights([source for source in sources for _ in twins], gigabytes(max_memory))
        things = [
            load_model(source, random_init=twin, seed=seed, device=device, attention=attention)
            for source in sources
            for twin in twins
        ]
    options: dict[str, Any] = {
        name: value for name, value in {"top_k": top_k, "variance": variance}.items() if value is not None
    }
    settings = {
        "measures": measures,
        "groups": groups,
        "intervals": intervals,
        "null": null,
        "sample": sample,
        "max_memory": gigabytes(max_memory),
        **options,
    }
    with opened_engine(engine, workers, scheduler) as where:
        if estimate:
            typer.echo(str(compare_cost(things, text, workers=where, **settings)))
            return
        result = run(things, text, out=out, seed=seed, workers=where, max_loss=max_loss, fresh=fresh, **settings)
    with result.looked_at():
        for key, value in result.run.summary.items():
            typer.echo(f"{key}: {value:,}" if isinstance(value, int) else f"{key}: {value}")
        page = report([out], out / "report.html")
        typer.echo(f"{len(result.frame):,} values of {result.frame['measure'].nunique()} measures are in {out}.")
        typer.echo(f"The figures are in {page}.")


@app.command()
@grouped
def diff(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="The base model, then those made of it: folders, hub names or stores; NAME=MODEL names one.",
            metavar="BASE OTHER …",
        ),
    ],
    corpus: Annotated[str, typer.Option(help="What the models read: a treebank, column file, folder of splits, …")],
    tasks: Annotated[
        str,
        typer.Option(
            help="What probes look for, such as upos,xpos,deprel; chunk=PATH takes a task from another corpus."
        ),
    ],
    out: Out,
    measures: Annotated[
        str, typer.Option(help="Similarities: paper, attention, all, or names separated by commas.")
    ] = "neuron,svcca,cka,attention_pearson,attention_cka",
    groups: Annotated[int, typer.Option(help="Groups of sentences for the jackknife of similarities.", min=1)] = 5,
    thresholds: Annotated[
        str, typer.Option(help="Where clusters of neurons are cut, to count the neurons that survive.")
    ] = "0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9",
    shares: Annotated[str, typer.Option(help="Shares of neurons in the top and bottom sets.")] = "0.05,0.1",
    delta: Annotated[float, typer.Option(help="How much accuracy the minimal set may lose.")] = 0.01,
    penalty: Annotated[str, typer.Option(help="λ1,λ2 of the elastic net.")] = "1e-5",
    seeds: Seeds = 3,
    *,
    learning: Learning,
    layers: Layers = "all",
    max_memory: HeldMemory = None,
    activations: Activations = None,
    workers: Workers = None,
    engine: EngineName = "local",
    scheduler: Scheduler = None,
    seed: Seed = 0,
    reading: Reading,
    estimate: Estimate = False,
    fresh: Fresh = False,
) -> None:
    """Show what fine-tuning, pruning or distillation changed: probes, salient neurons, similarity, and a report."""
    from residuum.engine import opened_engine
    from residuum.probing.diff import diff as run
    from residuum.probing.diff_costs import diff_cost
    from residuum.reporting.reporting import report

    quiet_libraries()
    with opened_engine(engine, workers, scheduler) as where:
        options: dict[str, Any] = {
            "measures": measures,
            "groups": groups,
            "shares": numbers(shares),
            "seeds": seeds,
            "seed": seed,
            "recipe": learning.recipe,
            "workers": where,
            "max_memory": gigabytes(max_memory),
            "layers": layers,
            **reading.options,
        }
        if only_estimated(estimate, None, lambda: diff_cost(sources, corpus, names(tasks), **options)):
            return
        result = run(
            sources,
            corpus,
            names(tasks),
            thresholds=numbers(thresholds),
            delta=delta,
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
        page = report([out], out / "report.html")
        typer.echo(f"The tables are in {out}, the figures in {page}.")
