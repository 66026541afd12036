"""The distribution as a stranger gets it: a wheel, in an environment that holds nothing else of ours."""

import email
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
import strangers
from strangers import write

import assay
from assay.distribution import DISTRIBUTION

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the sources, so that a build leaves nothing in the checkout."""
    copy, folder = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, copy)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def home(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts of an empty environment with the wheel in it; it sees the dependencies of this one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=os.name == "posix")
    scripts = folder / ("Scripts" if os.name == "nt" else "bin")
    python = scripts / Path(sys.executable).name
    pip("--python", python, "install", "--no-deps", "--no-index", wheel)
    packages = Path(sysconfig.get_path("purelib", "venv", vars={"base": str(folder), "platbase": str(folder)}))
    (dependencies,) = (path for path in sys.path if path and (Path(path) / "pydantic").is_dir())
    # A path that is named in a .pth file is only searched: the .pth file of an editable install in it is not read.
    (packages / "dependencies.pth").write_text(dependencies)
    return scripts


def pip(*arguments: object) -> None:
    command = [sys.executable, "-m", "pip", *map(str, arguments), "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr


def told(home: Path, folder: Path, name: str, *arguments: object) -> str:
    """What a command of the environment prints, called from a folder that is not the checkout."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [str(home / name), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        return email.message_from_bytes(archive.read(name))


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_wheel_has_every_file_of_the_package_and_no_other(wheel: Path):
    package = ROOT / "src" / "assay"
    files = [path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert inside == {f"assay/{path.relative_to(package).as_posix()}" for path in files}


def test_the_metadata_has_the_name_the_version_and_the_extras(wheel: Path):
    found = metadata(wheel)
    assert found["Name"] == DISTRIBUTION
    assert found["Version"] == assay.__version__
    extras: dict[str, list[str]] = project()["optional-dependencies"]
    assert set(found.get_all("Provides-Extra", [])) == set(extras)
    wanted = {item for extra in ("browser", "catalog", "convert", "images") for item in extras[extra]}
    lines = [text.split(";") for text in found.get_all("Requires-Dist", []) if "extra == 'all'" in text]
    assert {line[0].strip() for line in lines} == wanted


def test_the_wheel_is_what_runs(wheel: Path, home: Path, tmp_path: Path):
    assert told(home, tmp_path, "assay", "--version") == f"assay {assay.__version__}\n"
    code = """
import json, assay
from importlib.metadata import entry_points, version
from assay.distribution import DISTRIBUTION, install_runtime
lanes = {entry.name: entry.load().__module__ for entry in entry_points(group="assay.lanes")}
print(json.dumps([assay.__file__, version(DISTRIBUTION), install_runtime(), lanes]))
"""
    place, version, runtime, lanes = json.loads(told(home, tmp_path, "python", "-c", code))
    assert Path(place).is_relative_to(home.parent)
    assert version == assay.__version__
    (asked,) = (text for text in project()["dependencies"] if text.startswith("ai-edge-litert"))
    assert runtime == f"pip install {asked}"
    written: dict[str, str] = project()["entry-points"]["assay.lanes"]
    assert lanes == {name: target.partition(":")[0] for name, target in written.items()}


def test_lint_and_run_find_their_data(home: Path, tmp_path: Path):
    model = write(strangers.plain(), tmp_path, "tiny")
    report = json.loads(told(home, tmp_path, "assay", "lint", model, "--lane", "gpu_mldrift", "--json"))
    assert [report["counts"]["supported"], report["total"]] == [1, 1]
    told(home, tmp_path, "assay", "run", model, "--lane", "cpu_xnnpack", "--runs", 3, "--out", "out")
    assert "cpu_xnnpack" in (tmp_path / "out" / "cards" / "tiny" / "CARD.md").read_text()
    assert json.loads(told(home, tmp_path, "assay", "schema", "card"))["title"]
    told(home, tmp_path, "assay", "inspect", model, "--html", "graph.html")
    assert "<svg" in (tmp_path / "graph.html").read_text()
