"""Which neurons does a task need, what do they react to, and does the model use them?"""

from residuum.ranking.lesions import Ablation, ablate
from residuum.ranking.neurons import NeuronRanking, rank_neurons

__all__ = ["Ablation", "NeuronRanking", "ablate", "rank_neurons"]
