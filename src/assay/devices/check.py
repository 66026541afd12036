"""Whether each lane works on a device: looked at, and tried with a model of one op."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from assay import graph
from assay.devices.base import Device, DeviceFacts
from assay.errors import AssayError
from assay.lanes import registry
from assay.lanes.base import Availability
from assay.lanes.job import Job, Json
from assay.lanes.native import save_arrays
from assay.protocol.acceptance import accept
from assay.protocol.machine import State
from assay.scratch import Scratch

_TIME_LIMIT_S = 120.0


@dataclass(frozen=True)
class LaneCheck:
    """One lane on one device.

    Attributes:
        name: Lane's name.
        summary: What it is, in one line.
        availability: What is installed.
        adapter: What served the one-op model, as the log named it; None for a CPU lane, or if nothing was run.
        adapter_kind: `software`, `hardware`, or None.
        ran: True if the one-op model ran, False if it failed, None if it was not tried.
        problem: Why it failed, or None.
    """

    name: str
    summary: str
    availability: Availability
    adapter: str | None = None
    adapter_kind: str | None = None
    ran: bool | None = None
    problem: str | None = None

    @property
    def failed(self) -> bool:
        """True if all that the lane needs is there, and it failed all the same."""
        return self.ran is False


def check_lanes(
    device: Device, *, run: bool = True, notify: Callable[[str], None] = lambda text: None
) -> list[LaneCheck]:
    """Look at every installed lane that such a device can be asked for, and try those that can run there.

    Args:
        device: The device.
        run: False to look only.
        notify: Told which lane is being tried.

    Raises:
        AssayError: The device cannot be reached.
    """
    checks: list[LaneCheck] = []
    for name in registry.names():
        lane = registry.find(name)
        if device.kind not in lane.places:
            continue
        check = LaneCheck(name, lane.summary, device.available(lane))
        # An experimental lane runs only for who asks for it by name.
        if run and check.availability.available and not lane.experimental and "tflite" in lane.formats:
            notify(name)
            check = _try(device, check)
        checks.append(check)
    return checks


@dataclass(frozen=True)
class DeviceCheck:
    """One device: what it is, how it is now, and which lanes work there.

    Attributes:
        label: How the user named it.
        address: Its address.
        facts: What it is; None if it cannot be reached.
        state: How it is; None if it cannot be reached.
        lanes: Its lanes.
        problem: Why it cannot be reached, or None.
        fix: What to do about that.
    """

    label: str
    address: str
    facts: DeviceFacts | None = None
    state: State | None = None
    lanes: tuple[LaneCheck, ...] = ()
    problem: str | None = None
    fix: str | None = None

    @property
    def failed(self) -> bool:
        """True if it cannot be reached, or a lane failed that has all it needs."""
        return self.problem is not None or any(lane.failed for lane in self.lanes)

    def to_dict(self) -> dict[str, Json]:
        """As JSON."""
        return dataclasses.asdict(self)


def check_device(
    device: Device, *, label: str, run: bool = True, notify: Callable[[str], None] = lambda text: None
) -> DeviceCheck:
    """Reach a device and look at its lanes.

    Args:
        device: The device; it is opened and closed.
        label: How the user named it.
        run: False to look only.
        notify: Told which lane is being tried.
    """
    try:
        with device:
            facts, state = device.facts(), device.state()
            lanes = tuple(check_lanes(device, run=run, notify=notify))
    except AssayError as error:
        return DeviceCheck(label, device.address, problem=error.message, fix=error.fix)
    return DeviceCheck(label, device.address, facts, state, lanes)


def _one_op_model() -> graph.Model:
    builder = graph.GraphBuilder()
    x = builder.input("x", (1, 8, 8, 4))
    return builder.finish([builder.op("LOGISTIC", [x], (1, 8, 8, 4), name="y")])


def _try(device: Device, check: LaneCheck) -> LaneCheck:
    lane = registry.find(check.name)
    with Scratch() as folder:
        path, inputs = folder / "one_op.tflite", folder / "inputs.npz"
        graph.save(_one_op_model(), path)
        signature = graph.read(path).signature()
        save_arrays(inputs, [np.linspace(-4, 4, 256, dtype=np.float32).reshape(1, 8, 8, 4)])
        job = Job.of(path, signature, folder / "job", [inputs], runs=3)
        outcome = device.run_job(check.name, job, time_limit_s=_TIME_LIMIT_S)
        facts = lane.read(outcome.log, outcome.observation)
        accepted = accept(outcome.ending, outcome.log, facts.failure, lane.explain)
    return dataclasses.replace(
        check,
        ran=accepted.failure is None,
        problem=accepted.error,
        adapter=facts.adapter,
        adapter_kind=facts.adapter_kind,
    )
