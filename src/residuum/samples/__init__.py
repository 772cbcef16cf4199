"""Sample data and model: parallel treebanks and tasks with gold labels, and a small multilingual teacher.

A small grammar draws meanings and renders each in English, German, Turkish and Swahili, with a full analysis of every
word. The teacher was pretrained with this package.
"""

from residuum.samples.corpora import sample, sample_text, teacher_folder
from residuum.samples.settings import LANGUAGES, TASKS

__all__ = ["LANGUAGES", "TASKS", "sample", "sample_text", "teacher_folder"]
