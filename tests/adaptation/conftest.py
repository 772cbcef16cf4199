"""Two students of one shape and one vocabulary."""

import pytest

from tiny import save_model


@pytest.fixture(scope="session")
def students(tmp_path_factory):
    """The folders of a source and a target student."""
    root = tmp_path_factory.mktemp("students")
    return save_model("xlm-roberta", root / "en", seed=0), save_model("xlm-roberta", root / "tr", seed=1)
