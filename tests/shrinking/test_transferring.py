"""`transfer` end to end: what is chosen, what is written, what is said when it cannot be done."""

import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers as hf
from safetensors.numpy import load_file
from tagged_words import RECIPE, numbered_corpus, tagged_corpus

from residuum.corpus.tasks import read_task
from residuum.errors import CorpusError, ModelError, SettingError, StoreError
from residuum.models.loading import load_model
from residuum.models.vocabularies import cut_model
from residuum.probing.probe_data import ProbeData
from residuum.reporting.report import section
from residuum.shrinking import transferring
from residuum.shrinking.classifier import classifier_bytes
from residuum.shrinking.predicting import load_predictor, predict
from residuum.shrinking.selection import FeatureSelection
from residuum.shrinking.transferring import transfer
from residuum.storage.results import read_run

KEEP = 0.85
MADE = {"recipe": RECIPE, "trim": True, "narrow": True, "seeds": 3, "keep": KEEP}
TEXTS = ["the quick fox jumps over a dog", "a model reads", "word"]


@pytest.fixture(scope="module")
def corpus():
    return tagged_corpus()


@pytest.fixture(scope="module")
def made(tiny_folder, corpus, tmp_path_factory):
    out = tmp_path_factory.mktemp("transfer") / "upos"
    return run(tiny_folder(), corpus, out, **MADE)


def run(model, corpus, out, **settings):
    return transfer(model, corpus, "upos", out, progress=False, **settings)


def test_the_steps_shrink_the_model_and_keep_the_score(tiny_folder, tmp_path):
    """With more than 1,000 dev words the neurons are judged on dev itself, and solved probes have no luck in them."""
    result = run(tiny_folder(), tagged_corpus(2400), tmp_path, trim=True, narrow=True, keep=KEEP)
    steps = result.frame.set_index("step")
    assert list(steps.index[:5]) == ["oracle", "LayerSelector", "clustering", "feature selection", "as saved"]
    assert steps["neurons"].iloc[:4].is_monotonic_decreasing
    assert steps.loc["feature selection", "neurons"] < steps.loc["oracle", "neurons"]
    assert steps.loc["LayerSelector", "dev"] >= (1 + KEEP) / 2 * steps.loc["oracle", "dev"]
    assert steps.loc["feature selection", "dev"] >= KEEP * steps.loc["oracle", "dev"]
    assert steps.loc["as saved", "parameters"] < steps.loc["oracle", "parameters"]
    assert (steps["low"].dropna() <= steps["test"][steps["low"].notna()]).all()


def test_what_is_saved_scores_as_the_probe_did(tiny_folder, corpus, tmp_path):
    result = run(tiny_folder(), corpus, tmp_path)
    steps = result.frame.set_index("step")
    assert steps.loc["as saved", "test"] == pytest.approx(steps.loc["feature selection", "test"])


def test_with_a_trimmed_vocabulary_the_score_is_that_of_the_folder(tiny_folder, corpus, tmp_path, monkeypatch):
    """The kept pieces lose their embeddings here, so that what is written cannot tell words that the probes could."""

    def without_words(network, vocabulary):
        small = cut_model(network, vocabulary)
        table = small.embeddings.word_embeddings
        table.weight = torch.nn.Parameter(torch.zeros_like(table.weight))
        return small

    monkeypatch.setattr(transferring, "cut_model", without_words)
    corpora = read_task("upos", corpus)
    result = run(tiny_folder(), corpora, tmp_path, trim=True, steps=["layers"], keep=KEEP)
    summary, steps = result.run.summary, result.frame.set_index("step")
    predicted = result.predictor.predict_corpus(corpora.test)
    truth = corpora.test.labels["upos"]
    right = [a == b for x, y in zip(predicted, truth, strict=True) for a, b in zip(x, y, strict=True)]
    assert summary["score"] == pytest.approx(np.mean(right))
    assert summary["score"] < steps.loc["LayerSelector", "test"] - 0.1
    assert summary["score"] == steps.loc["as saved", "test"]
    assert summary["interval"] == [steps.loc["as saved", "low"], steps.loc["as saved", "high"]]
    assert summary["interval"] != [steps.loc["LayerSelector", "low"], steps.loc["LayerSelector", "high"]]
    assert summary["interval"][0] <= summary["score"] <= summary["interval"][1]
    assert summary["share of oracle"] == pytest.approx(summary["score"] / steps.loc["oracle", "test"])
    card = (tmp_path / "README.md").read_text()
    reached = f"accuracy {summary['score']:.4f} on test, {summary['share of oracle']:.1%} of the oracle's"
    assert reached in card
    assert reached in result.text()
    found = {finding.topic: finding.text for finding in section(result.run).findings}
    assert f"reaches accuracy {summary['score']:.3f}" in found["Score"]


def test_times_of_all_steps_are_on_one_scale(made):
    steps, costs = made.frame.set_index("step"), made.run.tables["costs"].set_index("layers")["ms"]
    assert steps.loc["oracle", "ms"] == pytest.approx(made.run.summary["ms of the whole model"])
    assert steps.loc["oracle", "ms"] == costs.max()
    assert steps.loc["LayerSelector", "ms"] == costs[steps.loc["LayerSelector", "layer"]] <= costs.max()


def test_the_text_has_rounded_scores_and_megabytes(made):
    shown = made.text().splitlines()
    saved = made.frame.set_index("step").loc["as saved"]
    row = next(line for line in shown if line.strip().startswith("as saved"))
    assert f" {saved['test']:.3f} " in row
    assert f" {saved['bytes'] / 1e6:.3f} " in row
    assert "NaN" not in made.text()


def test_seeds_give_a_mean_and_a_deviation(made):
    steps = made.frame.set_index("step")
    assert steps["sd"].notna().tolist()[:5] == [True] * 4 + [False]
    assert (abs(steps["mean"] - steps["test"])[:4] < 0.3).all()
    assert "± " in (made.folder / "README.md").read_text()
    assert "of 3 probes on the same neurons" in (made.folder / "README.md").read_text()


def test_the_product_tags_sentences_that_it_never_saw(made):
    unseen = tagged_corpus(50, seed=7)
    found = made.predict([" ".join(words) for words in unseen.sentences])
    right = [a == b for x, y in zip(found, unseen.labels["upos"], strict=True) for a, b in zip(x, y, strict=True)]
    assert np.mean(right) > made.run.summary["baselines"]["majority"] + 0.1


def test_moved_and_loaded_in_another_process_without_the_model_it_predicts_the_same(corpus, tmp_path):
    from tiny import save_model

    source = save_model("bert", tmp_path / "source")
    result = run(source, corpus, tmp_path / "made")
    expected = result.predict(TEXTS)
    shutil.rmtree(source)
    shutil.move(tmp_path / "made", tmp_path / "elsewhere")
    check = f"import residuum; print(list(residuum.predict({str(tmp_path / 'elsewhere')!r}, {TEXTS!r})))"
    shown = subprocess.run([sys.executable, "-c", check], check=True, capture_output=True, text=True).stdout
    assert shown.splitlines()[-1] == str(expected)


def test_plain_transformers_and_safetensors_give_the_same_labels(made):
    """The folder as someone without this package would use it."""
    network, tokenizer = hf.AutoModel.from_pretrained(made.folder), hf.AutoTokenizer.from_pretrained(made.folder)
    parts = load_file(made.folder / "classifier.safetensors")
    labels = load_predictor(made.folder).classifier.labels
    words = TEXTS[0].split()
    encoded = tokenizer(words, is_split_into_words=True, return_tensors="pt")
    output = network.eval()(**encoded, output_hidden_states=True)
    hidden = output.hidden_states or (output.last_hidden_state,)  # none in transformers 5.23 where no block is left
    last = [max(t for t, w in enumerate(encoded.word_ids()) if w == word) for word in range(len(words))]
    states = np.stack([layer[0].detach().numpy() for layer in hidden])
    x = states[parts["layers"][None], np.array(last)[:, None], parts["indices"][None]]
    scores = x @ parts["weight"].T + parts["bias"]
    assert [labels[i] for i in scores.argmax(axis=1)] == made.predict(TEXTS[:1])[0]


def test_the_card_says_all_that_a_user_asks(made):
    card = (made.folder / "README.md").read_text()
    for wanted in (
        "residuum predict",
        "| oracle |",
        "| LayerSelector |",
        "| feature selection |",
        "parameters:",
        "bytes of weights:",
        "times faster than the whole model",
        "majority",
        "pieces, those of the training and development texts",
        "characters without one become unknown",
        "narrowed for comparison",
        "cut into 80%, 10%, 10%",
        "random seed 0",
    ):
        assert wanted in card, wanted


def test_trimming_leaves_only_pieces_of_the_texts(made, tiny_folder):
    before = load_model(tiny_folder()).module.config.vocab_size
    assert load_model(made.folder).module.config.vocab_size == made.run.summary["pieces"] < before


def test_narrowing_is_reported_with_its_own_score_and_cost(tiny_folder, corpus, tmp_path):
    """At most three neurons lie in at most three of the sixteen hidden dimensions."""
    result = run(tiny_folder(), corpus, tmp_path, narrow=True, budget="neurons=3")
    steps = result.frame.set_index("step")
    narrow, saved = steps.loc["narrowed"], steps.loc["as saved"]
    n_dimensions = result.neurons["index"].nunique()
    assert n_dimensions <= 3
    assert result.run.summary["narrowing"] == f"{n_dimensions} of 16 hidden dimensions"
    assert narrow["neurons"] == saved["neurons"] <= 3
    assert narrow["parameters"] < saved["parameters"]
    assert narrow["bytes"] < saved["bytes"]
    assert narrow["ms"] > 0
    assert narrow["low"] <= narrow["test"] <= narrow["high"]
    assert "narrowed for comparison, not saved" in (tmp_path / "README.md").read_text()


def test_where_each_dimension_has_a_neuron_narrowing_says_so(tiny_folder, corpus, tmp_path):
    result = run(tiny_folder(), corpus, tmp_path, narrow=True, steps=["layers"])
    assert result.run.summary["narrowing"].startswith("nothing to drop: each of the 16 hidden dimensions")
    assert "narrowed" not in set(result.frame["step"])


def test_the_front_has_no_point_that_another_beats(made):
    curve = made.curve
    for cost in ("neurons", "bytes", "ms"):
        front = curve.loc[curve[f"front {cost}"]]
        for _, point in front.iterrows():
            better = (curve[cost] <= point[cost]) & (curve["dev"] > point["dev"])
            assert not better.any()


def test_the_same_again_returns_at_once_and_another_needs_fresh(made, tiny_folder, corpus):
    again = run(tiny_folder(), corpus, made.folder, **MADE)
    assert again.run.summary == read_run(made.folder).summary
    with pytest.raises(StoreError, match="keep 0.85 → 0.7"):
        run(tiny_folder(), corpus, made.folder, **{**MADE, "keep": 0.7})


def test_nothing_but_the_product_is_left(made):
    assert not [path.name for path in made.folder.iterdir() if path.is_dir()]


@pytest.mark.parametrize("step", ["layers", "clusters", "neurons"])
def test_each_step_can_be_taken_alone(step, tiny_folder, corpus, tmp_path):
    result = run(tiny_folder(), corpus, tmp_path, steps=[step])
    assert len(result.frame) == 3
    oracle, taken = result.frame.iloc[0], result.frame.iloc[1]
    if step == "layers":
        assert taken["neurons"] == 16 * (taken["layer"] + 1)
    else:
        assert taken["neurons"] <= oracle["neurons"] == 64


@pytest.mark.parametrize("family", ["gpt2", "modernbert"])
def test_a_closing_norm_changes_nothing(family, tiny_folder, corpus, tmp_path):
    result = run(tiny_folder(family), corpus, tmp_path, budget="layers=1", steps=["layers"])
    steps = result.frame.set_index("step")
    assert steps.loc["as saved", "layer"] <= 1
    assert steps.loc["as saved", "test"] == pytest.approx(steps.loc["LayerSelector", "test"])


def test_a_killed_run_goes_on_where_it_was(tiny_folder, corpus, tmp_path, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(FeatureSelection, "neurons", killed)
        with pytest.raises(KeyboardInterrupt):
            run(tiny_folder(), corpus, tmp_path / "a")
    assert not (tmp_path / "a" / "result.json").exists()

    trained = []
    whole = FeatureSelection.train
    monkeypatch.setattr(
        FeatureSelection, "train", lambda self, step, *rest: trained.append(step) or whole(self, step, *rest)
    )
    resumed = run(tiny_folder(), corpus, tmp_path / "a")
    assert set(trained) <= {"neurons", "path"}
    straight = run(tiny_folder(), corpus, tmp_path / "b")
    np.testing.assert_array_equal(resumed.neurons, straight.neurons)
    assert resumed.predict(TEXTS) == straight.predict(TEXTS)


@pytest.mark.parametrize(
    ("budget", "column", "most"), [("layers=1", "layer", 1), ("neurons=7", "neurons", 7), ("bytes=26kB", "bytes", 26e3)]
)
def test_a_budget_is_kept(budget, column, most, tiny_folder, corpus, tmp_path):
    saved = run(tiny_folder(), corpus, tmp_path, budget=budget).frame.set_index("step").loc["as saved"]
    assert saved[column] <= most


def test_a_budget_of_bytes_that_only_few_neurons_meet_is_kept(made, tiny_folder, corpus, tmp_path):
    """The embeddings with all their 16 neurons would be too large."""
    smallest = made.run.tables["costs"].iloc[0]
    spare = classifier_bytes(3, 16) - classifier_bytes(3, 4)
    budget = int(smallest["bytes"]) - spare
    result = run(tiny_folder(), corpus, tmp_path, budget=f"bytes={budget}", trim=True)
    assert result.run.summary["neurons"] <= 4
    assert result.run.summary["bytes"] <= budget


@pytest.mark.parametrize("budget", ["bytes=1kB", "ms=0.0000001"])
def test_an_unreachable_budget_names_the_nearest_before_anything_is_trained(
    budget, tiny_folder, corpus, tmp_path, monkeypatch
):
    monkeypatch.setattr(ProbeData, "train", lambda *_: pytest.fail("nothing should be trained"))
    kind = budget.partition("=")[0]
    nearest = rf"nearest is {kind}=[\d.e+]+, (the embeddings alone|layers up to \d)[a-z ]*\. Raise it"
    with pytest.raises(SettingError, match=f"cannot be reached: the {nearest}"):
        run(tiny_folder(), corpus, tmp_path, budget=budget)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"budget": "neurons=0"}, "nearest is neurons=1"),
        ({"budget": "seconds=3"}, "expected layers=3, neurons=300, bytes=60MB, ms=2.5 or speedup=3"),
        ({"budget": "layers=2", "steps": ["neurons"]}, "kept by the step 'layers', which is left out"),
        ({"steps": ["prayers"]}, "expected one of layers, clusters, neurons"),
        ({"keep": 1.5}, "keep is 1.5; expected a number above 0 and at most 1"),
        ({"thresholds": [1.0]}, r"thresholds is \(1.0,\); expected numbers .+ below 1"),
        ({"representatives": "best"}, "representatives is 'best'; expected one of random, medoid, first"),
        ({"penalty": "search"}, "penalty is .search.; expected 2 numbers"),
        ({"seeds": 0}, "seeds is 0; expected a whole number at least 1"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings, message, tiny_folder, corpus, tmp_path):
    with pytest.raises(SettingError, match=message):
        run(tiny_folder(), corpus, tmp_path, **settings)


def test_a_task_that_the_corpus_lacks_is_named(tiny_folder, corpus, tmp_path):
    with pytest.raises(CorpusError, match="has no word labels 'chunk'; it has upos"):
        transfer(tiny_folder(), corpus, "chunk", tmp_path)


def test_encoder_decoder_models_are_refused(tiny_folder, corpus, tmp_path):
    with pytest.raises(ModelError, match="an encoder and a decoder"):
        run(tiny_folder("t5"), corpus, tmp_path)


def test_sentence_tasks_give_one_label_a_text(tiny_folder, corpus, tmp_path):
    result = transfer(tiny_folder(), corpus, "sentence", tmp_path, progress=False, position="mean")
    assert set(result.predict(TEXTS)) <= {"noun", "other"}
    assert result.run.config["unit"] == "sentence"


def test_pairs_and_numbers_are_predicted(tiny_folder, tmp_path):
    result = transfer(tiny_folder(), numbered_corpus(160), "regression", tmp_path, progress=False, position="mean")
    assert result.run.summary["metric"] == "pearson"
    low, high = result.predict([("the a", "over by"), ("fox dog", "word text")])
    assert low < high
    with pytest.raises(CorpusError, match="expected two segments"):
        result.predict(["only one"])


def test_a_stream_is_answered_while_it_runs(made):
    def texts():
        yield from TEXTS[:2]
        raise AssertionError("the first two were asked for only")

    answers = predict(made.folder, texts(), batch_size=2)
    assert [next(answers), next(answers)] == made.predict(TEXTS[:2])


def test_a_folder_that_is_no_product_is_refused(tiny_folder, made, tmp_path):
    with pytest.raises(StoreError, match=r"has no classifier\.json; expected a folder that `transfer` wrote"):
        list(predict(tiny_folder(), TEXTS))
    broken = shutil.copytree(made.folder, tmp_path / "broken")
    (broken / "classifier.safetensors").write_bytes(b"damaged")
    with pytest.raises(StoreError, match="damaged or missing"):
        list(predict(broken, TEXTS))


def test_baselines_stand_beside_the_score_and_a_model_below_them_is_warned_of(tiny_folder, corpus, tmp_path):
    """The label is a property of the text that no word tells, so the oracle learns nothing."""
    rng = np.random.default_rng(0)
    kinds = ["a" if number < 0.7 else "b" for number in rng.random(len(corpus))]
    random = replace(corpus, labels={}, sentence_labels={"label": kinds})
    result = transfer(tiny_folder(), random, "sentence", tmp_path, progress=False, steps=["layers"])
    summary, card = result.run.summary, (tmp_path / "README.md").read_text()
    assert summary["score"] <= summary["baselines"]["majority"]
    for shown in (result.text(), card):
        assert f"majority {summary['baselines']['majority']:.4f}" in shown
        assert "does not beat the" in shown
        assert "nan %" not in shown
    assert "one of the 8 dev examples is worth more than the allowed loss" in result.text()


def test_a_model_that_its_random_twin_matches_is_warned_of(tiny_folder, corpus, tmp_path):
    """The weights of the tiny model are random themselves, so those of its twin are as good."""
    result = run(tiny_folder(), corpus, tmp_path, random_twin=True, steps=["layers"])
    twin = result.run.summary["random twin"]
    assert 0 < twin <= 1
    for shown in (result.text(), (tmp_path / "README.md").read_text()):
        assert f"The random twin (same architecture, random weights) scores {twin:.4f}" in shown
    best = max(twin, *result.run.summary["baselines"].values())
    assert any("oracle" in line for line in result.run.summary["warnings"]) == (result.frame["low"].iloc[0] <= best)


@pytest.mark.parametrize(("seeds", "warned"), [(1, True), (2, False)])
def test_a_model_chosen_with_one_seed_says_so(seeds, warned, tiny_folder, corpus, tmp_path):
    result = run(tiny_folder(), corpus, tmp_path, recipe=RECIPE, seeds=seeds, steps=["layers"])
    for shown in (result.text(), (tmp_path / "README.md").read_text()):
        assert ("those of 1 seed" in shown) == warned


def test_the_default_folder_names_its_own_loader_and_no_pipeline(made):
    card = (made.folder / "README.md").read_text()
    assert "library_name: residuum" in card
    assert "pipeline_tag" not in card
    assert "FeatureTransfer.load" in card


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "mpnet"])
def test_a_pipeline_of_transformers_tags_words_alike(family, tiny_folder, corpus, tmp_path):
    result = run(tiny_folder(family), corpus, tmp_path, save_as="transformers", keep=0.9)
    assert result.run.summary["metric"] == "accuracy"
    assert "pipeline_tag: token-classification" in (tmp_path / "README.md").read_text()
    tagger = hf.pipeline("token-classification", model=str(tmp_path), ignore_labels=[])
    for text in TEXTS:
        starts = np.cumsum([0, *(len(word) + 1 for word in text.split())])[:-1]
        tokens = tagger(text)
        tags = [next(token["entity"] for token in tokens if token["end"] > start) for start in starts]
        assert tags == result.predict([text])[0]


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert"])
def test_a_pipeline_of_transformers_classifies_sentences_alike(family, tiny_folder, corpus, tmp_path):
    result = transfer(
        tiny_folder(family), corpus, "sentence", tmp_path, progress=False, save_as="transformers", keep=0.9
    )
    assert "pipeline_tag: text-classification" in (tmp_path / "README.md").read_text()
    texts = [" ".join(words) for words in corpus.sentences[:30]]
    classify = hf.pipeline("text-classification", model=str(tmp_path))
    assert [answer["label"] for answer in classify(texts)] == result.predict(texts)


def test_a_model_of_transformers_needs_a_head_that_can_hold_the_classifier(tiny_folder, corpus, tmp_path):
    with pytest.raises(SettingError, match="classify a word by its first token"):
        run(tiny_folder(), corpus, tmp_path, save_as="transformers", pooling="mean")
