"""Which neurons does a task need, what do they react to, and does the model use them?"""

from residuum.ranking.descriptions import NeuronCards, neuron_cards
from residuum.ranking.lesions import Ablation, ablate
from residuum.ranking.neurons import NeuronRanking, rank_neurons

__all__ = ["Ablation", "NeuronCards", "NeuronRanking", "ablate", "neuron_cards", "rank_neurons"]
