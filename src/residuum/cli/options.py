"""The options and arguments that several commands share."""

import re
from pathlib import Path
from typing import Annotated, Literal

import typer

ModelName = Annotated[str, typer.Argument(help="A model folder, a .gguf file or a hub name.", metavar="MODEL")]
CorpusPath = Annotated[
    str,
    typer.Argument(help="A treebank, column file, table, text file, folder of splits or hub name.", metavar="CORPUS"),
]


def local_folder(place: Path) -> Path:
    """The folder itself; an address, of which `Path` makes one slash of two, would become a folder of that name."""
    if re.match(r"\w{2,}:/", place.as_posix()):
        found = place.as_posix().replace(":/", "://", 1)
        raise typer.BadParameter(f"{found} is an address; results go to a folder of this machine (stores need not).")
    return place


Out = Annotated[Path, typer.Option("--out", "-o", help="The folder to write.", callback=local_folder)]
Format = Annotated[str | None, typer.Option(help="The corpus' format, where its name does not tell.")]
Split = Annotated[str | None, typer.Option(help="Which part of the corpus: train, dev or test.")]
MaxLoss = Annotated[float, typer.Option(help="Share of words that may go without a representation.", min=0, max=1)]
Limit = Annotated[int | None, typer.Option(help="Read only the first sentences.", min=1)]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
Seed = Annotated[int, typer.Option(help="Draws everything that is random.", min=0, max=2**63 - 1)]
Workers = Annotated[int | None, typer.Option(help="Processes on this machine; all cores by default.", min=1)]
Processes = Annotated[
    int | None,
    typer.Option(
        "--workers", help="Processes on this machine, with one thread each; else this one, with all threads.", min=1
    ),
]
EngineName = Annotated[
    Literal["local", "dask"], typer.Option("--engine", help="Where work runs: this machine, or a Dask cluster.")
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        help="A Dask scheduler, such as tcp://host:8786; without it --engine dask starts a cluster on this machine."
    ),
]
Estimate = Annotated[
    bool, typer.Option("--estimate", help="Only say what it would take, by a few seconds of each part of the work.")
]
MaxMemory = Annotated[
    float | None,
    typer.Option("--max-memory", help="Gigabytes that may be held; what needs more is refused before it begins."),
]
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
HeldMemory = Annotated[
    float | None,
    typer.Option(
        "--max-memory",
        help="Gigabytes that may be held: more activations are read in windows, a larger model or merge tree is "
        "refused. Without it 4 for activations alone.",
    ),
]
Activations = Annotated[
    Path | None, typer.Option(help="Where a model's activations are kept; in OUT by default. Runs may share it.")
]
