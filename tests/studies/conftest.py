"""A very small scale, and the context of a study on the sample teacher."""

from dataclasses import replace

import pytest

from residuum.samples import teacher_folder
from residuum.studies import steps
from residuum.studies.data import SampleData
from residuum.studies.steps import SCALES, StudyContext


@pytest.fixture(scope="session")
def tiny():
    """A scale on which a whole study takes seconds."""
    return replace(
        SCALES["sample"],
        sentences=40,
        examples=48,
        epochs=1.0,
        probe_epochs=2,
        groups=2,
        distillation_steps=3,
        distillation_batch=4,
    )


@pytest.fixture
def tiny_sample(tiny, monkeypatch):
    """`--scale sample` is the tiny scale."""
    monkeypatch.setitem(steps.SCALES, "sample", tiny)


@pytest.fixture
def sample_context(tiny, tmp_path):
    """The context of a study on the sample teacher at the tiny scale."""
    return StudyContext(tiny, {"teacher": str(teacher_folder())}, SampleData(tiny), tmp_path, device="cpu")
