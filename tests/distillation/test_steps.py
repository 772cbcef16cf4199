"""Steps against transcriptions that use full logits, plain losses and one student after the other."""

import copy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from safetensors.torch import load_file, save_file

from residuum.distillation.distilling import distill
from residuum.distillation.networks import LanguageModel
from residuum.distillation.preparation import prepare
from residuum.distillation.settings import PRESETS, read_settings
from residuum.distillation.teaching import Teacher
from residuum.distillation.texts import IGNORED
from residuum.errors import MemoryLimitError, ModelError, SettingError, StoreError
from residuum.maths import losses
from residuum.training.loop import train
from residuum.training.optimisation import trainable_groups
from residuum.training.settings import TrainingSettings
from teachers import save_teacher


def plain_loss(prepared, module, batch, project=lambda layer, states: states):
    """Hinton + hidden MSE as the formulas say: whole logits, boolean indexing, no chunks, no sharing of work."""
    weights, layers = prepared.objective.weights, prepared.objective.layers
    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"], "output_hidden_states": True}
    with torch.no_grad():
        teacher = prepared.teacher.model.module(**inputs)
    student = module(**inputs)
    mask, masked = batch["attention_mask"].bool(), batch["labels"] != IGNORED
    mlm = F.cross_entropy(student.logits[masked], batch["labels"][masked])
    compared = batch["soft"] & mask
    temperature = prepared.objective.temperature
    soft = losses.soft_divergence(student.logits[compared], teacher.logits[compared], temperature).mean()
    hidden = sum(
        (project(m, student.hidden_states[m][mask]) - teacher.hidden_states[n][mask]).square().mean()
        for m, n in layers.items()
    )
    return weights["mlm"] * mlm + weights["soft"] * soft + weights["hidden_mse"] * hidden


def test_weights_and_temperature_follow_their_schedules(settings):
    losses = {"mlm": 0.5, "soft": 0.25, "hidden_mse": 0.25}
    schedules = {"temperature": (8.0, 2.0), "mlm": (0.0, 0.5), "hidden_mse": (1.0, 0.0)}
    prepared = prepare(settings(losses=losses, schedules=schedules, optimiser={"steps": 5}))
    batch = prepared.batches(2)
    assert batch["progress"] == 0.5
    now = prepare(settings(losses={"mlm": 0.25, "soft": 0.25, "hidden_mse": 0.5}, temperature=5.0))
    expected, found = now.step(now.batches(2)), prepared.step(batch)
    torch.testing.assert_close(found.total, expected.total)
    assert found.terms.keys() == expected.terms.keys()
    assert not any(name.startswith("mlm") for name in prepared.step(prepared.batches(0)).terms)  # its weight is 0
    for wrong, message in (
        ({"temperature": (0, 1)}, "expected two numbers above 0"),
        ({"cls_mse": (0, 1)}, "the loss has no such term"),
        ({"mlm": (0, 0)}, "not both 0"),
    ):
        with pytest.raises(SettingError, match=message):
            settings(losses=losses, schedules=wrong)


ALL_TERMS = {
    "mlm": 0.1, "soft": 0.2, "hidden_mse": 0.1, "attention_mse": 0.2, "attention_kl": 0.1, "value_relation": 0.2,
    "embedding_mse": 0.05, "contrastive": 0.05,
}  # fmt: skip


def total_of(prepared):
    return float(prepared.step(prepared.batches(0)).total.detach())


@pytest.mark.parametrize("family", ["xlm-roberta", "mpnet"])
def test_the_outputs_of_several_teachers_are_averaged(family, settings, teacher_folder, tmp_path):
    other = save_teacher(family, tmp_path / "other", seed=1)
    prepared = prepare(settings(family, losses=ALL_TERMS, teachers={"tr": [str(teacher_folder(family)), str(other)]}))
    group, batch = prepared.step.groups["tr"], prepared.batches(0)["tr"]
    positions = torch.arange(batch["labels"].numel())[::3]
    joined = group.teach(batch, positions)
    single = [member.teach(batch, positions) for member in group.members]
    logits = [member.model.head.projection(out.features) for member, out in zip(group.members, single, strict=True)]
    torch.testing.assert_close(group.projection()(joined.features), sum(logits) / 2)
    assert not torch.allclose(logits[0], logits[1], atol=1e-2)
    for layer, inputs in joined.attention.items():
        of_layer = [out.attention[layer] for out in single]
        torch.testing.assert_close(inputs.scores, sum(one.scores for one in of_layer) / 2)
        relations = [one.value @ one.value.mT / one.value.shape[-1] ** 0.5 for one in (*of_layer, inputs)]
        torch.testing.assert_close(relations[2], (relations[0] + relations[1]) / 2)
    for layer, states in joined.hidden.items():
        torch.testing.assert_close(states, sum(out.hidden[layer] for out in single) / 2)


def test_a_language_has_the_teacher_that_is_named_for_it(settings, teacher_folder, tmp_path):
    first, other = str(teacher_folder()), str(save_teacher("xlm-roberta", tmp_path / "other", seed=1, **STILL))
    trim = {"vocabulary": {"trim": True}}
    alone = [total_of(prepare(settings(losses=ALL_TERMS, teacher=teacher, **trim))) for teacher in (first, other)]
    assert alone[0] != pytest.approx(alone[1], rel=1e-3)

    def with_teachers(**teachers):
        return prepare(settings(losses=ALL_TERMS, teachers=teachers, **trim))

    assert total_of(with_teachers(tr=[first, first])) == pytest.approx(alone[0], rel=1e-5)
    both = with_teachers(en=[other], tr=[other])
    assert total_of(both) == pytest.approx(alone[1], rel=1e-5)
    scores = both.scores(both.teacher.model)
    expected = prepare(settings(losses=ALL_TERMS, teacher=other, **trim))
    assert scores == pytest.approx(expected.scores(expected.teacher.model), rel=1e-4)
    assert len(both.teachers) == 2


def test_the_weights_of_all_teachers_count_against_the_memory_limit(settings, teacher_folder, tmp_path):
    other = save_teacher("xlm-roberta", tmp_path / "other", seed=1)
    weights = (teacher_folder() / "model.safetensors").stat().st_size
    limited = settings(teachers={"tr": [str(other)]}, out=str(tmp_path / "out"), max_memory=int(1.5 * weights))
    with pytest.raises(MemoryLimitError, match=r"The step 'loading' of xlm-roberta, other needs"):
        distill(limited)


def test_teachers_that_do_not_fit_each_other_are_refused(settings, tmp_path):
    narrow = str(save_teacher("xlm-roberta", tmp_path / "narrow", layers=2))
    with pytest.raises(ModelError, match="differ in architecture, size or vocabulary"):
        prepare(settings(teachers={"tr": [narrow]}))
    with pytest.raises(SettingError, match=r"teachers.de: expected a language of texts \(en, tr\)"):
        settings(teachers={"de": [narrow]})
    with pytest.raises(SettingError, match="softmax_regression reads the students by one teacher's head"):
        settings(losses={"softmax_regression": 1.0}, teachers={"tr": [narrow]})


def test_a_language_counts_as_many_lines_as_it_has_in_a_step(settings, texts, tmp_path):
    """Shares of 8/5 and 2/5: the loss is the weighted sum of the two languages' mean losses."""
    (tmp_path / "tr.txt").write_text(Path(texts["tr"]).read_text()[:-1].rsplit("\n", 15)[0])
    options = {"texts": {"en": texts["en"], "tr": str(tmp_path / "tr.txt")}, "preset": "hinton+hidden"}
    text = {"batch_size": 5, "held_out": 0, "sampling": 1}
    prepared = prepare(settings(**options, text=text, share="all"))
    batches = prepared.batches(0)
    assert [len(batch["labels"]) for batch in batches.values()] == [8, 2]
    (student,) = prepared.students
    parts = [float(plain_loss(prepared, student.model.module, batches[name]).detach()) for name in ("en", "tr")]
    assert float(prepared.step(batches).total.detach()) == pytest.approx(1.6 * parts[0] + 0.4 * parts[1], rel=1e-5)


def copied_students(prepared):
    """Copies of the students that still share among themselves what the students share."""
    modules = {student.name: student.model.module for student in prepared.students}
    return copy.deepcopy(modules)


STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
EPSILON = 1e-6  # the gradient of a key's bias is 0 but for rounding, which a smaller one would make a step of


def plain_optimiser(modules, **options):
    """AdamW as torch has it: all parameters are decayed."""
    parameters = {id(p): p for m in modules.values() for p in m.parameters()}.values()
    return torch.optim.AdamW(parameters, lr=2e-4, **options)


def optimiser_of(modules):
    groups = trainable_groups(*modules.values())
    rows = [{"params": list(g.parameters), "weight_decay": 0.01 if g.weight_decay is None else 0.0} for g in groups]
    return torch.optim.AdamW(rows, lr=2e-4, eps=EPSILON)


def trained(prepared, out, turns=1, clip=None):
    optimiser = prepared.settings.optimiser
    chosen = TrainingSettings(
        steps=optimiser.steps * turns,
        warmup=0,
        schedule="constant",
        clip=clip,
        seed=prepared.settings.seed,
        epsilon=EPSILON,
    )
    train(
        prepared.modules,
        prepared.batches,
        prepared.step,
        chosen,
        out,
        parameters=prepared.parameter_groups(),
        device="cpu",
        progress=False,
    )


def assert_same_weights(modules, copies):
    moved = False
    for name, module in modules.items():
        for (key, mine), theirs in zip(module.named_parameters(), copies[name].parameters(), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=2e-6, msg=lambda m, key=key: f"{key}: {m}")
            moved = moved or mine.requires_grad
    assert moved


@pytest.mark.parametrize(
    ("share", "tie"), [("embeddings", True), (["embeddings", "head", 1], True), (["head", 1], False)]
)
def test_two_students_with_shared_parts_equal_a_hand_written_step(settings, share, tie, tmp_path):
    """Shared parameters get the sum of both gradients, have one optimiser state and are moved once a step."""
    prepared = prepare(settings(preset="hinton+hidden", share=share, tie=tie))
    copies = copied_students(prepared)
    optimiser = optimiser_of(copies)
    for step in range(3):
        batch = prepared.batches(step)
        optimiser.zero_grad()
        for language, own in batch.items():
            plain_loss(prepared, copies[language], own).backward()
        optimiser.step()
    trained(prepared, tmp_path)
    modules = {student.name: student.model.module for student in prepared.students}
    assert_same_weights(modules, copies)
    one, other = modules.values()
    assert (one.get_input_embeddings().weight is other.get_input_embeddings().weight) == ("embeddings" in share)
    assert (one.lm_head is other.lm_head) == ("head" in share)
    blocks = [module.base_model.encoder.layer for module in (one, other)]
    assert (blocks[0][0] is blocks[1][0]) == (1 in list(share))
    assert blocks[0][1] is not blocks[1][1]
    words = [copies[name].get_input_embeddings().weight for name in copies]
    assert (words[0] is words[1]) == ("embeddings" in share)


def test_thinner_students_and_their_projections_equal_a_hand_written_step(settings, tmp_path):
    thin = settings(preset="hinton+hidden", shape={"hidden_size": 8}, initialise="random")
    prepared = prepare(thin)
    copies = copy.deepcopy({**prepared.modules})
    assert {"projections of en", "projections of tr"} < set(copies)
    optimiser = optimiser_of(copies)
    for step in range(3):
        optimiser.zero_grad()
        for language, own in prepared.batches(step).items():
            project = copies[f"projections of {language}"].linear
            plain_loss(prepared, copies[language], own, lambda m, x, project=project: project[str(m)](x)).backward()
        optimiser.step()
    before = {name: module.state_dict() for name, module in copy.deepcopy(prepared.modules).items()}
    trained(prepared, tmp_path)
    assert_same_weights(prepared.modules, copies)
    for name, module in prepared.modules.items():
        moved = [key for key, value in module.state_dict().items() if not torch.equal(value, before[name][key])]
        assert moved, f"{name} did not move"


def test_algorithm_1_step_for_step(settings, tmp_path):
    """`thesis`: languages outside, students inside, each student moved as soon as its loss is known."""
    students = {"both": ["en", "tr"], "tr": ["tr"]}
    prepared = prepare(settings(preset="hinton+hidden", recipe="thesis", students=students))
    copies = copied_students(prepared)
    optimiser = plain_optimiser(copies, eps=EPSILON)
    for step in range(3):
        batches = prepared.batches.batches(step)
        for language in ("en", "tr"):
            for name, student in students.items():
                if language in student:
                    optimiser.zero_grad(set_to_none=True)
                    plain_loss(prepared, copies[name], batches[language]).backward()
                    optimiser.step()
    trained(prepared, tmp_path, turns=3)
    assert_same_weights({student.name: student.model.module for student in prepared.students}, copies)


def test_algorithm_1_with_nothing_but_defaults(values, tmp_path):
    """`distill` in recipe thesis: plain AdamW of table 4.2, linear decay after a tenth of warm-up, no clipping."""
    config = values(preset="hinton", recipe="thesis", optimiser={"steps": 4})
    prepared = prepare(read_settings(config))
    copies, turns = copied_students(prepared), 8
    optimiser = plain_optimiser(copies)
    schedule = hf.get_linear_schedule_with_warmup(optimiser, 1, turns)
    weights, norms = prepared.objective.weights, []
    for turn in range(turns):
        language = ("en", "tr")[turn % 2]
        optimiser.zero_grad(set_to_none=True)
        batch = prepared.batches.batches(turn // 2)[language]
        inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
        with torch.no_grad():
            theirs = prepared.teacher.model.module(**inputs).logits
        mine = copies[language](**inputs).logits
        real, masked = batch["attention_mask"].bool(), batch["labels"] != IGNORED
        soft = losses.soft_divergence(mine[real], theirs[real], 4.0).mean()
        loss = weights["mlm"] * F.cross_entropy(mine[masked], batch["labels"][masked]) + weights["soft"] * soft
        loss.backward()
        gradients = [p.grad for p in copies[language].parameters() if p.grad is not None]
        norms.append(float(torch.nn.utils.get_total_norm(gradients)))
        optimiser.step()
        schedule.step()
    assert max(norms) > 1.01  # a bound of 1 would have shown
    result = distill(read_settings(config, out=tmp_path, device="cpu", progress=False))
    written = {name: hf.AutoModelForMaskedLM.from_pretrained(folder) for name, folder in result.students.items()}
    assert_same_weights(written, copies)


def test_algorithm_1_differs_from_one_move_a_step(settings, tmp_path):
    """The control of the two tests above: with shared embeddings the order of moves matters."""
    ends = []
    for recipe, turns in (("corrected", 1), ("thesis", 2)):
        chosen = settings(preset="hinton+hidden", recipe=recipe, vocabulary={"soft_positions": "masked"})
        chosen = read_settings(chosen, preset=None, losses={"mlm": 0.5, "hidden_mse": 0.5})
        prepared = prepare(chosen)
        trained(prepared, tmp_path / recipe, turns)
        ends.append(prepared.students[0].model.module.get_input_embeddings().weight.detach())
    assert not torch.allclose(*ends, atol=1e-5)


@pytest.mark.parametrize("preset", list(PRESETS))
def test_every_preset_gives_finite_losses_and_gradients(settings, texts, preset):
    pairs = {"translations": {"en-tr": [texts["en"], texts["tr"]]}} if preset == "translation" else {}
    prepared = prepare(settings(preset=preset, **pairs))
    found = prepared.step(prepared.batches(0))
    found.total.backward()
    assert {name.partition(" ")[0] for name in found.terms} == set(PRESETS[preset].weights)
    weights = prepared.objective.weights
    weighted = sum(weights[name.partition(" ")[0]] * float(value) for name, value in found.terms.items())
    assert float(found.total.detach()) == pytest.approx(weighted, rel=1e-4)
    for student in prepared.students:
        gradients = [p.grad for p in student.model.blocks.parameters() if p.grad is not None]
        assert gradients
        assert all(torch.isfinite(g).all() for g in gradients)


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "mpnet", "gpt2", "electra", "modernbert", "qwen3"])
@pytest.mark.parametrize("recipe", ["corrected", "published"])
def test_every_family_can_be_taught(settings, family, recipe):
    prepared = prepare(settings(family, recipe=recipe))
    found = prepared.step(prepared.batches(0))
    found.total.backward()
    assert torch.isfinite(found.total)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # DeBERTa's own
def test_a_teacher_whose_attention_cannot_be_read_teaches_by_its_states(settings):
    losses = {"mlm": 0.2, "soft": 0.3, "hidden_mse": 0.3, "embedding_mse": 0.2}
    prepared = prepare(settings("deberta-v2", losses=losses))
    found = prepared.step(prepared.batches(0))
    found.total.backward()
    assert torch.isfinite(found.total)
    with pytest.raises(ModelError, match="cannot be read; choose losses without it"):
        refused = prepare(settings("deberta-v2"))
        refused.step(refused.batches(0))


def test_layers_are_summed_with_their_weights(settings):
    losses = {"losses": {"hidden_mse": 0.6, "attention_mse": 0.4}}
    prepared = prepare(settings(**losses))
    batch = prepared.batches(0)
    alone = []
    for weights in ((1.0, 0.0), (0.0, 1.0), (0.5, 2.0)):
        prepared = prepare(settings(**losses, layer_weights=weights))
        alone.append({name: float(value) for name, value in prepared.step(batch).terms.items()})
    first, second, both = alone
    for name, value in both.items():
        assert value == pytest.approx(0.5 * first[name] + 2 * second[name], rel=1e-5)
    with pytest.raises(SettingError, match=r"layer_weights has 3 numbers, but the layer map compares 2 layers"):
        prepare(settings(**losses, layer_weights=(1.0, 1.0, 1.0)))


def test_translations_are_drawn_to_the_teachers_vector_of_the_first_language(settings, texts):
    prepared = prepare(settings(losses={"translation_mse": 1.0}, translations={"en-tr": [texts["en"], texts["tr"]]}))
    batch = prepared.batches(0)
    found = prepared.step(batch)
    pair = batch["pairs en-tr"]

    def mean(module, side):
        mask = pair[f"attention_mask_{side}"]
        states = module.base_model(input_ids=pair[f"input_ids_{side}"], attention_mask=mask).last_hidden_state
        return (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)

    target = mean(prepared.teacher.model.module, 0).detach()
    english, turkish = (student.model.module for student in prepared.students)
    expected = F.mse_loss(mean(english, 0), target) + F.mse_loss(mean(turkish, 1), target)
    assert float(found.total.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    assert list(found.terms) == ["translation_mse en-tr"]
    found.total.backward()
    assert all(
        block.attention.self.query.weight.grad is not None for s in prepared.students for block in s.model.blocks
    )


def padded(batch, amount):
    fill = {"input_ids": 1, "attention_mask": 0, "labels": IGNORED, "soft": False}
    return {name: F.pad(tensor, (0, amount), value=fill[name]) for name, tensor in batch.items()}


def test_padding_changes_corrected_losses_not_at_all_and_published_ones_much(settings):
    for recipe, equal in (("corrected", True), ("published", False)):
        prepared = prepare(settings(recipe=recipe))
        batch = prepared.batches(0)
        plain, wide = (prepared.step(b).terms for b in (batch, {key: padded(own, 9) for key, own in batch.items()}))
        same = [abs(float(plain[name]) - float(wide[name])) < 1e-5 + 1e-4 * abs(float(plain[name])) for name in plain]
        assert all(same) == equal


def test_the_published_soft_loss_is_summed_over_positions_and_divided_by_the_batch(settings):
    prepared = prepare(settings(preset="hinton", recipe="published"))
    key, batch = next(iter(prepared.batches(0).items()))
    found = prepared.step({key: batch}).terms
    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    with torch.no_grad():
        student = prepared.students[0].model.module(**inputs).logits.flatten(0, 1)
        teacher = prepared.teacher.model.module(**inputs).logits.flatten(0, 1)
    expected = losses.soft_divergence(student, teacher, 4.0).sum() / len(batch["input_ids"])
    (soft,) = (value for name, value in found.items() if name.startswith("soft"))
    torch.testing.assert_close(soft, expected, rtol=1e-4, atol=1e-4)


def test_the_teacher_runs_once_per_batch_in_eval_mode_without_gradients(settings, monkeypatch):
    students = {"a": ["en", "tr"], "b": ["en"], "c": ["en"]}
    prepared = prepare(settings(students=students))
    runs = []
    original = LanguageModel.run

    def run(self, *arguments, **options):
        if self is prepared.teacher.model:
            runs.append((self.module.training, torch.is_inference_mode_enabled()))
        return original(self, *arguments, **options)

    monkeypatch.setattr(LanguageModel, "run", run)
    prepared.step(prepared.batches(0)).total.backward()
    assert runs == [(False, True)] * 2  # one for each language, three students of English
    assert all(p.grad is None for p in prepared.teacher.model.module.parameters())


@pytest.mark.parametrize("recipe", ["thesis", "published"])
def test_students_that_are_moved_one_after_the_other_share_the_teachers_output(settings, recipe, monkeypatch):
    students = {"a": ["en", "tr"], "b": ["en"], "c": ["en"]}
    prepared = prepare(settings(students=students, recipe=recipe))
    runs = []
    original = Teacher._run
    monkeypatch.setattr(Teacher, "_run", lambda *arguments: runs.append(1) or original(*arguments))
    for position in range(8):  # two steps: en/a, en/b, en/c, tr/a, each with copies of the tensors, as a GPU gets them
        batch = prepared.batches(position)
        prepared.step({key: {name: t.clone() for name, t in own.items()} for key, own in batch.items()})
    assert len(runs) == 4


def test_a_trimmed_vocabulary_gives_the_losses_of_the_same_pieces(settings):
    """MLM and soft targets over the kept pieces only; all other terms are unchanged."""
    whole, small = (prepare(settings(vocabulary={"trim": trim})) for trim in (False, True))
    batch = small.batches(0)
    before, after = whole.step(batch).terms, small.step(batch).terms
    for name in before:
        if name.startswith(("hidden", "attention", "embedding")):
            torch.testing.assert_close(before[name], after[name], rtol=1e-4, atol=1e-6)
        elif name.startswith("mlm"):
            assert float(after[name]) < float(before[name])  # fewer pieces to choose from
    kept = small.vocabularies["en"].kept
    logits = (
        whole.students[0]
        .model.module(input_ids=batch["en"]["input_ids"], attention_mask=batch["en"]["attention_mask"])
        .logits[..., kept]
    )
    masked = batch["en"]["labels"] != IGNORED
    labels = small.students[0].ids(batch["en"]["labels"][masked])
    torch.testing.assert_close(after["mlm en/en"], F.cross_entropy(logits[masked], labels), rtol=1e-4, atol=1e-5)


def numbers(prepared):
    """The terms of the first step, by number; GPT-2's students drop out the same states each time."""
    torch.manual_seed(0)
    return {name: float(value) for name, value in prepared.step(prepared.batches(0)).terms.items()}


EVERYTHING = {
    "preset": None,
    "losses": {
        "mlm": 0.2,
        "soft": 0.2,
        "contrastive": 0.1,
        **dict.fromkeys(("hidden_mse", "attention_mse", "attention_kl", "value_relation", "embedding_mse"), 0.1),
    },
}


@pytest.mark.parametrize("family", ["xlm-roberta", "mpnet", "gpt2"])
def test_a_cached_output_is_the_output(settings, family, tmp_path, monkeypatch):
    plain = prepare(settings(family, **EVERYTHING))
    expected = numbers(plain)
    prepared = prepare(settings(family, **EVERYTHING, teacher_cache=str(tmp_path / "cache")))
    assert numbers(prepared) == pytest.approx(expected, rel=1e-6)
    lines = {tuple(row) for batch in prepared.batches(0).values() for row in batch["input_ids"].tolist()}
    assert len(list(Path(tmp_path / "cache").rglob("*.safetensors"))) == len(lines)
    monkeypatch.setattr(Teacher, "_run", lambda *_: pytest.fail("the teacher ran again"))
    assert numbers(prepared) == pytest.approx(expected, rel=1e-6)


def count_of_runs(prepared, monkeypatch, positions):
    runs = []
    with monkeypatch.context() as patch:
        original = Teacher._run
        patch.setattr(Teacher, "_run", lambda *arguments: runs.append(1) or original(*arguments))
        for position in positions:
            prepared.step(prepared.batches(position))
    return len(runs)


@pytest.mark.parametrize("new_masks", [False, True])
def test_lines_are_cached_so_that_shuffled_epochs_find_them(settings, new_masks, tmp_path, monkeypatch):
    """18 lines in batches of 3: an epoch is 6 steps of two languages, the next one has other batches."""
    text = {"batch_size": 3, "held_out": 2, "shuffle_buffer": 8, "new_masks_each_epoch": new_masks}
    prepared = prepare(settings(text=text, teacher_cache=str(tmp_path)))
    first, second = (
        [prepared.batches(p)["en"]["input_ids"].tolist() for p in epoch] for epoch in (range(6), range(6, 12))
    )
    assert not [batch for batch in second if batch in first]
    assert count_of_runs(prepared, monkeypatch, range(6)) == 12
    assert count_of_runs(prepared, monkeypatch, range(6, 12)) == (12 if new_masks else 0)


def test_outputs_of_another_precision_are_not_used(settings, tmp_path, monkeypatch):
    prepared = prepare(settings(teacher_cache=str(tmp_path)))
    assert count_of_runs(prepared, monkeypatch, [0, 0]) == 2
    with torch.autocast("cpu", torch.bfloat16):
        assert count_of_runs(prepared, monkeypatch, [0, 0]) == 2
    assert count_of_runs(prepared, monkeypatch, [0]) == 0


@pytest.mark.parametrize("damage", ["hidden", "attention", "features", "name"])
def test_a_cached_output_of_something_else_is_refused(settings, damage, tmp_path):
    prepared = prepare(settings(**EVERYTHING, teacher_cache=str(tmp_path)))
    numbers(prepared)
    for path in tmp_path.rglob("*.safetensors"):
        kept = load_file(path)
        name = next(name for name in kept if name.startswith(damage) or damage == "name")
        spoilt = {"surprise": kept.pop(name)} if damage == "name" else {name: kept[name].flatten()}
        save_file({**kept, **spoilt}, path)
    with pytest.raises(StoreError, match=r"does not hold the teacher's output for its line. Remove the file"):
        numbers(prepared)


def test_options_that_align_students(settings, texts):
    pairs = {"tr-en": [texts["tr"], texts["en"]]}
    mixed = {"losses": {"adversarial": 0.2, "contrastive": 0.3, "mlm": 0.5}}
    for translations, names in (({}, {"en/en", "tr/tr"}), (pairs, {"tr-en"})):
        prepared = prepare(settings(**mixed, translations=translations))
        found = prepared.step(prepared.batches(0))
        assert {name.split(" ")[1] for name in found.terms if name.startswith("contrastive")} == names
        found.total.backward()
        assert all(p.grad is not None for p in prepared.step.discriminator.parameters())
        assert "discriminator" in prepared.modules
