"""The wheel that people install, built from the sources and installed into a fresh environment."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
import yaml

import residuum

ROOT = Path(__file__).parents[1]


def run(*command, **environment):
    done = subprocess.run(
        list(map(str, command)), cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    run(
        sys.executable, "-m", "pip", "wheel", ".", "--quiet", "--no-deps", "--no-build-isolation", "--no-cache-dir",
        "--wheel-dir", folder,
    )  # fmt: skip
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_what_the_program_reads_at_run_time(wheel):
    assert wheel.name == f"residuum-{residuum.__version__}-py3-none-any.whl"
    names = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "src"
    data = {str(path.relative_to(source)) for path in (source / "residuum").rglob("*") if path.is_file()}
    assert {name for name in data if "__pycache__" not in name} <= names
    assert not [name for name in names if name.startswith(("tests", "docs"))]


def test_the_wheel_runs_in_a_fresh_environment(wheel, tmp_path):
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "fresh")
    python = tmp_path / "fresh" / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel)
    libraries = sysconfig.get_path("purelib")  # the requirements; an editable install there is not followed
    program = tmp_path / "fresh" / "bin" / "residuum"
    assert run(program, "--version", PYTHONPATH=libraries) == f"residuum {residuum.__version__}\n"
    lines = run(program, "sample", "text", "--language", "sw", "--size", "2", PYTHONPATH=libraries).splitlines()
    assert len(lines) == 2
    teacher = Path(run(program, "sample", "teacher", PYTHONPATH=libraries).strip())
    assert tmp_path in teacher.parents, "the wheel's own, not that of the sources"
    assert (teacher / "model.safetensors").stat().st_size > 1_000_000


def test_the_citation_names_this_version():
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == residuum.__version__
