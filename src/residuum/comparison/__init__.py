"""Which layers, neurons and heads of these models are alike?"""

from residuum.comparison.comparing import Comparison, compare

__all__ = ["Comparison", "compare"]
