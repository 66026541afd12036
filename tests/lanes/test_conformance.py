"""The conformance kit: our own lanes and devices hold to it, the lane of the docs does, and bad ones do not."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from assay import graph
from assay.devices.local import LocalDevice
from assay.lanes import registry
from assay.lanes.base import Availability, Lane, LaneFacts
from assay.lanes.cpu import XnnpackLane
from assay.lanes.job import Job
from assay.testing import ConformanceError, check_device, check_lane

DOC = Path(__file__).resolve().parents[2] / "docs" / "lanes.md"
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", [*registry.names(), "assay.lanes.fault:FaultLane"])
@pytest.mark.usefixtures("runtime")
def test_our_lanes_conform(name: str):
    options = {"experimental": True} if registry.find(name).experimental else {}
    check_lane(name, options=options)


def test_this_machine_conforms():
    check_device(LocalDevice("bench"))


class Silent(Lane):
    """Says nothing of itself that it must, and shows no evidence."""

    name = "Silent Lane"
    summary = ""

    def available(self) -> Availability:
        return Availability(False)


class Claims(XnnpackLane):
    """Claims that an accelerator served, whatever was run."""

    name = "claims"
    reference_rank = None
    accelerated = True

    def read(self, log: str, observation: object) -> LaneFacts:
        return LaneFacts(served=True, full_delegation=True)


class Forgets(XnnpackLane):
    """Gives the first answer for ever."""

    name = "forgets"

    def load(self, job: Job):
        invoke = super().load(job)
        kept = []

        def stale(arrays):
            kept.append(kept[0] if kept else invoke(arrays))
            return kept[-1]

        return stale


@pytest.mark.parametrize(
    ("lane", "breaches"),
    [
        ("Silent", ["name must be", "summary must be", "neither load", "without a reason and a fix"]),
        ("Claims", ["claims something of a run that never began", "no evidence"]),
        ("Forgets", ["is the same for another input"]),
    ],
)
def test_a_lane_that_does_not_conform_is_told_why(lane: str, breaches: list[str], monkeypatch: pytest.MonkeyPatch):
    # The child process imports this module as well.
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    )
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    with pytest.raises(ConformanceError) as caught:
        check_lane(f"test_conformance:{lane}")
    for breach in breaches:
        assert breach in str(caught.value), caught.value


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The lane of docs/lanes.md as an installed package: its module, and its entry point."""
    blocks = re.findall(r"```(\w+)\n(.*?)```", DOC.read_text(), re.DOTALL)
    module = next(text for language, text in blocks if language == "python")
    assert len(module.splitlines()) <= 60
    folder = tmp_path / "site"
    info = folder / "my_lanes-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "my_lanes.py").write_text(module)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-lanes\nVersion: 1.0\n")
    named = next(text for language, text in blocks if language == "toml")
    line = re.search(r'^(\w+) = "(.+)"$', named, re.MULTILINE)
    assert line is not None and '[project.entry-points."assay.lanes"]' in named
    (info / "entry_points.txt").write_text(f"[assay.lanes]\n{line[1]} = {line[2]}\n")
    test = [text for language, text in blocks if language == "python"][1]
    (folder / "test_my_lanes.py").write_text(test)
    return folder


def test_the_lane_of_the_docs_is_a_lane_like_ours(package: Path, tmp_path: Path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")])}

    def assay(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from assay.cli import main; main()", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)

    builder = graph.GraphBuilder()
    x = builder.input("x", (1, 16))
    graph.save(builder.finish([builder.op("TANH", [x], (1, 16), name="y")]), tmp_path / "m.tflite")
    assert "CPU, through LiteRT's CompiledModel" in assay("lanes", "--quick").stdout
    assert "--plain" in assay("run", "--help").stdout, "its options are options of the command line"
    lanes = ["--lane", "cpu_reference", "--lane", "cpu_compiled"]
    done = assay("run", "m.tflite", *lanes, "--plain", "--runs", "3", "--json")
    assert done.returncode == 0, done.stderr
    run = next(
        run["run"] for run in json.loads(done.stdout)["runs"] if run["run"]["accelerator"] == "cpu_compiled"
    )
    assert run["output_match"] is True and run["env"]["runtime"] == "litert" and run["latency_p50_ms"] > 0
    kit = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(package / "test_my_lanes.py")]
    tested = subprocess.run(kit, capture_output=True, text=True, env=environment, cwd=package)
    assert tested.returncode == 0, tested.stdout
