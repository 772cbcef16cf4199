"""Commands that distil."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from residuum.cli.app import app, study_app
from residuum.cli.arguments import named_texts, names, quiet_libraries
from residuum.cli.estimates import only_estimated
from residuum.cli.options import Device, Estimate, Fresh, MaxMemory, Out


@app.command()
def distill(
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The folder to write, unless CONFIG names one; an estimate needs none."),
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
    max_memory: MaxMemory = None,
    estimate: Estimate = False,
    fresh: Fresh = False,
) -> None:
    """Distil one multilingual teacher into small students of your languages that share a space."""
    from residuum.distillation.distilling import distill as run
    from residuum.distillation.distilling import plan
    from residuum.distillation.settings import merged_settings

    quiet_libraries()
    settings = merged_settings(
        config,
        {
            "teacher": teacher,
            "texts": named_texts(language) if language else None,
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
    if only_estimated(estimate, max_memory, lambda: plan(settings, device=device).cost, [settings.teacher]):
        return
    result = run(settings, out, device=device, fresh=fresh)
    with result.looked_at():
        for name, folder in result.students.items():
            typer.echo(f"Student {name} is in {folder}.")
        for name, trimmed in result.run.summary.get("trimming", {}).items():
            typer.echo(
                f"Trimming saved {trimmed['parameters saved']:,} parameters of student {name}; characters without a "
                f"piece become {trimmed['characters without a piece become']}."
            )
        for name, value in result.run.summary.items():
            if name.startswith(("perplexity", "retrieval")):
                typer.echo(f"{name}: {value:.4g}")


@study_app.command("distillation")
def study_distillation(
    config: Annotated[Path, typer.Argument(help="A YAML file as `distill` takes it.", metavar="CONFIG")],
    out: Out,
    tables: Annotated[str, typer.Option(help="Tables of Bui (2022): 4.7 (losses), 4.8 (ablations).")] = "4.7,4.8",
    device: Device = "auto",
    max_memory: MaxMemory = None,
    estimate: Estimate = False,
    fresh: Fresh = False,
) -> None:
    """Distil with every loss and without every part of the method, and compare the scores."""
    from residuum.studies.monolingual_students import study_distillation as run
    from residuum.studies.monolingual_students import study_distillation_cost

    quiet_libraries()
    cost = partial(study_distillation_cost, config, tables=names(tables), device=device)
    if only_estimated(estimate, max_memory, cost):
        return
    found = run(config, out, tables=names(tables), device=device, fresh=fresh, say=typer.echo)
    with found.looked_at():
        for row in found.frame.to_dict("records"):
            typer.echo(f"{row['row']}: {row['score']} {row['subject']} {row['value']:.4g}")
