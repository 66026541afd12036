"""Whether each lane works on this machine: looked at, and tried with a model of one op."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from assay import graph
from assay.lanes import registry
from assay.lanes.base import Availability
from assay.scratch import Scratch


@dataclass(frozen=True)
class LaneCheck:
    """One lane here.

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


def check_lanes(*, run: bool = True, notify: Callable[[str], None] = lambda text: None) -> list[LaneCheck]:
    """Look at every installed lane, and try those that can run here.

    Args:
        run: False to look only.
        notify: Told which lane is being tried.
    """
    checks: list[LaneCheck] = []
    for name in registry.names():
        lane = registry.find(name)
        check = LaneCheck(name, lane.summary, lane.available())
        # An experimental lane runs only for who asks for it by name.
        if run and check.availability.available and not getattr(lane, "experimental", False):
            notify(name)
            check = _try(check)
        checks.append(check)
    return checks


def _one_op_model() -> graph.Model:
    builder = graph.GraphBuilder()
    x = builder.input("x", (1, 8, 8, 4))
    return builder.finish([builder.op("LOGISTIC", [x], (1, 8, 8, 4), name="y")])


def _try(check: LaneCheck) -> LaneCheck:
    from assay.measure.run import Settings, run_models

    with Scratch() as folder:
        path = folder / "one_op.tflite"
        graph.save(_one_op_model(), path)
        settings = Settings(lanes=(check.name,), runs=3, out=folder / "out", time_limit_s=120)
        run = run_models([path], settings).results[0].entry.run
    return dataclasses.replace(
        check,
        ran=run.failure_class is None,
        problem=run.error,
        adapter=run.metrics.get("adapter"),
        adapter_kind=run.metrics.get("adapter_kind"),
    )
