"""How does a task that was learnt in one language reach the students of others?"""

from residuum.adaptation.adapting import Adaptation, adapt
from residuum.adaptation.evaluating import AdaptedScores, evaluate_adapted
from residuum.adaptation.files import read_transfer
from residuum.adaptation.folders import Adapted, load_adapted
from residuum.adaptation.settings import AdaptationSettings
from residuum.adaptation.strategies import STRATEGIES

__all__ = [
    "STRATEGIES",
    "Adaptation",
    "AdaptationSettings",
    "Adapted",
    "AdaptedScores",
    "adapt",
    "evaluate_adapted",
    "load_adapted",
    "read_transfer",
]
