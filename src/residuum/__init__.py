"""Find what a transformer repeats, and keep only what it needs.

The public names below are loaded on first use, so that `import residuum` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from residuum.storage import notebook

__version__ = "0.2.0"

_HOMES = {
    "extract": "residuum.activations.extraction",
    "verify": "residuum.activations.store",
    "import_activations": "residuum.activations.exchange",
    "export_activations": "residuum.activations.exchange",
    "compare": "residuum.comparison.compare",
    "redundancy": "residuum.probing.redundancy",
    "probe": "residuum.probing.probe",
    "rank": "residuum.probing.rank",
    "ablate": "residuum.probing.ablate",
    "describe": "residuum.probing.neuron_cards",
    "probe_languages": "residuum.probing.languages",
    "diff": "residuum.probing.diff",
    "transfer": "residuum.shrinking.transferring",
    "predict": "residuum.shrinking.predicting",
    "shrink": "residuum.shrinking.shrink",
    "prune": "residuum.shrinking.pruning",
    "trim": "residuum.shrinking.trimming",
    "finetune": "residuum.training.finetuning",
    "pretrain": "residuum.training.pretraining",
    "distill": "residuum.distillation.distilling",
    "adapt": "residuum.adaptation.adapting",
    "evaluate_retrieval": "residuum.evaluation.retrieval",
    "evaluate_perplexity": "residuum.evaluation.perplexity",
    "evaluate_adapted": "residuum.adaptation.adapted",
    "correlate_alignment": "residuum.evaluation.retrieval",
    "study": "residuum.studies.running",
    "report": "residuum.reporting.report",
    "sample": "residuum.samples",
    "load_model": "residuum.models.loading",
    "from_transformers": "residuum.models.loading",
    "from_module": "residuum.models.loading",
    "Model": "residuum.models.loading",
    "read_corpus": "residuum.corpus",
    "read_parallel": "residuum.corpus",
    "read_pairs": "residuum.evaluation.pairs",
    "read_transfer": "residuum.adaptation.corpora",
    "Corpus": "residuum.corpus",
    "Task": "residuum.corpus.tasks",
    "open_store": "residuum.activations.store",
    "ActivationStore": "residuum.activations.store",
    "Engine": "residuum.engine",
    "load_adapted": "residuum.adaptation.adapted",
    "FeatureTransfer": "residuum.shrinking.estimator",
    "ResiduumError": "residuum.errors",
    "MEASURES": "residuum.maths.similarity",
    "similarity": "residuum.maths.similarity",
    "cluster_neurons": "residuum.activations.correlation",
    "ablated": "residuum.models.ablation",
    "teacher_folder": "residuum.samples",
    "Result": "residuum.storage.results",
}

__all__ = ["__version__", *_HOMES]  # pyright: ignore[reportUnsupportedDunderAll]

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from residuum.activations.correlation import cluster_neurons
    from residuum.activations.exchange import export_activations, import_activations
    from residuum.activations.extraction import extract
    from residuum.activations.store import ActivationStore, open_store, verify
    from residuum.adaptation.adapted import evaluate_adapted, load_adapted
    from residuum.adaptation.adapting import adapt
    from residuum.adaptation.corpora import read_transfer
    from residuum.comparison.compare import compare
    from residuum.corpus import Corpus, read_corpus, read_parallel
    from residuum.corpus.tasks import Task
    from residuum.distillation.distilling import distill
    from residuum.engine import Engine
    from residuum.errors import ResiduumError
    from residuum.evaluation.pairs import read_pairs
    from residuum.evaluation.perplexity import evaluate_perplexity
    from residuum.evaluation.retrieval import correlate_alignment, evaluate_retrieval
    from residuum.maths.similarity import MEASURES, similarity
    from residuum.models.ablation import ablated
    from residuum.models.loading import Model, from_module, from_transformers, load_model
    from residuum.probing.ablate import ablate
    from residuum.probing.diff import diff
    from residuum.probing.languages import probe_languages
    from residuum.probing.neuron_cards import describe
    from residuum.probing.probe import probe
    from residuum.probing.rank import rank
    from residuum.probing.redundancy import redundancy
    from residuum.reporting.report import report
    from residuum.samples import sample, teacher_folder
    from residuum.shrinking.estimator import FeatureTransfer
    from residuum.shrinking.predicting import predict
    from residuum.shrinking.pruning import prune
    from residuum.shrinking.shrink import shrink
    from residuum.shrinking.transferring import transfer
    from residuum.shrinking.trimming import trim
    from residuum.storage.results import Result, Run
    from residuum.studies.running import study
    from residuum.training.finetuning import finetune
    from residuum.training.pretraining import pretrain


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'residuum' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


def _figure(run: Run, title: str, view: str) -> go.Figure:
    from residuum.reporting.report import run_figure

    return run_figure(run, title, view)


def _html(run: Run, frame: pd.DataFrame) -> str:
    from residuum.reporting.report import run_html

    return run_html(run, frame)


notebook.figure, notebook.html = _figure, _html  # results lie below the report that shows them
