"""What the browser tests share: LiteRT.js in the repository's cache, tiny models, and a second Chromium."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from assay import graph
from assay.graph.build import GraphBuilder
from assay.lanes.browser import chromium, litertjs
from assay.lanes.job import Job
from assay.lanes.native import save_arrays
from assay.processes import kill_all
from assay.scratch import Scratch


@pytest.fixture(scope="session", autouse=True)
def _with_runtime(runtime: litertjs.Runtime) -> None:
    """Every test here needs LiteRT.js."""


def double(shape: tuple[int, ...] = (1, 8, 8, 4), dtype: str = "float32") -> graph.Model:
    """y = x + x."""
    builder = GraphBuilder()
    x = builder.input("x", shape, dtype)
    return builder.finish([builder.op("ADD", [x, x], shape, name="y")])


def tiled(rows: int, *, reduced: bool) -> graph.Model:
    """x[1, 1024] repeated `rows` times; if reduced, its greatest values over the rows."""
    builder = GraphBuilder()
    x = builder.input("x", (1, 1024))
    big = builder.op("TILE", [x, builder.constant(np.array([rows, 1], np.int32))], (rows, 1024), name="big")
    if not reduced:
        return builder.finish([big])
    axis = builder.constant(np.array([0], np.int32))
    options = {"keep_dims": True}
    return builder.finish([builder.op("REDUCE_MAX", [big, axis], (1, 1024), options=options, name="y")])


def with_unknown_op() -> graph.Model:
    builder = GraphBuilder()
    x = builder.input("x", (1, 4))
    return builder.finish([builder.op("NoSuchOp", [x], (1, 4), name="y", custom_options=b"")])


def shared_with_the_cpu() -> graph.Model:
    """y = atan2(2 x, 2 x) + 2: the GPU engine refuses the middle of it."""
    builder = GraphBuilder()
    shape = (1, 4, 4, 8)
    x, two = builder.input("x", shape), builder.constant(np.array([2], np.float32))
    doubled = builder.op("MUL", [x, two], shape)
    angle = builder.op("ATAN2", [doubled, doubled], shape)
    return builder.finish([builder.op("ADD", [angle, two], shape, name="y")])


@pytest.fixture
def make_job(tmp_path: Path) -> Callable[..., Job]:
    """A job on a model made by hand: make_job(model, runs=..., options=..., ...)."""

    def make(model: graph.Model, *, runs: int = 3, budget_s: float = 30.0, **options: object) -> Job:
        folder = tmp_path / f"job-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        graph.save(model, folder / "model.tflite")
        signature = model.signatures[0]
        generator = np.random.default_rng(0)
        arrays = [
            generator.uniform(0, 1, entry.tensor.shape).astype(entry.tensor.dtype) for entry in signature.inputs
        ]
        save_arrays(folder / "inputs.npz", arrays)
        return Job.of(
            folder / "model.tflite",
            signature,
            folder,
            [folder / "inputs.npz"],
            warmup=1,
            runs=runs,
            budget_s=budget_s,
            options={"adapter": "swiftshader", **options},
        )

    return make


@pytest.fixture(scope="module")
def plain_browser() -> Iterator[tuple[str, psutil.Process]]:
    """A second Chromium with a debugging port and no flags for WebGPU: its DevTools address, its process."""
    scratch = Scratch()
    profile = scratch.path / "profile"
    command = [str(chromium.find()), "--headless=new", "--remote-debugging-port=0", f"--user-data-dir={profile}"]
    if not chromium.can_sandbox():
        command.append("--no-sandbox")
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ | scratch.environment
    )
    try:
        port_file = profile / "DevToolsActivePort"
        end = time.monotonic() + 60
        while not (port_file.exists() and port_file.read_text().strip()):
            assert time.monotonic() < end, "the second Chromium does not start"
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port_file.read_text().split()[0]}", psutil.Process(process.pid)
    finally:
        kill_all([*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)])
        process.wait()
        scratch.close()


def chromium_processes() -> set[int]:
    """Chromium processes that run now and are descendants of this test's process."""
    found: set[int] = set()
    for process in psutil.Process().children(recursive=True):
        try:
            if "chrom" in process.name():
                found.add(process.pid)
        except psutil.Error:
            continue
    return found
