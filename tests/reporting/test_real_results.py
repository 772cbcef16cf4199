"""The report of real runs of a tiny model: what commands write is what their sections read."""

import re

import pytest

import residuum
from residuum.reporting.page import fitting_rows
from residuum.reporting.report import SECTIONS, report, section

pytestmark = pytest.mark.filterwarnings("ignore")
SIZES = {"train": 30, "dev": 20, "test": 20}


def treebanks(language):
    return {part: residuum.sample("treebank", language=language, size=n, split=part) for part, n in SIZES.items()}


@pytest.fixture(scope="module")
def results(tiny_folder, tmp_path_factory):
    folder, path = tmp_path_factory.mktemp("real"), tiny_folder("bert")
    model, twin = residuum.load_model(path), residuum.load_model(path, random_init=True)
    train, dev, test = (english := treebanks("en")).values()
    parts, quiet = {"dev": dev, "test": test}, {"progress": False}
    (folder / "text.txt").write_text("\n".join(" ".join(words) for words in train.sentences), encoding="utf-8")
    german = treebanks("de")["train"]
    return {
        "ablate": residuum.ablate(model, train, "upos", **parts, **quiet),
        "compare": residuum.compare([model, twin], dev, measures=["cka"], groups=3, **quiet),
        "diff": residuum.diff({"a": model, "b": twin}, train, ["upos"], measures=["cka"], **parts, **quiet),
        "probe": residuum.probe(model, train, "upos", **parts, **quiet),
        "probe-languages": residuum.probe_languages([model], [english["train"], german], seeds=1, **quiet),
        "prune": residuum.prune(path, folder / "pruned", drop=1, by="cka", corpus=dev, **quiet),
        "rank": residuum.rank(model, train, "upos", methods=("forward", "probeless", "random"), **parts, **quiet),
        "redundancy": residuum.redundancy(model, train, "upos", **parts),
        "transfer": residuum.transfer(model, train, "upos", folder / "transferred", **parts, **quiet),
        "trim": residuum.trim(path, folder / "text.txt", folder / "trimmed", **quiet),
    }


@pytest.fixture(
    params=["ablate", "compare", "diff", "probe", "probe-languages", "prune", "rank", "redundancy", "transfer", "trim"]
)
def result(results, request):
    return results[request.param]


def test_a_run_has_every_table_and_column_that_its_section_needs(result):
    _, tables = SECTIONS[result.run.command]
    missing = {name: set(spec.required) - set(result.run.tables.get(name, ())) for name, spec in tables.items()}
    assert {name: columns for name, columns in missing.items() if columns} == {}


def test_a_section_has_facts_sentences_and_figures_of_rows_that_are_there(result):
    content = section(result.run)
    assert 1 <= len(content.facts) <= 6
    assert all(re.search(r"\d", value) for value in content.facts.values())
    for finding in content.findings:
        assert finding.text.endswith((".", "?")), finding
        assert not re.search(r"\bnan\b|\{|\}|None", finding.text), finding
    for panel in content.panels:
        for view in panel.views:
            rows = fitting_rows(view, result.run.tables[view.table])
            assert rows.any(), (panel.title, view.key)


def test_a_notebook_shows_and_draws_it(result):
    assert section(result.run).panels[0].title in result._repr_html_().replace("&#39;", "'")
    assert result.plot().data


def test_all_of_them_make_one_page(results, tmp_path):
    page = report([result.run for result in results.values()], tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count('<section id="run-') == len(results)
    assert 0 < page.split('<dl class="tiles">')[1].split("</dl>")[0].count("<dd>") <= 6
