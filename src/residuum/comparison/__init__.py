"""Which layers, neurons and heads of these models are alike?"""

from residuum.comparison.comparing import Comparison, compare, compare_cost

__all__ = ["Comparison", "compare", "compare_cost"]
