"""Students: weights by the layer map, shared parts that are one, counts without duplicates, essential neurons."""

import numpy as np
import pytest
import torch
import transformers as hf

from residuum.comparison.compare import compare
from residuum.corpus import Corpus
from residuum.distillation.preparation import prepare
from residuum.distillation.students import EssentialNeurons, narrowed_weights, parameter_counts
from residuum.errors import ModelError, SettingError
from residuum.models.loading import load_model
from residuum.models.surgery import keep_layers, load_whole, save_whole
from teachers import LINES, save_teacher


def students_of(settings):
    prepared = prepare(settings)
    return prepared, {student.name: student.model for student in prepared.students}


def block(model, layer):
    return model.blocks[layer - 1].state_dict()


@pytest.mark.parametrize(
    ("choice", "layers"), [("uniform", [2, 4]), ("top", [3, 4]), ("bottom", [1, 2]), ([1, 4], [1, 4])]
)
def test_layers_embeddings_and_head_come_from_the_teacher_by_the_map(settings, choice, layers):
    prepared, models = students_of(settings(initialise_map=choice))
    teacher, student = prepared.teacher.model, models["en"]
    for m, n in enumerate(layers, 1):
        for key, value in block(student, m).items():
            assert torch.equal(value, block(teacher, n)[key])
    for key in ("lm_head.dense.weight", "lm_head.bias", "roberta.embeddings.word_embeddings.weight"):
        assert torch.equal(student.module.state_dict()[key], teacher.module.state_dict()[key])


def test_the_published_start_leaves_the_head_random_and_takes_other_layers(settings):
    prepared, models = students_of(settings(recipe="published"))
    mine, theirs = models["en"].module.state_dict(), prepared.teacher.model.module.state_dict()
    assert not torch.equal(mine["lm_head.dense.weight"], theirs["lm_head.dense.weight"])
    assert torch.equal(
        block(models["en"], 1)["output.dense.weight"], block(prepared.teacher.model, 1)["output.dense.weight"]
    )
    assert prepared.objective.layers == {1: 1, 2: 4}


def test_a_random_start_differs_from_the_teacher(settings):
    prepared, models = students_of(settings(initialise="random"))
    assert not torch.equal(
        block(models["en"], 1)["output.dense.weight"], block(prepared.teacher.model, 2)["output.dense.weight"]
    )


@pytest.mark.parametrize("family", ["xlm-roberta", "bert", "distilbert", "mpnet", "gpt2"])
def test_shared_and_tied_embeddings_are_one_parameter(settings, family):
    _, models = students_of(settings(family, preset="hinton+hidden"))
    words = [model.module.get_input_embeddings().weight for model in models.values()]
    decoders = [model.head.decoder.weight for model in models.values()]
    assert len({id(weight) for weight in (*words, *decoders)}) == 1
    first = [next(model.blocks[0].parameters()) for model in models.values()]
    assert first[0] is not first[1]


@pytest.mark.parametrize("family", ["xlm-roberta", "bert", "distilbert"])
def test_the_thesis_shares_the_whole_head(settings, family):
    """§3.2.3: g_share = {0, M+1}; every parameter outside the blocks is one and the same in both students."""
    for recipe, whole in (("thesis", True), ("corrected", False)):
        _, models = students_of(settings(family, recipe=recipe))
        outside = [
            {id(p) for p in model.module.parameters()} - {id(p) for p in model.blocks.parameters()}
            for model in models.values()
        ]
        assert (outside[0] == outside[1]) == whole
        blocks = [{id(p) for p in model.blocks.parameters()} for model in models.values()]
        assert not blocks[0] & blocks[1]


def test_untied_or_headless_students_of_the_thesis_share_the_embeddings_alone(settings):
    assert settings(recipe="thesis", tie=False).sharing == "embeddings"
    assert settings(recipe="thesis", preset="tinybert").sharing == "embeddings"
    assert settings(recipe="thesis", share="none").sharing == "none"


def test_what_is_shared_is_counted_once(settings):
    for share, shared_names in (("none", 0), ("embeddings", 1), (["embeddings", "head", 1], 3)):
        _, models = students_of(settings(share=share))
        counts = parameter_counts(models)
        unique = {id(p): p.numel() for model in models.values() for p in model.module.parameters()}
        assert counts["total"] == sum(unique.values())
        assert counts["en"] == counts["tr"] == models["en"].module.num_parameters()
        assert counts["total"] == counts["en"] + counts["tr"] - counts["shared"]
        assert (counts["shared"] > 0) == (shared_names > 0)


def test_untied_decoders_are_parameters_of_their_own(settings):
    _, models = students_of(settings(tie=False))
    assert models["en"].head.decoder.weight is not models["en"].module.get_input_embeddings().weight
    assert models["en"].head.decoder.weight is not models["tr"].head.decoder.weight


@pytest.mark.parametrize("family", ["xlm-roberta", "bert", "distilbert"])
def test_a_narrower_student_starts_from_essential_neurons_of_the_residual_stream(settings, family):
    narrow = settings(
        family, initialise="neurons", preset="hinton+hidden", shape={"hidden_size": 8, "intermediate_size": 10}
    )
    prepared, models = students_of(narrow)
    student, teacher = models["en"], prepared.teacher.model
    assert (student.hidden_size, student.n_heads) == (8, 1)
    mine = student.module.get_input_embeddings().weight
    theirs = teacher.module.get_input_embeddings().weight
    columns = [next(n for n in range(16) if torch.equal(theirs[:, n], mine[:, m])) for m in range(8)]
    assert columns == sorted(set(columns))
    norms = [part for part in student.base.modules() if isinstance(part, torch.nn.LayerNorm)]
    assert all(norm.weight.shape == (8,) for norm in norms)
    last_norm = [
        p for name, p in teacher.blocks[3].named_parameters() if name.lower().endswith("output.layernorm.weight")
    ]
    if last_norm:  # the same neurons in the last layer as in the embeddings
        own = [
            p for name, p in student.blocks[1].named_parameters() if name.lower().endswith("output.layernorm.weight")
        ]
        assert torch.equal(own[-1], last_norm[-1][columns])


def test_essential_neurons_keep_whole_heads_whatever_the_teachers_number_divides(settings, tmp_path):
    """3 heads of 8 neurons: 16 neurons are 2 heads, although 3 heads cannot divide 16."""
    teacher = save_teacher("xlm-roberta", tmp_path, hidden_size=24, num_attention_heads=3)
    narrow = {"shape": {"hidden_size": 16}, "initialise": "neurons"}
    _, models = students_of(settings(teacher=str(teacher), preset="hinton+hidden", **narrow))
    assert (models["en"].hidden_size, models["en"].n_heads) == (16, 2)
    with pytest.raises(SettingError, match="attention_mse compares head by head, but the students have 2 heads"):
        students_of(settings(teacher=str(teacher), preset="monoshot", **narrow))
    shallow = {"shape": {"intermediate_size": 10}, "initialise": "neurons"}  # all heads stay, so they can be compared
    prepared, _ = students_of(settings(teacher=str(teacher), preset="monoshot", **shallow))
    assert torch.isfinite(prepared.step(prepared.batches(0)).total)


def test_weights_are_narrowed_on_the_device_that_they_are_on(teacher_folder):
    teacher = hf.AutoModelForMaskedLM.from_pretrained(teacher_folder("xlm-roberta")).to("meta")
    kept = EssentialNeurons(np.arange(8), heads=1, head_size=8, inner=10)
    narrow = narrowed_weights(teacher.state_dict(), kept)
    assert {value.device.type for value in narrow.values()} == {"meta"}
    assert narrow["roberta.encoder.layer.0.intermediate.dense.weight"].shape == (10, 8)


def test_a_measured_map_is_read_from_a_run_of_compare(settings, teacher_folder, tmp_path):
    """A model of the teacher's first two blocks has the teacher's own layers 1 and 2, which are found."""
    teacher = teacher_folder("xlm-roberta")
    small, tokenizer = load_whole(teacher)
    keep_layers(small, [1, 2])
    save_whole(small, tokenizer, tmp_path / "small")
    sentences = [line.split() for lines in LINES.values() for line in lines]
    corpus = Corpus(name="lines", sentences=sentences)
    models = [load_model(folder, device="cpu") for folder in (teacher, tmp_path / "small")]
    compare(models, corpus, measures="cka", out=tmp_path / "run", groups=2, workers=1, progress=False)
    choice = {"run": str(tmp_path / "run"), "student": "small", "teacher": "xlm-roberta"}
    prepared, students = students_of(settings(layer_map=choice, initialise_map=choice))
    assert prepared.objective.layers == {1: 1, 2: 2}
    for layer in (1, 2):
        for key, value in block(students["en"], layer).items():
            assert torch.equal(value, block(prepared.teacher.model, layer)[key])
    with pytest.raises(SettingError, match="does not compare large"):
        students_of(settings(layer_map={**choice, "student": "large"}))


def test_shapes_that_cannot_be_built_say_what_to_change(settings):
    with pytest.raises(SettingError, match="Set initialise to neurons or random"):
        students_of(settings(shape={"hidden_size": 8}))
    with pytest.raises(SettingError, match="2 heads cannot divide"):
        students_of(settings(shape={"hidden_size": 9}, initialise="random"))
    with pytest.raises(SettingError, match="keeps whole heads of 8"):
        students_of(settings(shape={"hidden_size": 12}, initialise="neurons", preset="hinton"))
    with pytest.raises(SettingError, match="attention_mse compares head by head"):
        students_of(settings(shape={"hidden_size": 8, "heads": 1}, initialise="random"))
    with pytest.raises(SettingError, match="student of 9 layers cannot learn from a teacher of 4"):
        students_of(settings(shape={"layers": 9}))
    with pytest.raises(SettingError, match="attention_mse compares head by head, but the students have 1 heads"):
        students_of(settings(shape={"hidden_size": 8}, initialise="neurons"))
    with pytest.raises(SettingError, match="share names layer 7"):
        students_of(settings(share=[7]))
    with pytest.raises(SettingError, match="leaves layers without weights"):
        students_of(settings(initialise_map="last"))
    with pytest.raises(ModelError, match="relative_attention_bias"):
        students_of(settings("mpnet", shape={"hidden_size": 8}, initialise="neurons", preset="hinton"))
