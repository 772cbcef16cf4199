"""The shipped teacher: every preset trains students of it, which plain transformers reads."""

import numpy as np
import pytest
import torch
import transformers as hf

from residuum.distillation.distilling import distill
from residuum.distillation.settings import PRESETS, read_settings
from residuum.samples import sample, teacher_folder


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    for language in ("en", "tr"):
        lines = [" ".join(words) for words in sample("text", language=language, size=60).sentences]
        (folder / f"{language}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {language: str(folder / f"{language}.txt") for language in ("en", "tr")}


def settings(texts, **changes):
    return {
        "teacher": str(teacher_folder()),
        "texts": texts,
        "text": {"batch_size": 4, "max_length": 32, "held_out": 8},
        "optimiser": {"steps": 3, "learning_rate": 1e-3, "log_every": 1, **changes.pop("optimiser", {})},
        **changes,
    }


@pytest.mark.parametrize(
    "preset", [pytest.param(name, marks=() if name == "monoshot" else pytest.mark.slow) for name in PRESETS]
)
def test_students_of_a_preset_are_plain_masked_language_models(preset, texts, tmp_path):
    pairs = {"translations": {"en-tr": [texts["en"], texts["tr"]]}} if preset == "translation" else {}
    distill(read_settings(settings(texts, preset=preset, **pairs), out=tmp_path, progress=False))
    students = sorted((tmp_path / "students").iterdir())
    assert [s.name for s in students] == (["en-tr"] if PRESETS[preset].share == "all" else ["en", "tr"])
    teacher = hf.AutoModelForMaskedLM.from_pretrained(teacher_folder())
    for folder in students:
        model, info = hf.AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
        assert not info["missing_keys"]
        assert not info["unexpected_keys"]
        assert model.config.num_hidden_layers == teacher.config.num_hidden_layers // 2
        tokens = hf.AutoTokenizer.from_pretrained(folder)("Ali Ankara'da .", return_tensors="pt")
        with torch.no_grad():
            assert torch.isfinite(model(**tokens).logits).all()


@pytest.mark.slow
def test_half_precision_learns_as_full_precision_does(texts, tmp_path):
    last = {}
    for precision in ("float32", "bfloat16"):
        config = settings(texts, preset="hinton", optimiser={"steps": 20, "precision": precision, "log_every": 5})
        found = distill(read_settings(config, out=tmp_path / precision, progress=False))
        losses = found.losses.query("term == 'loss'")["value"]
        assert losses.iloc[-1] < losses.iloc[0]
        last[precision] = losses.iloc[-1]
    assert last["bfloat16"] == pytest.approx(last["float32"], rel=0.05)
    assert last["bfloat16"] != last["float32"]


@pytest.mark.slow
def test_onnx_students_answer_as_the_students_do(texts, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    distill(read_settings(settings(texts, preset="monoshot", onnx=True), out=tmp_path, progress=False))
    folder = tmp_path / "students" / "tr"
    tokens = hf.AutoTokenizer.from_pretrained(folder)(["Ali geldi .", "Ev büyük ve eski ."], padding=True)
    arrays = {name: np.array(tokens[name], np.int64) for name in ("input_ids", "attention_mask")}
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    found = session.run(None, {one.name: arrays[one.name] for one in session.get_inputs()})[0]
    model = hf.AutoModelForMaskedLM.from_pretrained(folder).eval()
    with torch.no_grad():
        expected = model(**{name: torch.from_numpy(array) for name, array in arrays.items()}).logits
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-4)
