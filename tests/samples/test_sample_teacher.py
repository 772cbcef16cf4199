"""The teacher that ships: there, small, and able to find translations."""

from __future__ import annotations

import pytest

from residuum.errors import ModelError
from residuum.samples import pretrained, teacher_folder


def test_a_missing_teacher_says_how_to_make_it(tmp_path, monkeypatch):
    monkeypatch.setattr(pretrained, "_FOLDER", tmp_path)
    with pytest.raises(ModelError, match="holds no model.safetensors.*recipes/sample-teacher.yaml"):
        teacher_folder()


@pytest.mark.skipif(not (pretrained._FOLDER / "model.safetensors").exists(), reason="the teacher is not built yet")
class TestTheTeacher:
    def test_loads_plainly_as_a_masked_language_model(self):
        from transformers import AutoModelForMaskedLM

        model, info = AutoModelForMaskedLM.from_pretrained(teacher_folder(), output_loading_info=True)
        assert not info["missing_keys"]
        assert model.config.model_type == "xlm-roberta"
        assert model.config.num_hidden_layers == 6
        assert sum(p.numel() for p in model.parameters()) <= 7_000_000
        assert (teacher_folder() / "model.safetensors").stat().st_size <= 14_000_000

    def test_has_a_card_with_data_licences_command_and_scores(self):
        card = (teacher_folder() / "README.md").read_text(encoding="utf-8")
        for part in ("CC0", "CC BY", "residuum pretrain", "in a retrieval set", "perplexity sw", "retrieval tr layer"):
            assert part in card
