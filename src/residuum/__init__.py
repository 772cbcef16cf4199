"""Find what a transformer repeats, and keep only what it needs.

The public names below are loaded on first use, so that `import residuum` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Ablation": "residuum.ranking",
    "ActivationStore": "residuum.activations.store",
    "Adaptation": "residuum.adaptation",
    "AdaptationSettings": "residuum.adaptation",
    "Adapted": "residuum.adaptation",
    "Comparison": "residuum.comparison",
    "Cost": "residuum.costs",
    "Corpus": "residuum.corpus",
    "Difference": "residuum.differences",
    "Distillation": "residuum.distillation",
    "Engine": "residuum.engine",
    "FeatureTransfer": "residuum.feature_transfer",
    "Finetuning": "residuum.finetuning",
    "LearningSettings": "residuum.tuning",
    "LanguageProbing": "residuum.probes",
    "MEASURES": "residuum.maths.similarity",
    "Model": "residuum.models",
    "NeuronRanking": "residuum.ranking",
    "Perplexity": "residuum.evaluation",
    "Pretraining": "residuum.pretraining",
    "Pruning": "residuum.pruning",
    "Probing": "residuum.probes",
    "Redundancy": "residuum.redundancies",
    "ResiduumError": "residuum.errors",
    "Retrieval": "residuum.evaluation",
    "Study": "residuum.studies.running",
    "Transfer": "residuum.feature_transfer",
    "ablate": "residuum.ranking",
    "ablated": "residuum.ablation",
    "adapt": "residuum.adaptation",
    "cluster_neurons": "residuum.activations.correlation",
    "compare": "residuum.comparison",
    "compare_cost": "residuum.comparison",
    "correlate_alignment": "residuum.evaluation",
    "diff": "residuum.differences",
    "distill": "residuum.distillation",
    "evaluate": "residuum.evaluation",
    "evaluate_adapted": "residuum.adaptation",
    "evaluate_perplexity": "residuum.evaluation",
    "evaluate_retrieval": "residuum.evaluation",
    "export_activations": "residuum.activations.exchange",
    "extract": "residuum.activations.extraction",
    "extract_cost": "residuum.activations.costs",
    "finetune": "residuum.finetuning",
    "from_module": "residuum.models",
    "from_transformers": "residuum.models",
    "import_activations": "residuum.activations.exchange",
    "load_adapted": "residuum.adaptation",
    "load_model": "residuum.models",
    "neuron_means": "residuum.activations.means",
    "open_store": "residuum.activations.store",
    "predict": "residuum.feature_transfer",
    "pretrain": "residuum.pretraining",
    "probe": "residuum.probes",
    "probe_cost": "residuum.task_costs",
    "probe_languages": "residuum.probes",
    "rank_cost": "residuum.task_costs",
    "rank_neurons": "residuum.ranking",
    "prune": "residuum.pruning",
    "read_corpus": "residuum.corpus",
    "read_pairs": "residuum.evaluation",
    "read_parallel": "residuum.corpus",
    "read_transfer": "residuum.adaptation",
    "redundancy": "residuum.redundancies",
    "redundancy_cost": "residuum.task_costs",
    "report": "residuum.reports",
    "sample": "residuum.samples",
    "similarity": "residuum.maths.similarity",
    "study": "residuum.studies.running",
    "teacher_folder": "residuum.samples",
    "transfer": "residuum.feature_transfer",
    "trim": "residuum.trimming",
}

__all__ = ["__version__", *_HOMES]  # pyright: ignore[reportUnsupportedDunderAll]

if TYPE_CHECKING:
    from residuum.ablation import ablated
    from residuum.activations.correlation import cluster_neurons
    from residuum.activations.costs import extract_cost
    from residuum.activations.exchange import export_activations, import_activations
    from residuum.activations.extraction import extract
    from residuum.activations.means import neuron_means
    from residuum.activations.store import ActivationStore, open_store
    from residuum.adaptation import (
        Adaptation,
        AdaptationSettings,
        Adapted,
        adapt,
        evaluate_adapted,
        load_adapted,
        read_transfer,
    )
    from residuum.comparison import Comparison, compare, compare_cost
    from residuum.corpus import Corpus, read_corpus, read_parallel
    from residuum.costs import Cost
    from residuum.differences import Difference, diff
    from residuum.distillation import Distillation, distill
    from residuum.engine import Engine
    from residuum.errors import ResiduumError
    from residuum.evaluation import (
        Perplexity,
        Retrieval,
        correlate_alignment,
        evaluate,
        evaluate_perplexity,
        evaluate_retrieval,
        read_pairs,
    )
    from residuum.feature_transfer import FeatureTransfer, Transfer, predict, transfer
    from residuum.finetuning import Finetuning, finetune
    from residuum.maths.similarity import MEASURES, similarity
    from residuum.models import Model, from_module, from_transformers, load_model
    from residuum.pretraining import Pretraining, pretrain
    from residuum.probes import LanguageProbing, Probing, probe, probe_languages
    from residuum.pruning import Pruning, prune
    from residuum.ranking import Ablation, NeuronRanking, ablate, rank_neurons
    from residuum.redundancies import Redundancy, redundancy
    from residuum.reports import report
    from residuum.samples import sample, teacher_folder
    from residuum.studies.running import Study, study
    from residuum.task_costs import probe_cost, rank_cost, redundancy_cost
    from residuum.trimming import trim
    from residuum.tuning import LearningSettings


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'residuum' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
