"""Every package that an installation consists of has a licence that lets anyone use, change and pass it on."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from bill_of_materials import EXTRAS, bill, installed, licence

PERMISSIVE = re.compile(
    r"apache|bsd|\bmit\b|isc|psf|python software|mpl|mozilla|zlib|cc0|bsl|cnri|unlicense|public domain", re.IGNORECASE
)
COPYLEFT = re.compile(r"(?<!l)gpl|lgpl|agpl|sspl|busl|commercial|proprietary|non-?free", re.IGNORECASE)
PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize("name", sorted(installed()))
def test_a_package_may_be_used_by_anyone(name):
    said = licence(installed()[name])
    assert PERMISSIVE.search(said), f"{name} is licensed under {said!r}"
    assert not COPYLEFT.search(said), f"{name} is licensed under {said!r}"


def test_the_bill_of_materials_lists_all_that_the_project_requires():
    listed = {part["name"]: part for part in bill()["components"]}
    extras = [line for extra in EXTRAS for line in PROJECT["optional-dependencies"][extra]]
    required = {re.split(r"[>=\[]", line)[0].lower() for line in (*PROJECT["dependencies"], *extras)}
    present = required & set(installed())
    assert set(map(str.lower, (re.split(r"[>=\[]", line)[0] for line in PROJECT["dependencies"]))) <= set(listed)
    assert present <= set(listed)
    assert {"markupsafe", "mpmath"} <= set(listed), "what is required by what is required"
    for name, part in listed.items():
        assert part["purl"] == f"pkg:pypi/{name}@{part['version']}"
        assert part["licenses"][0]["license"]["name"]


def test_a_licence_that_is_not_known_is_noticed():
    assert not PERMISSIVE.search("UNKNOWN")
    assert not PERMISSIVE.search("")
    assert all(COPYLEFT.search(name) for name in ("GPL-3.0-only", "AGPL", "LGPLv3", "Proprietary"))


def test_oldest_versions_are_named_for_every_package_and_every_extra():
    lines = (Path(__file__).parents[1] / "constraints-oldest.txt").read_text(encoding="utf-8").splitlines()
    oldest = dict(line.lower().split("==") for line in lines if "==" in line)
    extras = [line for extra in EXTRAS for line in PROJECT["optional-dependencies"][extra]]
    for line in (*PROJECT["dependencies"], *extras):
        name, bound = line.lower().split(">=")
        if name != "torch":  # which `make test-oldest` names, as the index of its builds differs
            assert oldest[name].startswith(bound), f"{line}: constraints-oldest.txt has {oldest.get(name)}"
