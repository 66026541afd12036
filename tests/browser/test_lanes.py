"""The lanes on a real Chromium: what works, and each way to fail, brought about for real."""

import contextlib
import dataclasses
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from assay.devices.local import LocalDevice
from assay.lanes.job import TensorSpec, read_observation
from assay.lanes.native import load_arrays
from assay.lanes.registry import find
from assay.protocol.acceptance import accept
from assay.records.failure import FailureClass

from .conftest import chromium_processes, double, shared_with_the_cpu, tiled, with_unknown_op

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def worker():
    """One browser for the tests that do no harm to it."""
    with LocalDevice() as started:
        yield started


def run(lane, job, time_limit_s=120.0, runner=None):
    """Outcome, facts and acceptance of one job, as `assay run` makes them."""
    outcome = (runner or LocalDevice()).run_job(lane, job, time_limit_s=time_limit_s)
    facts = find(lane).read(outcome.log, outcome.observation)
    return outcome, facts, accept(outcome.ending, outcome.log, facts.failure)


@pytest.mark.parametrize("lane", ["wasm_xnnpack", "webgpu_mldrift"])
def test_runs_and_gives_the_numbers_and_its_environment(lane, make_job):
    before = chromium_processes()
    job = make_job(double())
    outcome, facts, acceptance = run(lane, job)
    assert acceptance.failure is None, acceptance
    [x], [y] = load_arrays(job.input_sets[0]), load_arrays(outcome.output_files()[0])
    np.testing.assert_array_equal(y, x + x)
    seen = outcome.observation
    assert len(seen.samples_ms) == 3 and min(seen.samples_ms) > 0 and seen.first_run_ms > 0
    env = seen.facts["env"]
    assert env["browser_version"].split(".")[0].isdigit() and env["headless"] is True
    assert env["litertjs_core_version"] == "2.5.3" and env["cross_origin_isolated"] is True
    assert env["wasm_build"] == "jspi" and env["jspi"] is True
    assert env["webgpu_adapter"]["architecture"] == "swiftshader" and env["shader_f16"] is False
    assert facts.metrics["wasm_memory_mb"] > 0 and facts.metrics["runtime_load_ms"] > 0
    assert facts.served is True
    if lane == "webgpu_mldrift":
        assert facts.full_delegation is True and facts.adapter_kind == "software"
        assert facts.precision == "fp32", "an adapter without shader-f16 has no fp16 to excuse an error with"
    else:
        assert facts.full_delegation is None, "the flag says nothing on wasm"
    assert chromium_processes() == before
    assert not list(Path(job.workdir).glob("*chrom*")), "a profile was left"


def test_threads_and_the_build_without_jspi_can_be_chosen(worker, make_job):
    outcome, facts, _ = run("wasm_xnnpack", make_job(double(), runs=0, wasm_threads=2), runner=worker)
    assert outcome.observation.facts["env"]["wasm_build"] == "threaded"
    assert facts.metrics["wasm_threads"] > 1
    outcome, _, _ = run("wasm_xnnpack", make_job(double(), runs=0, jspi=False), runner=worker)
    assert outcome.observation.facts["env"]["wasm_build"] == "single"
    assert outcome.observation.facts["env"]["jspi"] is False
    assert outcome.observation.facts["env"]["jspi_supported"] is True


def test_an_output_of_100_mb_comes_back_whole(worker, make_job):
    job = make_job(tiled(25 * 1024, reduced=False), runs=0)
    outcome, _, acceptance = run("wasm_xnnpack", job, runner=worker)
    assert acceptance.failure is None
    [x], [y] = load_arrays(job.input_sets[0]), load_arrays(outcome.output_files()[0])
    assert y.nbytes == 25 * 2**22
    assert (y == x).all()


def test_a_type_that_litertjs_cannot_take_names_the_tensor(worker, make_job):
    _, _, acceptance = run("wasm_xnnpack", make_job(double(dtype="int64")), runner=worker)
    assert acceptance.failure is FailureClass.UNSUPPORTED_DTYPE
    assert "INT64" in acceptance.error and "'x'" in acceptance.error and "'y'" in acceptance.error


def test_a_run_that_resolves_after_loading_failed_is_no_latency(worker, make_job):
    outcome, _, acceptance = run("wasm_xnnpack", make_job(with_unknown_op()), runner=worker)
    assert acceptance.failure is FailureClass.SILENT_RUN_FAILURE
    assert "NoSuchOp" in acceptance.error
    assert outcome.observation.samples_ms == []
    assert any("unresolved custom op: NoSuchOp" in line for line in acceptance.evidence)


def test_the_memory_ceiling_of_webassembly(worker, make_job):
    _, _, acceptance = run("wasm_xnnpack", make_job(tiled(1500 * 1024, reduced=True)), runner=worker)
    assert acceptance.failure is FailureClass.WASM_MEMORY_CEILING
    assert "cannot allocate 6000 MiB" in acceptance.error


def test_a_shape_that_the_file_leaves_open_cannot_be_resized(worker, make_job):
    job = make_job(double((1, 4)), runs=0)
    job = dataclasses.replace(job, inputs=[TensorSpec("x", "float32", (3, 4))], resized=["x"])
    np.savez(Path(job.input_sets[0]), **{"0": np.zeros((3, 4), np.float32)})
    _, _, acceptance = run("wasm_xnnpack", job, runner=worker)
    assert acceptance.failure is FailureClass.UNSUPPORTED_SHAPE
    assert "input x from [1,4] to [3,4]" in acceptance.error


def test_a_graph_that_is_shared_with_the_cpu_is_counted_and_needs_jspi(worker, make_job):
    outcome, facts, acceptance = run("webgpu_mldrift", make_job(shared_with_the_cpu()), runner=worker)
    assert acceptance.failure is None
    assert (facts.delegated_ops, facts.total_ops, facts.full_delegation) == (1, 3, False)
    assert [refusal.op for refusal in facts.refusals] == ["ATAN2"]
    [x], [y] = load_arrays(outcome.workdir / "inputs.npz"), load_arrays(outcome.output_files()[0])
    np.testing.assert_allclose(y, np.arctan2(2 * x, 2 * x) + 2, rtol=1e-6)
    _, _, acceptance = run("webgpu_mldrift", make_job(shared_with_the_cpu(), jspi=False), runner=worker)
    assert acceptance.failure is FailureClass.MISSING_JSPI


def test_hardware_asked_for_and_not_there(make_job):
    if any(Path("/dev/dri").glob("renderD*")):
        pytest.skip("there is graphics hardware here")
    _, _, acceptance = run("webgpu_mldrift", make_job(double(), adapter="hardware"))
    assert acceptance.failure is FailureClass.NO_ACCELERATOR


def test_a_job_that_does_not_end_is_killed_with_its_browser(make_job):
    before = chromium_processes()
    job = make_job(double(), runs=10**9, budget_s=600.0)
    outcome, _, acceptance = run("wasm_xnnpack", job, time_limit_s=8.0)
    assert acceptance.failure is FailureClass.TIMED_OUT
    assert outcome.timed_out
    assert chromium_processes() == before


def test_the_gpu_process_dies(make_job):
    job = make_job(double(), runs=10**9, budget_s=600.0)

    def kill_gpu():
        end = time.monotonic() + 60
        while time.monotonic() < end:
            time.sleep(0.2)
            observation = read_observation(Path(job.workdir))
            if observation is None or observation.stage != "timed":
                continue
            for process in psutil.Process().children(recursive=True):
                if "--type=gpu-process" in process.cmdline():
                    process.kill()
            return

    killer = threading.Thread(target=kill_gpu)
    killer.start()
    _, _, acceptance = run("webgpu_mldrift", job, time_limit_s=90.0)
    killer.join()
    assert acceptance.failure is FailureClass.DEVICE_LOST, acceptance


class TestAnotherBrowser:
    """`--cdp`: a Chromium that somebody else started, without flags for WebGPU."""

    def test_measures_there_and_tells_what_it_is(self, plain_browser, make_job):
        outcome, _, acceptance = run("wasm_xnnpack", make_job(double(), cdp=plain_browser[0], adapter="auto"))
        assert acceptance.failure is None
        env = outcome.observation.facts["env"]
        assert env["machine_label"] == "remote-browser" and env["os"] == "Linux"
        assert outcome.observation.state == {}, "another machine's load cannot be told from here"

    def test_no_webgpu(self, plain_browser, make_job):
        _, _, acceptance = run("webgpu_mldrift", make_job(double(), cdp=plain_browser[0], adapter="auto"))
        assert acceptance.failure is FailureClass.NO_ACCELERATOR
        assert acceptance.runs is False

    def test_nobody_listens(self, make_job):
        _, _, acceptance = run("wasm_xnnpack", make_job(double(), cdp="http://127.0.0.1:9"))
        assert acceptance.failure is FailureClass.LANE_UNAVAILABLE

    @pytest.mark.parametrize(
        ("harm", "expected", "limit"), [("kill", "crashed", 60.0), ("suspend", "timed_out", 12.0)]
    )
    def test_the_page_crashes_or_hangs(self, plain_browser, make_job, harm, expected, limit):
        address, process = plain_browser
        job = make_job(double(), runs=10**9, budget_s=600.0, cdp=address, adapter="auto")

        hurt_ones = []

        def hurt():
            end = time.monotonic() + 60
            while time.monotonic() < end:
                time.sleep(0.2)
                observation = read_observation(Path(job.workdir))
                if observation is not None and observation.stage == "timed":
                    for member in process.children(recursive=True):
                        if "--type=renderer" in member.cmdline():
                            getattr(member, harm)()
                            hurt_ones.append(member)
                    return

        villain = threading.Thread(target=hurt)
        villain.start()
        _, _, acceptance = run("wasm_xnnpack", job, limit)
        villain.join()
        assert acceptance.failure == expected
        for member in hurt_ones:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.resume()
        # The browser is not ours: it lives on, for the next job.
        _, _, acceptance = run("wasm_xnnpack", make_job(double(), runs=0, cdp=address, adapter="auto"))
        assert acceptance.failure is None
