"""Settings are checked whole before anything is loaded, and every fault names its key."""

import pytest

from residuum.distillation.distilling import training_settings
from residuum.distillation.settings import (
    HEADLESS,
    PRESETS,
    RECIPES,
    TABLE_4_7,
    TERMS,
    DistillSettings,
    in_effect,
    read_settings,
)
from residuum.errors import SettingError

MINIMAL = {"teacher": "t", "texts": {"en": "en.txt", "tr": "tr.txt"}, "preset": "monoshot"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"preset": "monoshto"}, "There is no preset 'monoshto'; choose one of hinton"),
        ({"preset": None}, "Pass either preset= or losses="),
        ({"preset": None, "losses": {"mlm": 0.5}}, "losses: the weights add up to 0.5; expected 1"),
        ({"preset": None, "losses": {"mml": 1}}, "losses: there is no loss term 'mml'; choose from mlm"),
        ({"students": {"a": ["en", "fi"]}}, "students.a learns fi, which has no text; texts has en, tr"),
        ({"students": {"a": ["en"]}}, "texts.tr is learnt by no student"),
        ({"texts": {}}, "expected at least one LANGUAGE=TEXT"),
        ({"recipe": "own"}, "recipe is 'own'; expected one of corrected, thesis, published"),
        ({"optimiser": {"steps": 0}}, "optimiser: steps is 0; expected a whole number at least 1"),
        ({"recipe": "thesis", "optimiser": {"accumulation": 2}}, "set optimiser.accumulation to 1"),
        ({"evaluation": {"pairs": {"en-fi": ["a", "b"]}}}, "evaluation.pairs.en-fi: fi is not among texts"),
        ({"studens": {}}, "The configuration has no setting 'studens'; did you mean 'students'?"),
        ({"optimiser": {"step": 1}}, "OptimiserSettings has no setting 'step'; did you mean 'steps'?"),
        ({"students": {"a": []}}, "students.a learns nothing"),
        ({"students": {"a b": ["en", "tr"]}}, "'a b' is no name of a language or student"),
        ({"students": {"..": ["en", "tr"]}}, "'..' is no name of a language or student"),
        ({"losses": {"mlm": 2, "soft": -1}, "preset": None}, "losses.soft is -1"),
        (
            {"layer_map": {"run": "r", "student": "s", "teacher": "t", "by": "cka"}},
            "expected one of uniform, top, bottom, last or whole numbers separated by commas or MeasuredMap",
        ),
        ({"share": ["foo"]}, "share has 'foo'; expected none, embeddings, all, or a list of embeddings, head and"),
        ({"share": "head"}, "add embeddings to share or set tie to false"),
        ({"share": ["embeddings", 0]}, "share has 0; expected"),
        ({"share": [True]}, "share has True; expected"),
        ({"share": ["head"]}, "add embeddings to share or set tie to false"),
        ({"translations": {"en-tr": ["a", "b"]}}, "the loss has neither the term contrastive nor translation_mse"),
        ({"preset": "translation"}, "translation_mse compares translations, and none are given"),
        (
            {
                "preset": None,
                "losses": {"contrastive": 1},
                "recipe": "thesis",
                "translations": {"en-tr": ["a", "b"]},
            },
            "Recipe thesis moves one student after the other, but translations compare two; set recipe to corrected",
        ),
        ({"preset": None, "losses": {"adversarial": 1}, "texts": {"en": "a"}}, "texts has only en; add another"),
        ({"recipe": "published", "teacher_cache": "c"}, "recipe published also compares padding"),
        ({"optimiser": {"clip": 0}}, "optimiser: clip is 0.0; expected"),
    ],
)
def test_every_fault_names_its_key_and_what_is_allowed(change, message):
    with pytest.raises(SettingError) as caught:
        read_settings({**MINIMAL, **change})
    assert message in str(caught.value)


def test_files_that_hold_no_settings_are_told_apart(tmp_path):
    with pytest.raises(SettingError, match="does not exist"):
        read_settings(tmp_path / "none.yaml")
    (tmp_path / "list.yaml").write_text("- a\n")
    with pytest.raises(SettingError, match="expected settings by name"):
        read_settings(tmp_path / "list.yaml")
    (tmp_path / "broken.yaml").write_text("a: [\n")
    with pytest.raises(SettingError, match="is not YAML"):
        read_settings(tmp_path / "broken.yaml")


def test_changes_override_the_file(tmp_path):
    (tmp_path / "c.yaml").write_text("teacher: t\ntexts: {en: a}\nlosses: {mlm: 1}\noptimiser: {steps: 5, clip: 2}\n")
    merged = read_settings(tmp_path / "c.yaml", losses=None, preset="hinton", seed=3)
    assert (merged.preset, merged.losses, merged.optimiser.steps, merged.optimiser.clip) == ("hinton", None, 5, 2)
    assert merged.seed == 3


def test_texts_are_named_on_the_command_line_too():
    settings = DistillSettings("t", ["en=en.txt", "tr=tr.txt"], preset="hinton", share="embeddings,head,2")
    assert settings.texts == {"en": "en.txt", "tr": "tr.txt"}
    assert settings.share == ("embeddings", "head", 2)


def test_one_student_per_language_unless_all_is_shared():
    assert list(read_settings(MINIMAL).learners) == ["en", "tr"]
    bilingual = read_settings({**MINIMAL, "preset": "bilingual-monoshot"})
    assert bilingual.learners == {"en-tr": ("en", "tr")}


def test_every_loss_of_the_table_has_a_bilingual_twin():
    for name in TABLE_4_7:
        twin = PRESETS[f"bilingual-{name}"]
        assert (twin.weights, twin.layer_map) == (PRESETS[name].weights, PRESETS[name].layer_map)
        assert list(read_settings({**MINIMAL, "preset": f"bilingual-{name}"}).learners) == ["en-tr"]


def test_gradients_are_clipped_in_the_corrected_recipe_unless_told_otherwise():
    clips = {recipe: read_settings({**MINIMAL, "recipe": recipe}).clip for recipe in RECIPES}
    assert clips == {"corrected": 1.0, "thesis": None, "published": None}
    for value in (None, 3.0):
        chosen = {**MINIMAL, "recipe": "thesis", "optimiser": {"clip": value}}
        assert read_settings(chosen).clip == value
        assert read_settings(read_settings(chosen)).clip == value


def test_the_published_optimiser_has_its_own_epsilon():
    chosen = [read_settings({**MINIMAL, "recipe": recipe}) for recipe in RECIPES]
    assert [training_settings(one).epsilon for one in chosen] == [1e-8, 1e-8, 1e-6]
    assert training_settings(read_settings({**MINIMAL, "optimiser": {"epsilon": 1e-7}})).epsilon == 1e-7


def test_published_weights_are_those_of_the_thesis_code():
    assert PRESETS["monoshot"].weights_for("published") == {
        "mlm": 0.0005,
        "soft": 0.0005,
        "hidden_cos": 0.333,  # which its configuration binds to cosine; the thesis' table 3.1 has MSE
        "attention_mse": 0.333,
        "embedding_mse": 0.333,
    }
    assert "hidden_mse" in PRESETS["monoshot"].weights_for("thesis")
    assert "hidden_mse" in PRESETS["monoalignment"].weights_for("published")
    assert PRESETS["monoalignment"].layer_map == "last"
    assert len(TABLE_4_7) == 10
    assert all(abs(sum(p.weights.values()) - 1) < 0.0011 and set(p.weights) <= set(TERMS) for p in PRESETS.values())


def test_corrected_weights_keep_the_proportions_that_published_sums_had():
    corrected = in_effect({"mlm": 0.5, "soft": 0.5})
    assert sum(corrected.values()) == pytest.approx(1)
    assert corrected["soft"] / corrected["mlm"] == pytest.approx(128)  # a sum over 128 positions became a mean


def test_presets_without_logits_are_offered_to_teachers_without_a_head():
    assert {"tinybert", "minilm", "hidden+attention+embedding"} <= set(HEADLESS)
    assert "monoshot" not in HEADLESS
