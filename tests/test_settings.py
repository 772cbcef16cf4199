"""Settings records: one place coerces and checks, and Python, YAML and the command line build the same record."""

from __future__ import annotations

import inspect
import json
import pickle
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from residuum.cli.generated import CommandEntry, add_command, in_options
from residuum.engine import Engine
from residuum.errors import SettingError
from residuum.settings import (
    Argument,
    Execution,
    InvalidSettingError,
    Layers,
    Option,
    Out,
    Seed,
    command,
    from_mapping,
    named_source,
    named_values,
    setting_fields,
)


@dataclass(frozen=True)
class CutSettings(Execution):
    """A record of every kind of field."""

    example: ClassVar[str] = "residuum cut model --out small"
    estimates: ClassVar[bool] = True

    model: Annotated[Any, Argument("Model folder")]
    texts: Annotated[Sequence[str], Argument("Text files")] = ()
    out: Out = None
    _: KW_ONLY
    keep: Annotated[float, Option("Share to keep", above=0, at_most=1)] = 0.9
    thresholds: Annotated[Sequence[float], Option("Thresholds", at_least=0)] = (0.1, 0.2)
    penalty: Annotated[tuple[float, float] | None, Option("λ1,λ2")] = None
    rule: Annotated[Literal["random", "medoid"], Option("Rule")] = "random"
    families: Annotated[dict[str, str] | None, Option("Families")] = None
    layers: Layers = "all"
    beside: Annotated[Sequence[Any], Option("Other models", group="data")] = ()
    corpus: Annotated[Any, Option("Text", group="data")] = None
    quick: Annotated[bool, Option("Quick look")] = False
    seed: Seed = 0

    def check(self) -> None:
        if self.quick and self.rule == "medoid":
            raise SettingError("A quick look has no medoids.")


@command(CutSettings, estimate=lambda settings: f"estimate of {settings.model}")  # pyright: ignore[reportArgumentType]
def cut(settings: CutSettings) -> str:
    """Cut a model."""
    return f"{settings.model} {list(settings.texts)} {settings.out} {settings.identity()}"


def test_fields_are_arguments_by_position_and_by_name():
    assert cut("m", ["a.txt"], "small", keep=0.5).startswith("m ['a.txt'] small {'keep': 0.5")
    assert cut(CutSettings("m", keep=0.5)) == cut("m", keep=0.5)
    parameters = inspect.signature(cut).parameters
    assert list(parameters)[:3] == ["model", "texts", "out"]
    assert parameters["keep"].kind is inspect.Parameter.KEYWORD_ONLY
    assert parameters["keep"].annotation is float


def test_numpy_values_and_text_become_plain_values():
    record = CutSettings(
        Path("m"),
        keep=np.float32(0.5),
        thresholds=np.array([0, 1]),
        seed=np.int64(3),
        quick=np.bool_(True),
        penalty="1e-5,1e-3",
        families="sw=Bantu, eu=Basque",
        workers=np.int64(2),
        max_memory="0.5",
    )
    assert record.keep == 0.5
    assert record.thresholds == (0.0, 1.0)
    assert (type(record.seed), record.seed, record.quick) == (int, 3, True)
    assert record.penalty == (1e-5, 1e-3)
    assert record.families == {"sw": "Bantu", "eu": "Basque"}
    assert (record.workers, record.max_memory) == (2, 500_000_000)


@pytest.mark.parametrize("layers", [[0, 2], (0, 2), {2, 0}, range(0, 3, 2), np.array([0, 2]), (n for n in (0, 2))])
def test_layers_are_plain_numbers_whatever_holds_them(layers):
    record = CutSettings("m", layers=layers)
    assert record.layers == (0, 2)
    assert {type(layer) for layer in record.layers} == {int}
    assert CutSettings("m", layers=np.int64(3)).layers == (3,)
    assert CutSettings("m", layers="0-2").layers == "0-2"


def test_a_home_folder_is_no_folder_of_that_name():
    assert CutSettings("m", out="~/small").out == Path.home() / "small"
    assert CutSettings("m", out=Path("~/small")).out == Path.home() / "small"
    assert CutSettings("~/m").model == str(Path.home() / "m")
    assert CutSettings(Path("~/m")).model == Path.home() / "m"
    assert CutSettings("~").model == str(Path.home())
    assert CutSettings("m", beside=["~/a", "b"]).beside == (str(Path.home() / "a"), "b")
    assert named_source("a=~/m") == ("a", str(Path.home() / "m"))
    assert named_values(["tr=~/m"]) == {"tr": str(Path.home() / "m")}
    for place in ("~nobody-of-this-name/x", Path("~nobody-of-this-name")):
        with pytest.raises(SettingError, match=r"~nobody-of-this-name.* is in the home folder of nobody here"):
            CutSettings(place)


@pytest.mark.parametrize("value", [None, 3, True, float("nan"), np.float32(1), 1j, b"bytes", "a\0b"])
def test_what_names_no_data_and_no_model_is_refused_at_once(value):
    said = "expected a path, a name or an object of residuum"
    with pytest.raises(InvalidSettingError, match=f"^model is .+; {said}"):
        cut(value)
    with pytest.raises(InvalidSettingError, match=r"^beside is "):
        cut("m", beside=["a", value])
    assert CutSettings("m", corpus=None).corpus is None, "nothing is what it is by default"
    assert CutSettings([[value]]).model == [[value]], "sentences are for their reader to check"


def test_a_missing_argument_is_said_of_the_function():
    with pytest.raises(TypeError, match=r"^cut\(\): missing a required argument: 'model'"):
        cut()  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"keep": 0}, "keep is 0.0; expected a number above 0 and at most 1."),
        ({"keep": float("nan")}, "keep is nan"),
        ({"keep": True}, "keep is True"),
        ({"keep": "much"}, "keep is 'much'; expected a number"),
        ({"seed": -1}, "seed is -1; expected a whole number at least 0"),
        ({"seed": 1.5}, "seed is 1.5"),
        ({"thresholds": "0.1,x"}, "thresholds is '0.1,x'; expected numbers separated by commas at least 0."),
        ({"thresholds": (0.1, -1)}, "thresholds is (0.1, -1.0)"),
        ({"penalty": (1, 2, 3)}, "penalty is (1, 2, 3); expected 2 numbers separated by commas."),
        ({"rule": "first"}, "rule is 'first'; expected one of random, medoid."),
        ({"families": "sw"}, "families is 'sw'; expected NAME=VALUE pairs"),
        ({"quick": "yes"}, "quick is 'yes'; expected true or false."),
        ({"workers": 1.5}, "workers is 1.5; expected a whole number at least 1."),
        ({"workers": 0}, "workers is 0"),
        ({"max_memory": "some"}, "max_memory is 'some'; expected gigabytes"),
        ({"max_memory": float("inf")}, "max_memory is inf"),
        ({"keep": np.array([0.5])}, "keep is array([0.5])"),
        ({"keep": np.bool_(True)}, "keep is np.True_"),
        ({"keep": b"0.5"}, "keep is b'0.5'"),
        ({"seed": np.float64(1.5)}, "seed is np.float64(1.5)"),
        ({"seed": 10**30}, "seed is 1000000000000000000000000000000"),
        ({"seed": True}, "seed is True"),
        ({"workers": float("nan")}, "workers is nan"),
        ({"thresholds": np.array([0.1, np.nan])}, "thresholds is array([0.1, nan])"),
        ({"thresholds": (n for n in (0.1, -1))}, "thresholds is (0.1, -1.0)"),
        ({"rule": np.array(["random", "medoid"])}, "rule is array(['random', 'medoid']"),
        ({"out": "~nobody-of-this-name/x"}, "out is PosixPath('~nobody-of-this-name/x')"),
        ({"out": "a\0b"}, "out is"),
        ({"out": b"bytes"}, "out is b'bytes'"),
        ({"texts": ["a", "\ud800"]}, "texts is"),
        ({"texts": [None]}, "texts is [None]"),
        ({"layers": True}, "layers is True; expected all, last or numbers such as 0,4-6."),
        ({"layers": 1.5}, "layers is 1.5"),
        ({"layers": np.array([0.5, 1])}, "layers is array([0.5, 1. ])"),
    ],
)
def test_what_cannot_be_used_is_named_with_what_is_expected(values, problem):
    with pytest.raises(InvalidSettingError) as raised:
        cut("m", **values)
    assert problem in str(raised.value)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value), "workers send errors home"


def test_rules_across_fields_and_unknown_names_are_errors():
    with pytest.raises(SettingError, match="no medoids"):
        cut("m", quick=True, rule="medoid")
    with pytest.raises(TypeError, match="cut\\(\\) has no setting 'kep'; did you mean 'keep'\\?"):
        cut("m", kep=1)  # pyright: ignore[reportCallIssue]
    with pytest.raises(SettingError, match="no setting 'kep'; did you mean 'keep'"):
        from_mapping(CutSettings, {"model": "m", "kep": 1})
    with pytest.raises(SettingError, match="lacks model"):
        from_mapping(CutSettings, {"keep": 1})


def test_an_engine_is_taken_as_it_is():
    engine = Engine(2)
    record = CutSettings("m", workers=engine)
    with record.opened_engine() as opened:
        assert opened is engine


def test_identity_leaves_out_what_does_not_change_the_numbers():
    assert CutSettings("m", workers=2, fresh=True, out="x").identity() == CutSettings("n").identity()
    names = {setting.name for setting in setting_fields(CutSettings)}
    assert {"workers", "fresh", "out", "model"} <= names - set(CutSettings("m").identity())


@pytest.fixture
def app():
    program = typer.Typer(rich_markup_mode=None)
    program.callback()(lambda: None)
    entry = CommandEntry("cut", f"{__name__}:CutSettings", f"{__name__}:cut", "Cut a model", "What is small?")
    add_command(program, entry)
    return program


def run(app, *words):
    shown = CliRunner().invoke(app, list(map(str, words)))
    return shown.exit_code, shown.stdout, shown.stderr


def test_the_command_line_builds_the_record_of_python(app, tmp_path):
    words = ["cut", "m", "a.txt", "b.txt", "--out", "small", "--keep", 0.5, "--thresholds", "0.1,0.4", "--seed", 3]
    status, out, _ = run(app, *words, "--families", "sw=Bantu", "--quick", "--workers", 2)
    expected = cut(
        "m",
        ["a.txt", "b.txt"],
        "small",
        keep=0.5,
        thresholds=(0.1, 0.4),
        seed=3,
        families={"sw": "Bantu"},
        quick=True,
        workers=2,
    )
    assert (status, out.strip()) == (0, expected)


def test_a_yaml_file_gives_what_no_option_gives(app, tmp_path):
    file = tmp_path / "cut.yaml"
    file.write_text("keep: 0.5\nout: small\nthresholds: [0.3]\nseed: 4\n")
    status, out, _ = run(app, "cut", "m", "--config", file, "--seed", 5)
    assert (status, out.strip()) == (0, cut("m", out="small", keep=0.5, thresholds=(0.3,), seed=5))
    file.write_text("kep: 0.5\n")
    status, _, err = run(app, "cut", "m", "--out", "x", "--config", file)
    assert status == 2
    assert "unknown setting 'kep'" in err


def test_usage_errors_are_one_line_with_the_options_name(app):
    status, _, err = run(app, "cut", "m", "--out", "x", "--keep", 2)
    assert (status, err) == (2, "residuum: --keep is 2.0; expected a number above 0 and at most 1.\n")
    status, _, err = run(app, "cut")
    assert (status, err) == (2, "residuum: Missing MODEL, --out; see --help.\n")
    status, _, err = run(app, "cut", "m", "--out", "s3://bucket/x")
    assert (status, err.count("\n")) == (2, 1)


def test_help_is_grouped_and_shows_defaults_and_an_example(app):
    status, out, _ = run(app, "cut", "--help")
    assert status == 0
    assert "cut MODEL [TEXTS …] --out PATH [options]" in out
    places = [out.index(section) for section in ("Arguments:", "Method:", "Where it runs:", "Output:", "Example:")]
    assert places == sorted(places)
    assert "--keep X" in out
    assert "[default: 0.9]" in out
    assert "--rule random|medoid" in out
    assert "residuum cut model --out small" in out
    assert "9223372036854775807" not in out
    assert "{}" not in out, "a default of no pairs"


def test_an_estimate_runs_nothing(app):
    assert run(app, "cut", "m", "--out", "x", "--estimate")[1] == "estimate of m\n"


def test_a_result_that_is_text_is_json_too(app):
    out = run(app, "cut", "m", "--out", "x", "--json")[1]
    assert json.loads(out) == {"text": cut("m", out="x")}
    assert json.loads(run(app, "cut", "m", "--out", "x", "--estimate", "--json")[1]) == {"text": "estimate of m"}


def test_a_list_of_settings_names_options():
    hint = "cut needs a target; pass exactly one of seed, rule and keep."
    assert in_options(hint, CutSettings) == "cut needs a target; pass exactly one of --seed, --rule and --keep."


def test_a_hint_at_the_end_of_a_sentence_keeps_its_full_stop():
    hint = "cut needs keep= or seed=. Or keep=0.5."
    assert in_options(hint, CutSettings) == "cut needs --keep or --seed. Or --keep 0.5."
