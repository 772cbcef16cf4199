"""Results → one page: `report` writes it; every other module holds one step or one group of commands."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from residuum.errors import SettingError
from residuum.settings import Argument, Option, OptionalPath, Settings

if TYPE_CHECKING:
    Runs = Any  # a checker lets callers pass one run or folder
else:
    Runs = tuple[Any, ...]


@dataclass(frozen=True)
class ReportSettings(Settings):
    """What `report` takes."""

    example: ClassVar[str] = "residuum report runs/alike runs/upos --out report.html"

    runs: Annotated[Runs, Argument("Folders that other commands wrote", metavar="RUN", parse=lambda folder: (folder,))]
    out: Annotated[OptionalPath, Option("HTML file to write", "output", "-o", "FILE", identity=False)] = Path(
        "report.html"
    )
    _: KW_ONLY
    title: Annotated[str | None, Option("Title of the page", "output")] = None
    figures: Annotated[
        Literal["pdf", "svg", "png"] | None,
        Option("Also write every figure for papers, into OUT-figures (needs matplotlib)", "output"),
    ] = None

    def check(self) -> None:
        """There is something to report, and a file to write."""
        if not self.runs:
            raise SettingError("There is no run to report; pass at least one folder that a command wrote.")
        if self.out is None:
            raise SettingError("out is not set; report needs a file to write, such as report.html.")
        if Path(self.out).is_dir():
            example = Path(self.out) / "report.html"
            raise SettingError(f"{self.out} is a folder; expected a file to write, such as {example}.")
