"""The public namespace is flat, whole and light."""

import ast
import subprocess
import sys
from pathlib import Path

import residuum


def test_every_public_name_is_there():
    for name in residuum.__all__:
        assert getattr(residuum, name) is not None, name
    assert set(residuum.__all__) <= set(dir(residuum))


def test_the_namespace_stays_small_enough_to_read():
    assert len(residuum._HOMES) <= 50


def test_no_public_name_is_hidden_by_a_module_of_that_name():
    modules = {path.stem for path in Path(residuum.__file__).parent.iterdir() if path.is_dir() or path.suffix == ".py"}
    assert not modules & set(residuum._HOMES)


def test_type_checkers_see_the_names_that_run_time_gives():
    tree = ast.parse(Path(residuum.__file__).read_text())
    guard = next(node for node in tree.body if isinstance(node, ast.If))
    imported = {a.name: n.module for n in guard.body if isinstance(n, ast.ImportFrom) for a in n.names}
    assert {name: imported.get(name) for name in residuum._HOMES} == residuum._HOMES


def test_importing_the_package_loads_nothing_heavy():
    check = "import sys, residuum; assert not {'torch', 'numpy', 'pandas', 'transformers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(residuum, "no_such_name")
