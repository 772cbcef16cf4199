"""Words that a model has no sub-word for: refused with the option that allows them, by every command that reads."""

import pytest
from typer.testing import CliRunner

from made_stores import conllu, known_data
from residuum.activations.extraction import extract
from residuum.cli import app
from residuum.corpus import Corpus
from residuum.errors import CorpusError
from residuum.models.loading import load_model

DATA = known_data(60)
QUICK = "--epochs 1 --device cpu"
TASK = f"--task upos --no-subsets {QUICK}"
COMMANDS = {
    "extract": "extract {model} {text} --device cpu",
    "compare": "compare {model} --corpus {text} --measures cka --groups 2 --workers 1 --device cpu",
    "redundancy": f"redundancy {{model}} {{text}} --task upos {QUICK}",
    "probe": f"probe {{model}} {{text}} --no-random-twin {TASK}",
    "probe-languages": f"probe-languages {{model}} --corpora {{text}},{{other}} --source en --thresholds 0 {TASK}",
    "rank": f"rank {{model}} {{text}} --task upos --methods lca {QUICK}",
    "describe": "describe {model} {text} --neurons 1:2 --device cpu",
    "ablate": f"ablate {{model}} {{text}} --task upos --draws 1 {QUICK}",
    "diff": f"diff {{model}} again={{model}} --corpus {{text}} --tasks upos --measures cka --workers 1 {QUICK}",
    "prune": "prune {model} --drop 1 --by cka --corpus {text} --device cpu",
    "prune by probes": "prune {model} --drop 1 --by probe --task upos --corpus {text} --device cpu",
    "transfer": "transfer {model} {text} --task upos --device cpu",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_names_the_option_that_lets_words_be_lost_and_has_it(command, tiny_folder, tmp_path):
    empty = [[*words[:-1], "\u200b"] if i % 10 == 0 else words for i, words in enumerate(DATA.sentences)]
    text, other = tmp_path / "en_x-ud-test.conllu", tmp_path / "de_x-ud-test.conllu"
    text.write_text(conllu(empty, DATA.tags), encoding="utf-8")
    other.write_text(conllu(DATA.sentences, DATA.tags), encoding="utf-8")
    line = COMMANDS[command].format(model=tiny_folder("bert"), text=text, other=other).split()
    refused = CliRunner().invoke(app, [*line, "--out", str(tmp_path / "refused")])
    assert refused.exit_code != 0
    said = " ".join(str(refused.exception).split())
    assert "words are lost" in said, refused.output
    assert "allow it with --max-loss 0." in said
    allowed = CliRunner().invoke(app, [*line, "--out", str(tmp_path / "allowed"), "--max-loss", "0.5"])
    assert allowed.exit_code == 0, allowed.output + str(allowed.exception)


def test_what_was_read_with_losses_is_not_taken_for_what_has_none(tiny_folder, tmp_path):
    corpus = Corpus("holes", [["fox", "\u200b"], ["dog"]])
    model = load_model(tiny_folder("bert"))
    assert extract(model, corpus, tmp_path / "acts", max_loss=0.5).n_rows == 2
    with pytest.raises(CorpusError, match="1 of 3 words are lost"):
        extract(model, corpus, tmp_path / "acts")


def test_a_text_of_which_nothing_is_left_is_refused(tiny_folder, tmp_path):
    with pytest.raises(CorpusError, match="All 2 words are lost, so that nothing is left"):
        extract(load_model(tiny_folder("bert")), Corpus("holes", [["\u200b"]] * 2), tmp_path / "acts", max_loss=1.0)
