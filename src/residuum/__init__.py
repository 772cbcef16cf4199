"""Find what a transformer repeats, and keep only what it needs.

The public names below are loaded on first use, so that `import residuum` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Ablation": "residuum.probing.lesions",
    "ActivationStore": "residuum.activations.store",
    "Adaptation": "residuum.adaptation",
    "AdaptationSettings": "residuum.adaptation",
    "Adapted": "residuum.adaptation",
    "AdaptedScores": "residuum.adaptation",
    "AlignmentCorrelation": "residuum.evaluation",
    "Comparison": "residuum.comparison",
    "Cost": "residuum.costs",
    "Corpus": "residuum.corpus",
    "Difference": "residuum.probing.diff",
    "Distillation": "residuum.distillation",
    "Engine": "residuum.engine",
    "FeatureTransfer": "residuum.shrinking.estimator",
    "Finetuning": "residuum.training.finetuning",
    "LearningSettings": "residuum.training.learning",
    "LanguageProbing": "residuum.probing.languages",
    "MEASURES": "residuum.maths.similarity",
    "Model": "residuum.models.loading",
    "NeuronCards": "residuum.probing.descriptions",
    "NeuronRanking": "residuum.probing.ranking",
    "Perplexity": "residuum.evaluation",
    "Pretraining": "residuum.training.pretraining",
    "Pruning": "residuum.shrinking.pruning",
    "Probing": "residuum.probing.probing",
    "Redundancy": "residuum.probing.redundancy",
    "ResiduumError": "residuum.errors",
    "Retrieval": "residuum.evaluation",
    "Study": "residuum.studies.running",
    "Transfer": "residuum.shrinking.transferring",
    "ablate": "residuum.probing.lesions",
    "ablate_cost": "residuum.probing.rank_costs",
    "ablated": "residuum.models.ablation",
    "cards_cost": "residuum.probing.rank_costs",
    "adapt": "residuum.adaptation",
    "adapt_cost": "residuum.adaptation.costs",
    "cluster_neurons": "residuum.activations.correlation",
    "compare": "residuum.comparison",
    "compare_cost": "residuum.comparison",
    "correlate_alignment": "residuum.evaluation",
    "diff": "residuum.probing.diff",
    "diff_cost": "residuum.probing.diff_costs",
    "distill": "residuum.distillation",
    "evaluate_adapted": "residuum.adaptation",
    "evaluate_adapted_cost": "residuum.adaptation.costs",
    "evaluate_perplexity": "residuum.evaluation",
    "evaluate_retrieval": "residuum.evaluation",
    "export_activations": "residuum.activations.exchange",
    "extract": "residuum.activations.extraction",
    "extract_cost": "residuum.activations.estimates",
    "finetune": "residuum.training.finetuning",
    "finetune_cost": "residuum.training.finetuning_costs",
    "from_module": "residuum.models.loading",
    "from_transformers": "residuum.models.loading",
    "import_activations": "residuum.activations.exchange",
    "import_cost": "residuum.activations.exchange",
    "languages_cost": "residuum.probing.probe_costs",
    "load_adapted": "residuum.adaptation",
    "load_model": "residuum.models.loading",
    "neuron_cards": "residuum.probing.descriptions",
    "neuron_means": "residuum.activations.store",
    "open_store": "residuum.activations.store",
    "perplexity_cost": "residuum.evaluation.costs",
    "predict": "residuum.shrinking.predicting",
    "pretrain": "residuum.training.pretraining",
    "pretrain_cost": "residuum.training.pretraining_costs",
    "probe": "residuum.probing.probing",
    "probe_cost": "residuum.probing.task_costs",
    "probe_languages": "residuum.probing.languages",
    "rank_cost": "residuum.probing.rank_costs",
    "rank_neurons": "residuum.probing.ranking",
    "prune": "residuum.shrinking.pruning",
    "prune_cost": "residuum.shrinking.pruning",
    "read_corpus": "residuum.corpus",
    "read_pairs": "residuum.evaluation",
    "read_parallel": "residuum.corpus",
    "read_transfer": "residuum.adaptation",
    "redundancy": "residuum.probing.redundancy",
    "redundancy_cost": "residuum.probing.task_costs",
    "report": "residuum.reporting.reporting",
    "retrieval_cost": "residuum.evaluation.costs",
    "sample": "residuum.samples",
    "similarity": "residuum.maths.similarity",
    "study": "residuum.studies.running",
    "study_cost": "residuum.studies.running",
    "teacher_folder": "residuum.samples",
    "transfer": "residuum.shrinking.transferring",
    "transfer_cost": "residuum.shrinking.estimates",
    "trim": "residuum.shrinking.trimming",
    "trim_cost": "residuum.shrinking.trimming",
    "within": "residuum.costs",
}

__all__ = ["__version__", *_HOMES]  # pyright: ignore[reportUnsupportedDunderAll]

if TYPE_CHECKING:
    from residuum.activations.correlation import cluster_neurons
    from residuum.activations.estimates import extract_cost
    from residuum.activations.exchange import export_activations, import_activations, import_cost
    from residuum.activations.extraction import extract
    from residuum.activations.store import ActivationStore, neuron_means, open_store
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
    from residuum.distillation import Distillation, distill
    from residuum.engine import Engine
    from residuum.errors import ResiduumError
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
    from residuum.maths.similarity import MEASURES, similarity
    from residuum.models.ablation import ablated
    from residuum.models.loading import Model, from_module, from_transformers, load_model
    from residuum.probing.descriptions import NeuronCards, neuron_cards
    from residuum.probing.diff import Difference, diff
    from residuum.probing.diff_costs import diff_cost
    from residuum.probing.languages import LanguageProbing, probe_languages
    from residuum.probing.lesions import Ablation, ablate
    from residuum.probing.probe_costs import languages_cost
    from residuum.probing.probing import Probing, probe
    from residuum.probing.rank_costs import ablate_cost, cards_cost, rank_cost
    from residuum.probing.ranking import NeuronRanking, rank_neurons
    from residuum.probing.redundancy import Redundancy, redundancy
    from residuum.probing.task_costs import probe_cost, redundancy_cost
    from residuum.reporting.reporting import report
    from residuum.samples import sample, teacher_folder
    from residuum.shrinking.estimates import transfer_cost
    from residuum.shrinking.estimator import FeatureTransfer
    from residuum.shrinking.predicting import predict
    from residuum.shrinking.pruning import Pruning, prune, prune_cost
    from residuum.shrinking.transferring import Transfer, transfer
    from residuum.shrinking.trimming import trim, trim_cost
    from residuum.studies.running import Study, study, study_cost
    from residuum.training.finetuning import Finetuning, finetune
    from residuum.training.finetuning_costs import finetune_cost
    from residuum.training.learning import LearningSettings
    from residuum.training.pretraining import Pretraining, pretrain
    from residuum.training.pretraining_costs import pretrain_cost


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'residuum' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
