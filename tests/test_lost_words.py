"""Words that a model has no sub-word for: refused with the option that allows them, by every command that reads."""

import pytest
from typer.testing import CliRunner

from made_stores import conllu, known_data
from residuum.cli import app

DATA = known_data(60)
QUICK = "--epochs 1 --device cpu"
TASK = f"--task upos --no-subsets {QUICK}"
COMMANDS = {
    "extract": "extract {model} {text} --device cpu",
    "compare": "compare {model} --corpus {text} --measures cka --groups 2 --workers 1 --device cpu",
    "redundancy": f"redundancy {{model}} {{text}} --task upos {QUICK}",
    "probe": f"probe {{model}} {{text}} --no-random-twin {TASK}",
    "probe-languages": f"probe-languages {{text}} {{other}} -m {{model}} --source en --thresholds 0 {TASK}",
    "rank": f"rank {{model}} {{text}} --task upos --methods lca {QUICK}",
    "describe": "describe {model} {text} --neurons 1:2 --device cpu",
    "ablate": f"ablate {{model}} {{text}} --task upos --draws 1 {QUICK}",
    "diff": f"diff {{model}} again={{model}} --corpus {{text}} --tasks upos --measures cka --workers 1 {QUICK}",
    "prune": "prune {model} --drop 1 --by cka --corpus {text} --device cpu",
    "prune by probes": "prune {model} --drop 1 --by probe --task upos --corpus {text} --device cpu",
    "transfer": f"transfer {{model}} {{text}} --task upos {QUICK}",
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
