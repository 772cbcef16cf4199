"""What does a model become when it learns a task?"""

from residuum.finetuning.tuned import Finetuning, finetune

__all__ = ["Finetuning", "finetune"]
