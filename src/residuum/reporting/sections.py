"""From a run to what is shown of it. A command with figures of its own has a module beside this one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from residuum.reporting.ablation import ablation_section
from residuum.reporting.adaptation import adaptation_section
from residuum.reporting.adapted import adapted_section
from residuum.reporting.audits import AUDIT, with_audit
from residuum.reporting.cards import cards_section
from residuum.reporting.charts import has_marks
from residuum.reporting.comparison import comparison_section
from residuum.reporting.content import Finding, Section, Table
from residuum.reporting.correlation import correlation_section
from residuum.reporting.differences import difference_section
from residuum.reporting.distillation import distillation_section
from residuum.reporting.distillation_rows import distillation_rows_section
from residuum.reporting.feature_transfer import transfer_section
from residuum.reporting.finetuning import finetuning_section
from residuum.reporting.languages import languages_section
from residuum.reporting.perplexity import perplexity_section
from residuum.reporting.pretraining import pretraining_section
from residuum.reporting.probing import probing_section
from residuum.reporting.pruning import pruning_section
from residuum.reporting.ranking import ranking_section
from residuum.reporting.redundancies import redundancy_section
from residuum.reporting.retrieval import retrieval_section
from residuum.reporting.studies import study_section
from residuum.reporting.trimming import trimming_section
from residuum.reporting.wording import count, shown
from residuum.storage.results import Run, clear_content_errors

SECTIONS: dict[str, Callable[[Run, str], Section]] = {
    "ablate": ablation_section,
    "adapt": adaptation_section,
    "compare": comparison_section,
    "describe": cards_section,
    "diff": difference_section,
    "distill": distillation_section,
    "finetune": finetuning_section,
    "pretrain": pretraining_section,
    "prune": pruning_section,
    "evaluate adapted": adapted_section,
    "evaluate correlate": correlation_section,
    "evaluate perplexity": perplexity_section,
    "evaluate retrieval": retrieval_section,
    "probe": probing_section,
    "probe-languages": languages_section,
    "rank": ranking_section,
    "redundancy": redundancy_section,
    "study": study_section,
    "study distillation": distillation_rows_section,
    "transfer": transfer_section,
    "trim": trimming_section,
}


def section(run: Run, source: str = "") -> Section:
    """What the page shows of a run; `source` says where it was read, if not as the run itself does."""
    tables = {name: table for name, table in run.tables.items() if name != AUDIT}
    source = source or str(run.folder or "")
    with clear_content_errors(run.command, run.folder):
        found = _drawn(SECTIONS.get(run.command, _plain_section)(replace(run, tables=tables), source))
        return with_audit(found, run.tables[AUDIT]) if AUDIT in run.tables else found


def _drawn(section: Section) -> Section:
    """A section without the figures that a run has nothing for: no rows, or no number in them."""
    panels = (replace(one, views=tuple(v for v in one.views if has_marks(v.figure))) for one in section.panels)
    return replace(section, panels=tuple(panel for panel in panels if panel.views))


def _plain_section(run: Run, source: str) -> Section:
    """Any command: its summary and its tables."""
    numbers = {key: shown(value) for key, value in run.summary.items() if isinstance(value, int | float | np.number)}
    words = {key: shown(value) for key, value in run.summary.items() if key not in numbers}
    return Section(
        command=run.command,
        title=f"Results of {run.command}",
        source=source,
        facts=numbers,
        findings=(Finding("Measured", _contents(run)), *(Finding(key, text) for key, text in words.items())),
        panels=(),
        tables=tuple(Table(name, frame) for name, frame in run.tables.items()),
        config=run.config,
        environment=run.environment,
    )


def _contents(run: Run) -> str:
    tables = ", ".join(f"{name} ({count(len(frame), 'row')})" for name, frame in run.tables.items())
    return f"The command {run.command} wrote {tables or 'no tables'}."
