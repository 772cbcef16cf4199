"""Task distillation: the teacher's answers, the loss, and what stands in a batch."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from transfers import TASKS, corpus_of, student_of

from residuum.adaptation.students import TaughtCollator, logits_loss, logits_of, taught_losses, teacher_answers
from residuum.errors import ModelError
from tiny import save_model

KINDS = tuple(TASKS)


@pytest.fixture(scope="module", params=KINDS)
def taught(request, students, tmp_path_factory):
    """A teacher that has a head, with a vocabulary of its own, a student, and the teacher's answers."""
    kind, folder = request.param, tmp_path_factory.mktemp(f"teacher-{request.param}")
    plain = student_of(save_model("bert", folder / "plain", seed=5), kind)
    plain.network(0).save_pretrained(folder / "tuned")
    plain.tokenizer.save_pretrained(folder / "tuned")
    teacher = student_of(folder / "tuned", kind)
    return kind, teacher, student_of(students[0], kind), teacher_answers(teacher, corpus_of(kind))


def test_against_numpy_the_loss_is_the_mean_squared_distance_of_logits():
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(size=(2, 7, 3))
    expected = np.mean([np.linalg.norm(a - b) ** 2 for a, b in zip(ours, theirs, strict=True)])
    assert float(logits_loss(torch.tensor(ours), torch.tensor(theirs))) == pytest.approx(expected)


def test_places_where_nothing_is_asked_do_not_count():
    ours, theirs = torch.randn(2, 4, 3), torch.full((2, 4, 3), torch.nan)
    theirs[0, 1], theirs[1, 2] = torch.randn(3), torch.randn(3)
    expected = ((ours[0, 1] - theirs[0, 1]).square().sum() + (ours[1, 2] - theirs[1, 2]).square().sum()) / 2
    torch.testing.assert_close(logits_loss(ours, theirs), expected)


def test_a_batch_holds_the_teachers_own_logits_in_the_students_places(taught):
    kind, teacher, student, answers = taught
    collate = TaughtCollator.of(student.collator, student.problem, answers)
    examples = student.encoded(corpus_of(kind)).examples[2:7]
    found = collate(examples)["taught"]
    own = teacher.encoded(corpus_of(kind)).examples
    with torch.no_grad():
        logits = logits_of(teacher.network(0))(teacher.collator(own))
    if kind != "tagging":
        torch.testing.assert_close(found, logits[2:7], rtol=1e-4, atol=1e-5)
        return
    there = {(s, word): logits[row, token] for row, example in enumerate(own) for s, word, token in example.words}
    for row, example in enumerate(examples):
        for sentence, word, token in example.words:
            torch.testing.assert_close(found[row, token], there[sentence, word], rtol=1e-4, atol=1e-5)
    asked = ~found.isnan().any(-1)
    assert asked.sum() == sum(len(example.words) for example in examples)


def test_half_of_the_loss_comes_from_the_logits_and_falls_to_nothing_for_the_teacher_itself(taught):
    kind, teacher, _, answers = taught
    batch = TaughtCollator.of(teacher.collator, teacher.problem, answers)(teacher.encoded(corpus_of(kind)).examples[:6])
    with torch.no_grad():
        logits = logits_of(teacher.network(0))(batch)
    assert float(taught_losses(batch, [logits])["logits"]) == pytest.approx(0.0, abs=1e-8)
    shifted = taught_losses(batch, [logits + 1.0, logits + 3.0])["logits"]
    outputs = logits.shape[-1]
    assert float(shifted) == pytest.approx(0.5 * outputs * (1 + 9) / 2, rel=1e-4)


def test_classes_in_another_order_are_put_in_ours(students, tmp_path):
    plain = student_of(students[1])
    turned = replace(plain, problem=replace(plain.problem, classes=plain.problem.classes[::-1]), _encoded={})
    turned.network(0).save_pretrained(tmp_path)
    plain.tokenizer.save_pretrained(tmp_path)
    answers = teacher_answers(student_of(tmp_path), corpus_of("pair"))
    straight = replace(turned, path=str(tmp_path), _encoded={})
    with torch.no_grad():
        logits = logits_of(straight.network(0))(straight.collator(straight.encoded(corpus_of("pair")).examples[:1]))
    torch.testing.assert_close(answers.logits[0], logits[0].flip(0), rtol=1e-4, atol=1e-5)


def test_a_teacher_that_never_learnt_the_task_is_refused(students):
    with pytest.raises(ModelError, match="expected one that was fine-tuned on sentence"):
        teacher_answers(student_of(students[0]), corpus_of("pair"))
