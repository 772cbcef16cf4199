"""The whole chains of the documents."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from residuum.cli.app import study_app
from residuum.cli.arguments import gigabytes, names, quiet_libraries
from residuum.cli.estimates import only_estimated
from residuum.cli.options import Device, Estimate, Fresh, MaxMemory, Out, Seed

STUDIES = {
    "similarity": "How alike layers, neurons and heads of models are, and what fine-tuning changes (Wu et al. 2020).",
    "redundancy": "What models repeat in general and for a task, and what can be left out (Dalvi et al. 2020).",
    "transfer-learning": "What fine-tuning does to what a model knows of language (Durrani et al. 2021).",
    "distilled": "How redundant distilled and multilingual models are.",
    "monolingual": "Small aligned students of single languages: MonoAlignment and MonoShot.",
}

Models = Annotated[
    list[str] | None,
    typer.Option("--models", "-m", help="A model folder or hub name; give the option again for more.", metavar="MODEL"),
]
Data = Annotated[
    Path | None,
    typer.Option(help="A folder with treebanks/, token/, glue/, crosslingual/ and text/; see the page on studies."),
]
Tasks = Annotated[
    str | None,
    typer.Option(help="Instead of the scale's tasks: some of upos, chunk, sem; sst2, mrpc, rte, stsb, qnli, mnli."),
]
Examples = Annotated[int | None, typer.Option(help="Learn each sentence task from so many examples.", min=1)]
ScaleName = Annotated[
    Literal["sample", "small", "paper"],
    typer.Option(help="What ships (minutes); --models and --data in sizes for two cores; all of the document."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Start the scale paper, whose cost is said first.")]


def _command(name: str, description: str) -> Callable[..., None]:
    """The command of one study; all have the same options."""

    def command(
        out: Out,
        scale: ScaleName = "sample",
        models: Models = None,
        data: Data = None,
        tasks: Tasks = None,
        examples: Examples = None,
        yes: Yes = False,
        seed: Seed = 0,
        device: Device = "auto",
        max_memory: MaxMemory = None,
        estimate: Estimate = False,
        fresh: Fresh = False,
    ) -> None:
        from residuum.studies.running import study as run
        from residuum.studies.running import study_cost

        quiet_libraries()
        options: dict[str, Any] = {
            "scale": scale,
            "models": models or (),
            "data": data,
            "tasks": names(tasks or ""),
            "examples": examples,
            "device": device,
            "seed": seed,
        }
        if only_estimated(estimate, max_memory, lambda: study_cost(name, **options)):
            return
        room = gigabytes(max_memory)
        found = run(name, out, yes=yes, max_memory=room, fresh=fresh, say=typer.echo, **options)
        with found.looked_at():
            typer.echo(found.text())
            typer.echo(f"Open {found.page.resolve()} in a browser.")

    command.__doc__ = f"{description}\n\nEvery step has its folder in OUT; the same command goes on where it stopped."
    return command


for _name, _description in STUDIES.items():
    study_app.command(_name)(_command(_name, _description))
