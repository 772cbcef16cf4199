"""The claims of the five documents, measured on made-up tables whose answer is known."""

import math
from itertools import product

import pandas as pd
import pytest

from residuum.storage.results import Run
from residuum.studies import distilled, monolingual, redundancy, similarity, transfer_learning
from residuum.studies.claims import Evidence
from residuum.studies.documents import Results, StudyStep


def step(kind, **facts):
    return StudyStep(kind, "", lambda step, context: None, **facts)


def results(*pairs, families=None, teachers=None):
    """Steps with their runs."""
    steps = tuple(one for one, _ in pairs)
    return Results(steps, {one.name: run for one, run in pairs}, families or {}, teachers or {})


def run(summary=None, config=None, **tables):
    return Run("test", config or {}, summary or {}, {name: pd.DataFrame(rows) for name, rows in tables.items()})


def likeness(measure, value, models, layers=4):
    """A row for each pair of layers of all models; `value` gives it from both models and layers."""
    places = list(product(models, range(layers)))
    return [
        {"measure": measure, "model_a": a, "layer_a": i, "model_b": b, "layer_b": j, "value": value(a, i, b, j)}
        for (a, i), (b, j) in product(places, places)
    ]


FAMILIES = {"bert-a": "bert", "bert-b": "bert", "gpt": "gpt2"}


def compared(neuron_across=0.2, cka_across=0.6, slope=0.1):
    """Three models, two of a family: blocks for neurons, shared layers for CKA, more so in low ones."""

    def neuron(a, i, b, j):
        return 0.8 if a == b else neuron_across

    def cka(a, i, b, j):
        if a == b:
            return 1 - 0.1 * abs(i - j)
        return cka_across - slope * i + (0.2 if FAMILIES[a] == FAMILIES[b] else 0)

    rows = likeness("neuron", neuron, FAMILIES) + likeness("cka", cka, FAMILIES)
    curves = [{"model": m, "layer": i, "curve": "localization", "value": slope * i} for m in FAMILIES for i in range(4)]
    return results((step("compare"), run(similarity=rows, curves=curves)), families=FAMILIES)


@pytest.mark.parametrize(
    "finding",
    [
        "neurons_differ_across_models",
        "layers_are_shared_more_than_neurons",
        "families_are_alike",
        "lower_layers_are_shared",
        "neighbours_are_alike",
        "upper_layers_are_localized",
    ],
)
def test_similarity_claims_hold_where_they_were_planted(finding):
    measured = getattr(similarity, finding).measure(compared())
    assert isinstance(measured, Evidence)
    assert min(measured.values) > 0


def test_similarity_claims_fail_where_they_are_reversed():
    turned = compared(neuron_across=0.9, cka_across=0.1, slope=-0.1)
    for finding in ("neurons_differ_across_models", "lower_layers_are_shared", "upper_layers_are_localized"):
        measured = getattr(similarity, finding).measure(turned)
        assert max(measured.values) < 0, finding


def test_layers_are_alike_within_any_two_models():
    measured = similarity.layers_are_alike_within_models.measure(compared())
    assert len(measured.cases) == 2 * 3  # neurons and CKA, of three pairs of models
    assert measured.cases["bert-a and gpt, neuron"].value == pytest.approx(0.6)
    alone = results((step("compare"), run(similarity=likeness("cka", lambda *_: 0.5, ["m"]))))
    assert similarity.layers_are_alike_within_models.measure(alone) == "there is only one model"


def test_claims_about_architectures_need_these_architectures():
    def cka(a, i, b, j):
        return 0.9 if {a, b} == {"x", "b"} and i + j >= 3 else 0.4

    families = {"x": "xlnet", "b": "bert", "g": "gpt2"}
    pairs = run(similarity=likeness("cka", cka, families))
    measured = similarity.lower_xlnet_resembles_upper_bert.measure(results((step("compare"), pairs), families=families))
    assert measured.cases["x and b"].value == pytest.approx(0.9 - 0.4 + 0.25 * -0.5, abs=0.2)
    assert measured.values[0] > 0
    rows = [row for name in ("attention_js", "attention_cka")
            for row in likeness(name, lambda a, i, b, j: 0.8 if a == b == "g" else 0.3, families)]  # fmt: skip
    found = results((step("attention"), run(similarity=rows)), families=families)
    assert similarity.gpt2_attention_is_alike.measure(found).values == pytest.approx((0.5, 0.5))
    lone = results((step("attention"), run(similarity=rows)), families=dict.fromkeys(families, "bert"))
    assert similarity.gpt2_attention_is_alike.measure(lone) == "there is no GPT-2 beside models of other families"


def test_models_tuned_for_different_tasks_are_compared_with_each_other():
    def cka(a, i, b, j):
        return 1.0 if a == b else 1 - 0.2 * i

    found = results((step("tuned", model="base"), run(similarity=likeness("cka", cka, ["base", "sst2", "qnli"]))))
    measured = similarity.tunings_part_at_the_top(found, "cka")
    assert list(measured.cases) == ["sst2 and qnli"]
    assert measured.values == pytest.approx((0.4,))


def test_models_of_one_family_cannot_tell_of_families():
    rows = likeness("cka", lambda *_: 0.5, ["bert-a", "bert-b"])
    one = results((step("compare"), run(similarity=rows)), families=FAMILIES)
    assert similarity.families_are_alike.measure(one) == "all models are of one family"
    assert similarity.lower_layers_are_shared.measure(one) == "all models are of one family"


def test_what_fine_tuning_changed_is_read_layer_by_layer():
    def cka(a, i, b, j):
        return 1 - 0.2 * i if a != b else 1.0

    curves = [{"model": m, "layer": i, "curve": "localization", "value": 0.1 * i} for m in ("base",) for i in range(4)]
    curves += [{"model": "tuned", "layer": i, "curve": "localization", "value": 0.05} for i in range(4)]
    found = results(
        (step("tuned", model="base"), run(similarity=likeness("cka", cka, ["base", "tuned"]), curves=curves))
    )
    assert similarity.tuning_changes_the_top(found, "cka").values == pytest.approx((0.4,))
    assert similarity.tuning_spreads_the_top.measure(found).values == pytest.approx((0.25,))


def scored(value):
    return run({"metric": "accuracy", "test accuracy": value, "examples": {"test": 100}})


def test_frozen_and_pruned_halves_are_compared_with_their_counterparts():
    facts = {"model": "m", "task": "t"}
    frozen = results(
        (step("frozen", **facts, variant="top:2"), scored(0.7)),
        (step("frozen", **facts, variant="bottom:2"), scored(0.8)),
    )
    assert similarity.freezing_the_bottom_costs_less.measure(frozen).values == pytest.approx((0.1,))
    pruned = results(
        (step("pruned", **facts, variant="top"), scored(0.9)), (step("pruned", **facts, variant="bottom"), scored(0.6))
    )
    assert transfer_learning.pruning_the_bottom_costs_more.measure(pruned).values == pytest.approx((0.3,))


def test_freezing_on_qqp_is_the_exception_of_the_paper():
    pairs = [(step("frozen", model="m", task="qqp", variant=f"{end}:2"), scored(0.7)) for end in ("top", "bottom")]
    message = similarity.freezing_the_bottom_costs_less.measure(results(*pairs))
    assert message == "the only task is QQP, the paper's exception"


def reduced(unit, scores, sizes, redundant=2):
    """A redundancy run: scores and shares at thresholds, minimal set, layers that are enough."""
    thresholds = [
        {"threshold": t, "share": s, "score": v} for t, s, v in zip((0.0, 0.3, 0.8), sizes, scores, strict=True)
    ]
    layers = [{"layer": i, "score": 1.0 if i < redundant else 0.1} for i in range(5)]
    windows = [{"threshold": 0.3, "window": w, "share": s} for w, s in zip("123", (0.7, 0.25, 0.05), strict=True)]
    reduction = [{"set": "oracle", "neurons": 500, "share": 1.0}, {"set": "minimal set", "neurons": 20, "share": 0.04}]
    survivors = [{"threshold": 0.8, "layer": i, "first": 10, "medoid": 10 - 2 * i} for i in range(5)]
    tables = {"thresholds": thresholds, "layers": layers, "windows": windows}
    return run(**tables, reduction=reduction, survivors=survivors)


def test_redundancy_claims_are_read_from_thresholds_windows_and_sets():
    found = results(
        (step("redundancy", model="m", task="upos", unit="word"), reduced("word", (0.9, 0.895, 0.5), (1, 0.3, 0.1)))
    )
    assert redundancy.removable_fraction(found).values == pytest.approx((0.7,))
    assert redundancy.clusters_are_local.measure(found).values == pytest.approx((0.95,))
    assert redundancy.minimal_sets_are_small.measure(found).values == pytest.approx((0.04,))
    assert redundancy.minimal_set_size(found.of("redundancy")[0][1]) == 20
    assert redundancy.word_tasks_need_more_neurons.measure(found) == "there are not both word tasks and sentence tasks"
    assert distilled.clustering_keeps_the_score.measure(found).values == pytest.approx((0.895 / 0.9,))


def test_surviving_neurons_lie_low_only_beyond_those_of_random_weights():
    learnt = reduced("word", (0.9, 0.895, 0.5), (1, 0.3, 0.1))
    twin = run(survivors=[{"threshold": 0.8, "layer": i, "medoid": 6} for i in range(5)])
    found = results((step("redundancy", model="m", task="upos"), learnt), (step("twin", model="m"), twin))
    assert distilled.survivors_lie_low.measure(found).values == pytest.approx((24 / 30 - 18 / 30,))
    same = results((step("redundancy", model="m", task="upos"), learnt), (step("twin", model="m"), learnt))
    assert distilled.survivors_lie_low.measure(same).values == (0.0,)


def test_word_and_sentence_tasks_are_compared_model_by_model():
    whole = ((0.9, 0.9, 0.9), (1, 0.3, 0.1))
    found = results(
        (step("redundancy", model="m", task="upos", unit="word"), reduced("word", *whole, redundant=4)),
        (step("redundancy", model="m", task="nli", unit="sentence"), reduced("sentence", *whole, redundant=1)),
        (step("transfer", model="m", task="upos", unit="word"), run({"layers": 2, "share of neurons": 0.05})),
        (step("transfer", model="m", task="nli", unit="sentence"), run({"layers": 5, "share of neurons": 0.01})),
    )
    assert redundancy.sentence_tasks_have_fewer_redundant_layers.measure(found).values == (3.0,)
    assert redundancy.word_tasks_need_fewer_layers.measure(found).values == (3.0,)
    assert redundancy.transfer_keeps_few_neurons.measure(found).values == pytest.approx((0.95, 0.99))


def test_xlnet_is_set_against_bert_task_by_task_and_word_tasks_against_sentence_tasks_in_speed():
    whole = ((0.9, 0.9, 0.9), (1, 0.3, 0.1))
    pairs = [
        (step("redundancy", model=m, task=t, unit="word"), reduced("word", *whole, redundant=n))
        for m, counts in (("b", (1, 2, 1)), ("x", (3, 3, 2)))
        for t, n in zip(("upos", "sem", "chunk"), counts, strict=True)
    ]
    found = redundancy.xlnet_is_more_redundant.measure(results(*pairs, families={"b": "bert", "x": "xlnet"}))
    reach = 4.302652729911275 * 0.5773502691896258 / 3**0.5  # Student's, two degrees of freedom
    (mean,) = found.cases.values()
    assert (mean.value, mean.low, mean.high) == pytest.approx((4 / 3, 4 / 3 - reach, 4 / 3 + reach))

    def reading(layer):
        return run({"layers": layer}, costs=[{"layers": n, "ms": 1.0 + n} for n in range(4)])

    speed = results(
        (step("transfer", model="m", task="upos", unit="word"), reading(1)),
        (step("transfer", model="m", task="sst2", unit="sentence"), reading(3)),
        (step("transfer", model="m", task="rte", unit="sentence"), reading(2)),
    )
    assert redundancy.word_tasks_gain_more_speed.measure(speed).values == pytest.approx((2.0, 1.5))


def test_the_last_two_layers_are_set_against_the_other_neighbours():
    def cka(a, i, b, j):
        return 0.5 if {i, j} == {2, 3} else 0.9 if abs(i - j) == 1 else 0.6

    found = results((step("compare"), run(similarity=likeness("cka", cka, ["m"]))))
    assert redundancy.last_layers_differ.measure(found).values == pytest.approx((0.4,))
    assert similarity.neighbours_are_alike.measure(found).values[0] > 0


def differing():
    change = [
        {"task": "upos", "model": "sst2", "layer": i, "depth": i / 4, "change": -0.01 if i <= 2 else -0.2}
        for i in range(5)
    ]
    change.append({"task": "upos", "model": "sst2", "layer": None, "depth": math.nan, "change": -0.5})
    accuracies = {("base", "top"): 0.95, ("base", "bottom"): 0.9, ("sst2", "top"): 0.94, ("sst2", "bottom"): 0.6}
    selection = [
        {"task": "upos", "model": m, "set": s, "share": 0.05, "retrained": v} for (m, s), v in accuracies.items()
    ]
    spread = [
        {"task": "upos", "model": m, "set": "top 0.05", "depth": d, "share": s}
        for m, shares in {"base": (0.2, 0.8), "sst2": (0.7, 0.3)}.items()
        for d, s in zip((0.0, 1.0), shares, strict=True)
    ]
    minimal = [
        {"task": "upos", "model": m, "set": s, "share": share, "selectivity": chosen}
        for m in ("base", "sst2")
        for s, share, chosen in (("all", 1.0, 0.2), ("minimal", 0.05, 0.3))
    ]
    return results(
        (step("diff", model="base"), run(change=change, selection=selection, spread=spread, minimal=minimal))
    )


def test_transfer_learning_claims_are_read_from_a_diff():
    found = differing()
    assert transfer_learning.upper_layers_lose_more.measure(found).values == pytest.approx((0.19,))
    assert transfer_learning.lower_layers_keep_knowledge.measure(found).values == pytest.approx((-0.01,))
    assert transfer_learning.bottom_neurons_lose_more.measure(found).values == pytest.approx((0.29,))
    assert transfer_learning.salient_neurons_move_down.measure(found).values == pytest.approx((0.5,))
    assert transfer_learning.few_neurons_are_sufficient.measure(found).values == pytest.approx((0.05,))
    assert transfer_learning.minimal_sets_are_selective.measure(found).values == pytest.approx((0.1,))


def test_salient_neurons_of_bert_are_expected_to_stay():
    pairs = differing()
    pairs = [(step("diff", model="base"), pairs.runs["diff-base"])]
    assert transfer_learning.salient_neurons_move_down.measure(results(*pairs, families={"base": "bert"})) == (
        transfer_learning.ONLY_BERT
    )

    def shifted(model, low):
        spread = [{"task": "upos", "model": m, "set": "top 0.05", "depth": d, "share": s}
                  for m, share in ((model, 0.2), (f"finetune-{model}-sst2", low))
                  for d, s in ((0.0, share), (1.0, 1 - share))]  # fmt: skip
        selection = [{"task": "upos", "model": m, "set": s, "share": 0.05, "retrained": v}
                     for m, values in ((model, (0.9, 0.8)), (f"finetune-{model}-sst2", (0.9, 1 - low)))
                     for s, v in zip(("top", "bottom"), values, strict=True)]  # fmt: skip
        minimal = [{"task": "upos", "model": m} for m in (model, f"finetune-{model}-sst2")]
        return step("diff", model=model), run(spread=spread, selection=selection, minimal=minimal)

    found = results(shifted("B", 0.3), shifted("R", 0.7), families={"B": "bert", "R": "roberta"})
    assert transfer_learning.salient_neurons_move_down.measure(found).values == pytest.approx((0.5,))
    assert transfer_learning.bert_keeps_its_salient_neurons.measure(found).values == pytest.approx((0.4,))
    assert transfer_learning.bottom_neurons_of_bert_lose_least.measure(found).values == pytest.approx((0.4,))


def test_sentence_tasks_and_few_neurons_are_read_from_layers_and_times():
    found = results(
        (step("redundancy", model="m", task="nli", unit="sentence"),
         reduced("sentence", (0.9, 0.9, 0.9), (1, 0.3, 0.1), redundant=2)),
        (step("timing", model="m"), run(times=[{"work": "train", "n": n, "seconds": s} for n, s in
                                               zip((1, 5, 10, 25, 50, 75, 100), (1, 2, 3, 4, 5, 8, 10), strict=True)])),
    )  # fmt: skip
    assert redundancy.lower_layers_do_not_solve_sentence_tasks.measure(found).values == (2.0,)
    assert redundancy.few_neurons_are_faster.measure(found).values == (5.0,)


def effects():
    scores = {"BERT": 0.9, "GPT-2": 0.7, "mBERT": 0.88, "distilBERT": 0.85}
    runs = [(step("redundancy", model=m, task="deprel"), reduced("word", (v, v, 0.5), (1, 0.3, 0.1)))
            for m, v in scores.items()]  # fmt: skip
    families = {"BERT": "bert", "mBERT": "bert", "GPT-2": "gpt2", "distilBERT": "distilbert"}
    found = results(*runs, families=families, teachers={"distilBERT": "BERT"})
    return Results(found.steps, found.runs, families, found.teachers, {name: name == "mBERT" for name in scores})


def test_architecture_is_set_against_distillation_and_multilingualism():
    assert distilled.architecture_matters_most.measure(effects()).values == pytest.approx((0.2 - 0.05,))
    assert distilled.multilingual_models_are_as_redundant.measure(effects()).values == pytest.approx((0.0,))
    assert distilled.gpt2_labels_relations_worst.measure(effects()).values == pytest.approx((0.15,))
    alone = results(families={"m": "bert"})
    assert "different architectures" in distilled.architecture_matters_most.measure(alone)


def test_hundred_neurons_are_those_of_the_lowest_threshold_that_leaves_as_few():
    table = [{"threshold": t, "neurons": n, "score": s} for t, n, s in ((0, 900, 0.9), (0.8, 90, 0.6), (0.9, 20, 0.2))]
    found = results((step("redundancy", model="m", task="upos"), run(thresholds=table)))
    assert distilled.hundred_neurons_hold_most.measure(found).values == pytest.approx((0.6 / 0.9,))


def test_languages_are_compared_by_family_and_by_what_distillation_costs():
    families = {"en": "Germanic", "de": "Germanic", "sv": "Germanic", "fi": "Uralic"}
    scores = {"en": 0.9, "de": 0.8, "sv": 0.85, "fi": 0.6}
    languages = [{"model": "m", "language": c, "family": families[c], "threshold": 0.0, "score": s}
                 for c, s in scores.items()]  # fmt: skip
    overlap = [{"model": "m", "language_a": a, "language_b": b, "overlap": 0.3 if families[a] == families[b] else 0.1}
               for a, b in (("en", "de"), ("en", "sv"), ("de", "fi"), ("en", "fi"))]  # fmt: skip
    changes = {"de": -0.01, "sv": -0.02, "fi": -0.05}
    students = [{"model": "s", "language": c, "features": "threshold 0", "change": v, "low": v, "high": v}
                for c, v in changes.items()]  # fmt: skip
    tables = {"languages": languages, "overlap": overlap, "students": students}
    found = results((step("languages", task="upos"), run(config={"source": "en"}, **tables)))
    assert distilled.swedish_is_nearer_than_german.measure(found).values == pytest.approx((0.05,))
    assert distilled.families_share_neurons.measure(found).values == pytest.approx((0.2,))
    assert distilled.distillation_costs_finnish_most.measure(found).values == pytest.approx((0.035,))


def test_distilled_models_are_set_against_the_original():
    curves = [
        {"model": m, "layer": i, "curve": "layer_average", "value": 1 - (i / n - 0.4) ** 2}
        for m, n in (("teacher", 6), ("student", 3))
        for i in range(n + 1)
    ]
    table = [
        {"model": m, "language": code, "family": family, "threshold": 0.0, "score": score}
        for m, loss in (("teacher", 0.0), ("student", 0.02))
        for code, family, score in (
            ("en", "Germanic", 0.99),
            ("de", "Germanic", 0.8 - loss),
            ("tr", "Turkic", 0.5 - loss),
        )
    ]
    found = results(
        (step("compare"), run(curves=curves)),
        (step("languages", task="upos"), run(config={"source": "en"}, languages=table)),
        teachers={"student": "teacher"},
    )
    assert distilled.distilled_layers_follow_the_original.measure(found).values[0] > 0.9
    assert distilled.germanic_languages_are_nearest.measure(found).values == pytest.approx((0.3, 0.3))
    assert distilled.distilled_models_transfer_nearly_as_well.measure(found).values == pytest.approx((-0.02,))


def test_one_model_alone_says_nothing_of_distillation():
    curves = [{"model": "m", "layer": i, "curve": "layer_average", "value": float(i)} for i in range(3)]
    assert (
        distilled.distilled_layers_follow_the_original.measure(results((step("compare"), run(curves=curves))))
        == distilled.NO_STUDENT
    )


def retrieved(pair, cosine, bertscore):
    table = [
        {"pair": pair, "direction": "forward", "score": s, "layers": "all", "accuracy": v, "sentences": 50}
        for s, v in (("cosine", cosine), ("bertscore", bertscore))
    ]
    averages = [
        {"direction": "forward", "score": "cosine", "layer": i, "accuracy": v}
        for i, v in enumerate((0.1, 0.2, 0.3, 0.9, 0.6, 0.4, 0.2))
    ]
    return run(retrieval=table, averages=averages)


def test_monolingual_claims_are_read_from_retrieval_and_adaptation():
    scores = {"teacher": 0.7, "uniform": 0.5, "bottom": 0.6, "top": 0.4, "monoshot": 0.65, "bilingual-monoshot": 0.6,
              "monoshot+td": 0.64}  # fmt: skip
    adapted = []
    for variant, value in scores.items():
        others = {"bitfit-target": 0.5, "adapter-source": 0.2, "adapter-target": 0.5, "adapter-joint": 0.3,
                  "sparse-delta": 0.3}  # fmt: skip
        strategies = {"full-target": value, **(others if variant == "monoshot" else {})}
        summary = {"metric": "accuracy", "test accuracy": strategies, "target examples": {"tr": {"test": 100}}}
        adapted.append((step("adapt", task="nli", variant=variant), run(summary)))
    losses = [
        {"row": row, "score": "perplexity", "subject": "tr/tr", "value": value}
        for row, value in (("monoshot", 10.0), ("monoshot-without-teacher-start", 40.0))
    ]
    correlations = [
        {"direction": way, "score": "cosine", "layers": "all", "measure": measure, "value": v, "low": -0.9, "high": 0.5}
        for way, measure, v in (
            ("forward", "pearson", -0.4),
            ("forward", "spearman", 0.1),
            ("backward", "pearson", 0.2),
        )
    ]
    found = results(
        (step("retrieval"), retrieved("tr-en", 0.5, 0.3)),
        (step("aligned", variant="tr"), retrieved("tr-en", 0.4, 0.45)),
        (step("single", variant="bilingual-monoalignment"), retrieved("tr-en", 0.2, 0.1)),
        *adapted,
        (step("correlate"), run(correlations=correlations)),
        (step("losses"), run(scores=losses)),
    )
    expected = {
        "alignment_goes_with_scores": -0.4,
        "joint_and_target_adapters_beat_source": 0.1,
        "middle_layers_align_best": 0.5,
        "cosine_beats_bertscore": 0.2,
        "monoalignment_beats_the_teacher": 0.15,
        "monoshot_beats_layer_subsets": 0.05,
        "teacher_beats_monoshot": 0.05,
        "bottom_layers_are_the_best_subset": 0.1,
        "full_target_is_best": 0.15,
        "teacher_start_helps": 4.0,
        "task_distillation_does_not_help": -0.01,
        "monoalignment_prefers_bertscore": 0.05,
        "bitfit_is_weak": 0.0,
        "bilingual_alignment_is_worse": 0.35,
        "sparse_tuning_beats_source_adapters": 0.1,
    }
    for name, value in expected.items():
        assert getattr(monolingual, name).measure(found).values == pytest.approx((value,)), name


def test_a_scale_without_all_adapters_says_so():
    summary = {"metric": "accuracy", "test accuracy": {"full-target": 0.6}, "target examples": {"tr": {"test": 100}}}
    found = results((step("adapt", task="nli", variant="monoshot"), run(summary)))
    assert "does not train all adapters" in monolingual.joint_and_target_adapters_beat_source.measure(found)
