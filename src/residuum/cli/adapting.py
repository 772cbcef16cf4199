"""Commands that carry a task from one language to others."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from residuum.cli.app import app, evaluate_app
from residuum.cli.arguments import named_texts, names, numbers, quiet_libraries
from residuum.cli.estimates import only_estimated
from residuum.cli.options import Device, Estimate, Fresh, Limit, MaxMemory, Out, Seed
from residuum.errors import SettingError

if TYPE_CHECKING:
    import pandas as pd

    from residuum.adaptation import Adaptation


@app.command()
def adapt(
    source: Annotated[str, typer.Option(help="The student of the source language, or a multilingual model.")],
    task: Annotated[
        str,
        typer.Option(
            help="xnli, wikiann, xcopa; or any other: ner, upos, sentence, choice, mnli, … for files of your own."
        ),
    ],
    out: Out,
    target: Annotated[
        list[str] | None,
        typer.Option(
            help="The student of a target language, such as tr=students/tr; once for each. Without it --source serves "
            "as both."
        ),
    ] = None,
    language: Annotated[
        str | None, typer.Option(help="Target languages, where --target does not name them: tr or tr,sw.")
    ] = None,
    strategy: Annotated[
        str,
        typer.Option(
            help="all, or some of full-source, full-target, freeze+0 (+2, +4, …), adapter-source, adapter-target, "
            "adapter-joint, bitfit-source, bitfit-target, bitfit-joint, sparse-delta."
        ),
    ] = "full-target",
    data: Annotated[
        Path | None, typer.Option(help="A folder with files such as train-en.tsv, dev-tr.tsv and test-tr.tsv.")
    ] = None,
    source_language: Annotated[str, typer.Option(help="The language that is learnt from.")] = "en",
    train: Annotated[
        Path | None, typer.Option(help="The source language's training file, or a folder of splits such as SIQA's.")
    ] = None,
    dev: Annotated[Path | None, typer.Option(help="The source language's development file.")] = None,
    target_train: Annotated[
        Path | None, typer.Option(help="The target language's file that few-shot examples are drawn from.")
    ] = None,
    target_dev: Annotated[Path | None, typer.Option(help="The target language's development file.")] = None,
    target_test: Annotated[Path | None, typer.Option(help="The target language's test file.")] = None,
    limit: Limit = None,
    teacher: Annotated[
        str | None, typer.Option(help="A model fine-tuned on the task, for task distillation on top of any strategy.")
    ] = None,
    keep: Annotated[
        str | None, typer.Option(help="Layers that are kept of the models first: top:6, bottom:6, alternate or 1,4-6.")
    ] = None,
    few_shot: Annotated[
        str, typer.Option(help="Numbers of target examples to tune on afterwards, such as 10,100,500.")
    ] = "",
    draws: Annotated[int, typer.Option(help="How often few-shot examples are drawn.", min=1)] = 3,
    save_few_shot: Annotated[
        bool, typer.Option("--save-few-shot", help="Write what few-shot training made, too.")
    ] = False,
    seeds: Annotated[int, typer.Option(help="How often all is done, each time from another seed.", min=1)] = 1,
    epochs: Annotated[
        float | None, typer.Option(help="Passes over the training part; 10 for xnli, 20 for others.")
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Examples per step.", min=1)] = 64,
    learning_rate: Annotated[
        float | None, typer.Option(help="Of AdamW; 2e-5 for full-source and full-target, else 1e-4.")
    ] = None,
    weight_decay: Annotated[float, typer.Option(help="Of matrices; biases and norms are not decayed.")] = 0.05,
    warmup: Annotated[float, typer.Option(help="Share of the steps (or, from 1, steps) that the rate rises.")] = 0.1,
    by_length: Annotated[bool, typer.Option(help="Batches of sequences of like length: little padding.")] = True,
    max_length: Annotated[int, typer.Option(help="Tokens of an example that are read.", min=8)] = 128,
    checkpoint: Annotated[
        Literal["best", "last"], typer.Option(help="Best on the source language's development part, or the last.")
    ] = "best",
    reduction: Annotated[int, typer.Option(help="How many times narrower than a layer an adapter is.", min=1)] = 16,
    few_shot_epochs: Annotated[float, typer.Option(help="Passes over the few examples.")] = 50.0,
    few_shot_batch_size: Annotated[int, typer.Option(help="Few-shot examples per step.", min=1)] = 32,
    few_shot_learning_rate: Annotated[float, typer.Option(help="Of AdamW, on the few examples.")] = 2e-5,
    seed: Seed = 0,
    device: Device = "auto",
    max_memory: MaxMemory = None,
    estimate: Estimate = False,
    fresh: Fresh = False,
) -> None:
    """Learn a task in one language, carry it to the students of others, and score it there."""
    from residuum.adaptation import AdaptationSettings, read_transfer
    from residuum.adaptation import adapt as run
    from residuum.adaptation.costs import adapt_cost

    quiet_libraries()
    students = named_texts(target) if target else None
    if isinstance(students, list):
        if len(students) > 1:
            raise SettingError(f"--target is {' and '.join(students)}; write tr=FOLDER where there are several.")
        students = students[0]
    languages = list(students) if isinstance(students, dict) else names(language or "")
    corpora = read_transfer(
        task,
        data,
        languages,
        source_language=source_language,
        train=train,
        dev=dev,
        target_train=target_train,
        target_dev=target_dev,
        target_test=target_test,
        limit=limit,
        seed=seed,
    )
    options: dict[str, Any] = {
        "task": task,
        "data": corpora,
        "language": names(language) if language else None,
        "strategy": strategy,
        "teacher": teacher,
        "keep": keep,
        "few_shot": [int(k) for k in numbers(few_shot)] if few_shot else (),
        "draws": draws,
        "seeds": seeds,
        "seed": seed,
        "settings": AdaptationSettings(
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            warmup=warmup,
            by_length=by_length,
            max_length=max_length,
            checkpoint=checkpoint,
            reduction=reduction,
            few_shot_epochs=few_shot_epochs,
            few_shot_batch_size=few_shot_batch_size,
            few_shot_learning_rate=few_shot_learning_rate,
        ),
        "device": device,
    }
    loaded = [source, *(students or {}).values()]
    if only_estimated(estimate, max_memory, lambda: adapt_cost(source, students, **options), loaded):
        return
    result = run(
        source,
        students,
        out=out,
        save_few_shot=save_few_shot,
        fresh=fresh,
        say=lambda text: typer.echo(text, err=True),
        **options,
    )
    with result.looked_at():
        _show(result)
        typer.echo(f"All is in {out}.")


@evaluate_app.command("adapted")
def evaluate_adapted(
    folder: Annotated[
        Path,
        typer.Argument(help="The folder of a strategy that `adapt` wrote, such as runs/xnli/full-target/tr/seed-0."),
    ],
    data: Annotated[Path, typer.Argument(help="A labelled file of the same task, in any language.")],
    out: Out,
    student: Annotated[
        str | None, typer.Option(help="The student to put it into, where the folder serves several.")
    ] = None,
    limit: Limit = None,
    device: Device = "auto",
    max_memory: MaxMemory = None,
    estimate: Estimate = False,
    fresh: Fresh = False,
) -> None:
    """Score a student that has learnt a task on another file."""
    from residuum.adaptation import evaluate_adapted as run
    from residuum.adaptation.costs import evaluate_adapted_cost

    quiet_libraries()
    cost = partial(evaluate_adapted_cost, folder, data, student=student, limit=limit, device=device)
    if only_estimated(estimate, max_memory, cost, [] if student is None else [student]):
        return
    result = run(folder, data, student=student, limit=limit, device=device, out=out, fresh=fresh)
    with result.looked_at():
        for row in result.frame.to_dict("records"):
            typer.echo(f"{row['metric']}: {row['value']:.4f}")
        typer.echo(f"{result.run.summary['examples']:,} examples; the scores are in {out}.")


def _show(result: Adaptation) -> None:
    """The tables of strategies: without examples of the target languages, and with k of them."""
    metric = result.run.summary["metric"]
    for part in ("dev", "test"):
        typer.echo(f"{part} {metric}, zero-shot")
        _echo_table(result.table(part))
    runs = {row["k"]: row["n"] for row in result.means.to_dict("records") if row["k"] and row["part"] == "test"}
    for k, n in sorted(runs.items()):
        typer.echo(f"test {metric}, {k} examples of the target language" + (f", mean of {n} runs" if n > 1 else ""))
        _echo_table(result.table("test", k))
    if any(n > 1 for n in runs.values()):
        typer.echo("Intervals over the runs are in the table `means`.")


def _echo_table(table: pd.DataFrame) -> None:
    typer.echo(table.set_index("language").T.to_string(float_format="{:.3f}".format))
