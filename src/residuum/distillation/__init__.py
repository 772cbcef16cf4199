"""One multilingual teacher, many aligned students."""

from residuum.distillation.distilling import Distillation, distill

__all__ = ["Distillation", "distill"]
