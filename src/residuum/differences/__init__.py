"""What did fine-tuning, pruning or distillation do to what a model knows?"""

from residuum.differences.differing import Difference, diff

__all__ = ["Difference", "diff"]
