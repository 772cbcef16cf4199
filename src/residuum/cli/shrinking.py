"""Commands that make a smaller model without training it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from residuum.cli.app import app
from residuum.cli.arguments import gigabytes, names, numbers, quiet_libraries
from residuum.cli.estimates import only_estimated
from residuum.cli.groups import Learning, Reading, grouped
from residuum.cli.options import (
    CorpusPath,
    Device,
    Estimate,
    Fresh,
    HeldMemory,
    Limit,
    MaxLoss,
    MaxMemory,
    ModelName,
    Out,
    Seed,
    Split,
    TaskName,
)


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
    split: Split = None,
    limit: Limit = None,
    max_loss: MaxLoss = 0.0,
    seed: Seed = 0,
    device: Device = "auto",
    max_memory: MaxMemory = None,
    estimate: Estimate = False,
    fresh: Fresh = False,
) -> None:
    """Write a model with fewer layers, chosen by position or by measurement."""
    from residuum.shrinking.pruning import prune as run
    from residuum.shrinking.pruning import prune_cost

    quiet_libraries()
    options: dict[str, Any] = {
        "drop": drop,
        "keep": keep,
        "by": by,
        "corpus": corpus,
        "task": task,
        "split": split,
        "limit": limit,
        "seed": seed,
        "device": device,
    }
    if only_estimated(estimate, max_memory, lambda: prune_cost(model, **options), [model]):
        return
    result = run(model, out, max_loss=max_loss, fresh=fresh, **options)
    with result.looked_at():
        summary = result.run.summary
        kept = ", ".join(map(str, result.kept))
        typer.echo(f"Layers {kept} of {summary['layers']} are kept.")
        before, after = summary["parameters before"], summary["parameters after"]
        typer.echo(f"{before:,} parameters became {after:,}; the model is in {out}.")


@app.command()
def trim(
    model: ModelName,
    text: Annotated[
        list[str], typer.Option(help="A text whose pieces are kept: a file, a folder or a hub name; may be repeated.")
    ],
    out: Out,
    minimum_count: Annotated[int, typer.Option(help="Keep pieces that occur at least so often.", min=1)] = 1,
    max_memory: MaxMemory = None,
    estimate: Estimate = False,
    fresh: Fresh = False,
) -> None:
    """Write a model without the vocabulary that some texts do not use; it splits those texts as before."""
    from residuum.shrinking.trimming import trim as run
    from residuum.shrinking.trimming import trim_cost

    quiet_libraries()
    if only_estimated(estimate, max_memory, lambda: trim_cost(model, text, minimum_count=minimum_count), [model]):
        return
    result = run(model, text, out, minimum_count=minimum_count, fresh=fresh)
    with result.looked_at():
        summary = result.run.summary
        typer.echo(f"{summary['pieces after']:,} of {summary['pieces before']:,} pieces are kept.")
        typer.echo(f"{summary['parameters saved']:,} parameters ({summary['share saved']:.0%}) are saved.")
        typer.echo(f"Characters without a piece become {summary['characters without a piece become']}.")
        typer.echo(f"{summary['lines split in another way']:,} lines are split in another way; the model is in {out}.")


@app.command()
@grouped
def transfer(
    model: ModelName,
    corpus: CorpusPath,
    task: TaskName,
    out: Out,
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
    *,
    learning: Learning,
    max_memory: HeldMemory = None,
    activations: Annotated[
        Path | None, typer.Option(help="Where the activations are kept; else they are removed at the end.")
    ] = None,
    seeds: Annotated[
        int, typer.Option(help="How often the oracle and what each step chose are trained, to report a mean.", min=1)
    ] = 1,
    seed: Seed = 0,
    reading: Reading,
    estimate: Estimate = False,
    fresh: Fresh = False,
) -> None:
    """Write the smallest model that does a task: fewer layers, and a classifier on few neurons."""
    from residuum.shrinking.estimates import transfer_cost
    from residuum.shrinking.transferring import transfer as run

    quiet_libraries()
    shared: dict[str, Any] = {
        "steps": names(steps),
        "thresholds": numbers(thresholds),
        "recipe": learning.recipe,
        "max_memory": gigabytes(max_memory),
        "seeds": seeds,
        "seed": seed,
        **reading.options,
    }
    if only_estimated(estimate, None, lambda: transfer_cost(model, corpus, task, **shared)):
        return
    result = run(
        model,
        corpus,
        task,
        out,
        layer_loss=layer_loss,
        neuron_loss=neuron_loss,
        representatives=representatives,
        budget=budget,
        trim=trim,
        narrow=narrow,
        onnx=onnx,
        penalty=penalty,
        pooling=pooling,
        position=position,
        activations=activations,
        max_loss=reading.max_loss,
        fresh=fresh,
        say=typer.echo,
        **shared,
    )
    with result.looked_at():
        typer.echo(result.text())
        typer.echo(f"`residuum predict {out} < texts` uses it; README.md there says more.")


@app.command()
def predict(
    folder: Annotated[Path, typer.Argument(help="A folder that `transfer` wrote.", metavar="DIR")],
    batch_size: Annotated[int, typer.Option(help="Texts read at a time; 1 answers every line at once.", min=1)] = 32,
    device: Device = "auto",
    max_memory: MaxMemory = None,
) -> None:
    """Label the texts of standard input, one a line (pairs: two segments with a tab between)."""
    from residuum.models.loading import check_weights
    from residuum.shrinking.streaming import label_lines, text_lines

    quiet_libraries()
    check_weights([folder], gigabytes(max_memory))
    for answer in label_lines(folder, text_lines(sys.stdin.buffer), batch_size=batch_size, device=device):
        print(answer, flush=True)
