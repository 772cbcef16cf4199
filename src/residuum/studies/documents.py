"""The studies by name, in the order in which their documents build on each other."""

from __future__ import annotations

from residuum.errors import SettingError
from residuum.studies.declarations import Document
from residuum.studies.distilled import DISTILLED
from residuum.studies.monolingual import MONOLINGUAL
from residuum.studies.redundancy import REDUNDANCY
from residuum.studies.similarity import SIMILARITY
from residuum.studies.transfer_learning import TRANSFER_LEARNING

DOCUMENTS: dict[str, Document] = {
    document.name: document for document in (SIMILARITY, REDUNDANCY, TRANSFER_LEARNING, DISTILLED, MONOLINGUAL)
}


def named_document(name: str) -> Document:
    """The study of that name."""
    if name not in DOCUMENTS:
        raise SettingError(f"There is no study {name!r}; choose one of {', '.join(DOCUMENTS)}.")
    return DOCUMENTS[name]
