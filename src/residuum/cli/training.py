"""Commands that train."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from residuum.cli.app import app
from residuum.cli.arguments import gigabytes, quiet_libraries
from residuum.cli.estimates import only_estimated
from residuum.cli.options import Device, Estimate, Format, Fresh, Limit, MaxMemory, ModelName, Out, Seed


@app.command()
def pretrain(
    config: Annotated[Path, typer.Argument(help="A YAML file of settings.", metavar="CONFIG")],
    out: Out,
    as_is: Annotated[
        bool, typer.Option("--as-is", help="Write the model of the last checkpoint without training on.")
    ] = False,
    device: Device = "auto",
    max_memory: MaxMemory = None,
    estimate: Estimate = False,
    fresh: Fresh = False,
) -> None:
    """Train a tokenizer and a language model from scratch, on text and translations."""
    from residuum.training import is_main_process
    from residuum.training.pretraining import pretrain as run
    from residuum.training.pretraining_costs import pretrain_cost

    quiet_libraries()
    if only_estimated(estimate, max_memory, lambda: pretrain_cost(config, device=device)):
        return
    result = run(config, out, device=device, as_is=as_is, fresh=fresh)
    with result.looked_at():
        if not is_main_process():
            return
        for name, value in result.run.summary.items():
            typer.echo(f"{name}: {value:,}")
        typer.echo(f"The model is in {result.model}.")


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
    by_length: Annotated[bool, typer.Option(help="Batches of sequences of like length: little padding.")] = True,
    precision: Annotated[
        Literal["float32", "bfloat16", "float16"], typer.Option(help="What the model computes in.")
    ] = "float32",
    max_length: Annotated[int, typer.Option(help="Tokens of an example that are read.", min=8)] = 128,
    evaluate_every: Annotated[
        int | None, typer.Option(help="Steps between development scores; an epoch by default.", min=1)
    ] = None,
    cache: Annotated[bool, typer.Option(help="Compute the outputs of a frozen bottom only once.")] = True,
    cache_memory: Annotated[
        float, typer.Option(help="Gigabytes of them in memory, at most a quarter of --max-memory; more go to disk.")
    ] = 1.0,
    format: Format = None,
    limit: Limit = None,
    seed: Seed = 0,
    device: Device = "auto",
    max_memory: MaxMemory = None,
    estimate: Estimate = False,
    fresh: Fresh = False,
) -> None:
    """Teach a model a task, whole or with layers frozen or dropped, and write the one that scored best."""
    from residuum.training import is_main_process
    from residuum.training.finetuning import finetune as run
    from residuum.training.finetuning_costs import finetune_cost
    from residuum.training.learning import LearningSettings

    quiet_libraries()
    settings = LearningSettings(
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        schedule=schedule,
        warmup=warmup,
        weight_decay=weight_decay,
        accumulation=accumulation,
        by_length=by_length,
        precision=precision,
        evaluate_every=evaluate_every,
    )
    options: dict[str, Any] = {
        "data": data,
        "dev": dev,
        "test": test,
        "format": format,
        "limit": limit,
        "freeze": freeze,
        "drop": drop,
        "seeds": seeds,
        "seed": seed,
        "max_length": max_length,
        "settings": settings,
        "cache": cache,
        "cache_memory": gigabytes(cache_memory if max_memory is None else min(cache_memory, max_memory / 4)),
        "device": device,
    }
    if only_estimated(estimate, max_memory, lambda: finetune_cost(model, task, **options), [model]):
        return
    result = run(model, task, out, fresh=fresh, say=lambda text: typer.echo(text, err=True), **options)
    with result.looked_at():
        if not is_main_process():
            return
        for row in result.scores.to_dict("records"):
            typer.echo(f"seed {row['seed']}, {row['part']}: {row['metric']} {row['value']:.4f}")
        typer.echo(f"The model is in {', '.join(map(str, result.folders))}.")
