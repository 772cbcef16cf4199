"""What ships with the package to try everything on: parallel treebanks and tasks with known truth.

A small grammar draws meanings and says each in English, German, Turkish and Swahili, with a full analysis of every
word. A small multilingual model that was pretrained with this package stands in for a teacher.
"""

from residuum.samples.corpora import sample
from residuum.samples.pretrained import teacher_folder
from residuum.samples.tasks import LANGUAGES, TASKS
from residuum.samples.texts import sample_text

__all__ = ["LANGUAGES", "TASKS", "sample", "sample_text", "teacher_folder"]
