"""Which neurons and layers are redundant, in general and for a task?"""

from residuum.redundancies.analysis import Redundancy, redundancy

__all__ = ["Redundancy", "redundancy"]
