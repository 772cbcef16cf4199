"""The sample teacher: a small multilingual masked language model."""

from pathlib import Path

from residuum.errors import ModelError

_FOLDER = Path(__file__).with_name("teacher")


def teacher_folder() -> Path:
    """The folder of the sample teacher (XLM-R architecture; en, de, tr, sw), for `load_model` or `from_pretrained`.

    Its card, README.md, says what it was trained on, how to make it again, and what it scores.
    """
    if not (_FOLDER / "model.safetensors").exists():
        raise ModelError(
            f"{_FOLDER} holds no model.safetensors; the sample teacher is missing from this installation. Install the "
            "package again, or make the teacher with recipes/sample-teacher.yaml."
        )
    return _FOLDER
