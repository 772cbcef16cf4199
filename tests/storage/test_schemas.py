"""Values against a type, and YAML that is plain, bounded data."""

from dataclasses import dataclass, field

import pytest

from residuum.errors import SettingError, StoreError
from residuum.storage import schemas
from residuum.storage.schemas import conforming, read_yaml


@dataclass(frozen=True)
class Part:
    size: int


@dataclass(frozen=True)
class Whole:
    name: str
    parts: list[Part] = field(default_factory=list)


def refused(path, text):
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SettingError) as caught:
        read_yaml(path, SettingError)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_values_become_records_with_records_in_them():
    assert conforming({"name": "a", "parts": [{"size": 3}]}, Whole, "x.json", StoreError) == Whole("a", [Part(3)])


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "x.json holds list of 0; expected named values. Copy it again."),
        ({}, "x.json: name: it is missing; field required. Copy it again."),
        ({"name": "a", "size": 1}, "x.json: 'size' is not known; expected name, parts. Copy it again."),
        ({"name": 3}, "x.json: name: found 3; input should be a valid string. Copy it again."),
        ({"name": "a", "parts": [{"size": "?"}]}, "x.json: parts.0.size: found '?'; input should be a valid integer"),
        ({"name": ["a" * 10**6] * 3}, "x.json: name: found list of 3;"),
    ],
)
def test_the_field_what_was_found_and_what_was_expected_are_named(value, said):
    with pytest.raises(StoreError) as caught:
        conforming(value, Whole, "x.json", StoreError, "Copy it again.")
    assert str(caught.value).startswith(said)
    assert len(str(caught.value)) < 300


def test_plain_yaml_is_read_with_its_aliases(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("base: &base {a: 1}\nother: {<<: *base, b: [1.5, null, é]}\n", encoding="utf-8")
    assert read_yaml(path, SettingError) == {"base": {"a": 1}, "other": {"a": 1, "b": [1.5, None, "é"]}}


def test_tags_that_would_build_objects_are_refused_and_nothing_runs(tmp_path):
    ran = tmp_path / "ran"
    said = refused(tmp_path / "a.yaml", f"a: !!python/object/apply:os.mkdir ['{ran}']\n")
    assert "could not determine a constructor" in said
    assert not ran.exists()


def test_a_laughing_billion_is_refused_before_it_is_laughed(tmp_path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    assert "more than 100,000 values" in refused(tmp_path / "a.yaml", "\n".join(lines))


def test_a_value_that_holds_itself_is_refused(tmp_path):
    assert "holds itself" in refused(tmp_path / "a.yaml", "a: &a [*a]\n")


def test_deep_and_large_files_are_refused(tmp_path, monkeypatch):
    assert "more than 50 deep" in refused(tmp_path / "a.yaml", "a: " + "[" * 100_000)
    monkeypatch.setattr(schemas, "MOST_YAML_BYTES", 10)
    assert "at most 10 are read" in refused(tmp_path / "a.yaml", "a: 0123456789")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "is not YAML that can be used"),
        ("a: 2001-99-99", "month must be in 1..12"),
        ("? [a]\n: b", "unhashable key"),
        ("a: !!int ", "string index out of range"),
        ("a: !!bool x", "is not YAML that can be used"),
        ("1: a", "expected settings by name"),
        ("- a", "holds list of 1; expected settings by name"),
        ("", "holds nothing; expected settings by name"),
        ("a: 1\n---\nb: 2", "expected a single document"),
    ],
)
def test_what_is_no_mapping_of_names_is_said(text, said, tmp_path):
    assert said in refused(tmp_path / "a.yaml", text)


def test_a_file_that_is_not_there_or_not_utf8_is_said(tmp_path):
    with pytest.raises(SettingError, match="none.yaml does not exist"):
        read_yaml(tmp_path / "none.yaml", SettingError)
    (tmp_path / "latin.yaml").write_bytes("a: é".encode("latin-1"))
    with pytest.raises(SettingError, match=r"latin.yaml is not YAML that can be used: 'utf-8' codec"):
        read_yaml(tmp_path / "latin.yaml", SettingError)
