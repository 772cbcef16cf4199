"""The documentation tells the truth: its Python runs, its commands parse, its reference is that of the program.

Blocks of a page run one after another in one folder, on tiny stand-ins for the models and the treebank. A block with
a title is a file of that name, a `pycon` block is a doctest, and a `python` block may raise the error that the comment
`# raises …` at its end quotes.
"""

import doctest
import html
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner

import residuum
from residuum.cli import app
from tiny import TEXT

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))}
REFERENCE = ("reference/cli.md", "reference/python.md")  # written when the site is built
FENCE = re.compile(r"^( *)```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
RUN_COMMANDS = ("quickstart.md",)  # elsewhere they are only parsed


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: its language, the file it stands for if any, and its text."""

    language: str
    title: str | None
    text: str

    @property
    def commands(self) -> list[list[str]]:
        """The calls of `residuum` in a shell block, without the program's name."""
        lines = self.text.replace("\\\n", " ").splitlines() if self.language == "bash" else []
        return [words[1:] for words in map(shlex.split, lines) if words[:1] == ["residuum"]]


def blocks(page: str) -> list[Block]:
    return [Block(m[2], m[3], textwrap.dedent(m[4])) for m in FENCE.finditer(PAGES[page])]


@pytest.fixture
def workplace(tiny_folder, tmp_path, monkeypatch):
    """The current folder, with two models and a treebank."""
    shutil.copytree(tiny_folder("bert"), tmp_path / "encoder")
    for name in ("decoder", "other"):
        shutil.copytree(tiny_folder("gpt2"), tmp_path / name)
    (tmp_path / "treebank.conllu").write_text(treebank(), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    # one worker: to start others takes longer than their work
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    return tmp_path


def treebank() -> str:
    """Some sentences of several scripts as CoNLL-U; the tags mean nothing."""
    sentences = []
    for number, sentence in enumerate(islice(cycle(TEXT), 40), 1):
        tags = cycle(["DET", "NOUN", "VERB"])
        rows = [
            f"{i}\t{word}\t{word}\t{tag}\t_\t_\t{i - 1}\t{'dep' if i > 1 else 'root'}\t_\t_"
            for i, (word, tag) in enumerate(zip(sentence.split(), tags, strict=False), 1)
        ]
        sentences.append("\n".join([f"# sent_id = s{number}", *rows, "", ""]))
    return "".join(sentences)


@pytest.mark.parametrize("page", [page for page in PAGES if {b.language for b in blocks(page)} & {"python", "pycon"}])
def test_what_a_page_shows_runs(page, workplace):
    namespace: dict[str, object] = {"__name__": "docs"}
    for block in blocks(page):
        if block.title is not None:
            (workplace / block.title).parent.mkdir(parents=True, exist_ok=True)
            (workplace / block.title).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            run_python(block.text, page, namespace)
        elif block.language == "pycon":
            run_session(block.text, page, namespace)
        elif page in RUN_COMMANDS:
            run_commands(block)


def run_python(source: str, page: str, namespace: dict[str, object]) -> None:
    expected = re.search(r"^# raises (\w+): (.*)", source, re.MULTILINE | re.DOTALL)
    code = compile(source, page, "exec")
    if expected is None:
        exec(code, namespace)
        return
    message = " ".join(line.removeprefix("# ") for line in expected[2].strip().splitlines())
    with pytest.raises(residuum.ResiduumError) as error:
        exec(code, namespace)
    assert (type(error.value).__name__, str(error.value)) == (expected[1], message)


def run_session(source: str, page: str, namespace: dict[str, object]) -> None:
    session = doctest.DocTestParser().get_doctest(source, namespace, page, page, 0)
    said: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(session, out=said.append, clear_globs=False)
    assert not said, "".join(said)
    namespace.update(session.globs)


def run_commands(block: Block) -> None:
    for command in block.commands:
        result = CliRunner().invoke(app, command, catch_exceptions=False)
        assert result.exit_code == 0, result.output


@pytest.mark.parametrize("page", [page for page in PAGES if any(block.commands for block in blocks(page))])
def test_every_command_that_a_page_shows_is_one(page):
    verbs = parsers()
    for words in (command for block in blocks(page) for command in block.commands):
        verb = next((verb for verb in verbs if words[: len(verb.split())] == verb.split()), None)
        assert verb is not None, f"{page} shows `residuum {' '.join(words)}`; there are {', '.join(verbs)}."
        verbs[verb].make_context(verb, words[len(verb.split()) :])


def parsers() -> dict:
    """Every command by its words, those of groups too."""
    found = {}
    for verb, command in get_command(app).commands.items():
        inner = getattr(command, "commands", None)
        found |= {verb: command} if inner is None else {f"{verb} {name}": own for name, own in inner.items()}
    return found


def test_the_checks_above_find_what_is_wrong(workplace):
    wrong = '=== "Tab"\n\n    ```bash\n    residuum extract a b --out c \\\n      --no-such-option\n    ```\n'
    (match,) = FENCE.finditer(wrong)
    (command,) = Block(match[2], match[3], textwrap.dedent(match[4])).commands
    with pytest.raises(Exception, match="no-such-option"):
        get_command(app).commands["extract"].make_context("extract", command[1:])
    with pytest.raises(AssertionError, match="Expected:"):
        run_session(">>> 1 + 1\n3\n", "page", {})
    with pytest.raises(AssertionError, match="another reason"):
        run_python("import residuum\nresiduum.open_store('none')\n# raises StoreError: another reason", "page", {})


def test_the_reference_of_the_command_line_names_what_the_parser_knows():
    page = load_script(DOCS / "reference.py").cli_page()
    for verb, command in parsers().items():
        section = page.partition(f"\n## residuum {verb}\n")[2].partition("\n## ")[0]
        for parameter in command.params:
            common = parameter.name in ("config", "json", "estimate")
            for name in [] if common or parameter.param_type_name != "option" else parameter.opts:
                assert name in section, f"residuum {verb} has no {name} in the reference"


def test_the_reference_of_python_has_every_public_name():
    page = load_script(DOCS / "reference.py").python_page()
    documented = re.findall(r"^::: residuum\.[\w.]+\.(\w+)$", page, re.MULTILINE)
    assert set(documented) > set(residuum.__all__) - {"__version__"}, "every public name, and what commands return"


def test_every_measure_has_its_section():
    sections = re.findall(r"^### `(\w+)`$", PAGES["methods/similarity.md"], re.MULTILINE)
    own = [name for name, measure in residuum.MEASURES.items() if measure.function is None]  # a page registers one
    assert sorted(sections) == sorted(own)


def test_every_page_is_in_the_navigation():
    found = re.findall(r"\S+\.md", yaml.safe_dump(site_settings()["nav"]))
    assert sorted(found) == sorted({*PAGES, *REFERENCE})


def test_the_site_builds_and_asks_no_other_host_for_anything(tmp_path):
    load_script(DOCS / "reference.py").main()
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > len(PAGES)  # and one that says what is not found
    for page in pages:
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe)[^>]* src=\"(\w+:[^\"]*)|<link[^>]* href=\"(\w+:[^\"]*)", text)
        assert not loaded, f"{page.name} loads {loaded}"
    examples = (tmp_path / "examples.html").read_text(encoding="utf-8")
    shown = html.unescape(re.sub(r"<[^>]+>", "", examples))
    for script in (ROOT / "examples").glob("*.py"):
        last = script.read_text(encoding="utf-8").rstrip().splitlines()[-1]
        assert last in shown, f"the page of examples does not show {script.name}"


TUTORIALS = [path for path in sorted((DOCS / "tutorials").glob("*.py")) if path.with_suffix(".md").exists()]


@pytest.mark.parametrize("script", TUTORIALS, ids=lambda path: path.stem)
def test_the_notebook_and_the_page_of_a_tutorial_are_those_of_its_script(script):
    tutorials = load_script(DOCS / "tutorials.py")
    notebook = json.loads(script.with_suffix(".ipynb").read_text(encoding="utf-8"))
    cells = tutorials.cells_of(script.read_text(encoding="utf-8"))
    assert ["".join(cell["source"]) for cell in notebook["cells"]] == [cell["source"] for cell in cells]
    for cell, made in zip(cells, notebook["cells"], strict=True):
        cell["output"] = "".join(text for output in made.get("outputs", ()) for text in output["text"])
    assert tutorials.page(cells, script.stem) == script.with_suffix(".md").read_text(encoding="utf-8")
    assert any(cell["output"] for cell in cells), "it was executed"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("script", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_prints_what_its_page_shows(script):
    """But for the digits, which differ between machines, and the spaces that follow from them."""
    tutorials = load_script(DOCS / "tutorials.py")
    made = tutorials.page(tutorials.executed(tutorials.cells_of(script.read_text(encoding="utf-8"))), script.stem)
    plain = [re.sub(r"[-\d.,\s]+", " ", text) for text in (made, script.with_suffix(".md").read_text(encoding="utf-8"))]
    assert plain[0] == plain[1]


def site_settings() -> dict:
    return yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def load_script(path: Path):
    spec = importlib.util.spec_from_file_location("docs_reference", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["docs_reference"] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


def test_the_changelog_is_read_in_two_minutes():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert len(text.split()) < 800
    starts = [line[:60] for line in text.splitlines() if line.startswith("- ")]
    assert len(set(starts)) == len(starts), "an entry that stands twice"


def test_the_pictures_of_the_readme_and_of_the_pages_are_there():
    pages = {ROOT / "README.md": (ROOT / "README.md").read_text(encoding="utf-8")}
    pages |= {DOCS / name: text for name, text in PAGES.items()}
    images = [(page, image) for page, text in pages.items() for image in re.findall(r"!\[[^]]+\]\(([^)]+)\)", text)]
    assert ("README.md", "docs/images/smaller.png") in [(page.name, image) for page, image in images]
    assert [image for page, image in images if not (page.parent / image).is_file()] == []
