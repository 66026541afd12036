"""The conformance kit: what every lane and every device must hold to, for the tests of whoever writes one.

    from assay.testing import check_lane

    def test_my_lane():
        check_lane("my_package.lanes:MyLane")

Nothing here is a mock: jobs are run in real child processes.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from assay import graph
from assay.devices.base import Device, JobOutcome
from assay.devices.local import LocalDevice
from assay.lanes import registry
from assay.lanes.base import Availability, Lane
from assay.lanes.fault import FaultLane
from assay.lanes.job import Job, Observation
from assay.lanes.native import Array, load_arrays, save_arrays
from assay.lanes.options import LaneOptions
from assay.models.artifact import slug
from assay.models.file import open_model
from assay.numerics.inputs import make_inputs, resolve_shapes
from assay.processes import Stopped
from assay.protocol.acceptance import accept
from assay.records.failure import FailureClass
from assay.scratch import Scratch

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_SEQUENCE = (0, 1, 0)
_RUNS = 3
_QUICK_S = 30.0
"""How long `available` may take: it looks, and starts nothing that is slow."""

_NOT_HERE = (FailureClass.NO_ACCELERATOR, FailureClass.LANE_UNAVAILABLE)

_FAULTS = f"{FaultLane.__module__}:{FaultLane.__qualname__}"
"""A lane that crashes or hangs when it is told to, to see that a device holds."""


class ConformanceError(AssertionError):
    """A lane or a device does not hold to what it must.

    Args:
        who: Its name.
        breaches: What it does not hold to, one sentence each.
    """

    def __init__(self, who: str, breaches: Sequence[str]) -> None:
        super().__init__("\n".join([f"{who} does not conform:", *(f"- {text}" for text in breaches)]))
        self.breaches = tuple(breaches)


class _Checks:
    """Collects breaches, so that one run shows them all."""

    def __init__(self) -> None:
        self.breaches: list[str] = []

    def hold(self, condition: object, breach: str) -> bool:
        if not condition:
            self.breaches.append(breach)
        return bool(condition)

    def call(self, what: str, work: Callable[[], Any]) -> Any:
        """What a call gives; None, and a breach, where it raises."""
        try:
            return work()
        except Exception as error:
            self.breaches.append(f"{what} raised {type(error).__name__}: {error}")
            return None

    def end(self, who: str) -> None:
        if self.breaches:
            raise ConformanceError(who, self.breaches)


def check_lane(
    name: str,
    *,
    model: Path | None = None,
    device: Device | None = None,
    options: dict[str, Any] | None = None,
    time_limit_s: float = 120.0,
) -> Availability:
    """Check that a lane holds to what every lane must.

    What it says of itself is complete; its options have defaults and a help; `available` and `read` never raise
    and claim nothing without evidence; in a child process it gives right shapes and types, the same numbers for
    the same input after another one, and a time for every run; a file that is cut off is a failed run.

    Args:
        name: An installed lane's name, or `package.module:Class`.
        model: A model file that it reads; by default a small `.tflite`.
        device: Where it runs; by default this machine.
        options: Options of the lane.
        time_limit_s: For one child process, in seconds.

    Returns:
        What the lane says of its availability; where it cannot run here, nothing was run.

    Raises:
        ConformanceError: It does not hold to all of it; the text names every breach.
        AssayError: There is no such lane.
    """
    lane = registry.find(name)
    checks = _Checks()
    _check_declarations(lane, checks)
    options = options or {}
    checks.call("check_options", lambda: lane.check_options(options))
    start = time.monotonic()
    availability = checks.call("available", lane.available if device is None else lambda: device.available(lane))
    checks.hold(time.monotonic() - start < _QUICK_S, f"available took more than {_QUICK_S:.0f} s")
    if not isinstance(availability, Availability):
        checks.hold(availability is None, "available gives something else than an Availability")
        checks.end(name)
        raise AssertionError("unreachable")
    if availability.available:
        checks.hold(availability.on, "available says yes and not on what (`on`)")
    else:
        checks.hold(availability.reason and availability.fix, "available says no without a reason and a fix")
    facts = checks.call("read of an empty log", lambda: lane.read("", None))
    if facts is not None:
        claims = (facts.served, facts.full_delegation, facts.failure)
        checks.hold(not any(claims), f"read claims something of a run that never began: {claims}")
    checks.call("child_env", lambda: lane.child_env(options))
    if availability.available:
        with Scratch() as folder, device or LocalDevice() as place:
            _check_runs(name, lane, place, model, options, time_limit_s, folder, checks)
    checks.end(name)
    return availability


def _check_declarations(lane: Lane, checks: _Checks) -> None:
    checks.hold(
        _NAME.fullmatch(getattr(lane, "name", "")), "name must be lower case with underscores: `gpu_mldrift`"
    )
    summary = getattr(lane, "summary", "")
    checks.hold(summary and "\n" not in summary, "summary must be one line")
    checks.hold(lane.precision in ("fp32", "fp16"), "precision must be fp32 or fp16")
    checks.hold(lane.runtime, "runtime must name what runs the model")
    checks.hold(lane.record in ("device_run", "browser_sweep"), "record must be device_run or browser_sweep")
    checks.hold(lane.formats, "formats must name what it reads")
    checks.hold(lane.places, "places must name where it can be asked for")
    writes = type(lane).load is not Lane.load or type(lane).measure is not Lane.measure
    checks.hold(writes, "it has neither load nor measure")
    if lane.accelerated:
        checks.hold(
            type(lane).read is not Lane.read, "an accelerated lane must show in read that it served the run"
        )
    options: Any = checks.call("options_model", lane.options_model)
    if options is None or not checks.hold(
        isinstance(options, type) and issubclass(options, LaneOptions), "options_model must give LaneOptions"
    ):
        return
    for field, info in options.model_fields.items():
        checks.hold(not info.is_required(), f"option {field} has no default")
        checks.hold(info.description, f"option {field} has no description, which is its help")
    checks.call("options of other lanes", functools.partial(options.of, {"an_option_of_another_lane": 1}))


def _small_model(folder: Path) -> Path:
    builder = graph.GraphBuilder()
    x = builder.input("x", (1, 8, 8, 4))
    scaled = builder.op(
        "MUL", [x, builder.constant(np.array([0.5, 1.0, 1.5, 2.0], np.float32), name="scale")], (1, 8, 8, 4)
    )
    path = folder / "small.tflite"
    graph.save(builder.finish([builder.op("LOGISTIC", [scaled], (1, 8, 8, 4), name="y")]), path)
    return path


def _job(path: Path, folder: Path, options: dict[str, Any], runs: int = _RUNS) -> tuple[Job, list[list[Array]]]:
    file = open_model(path)
    signature = file.signatures[0]
    shapes = resolve_shapes(signature)
    folder.mkdir()
    sets = [make_inputs(file.graph, signature, shapes, kind, 0) for kind in ("uniform", "normal")]
    paths = [folder / f"inputs{index}.npz" for index in range(len(sets))]
    for each, arrays in zip(paths, sets, strict=True):
        save_arrays(each, arrays)
    job = Job.of(
        path,
        signature,
        folder / "job",
        paths,
        shapes=shapes,
        sequence=list(_SEQUENCE),
        warmup=1,
        runs=runs,
        options=options,
    )
    return job, sets


def _check_runs(
    name: str,
    lane: Lane,
    device: Device,
    model: Path | None,
    options: dict[str, Any],
    time_limit_s: float,
    folder: Path,
    checks: _Checks,
) -> None:
    if model is None and not checks.hold("tflite" in lane.formats, "give a model that it reads: model=..."):
        return
    path = model or _small_model(folder)
    job, _ = _job(path, folder / "good", options)
    outcome = device.run_job(name, job, time_limit_s=time_limit_s)
    facts = checks.call("read of a good run", lambda: lane.read(outcome.log, outcome.observation))
    again = checks.call("read of a good run", lambda: lane.read(outcome.log, outcome.observation))
    checks.hold(facts == again, "read gives another answer when it is asked again")
    if facts is None:
        return
    accepted = accept(outcome.ending, outcome.log, facts.failure, lane.explain)
    if accepted.failure in _NOT_HERE:
        return  # That is an answer too: what it needs is not there, and it says so.
    if not checks.hold(accepted.failure is None, f"a small model fails: {accepted.failure}: {accepted.error}"):
        return
    observation = outcome.observation
    assert observation is not None
    checks.hold(facts.served is not False, "read says that the lane did not serve a run that was good")
    if lane.accelerated:
        checks.hold(facts.served, "read does not show that the accelerator served the run")
        checks.hold(facts.evidence, "read shows no evidence that the accelerator served the run")
    checks.hold(observation.stage == "done", f"the last stage is {observation.stage}, not done")
    checks.hold(observation.load_ms and observation.first_run_ms, "load or first run has no time")
    samples = observation.samples_ms
    checks.hold(len(samples) == _RUNS, f"{len(samples)} runs are timed, {_RUNS} were asked for")
    checks.hold(all(sample > 0 for sample in samples), "a timed run took no time")
    version = observation.facts.get("runtime_version") or lane.runtime_version(options)
    checks.hold(version, "neither the run nor runtime_version tells the runtime's version")
    checks.hold(Observation.from_json(observation.to_json()) == observation, "the observation is not JSON")
    _check_outputs(job, outcome, checks)
    cut = folder / f"cut{path.suffix}"
    cut.write_bytes(path.read_bytes()[: path.stat().st_size // 3])
    bad = dataclasses.replace(job, model=str(cut), workdir=str(folder / "bad"))
    outcome = device.run_job(name, bad, time_limit_s=time_limit_s)
    facts = checks.call("read of a failed run", lambda: lane.read(outcome.log, outcome.observation))
    if facts is not None:
        accepted = accept(outcome.ending, outcome.log, facts.failure, lane.explain)
        checks.hold(accepted.failure is not None, "a file that is cut off is a good run")


def _check_outputs(job: Job, outcome: JobOutcome, checks: _Checks) -> None:
    files = outcome.output_files()
    if not checks.hold(len(files) == len(_SEQUENCE), f"{len(files)} of {len(_SEQUENCE)} outputs were kept"):
        return
    first, other, repeated = (load_arrays(file) for file in files)
    checks.hold(len(first) == len(job.outputs), f"{len(first)} outputs, the model has {len(job.outputs)}")
    for spec, a, b, c in zip(job.outputs, first, other, repeated, strict=False):
        checks.hold(a.dtype.name == spec.dtype, f"output {spec.name!r} is {a.dtype.name}, not {spec.dtype}")
        checks.hold(a.shape == spec.shape, f"output {spec.name!r} has shape {a.shape}, not {spec.shape}")
        checks.hold(np.array_equal(a, c), f"output {spec.name!r} differs for the same input after another one")
        checks.hold(not np.array_equal(a, b), f"output {spec.name!r} is the same for another input")


def check_device(device: Device, *, time_limit_s: float = 120.0) -> None:
    """Check that a device holds to what every device must.

    It says what it is and how it is, also when it is asked again; it knows of every lane that it can be asked for
    whether it is there; outputs and log of several jobs in one process come back whole; a crash, a hang and a wish
    to stop end the child there, and the next job runs all the same; what was put there is gone at the end.

    Args:
        device: The device, closed; it is opened and closed here.
        time_limit_s: For one child process, in seconds.

    Raises:
        ConformanceError: It does not hold to all of it; the text names every breach.
        AssayError: It cannot be reached.
    """
    checks = _Checks()
    with Scratch() as folder, device:
        facts = device.facts()
        checks.hold(facts.model, "facts: the model has no name")
        if facts.name:
            checks.hold(
                facts.name == slug(facts.name), f"facts: the name {facts.name!r} does not fit in file names"
            )
        checks.call("facts as JSON", lambda: json.dumps(dataclasses.asdict(facts), allow_nan=False))
        checks.hold(device.facts() == facts, "facts differ when they are asked for again")
        checks.call("state", device.state)
        lanes: list[str] = []
        for name in registry.names():
            lane = registry.find(name)
            found = checks.call(f"available of {name}", lambda lane=lane: device.available(lane))
            if found is not None and device.kind not in lane.places:
                checks.hold(not found.available, f"{name} is said to run there, and cannot")
            elif found is not None and found.available and not lane.experimental and "tflite" in lane.formats:
                checks.hold(device.runtime_version(lane, {}), f"{name}: the runtime's version is not known")
                lanes.append(name)
        if checks.hold(lanes, "no lane can run there"):
            path = _small_model(folder)
            _check_jobs(device, lanes[0], path, folder, time_limit_s, checks)
            if device.kind in FaultLane.places:
                _check_faults(device, path, folder, time_limit_s, checks)
            _check_jobs(device, lanes[0], path, folder / "after", time_limit_s, checks)
    checks.end(device.address)


def _check_jobs(device: Device, lane: str, path: Path, folder: Path, time_limit_s: float, checks: _Checks) -> None:
    folder.mkdir(exist_ok=True)
    jobs = [_job(path, folder / f"job{index}", {})[0] for index in range(2)]
    outcomes = device.run_jobs(lane, jobs, time_limit_s=time_limit_s)
    checks.hold(len(outcomes) == len(jobs), "there is not one outcome for each job")
    reference, sets = _job(path, folder / "here", {})
    here = LocalDevice().run_job(registry.references()[0], reference, time_limit_s=time_limit_s)
    for job, outcome in zip(jobs, outcomes, strict=False):
        text = outcome.log[-500:]
        checks.hold(outcome.workdir == Path(job.workdir), "an outcome's folder is not its job's")
        if not checks.hold(
            outcome.ending.stage == "done", f"a good job did not come to its end on {lane}: {text}"
        ):
            continue
        _check_outputs(job, outcome, checks)
        for mine, theirs in zip(outcome.output_files(), here.output_files(), strict=False):
            close = all(
                np.allclose(a, b, atol=1e-2) for a, b in zip(load_arrays(mine), load_arrays(theirs), strict=True)
            )
            checks.hold(close, f"{lane} gives other numbers there than the reference here")
    checks.hold(len(sets) == 2 and here.ending.stage == "done", "the reference here failed")


def _check_faults(device: Device, path: Path, folder: Path, time_limit_s: float, checks: _Checks) -> None:
    crash = {"faults": [{"op": "LOGISTIC", "kind": "crash"}]}
    outcome = device.run_job(_FAULTS, _job(path, folder / "crash", crash)[0], time_limit_s=time_limit_s)
    checks.hold(outcome.returncode not in (0, None), f"a crash has the exit code {outcome.returncode}")
    hang = {"faults": [{"op": "LOGISTIC", "kind": "hang"}]}
    outcome = device.run_job(_FAULTS, _job(path, folder / "hang", hang)[0], time_limit_s=5.0)
    checks.hold(outcome.timed_out, "a hang is not ended by the time limit")
    stop = threading.Event()
    threading.Timer(2.0, stop.set).start()
    try:
        device.run_job(_FAULTS, _job(path, folder / "stop", hang)[0], time_limit_s=time_limit_s, stop=stop)
        checks.hold(False, "a job that is to stop has an outcome")
    except Stopped:
        pass
