"""Students: weights by the layer map, shared parts that are one, counts without duplicates, essential neurons."""

import pytest
import torch

from residuum.distillation.preparation import prepare
from residuum.distillation.students import parameter_counts
from residuum.errors import ModelError, SettingError


def students_of(settings):
    prepared = prepare(settings, "cpu")
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
    with pytest.raises(SettingError, match="share names layer 7"):
        students_of(settings(share=[7]))
    with pytest.raises(SettingError, match="leaves layers without weights"):
        students_of(settings(initialise_map="last"))
    with pytest.raises(ModelError, match="relative_attention_bias"):
        students_of(settings("mpnet", shape={"hidden_size": 8}, initialise="neurons", preset="hinton"))
