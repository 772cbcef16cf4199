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
    "AdaptedScores": "residuum.adaptation",
    "AlignmentCorrelation": "residuum.evaluation",
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
    "NeuronCards": "residuum.ranking",
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
    "ablate_cost": "residuum.ranking.costs",
    "ablated": "residuum.ablation",
    "cards_cost": "residuum.ranking.costs",
    "adapt": "residuum.adaptation",
    "adapt_cost": "residuum.adaptation.costs",
    "cluster_neurons": "residuum.activations.correlation",
    "compare": "residuum.comparison",
    "compare_cost": "residuum.comparison",
    "correlate_alignment": "residuum.evaluation",
    "diff": "residuum.differences",
    "diff_cost": "residuum.differences.costs",
    "distill": "residuum.distillation",
    "evaluate": "residuum.evaluating",
    "evaluate_adapted": "residuum.adaptation",
    "evaluate_adapted_cost": "residuum.adaptation.costs",
    "evaluate_perplexity": "residuum.evaluation",
    "evaluate_retrieval": "residuum.evaluation",
    "export_activations": "residuum.activations.exchange",
    "extract": "residuum.activations.extraction",
    "extract_cost": "residuum.activations.costs",
    "finetune": "residuum.finetuning",
    "finetune_cost": "residuum.finetuning.costs",
    "from_module": "residuum.models",
    "from_transformers": "residuum.models",
    "import_activations": "residuum.activations.exchange",
    "import_cost": "residuum.activations.exchange",
    "languages_cost": "residuum.probes.costs",
    "load_adapted": "residuum.adaptation",
    "load_model": "residuum.models",
    "neuron_cards": "residuum.ranking",
    "neuron_means": "residuum.activations.means",
    "open_store": "residuum.activations.store",
    "perplexity_cost": "residuum.evaluation.costs",
    "predict": "residuum.feature_transfer",
    "pretrain": "residuum.pretraining",
    "pretrain_cost": "residuum.pretraining.costs",
    "probe": "residuum.probes",
    "probe_cost": "residuum.task_costs",
    "probe_languages": "residuum.probes",
    "rank_cost": "residuum.ranking.costs",
    "rank_neurons": "residuum.ranking",
    "prune": "residuum.pruning",
    "prune_cost": "residuum.pruning",
    "read_corpus": "residuum.corpus",
    "read_pairs": "residuum.evaluation",
    "read_parallel": "residuum.corpus",
    "read_transfer": "residuum.adaptation",
    "redundancy": "residuum.redundancies",
    "redundancy_cost": "residuum.task_costs",
    "report": "residuum.reports",
    "retrieval_cost": "residuum.evaluation.costs",
    "sample": "residuum.samples",
    "similarity": "residuum.maths.similarity",
    "study": "residuum.studies.running",
    "study_cost": "residuum.studies.running",
    "teacher_folder": "residuum.samples",
    "transfer": "residuum.feature_transfer",
    "transfer_cost": "residuum.feature_transfer",
    "trim": "residuum.trimming",
    "trim_cost": "residuum.trimming",
    "within": "residuum.costs",
}

__all__ = ["__version__", *_HOMES]  # pyright: ignore[reportUnsupportedDunderAll]

if TYPE_CHECKING:
    from residuum.ablation import ablated
    from residuum.activations.correlation import cluster_neurons
    from residuum.activations.costs import extract_cost
    from residuum.activations.exchange import export_activations, import_activations, import_cost
    from residuum.activations.extraction import extract
    from residuum.activations.means import neuron_means
    from residuum.activations.store import ActivationStore, open_store
    from residuum.adaptation import (
        Adaptation,
        AdaptationSettings,
        Adapted,
        AdaptedScores,
        adapt,
        evaluate_adapted,
        load_adapted,
        read_transfer,
    )
    from residuum.adaptation.costs import adapt_cost, evaluate_adapted_cost
    from residuum.comparison import Comparison, compare, compare_cost
    from residuum.corpus import Corpus, read_corpus, read_parallel
    from residuum.costs import Cost, within
    from residuum.differences import Difference, diff
    from residuum.differences.costs import diff_cost
    from residuum.distillation import Distillation, distill
    from residuum.engine import Engine
    from residuum.errors import ResiduumError
    from residuum.evaluating import evaluate
    from residuum.evaluation import (
        AlignmentCorrelation,
        Perplexity,
        Retrieval,
        correlate_alignment,
        evaluate_perplexity,
        evaluate_retrieval,
        read_pairs,
    )
    from residuum.evaluation.costs import perplexity_cost, retrieval_cost
    from residuum.feature_transfer import FeatureTransfer, Transfer, predict, transfer, transfer_cost
    from residuum.finetuning import Finetuning, finetune
    from residuum.finetuning.costs import finetune_cost
    from residuum.maths.similarity import MEASURES, similarity
    from residuum.models import Model, from_module, from_transformers, load_model
    from residuum.pretraining import Pretraining, pretrain
    from residuum.pretraining.costs import pretrain_cost
    from residuum.probes import LanguageProbing, Probing, probe, probe_languages
    from residuum.probes.costs import languages_cost
    from residuum.pruning import Pruning, prune, prune_cost
    from residuum.ranking import Ablation, NeuronCards, NeuronRanking, ablate, neuron_cards, rank_neurons
    from residuum.ranking.costs import ablate_cost, cards_cost, rank_cost
    from residuum.redundancies import Redundancy, redundancy
    from residuum.reports import report
    from residuum.samples import sample, teacher_folder
    from residuum.studies.running import Study, study, study_cost
    from residuum.task_costs import probe_cost, redundancy_cost
    from residuum.trimming import trim, trim_cost
    from residuum.tuning import LearningSettings


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'residuum' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
