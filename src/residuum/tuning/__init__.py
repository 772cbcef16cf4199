"""Training modules on labelled tasks: problems, encoding, heads, freezing, learning and scoring."""

from residuum.tuning.learning import LearningSettings, Lesson, learn
from residuum.tuning.problems import Problem, problem_of

__all__ = ["LearningSettings", "Lesson", "Problem", "learn", "problem_of"]
