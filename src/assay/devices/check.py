"""Whether each lane works on a device: looked at, and tried with a model of one op."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from assay import graph
from assay.devices.base import Device
from assay.lanes import registry
from assay.lanes.base import Availability
from assay.lanes.job import Job
from assay.lanes.native import save_arrays
from assay.protocol.acceptance import accept
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
