"""How well do the layers of a model say what words and sentences are, in one language and in others?"""

from residuum.probes.languages import LanguageProbing, probe_languages
from residuum.probes.probing import Probing, probe

__all__ = ["LanguageProbing", "Probing", "probe", "probe_languages"]
