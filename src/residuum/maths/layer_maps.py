"""Which teacher layer each student layer learns from: n = g(m), 1 ≤ m ≤ M, 1 ≤ n ≤ N (eq. 2.11 of the thesis)."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from residuum.errors import SettingError

LayerMap = dict[int, int]
MAPS = ("uniform", "top", "bottom", "last")


def layer_map(choice: str | Sequence[int], student: int, teacher: int) -> LayerMap:
    """{m: g(m)} for a student of M = `student` and a teacher of N = `teacher` layers.

    uniform g(m) = m·N/M, rounded to the nearest where M does not divide N; top g(m) = m + N − M; bottom g(m) = m;
    last only g(M) = N; a sequence gives g(1), g(2), … itself.
    """
    if not 1 <= student <= teacher:
        raise SettingError(f"A student of {student} layers cannot learn from a teacher of {teacher}; give 1–{teacher}.")
    if not isinstance(choice, str):
        return _listed(choice, student, teacher)
    layers = range(1, student + 1)
    if choice == "uniform":
        return {m: (2 * m * teacher + student) // (2 * student) for m in layers}
    if choice == "top":
        return {m: m + teacher - student for m in layers}
    if choice == "bottom":
        return {m: m for m in layers}
    if choice == "last":
        return {student: teacher}
    raise SettingError(f"Layer map {choice!r} is not known; choose {', '.join(MAPS)}, measured or a list of layers.")


def published_uniform(student: int, teacher: int) -> LayerMap:
    """The published code's uniform map (1, 3, 5, 7, 9, 12 for 6 of 12): the lowest of each stretch, but the top one."""
    step = teacher / student
    return {m: teacher if m == student else int((m - 1) * step) + 1 for m in range(1, student + 1)}


def measured_map(similarity: Float[np.ndarray, "student teacher"]) -> LayerMap:
    """The order-preserving map of highest total similarity: Σ_m s[m, g(m)] is largest with g strictly increasing.

    Dynamic programming over pairs of layers; ties go to the lower teacher layer.
    """
    students, teachers = similarity.shape
    if students > teachers:
        raise SettingError(f"{students} student layers cannot be mapped in order to {teachers} teacher layers.")
    best = np.full((students + 1, teachers + 1), -np.inf)
    best[0] = 0
    for m in range(1, students + 1):
        for n in range(m, teachers + 1):
            best[m, n] = max(best[m, n - 1], best[m - 1, n - 1] + similarity[m - 1, n - 1])
    chosen, n = {}, teachers
    for m in range(students, 0, -1):
        while best[m, n] == best[m, n - 1]:
            n -= 1
        chosen[m] = n
        n -= 1
    return dict(sorted(chosen.items()))


def drawn(mapping: Mapping[int, int], student: int, teacher: int) -> str:
    """The map as a picture of text: teacher layers in a row, under each the student layer that learns from it."""
    learners = {n: "+".join(str(m) for m, of in mapping.items() if of == n) or "·" for n in range(1, teacher + 1)}
    width = max(len(str(teacher)), *map(len, learners.values())) + 1
    above = "".join(f"{n:>{width}}" for n in learners)
    below = "".join(f"{who:>{width}}" for who in learners.values())
    unmapped = [str(m) for m in range(1, student + 1) if m not in mapping]
    note = f"  (student layers {', '.join(unmapped)} learn from no layer)" if unmapped else ""
    return f"teacher {above}\nstudent {below}{note}"


def _listed(choice: Sequence[int], student: int, teacher: int) -> LayerMap:
    if len(choice) != student:
        raise SettingError(f"The layer map {list(choice)} has {len(choice)} entries; the student has {student} layers.")
    outside = [n for n in choice if not 1 <= n <= teacher]
    if outside:
        raise SettingError(f"The layer map names teacher layer {outside[0]}; the teacher has layers 1–{teacher}.")
    return dict(enumerate(choice, 1))
