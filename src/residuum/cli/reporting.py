"""Commands that show: reports, the demo and sample data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from residuum.cli.app import app
from residuum.cli.arguments import gigabytes, quiet_libraries
from residuum.cli.estimates import only_estimated
from residuum.cli.options import Estimate, Fresh, MaxMemory, Seed


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders that other commands wrote.", metavar="RUN …")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The HTML file to write.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="What stands at the top.")] = None,
    figures: Annotated[
        Literal["pdf", "svg", "png"] | None,
        typer.Option(help="Also write every figure for papers, into a folder beside the file (needs matplotlib)."),
    ] = None,
) -> None:
    """Draw what other commands measured: one HTML page that needs nothing else."""
    from residuum.reporting.reporting import figures_folder
    from residuum.reporting.reporting import report as run

    typer.echo(f"{run(runs, out, title=title, figures=figures)} is written.")
    if figures is not None:
        typer.echo(f"Its figures are in {figures_folder(out)}.")


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write.")] = Path("demo"),
    max_memory: MaxMemory = None,
    estimate: Estimate = False,
    fresh: Fresh = False,
) -> None:
    """Run all five studies on what ships with the package (minutes on two cores), and write one report."""
    from residuum.studies.demo import demo as run
    from residuum.studies.demo import demo_cost

    quiet_libraries()
    if only_estimated(estimate, max_memory, demo_cost):
        return
    page = run(out, max_memory=gigabytes(max_memory), fresh=fresh, say=typer.echo)
    typer.echo(f"Open {page.resolve()} in a browser.")


@app.command()
def sample(
    task: Annotated[
        str,
        typer.Argument(
            help="treebank, ner, nli, copa, translation, polarity, tense or text; or teacher, for the folder of the "
            "multilingual model that ships with the package."
        ),
    ],
    language: Annotated[str, typer.Option(help="en, de, tr or sw; for translation a pair such as tr-en.")] = "en",
    size: Annotated[int, typer.Option(help="How many sentences or examples.", min=1)] = 1000,
    split: Annotated[Literal["train", "dev", "test"], typer.Option(help="Meanings of one are in no other.")] = "train",
    disjoint_lexemes: Annotated[
        bool, typer.Option("--disjoint-lexemes", help="Content words of one split are in no other.")
    ] = False,
    seed: Seed = 0,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="What to write to; standard output by default.")
    ] = None,
) -> None:
    """Write parallel sample data whose truth is known: the same seed says the same things in every language."""
    from residuum.samples import sample_text, teacher_folder
    from residuum.storage.files import lone_file

    if task == "teacher":
        _show_teacher(teacher_folder(), out)
        return
    text = sample_text(task, language=language, size=size, seed=seed, split=split, disjoint_lexemes=disjoint_lexemes)
    if out is None:
        typer.echo(text, nl=False)
        return
    with lone_file(out) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
    typer.echo(f"{out} is written.")


def _show_teacher(folder: Path, out: Path | None) -> None:
    """Say where the sample teacher is, or copy it to a folder that does not exist yet, or holds that very copy."""
    from shutil import copytree

    from residuum.errors import SettingError
    from residuum.storage.files import checksum, whole_folder

    def content(place: Path) -> dict[str, str]:
        return {file.name: checksum(file) for file in place.iterdir() if file.is_file()}

    if out is None:
        typer.echo(folder)
        return
    if out.exists():
        if not out.is_dir() or content(out) != content(folder):
            raise SettingError(f"{out} exists; give the copy of the teacher a folder of its own.")
    else:
        with whole_folder(out) as temporary:
            copytree(folder, temporary, dirs_exist_ok=True)
    typer.echo(f"{out} is written.")
