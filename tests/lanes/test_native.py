"""The native lanes on real models: what they take, what comes back, what they say of it."""

from pathlib import Path

import numpy as np
import pytest

from assay import graph
from assay.devices.base import JobOutcome
from assay.devices.local import LocalDevice
from assay.lanes import registry
from assay.lanes.base import LaneFacts
from assay.lanes.gpu import MlDriftLane
from assay.lanes.job import Job, Observation
from assay.lanes.native import load_arrays, save_arrays
from assay.numerics.inputs import make_inputs, resolve_shapes
from assay.records.failure import FailureClass

gpu = pytest.mark.skipif(
    not MlDriftLane().available().available, reason="no Vulkan driver here; apt-get install chromium libvulkan1"
)


def run(lane: str, path: Path, folder: Path, **changes: object) -> tuple[JobOutcome, LaneFacts]:
    model = graph.read(path)
    signature = model.signatures[0]
    shapes = resolve_shapes(signature)
    folder.mkdir(exist_ok=True)
    sets = []
    for seed in (0, 1):
        sets.append(folder / f"in{seed}.npz")
        save_arrays(sets[-1], make_inputs(model, signature, shapes, "uniform", seed))
    settings = {"sequence": [0, 1, 0], "runs": 4, "threads": 2} | changes
    job = Job.of(path, signature, folder / lane, sets, shapes=shapes, **settings)
    outcome = LocalDevice().run_job(lane, job)
    return outcome, registry.find(lane).read(outcome.log, outcome.observation)


def seen(outcome: JobOutcome) -> Observation:
    assert outcome.observation is not None, outcome.log
    assert outcome.observation.error is None, outcome.observation.error
    return outcome.observation


def test_cpu_lanes_agree_and_keep_the_sequence_apart(real_models: dict[str, Path], tmp_path: Path):
    path = real_models["face_detection_short_range"]
    fast, fast_facts = run("cpu_xnnpack", path, tmp_path)
    plain, plain_facts = run("cpu_reference", path, tmp_path)
    observation = seen(fast)
    assert observation.stage == "done"
    assert len(observation.samples_ms) == 4
    assert observation.load_ms and observation.first_run_ms and observation.peak_mb
    a, b, again = (load_arrays(file) for file in fast.output_files())
    reference = load_arrays(plain.output_files()[0])
    for one, other, repeated, expected in zip(a, b, again, reference, strict=True):
        assert np.array_equal(one, repeated)
        assert not np.array_equal(one, other)
        np.testing.assert_allclose(one, expected, atol=1e-3)
    assert (fast_facts.full_delegation, fast_facts.delegated_ops, fast_facts.total_ops) == (True, 164, 164)
    assert (plain_facts.served, plain_facts.delegated_ops) == (True, None)


def test_an_op_that_the_lane_lacks_is_named(real_models: dict[str, Path], tmp_path: Path):
    outcome, facts = run("cpu_xnnpack", real_models["face_landmark_with_attention"], tmp_path)
    assert outcome.observation is not None
    assert "Landmarks2TransformMatrix" in str(outcome.observation.error)
    assert facts.served is False


@gpu
def test_gpu_takes_a_whole_graph(real_models: dict[str, Path], tmp_path: Path):
    path = real_models["hand_recrop"]
    outcome, facts = run("gpu_mldrift", path, tmp_path)
    reference, _ = run("cpu_reference", path, tmp_path)
    seen(outcome)
    assert facts.served is True
    assert facts.full_delegation is True
    assert facts.failure is None
    assert facts.adapter and facts.adapter_kind in ("software", "hardware")
    for mine, expected in zip(
        load_arrays(outcome.output_files()[0]), load_arrays(reference.output_files()[0]), strict=True
    ):
        assert np.corrcoef(mine.ravel(), expected.ravel())[0, 1] > 0.999


@gpu
def test_gpu_takes_a_part_and_says_why(real_models: dict[str, Path], tmp_path: Path):
    outcome, facts = run("gpu_mldrift", real_models["pose_detection"], tmp_path, runs=0, sequence=[0])
    assert seen(outcome).facts["refused_alone"].startswith("Some ops are not accelerated")
    assert (facts.served, facts.full_delegation) == (True, False)
    assert (facts.delegated_ops, facts.total_ops) == (108, 291)
    assert ("DENSIFY", "Operation is not supported.") in [(r.op, r.reason) for r in facts.refusals]


@gpu
def test_without_an_adapter_there_is_no_gpu_run(
    real_models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("VK_ICD_FILENAMES", "/nonexistent/icd.json")
    outcome, facts = run("gpu_mldrift", real_models["hand_recrop"], tmp_path, runs=0)
    assert outcome.observation is not None
    assert outcome.observation.error
    assert facts.served is None


def test_a_run_that_the_gpu_never_served_is_a_silent_fallback():
    """The API's flag says fully accelerated, the log shows no adapter: the CPU did it."""
    observation = Observation(stage="done", load_ms=1.0, facts={"mode": "gpu|cpu", "is_fully_accelerated": True})
    facts = MlDriftLane().read("INFO: Created TensorFlow Lite XNNPACK delegate for CPU.\n", observation)
    assert facts.served is False
    assert facts.failure is FailureClass.SILENT_CPU_FALLBACK
    assert facts.full_delegation is None


def test_a_partition_of_nothing_is_a_silent_fallback():
    log = (
        "I0 environment.cc:532] Selected adapter: X, arch=a, vendor=v, backend=Vulkan, adapterType=Discrete GPU\n"
        "No operations will run on the GPU, and all 7 operations will run on the CPU.\n"
        "Initializing WebGPU-based API from graph.\n"
    )
    observation = Observation(stage="done", load_ms=1.0, facts={"mode": "gpu|cpu", "is_fully_accelerated": False})
    facts = MlDriftLane().read(log, observation)
    assert (facts.delegated_ops, facts.total_ops) == (0, 7)
    assert facts.failure is FailureClass.SILENT_CPU_FALLBACK


def test_fp32_on_demand_leaves_no_excuse_for_fp16_errors():
    asked = Observation(stage="done", load_ms=1.0, facts={"mode": "gpu", "enforce_f32": True})
    assert MlDriftLane().read("", asked).precision == "fp32"
    assert MlDriftLane().read("", Observation(stage="done", load_ms=1.0)).precision is None
