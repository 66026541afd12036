"""The probe as one call: cases to a lane, outcomes to a matrix."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.errors import AssayError
from assay.lanes import registry
from assay.probe import grid
from assay.probe.run import Progress, run_cases
from assay.probe.store import write_matrix
from assay.version import __version__


@dataclass(frozen=True)
class ProbeResult:
    """What a probe left.

    Attributes:
        folder: The matrix.
        header: Its `matrix.json`.
        statuses: Cases by outcome, this run's and earlier ones'.
    """

    folder: Path
    header: dict[str, Any]
    statuses: dict[str, int]


def probe(
    lane_name: str,
    out: Path,
    *,
    ops: Sequence[str] = (),
    models: Sequence[Path] = (),
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> ProbeResult:
    """Measure one-op models on a lane and write its support matrix.

    What was measured before in the same folder is not measured again, so an interrupted probe goes on where it
    stopped. Every case runs in a child process; one that crashes is an entry of the matrix.

    Args:
        lane_name: The lane.
        out: Folder for `progress.jsonl` and the matrix, in `<out>/<lane>/<runtime version>`.
        ops: Only these ops of the grid; all by default.
        models: Instead of the grid, the nodes of these models that the shipped matrix does not know.
        tell: Called with the numbers of cases done and of cases in all.

    Returns:
        Where the matrix is, and what it counts.

    Raises:
        AssayError: The lane cannot run here or is no accelerator, an op is unknown, or no case can be tried.
    """
    lane = registry.find(lane_name)
    if lane.probe is None:
        known = [name for name in registry.names() if registry.find(name).probe is not None]
        raise AssayError(f"lane {lane_name!r} has no probe", fix=f"lanes with one: {', '.join(known)}")
    available = lane.available()
    if not available.available:
        raise AssayError(f"lane {lane_name!r} cannot run here: {available.reason}", fix=available.fix)
    version = str(available.details.get("runtime_version", "unknown"))
    folder = out / lane_name / version
    cases = list(_cases(lane_name, ops, models))
    runtime = {
        "runtime": "ai-edge-litert" if lane.runtime == "litert" else lane.runtime,
        "runtime_version": version,
        "grid_cases": sum(1 for _ in grid.cases()),
    }
    progress = Progress.load(folder / "progress.jsonl")
    try:
        run_cases(cases, progress, environment=lane.child_env({}), worker=lane.probe, tell=tell)
    finally:
        # Ctrl-C leaves the matrix of what is measured so far.
        header = write_matrix(folder, progress.outcomes.values(), _header(lane_name, runtime, progress.session))
    return ProbeResult(folder, header, dict(Counter(outcome.status for outcome in progress.outcomes.values())))


def _cases(lane_name: str, ops: Sequence[str], models: Sequence[Path]) -> Iterable[Any]:
    if models:
        from assay.graph import read
        from assay.linting.matrix import for_lane
        from assay.probe.from_model import cases_of

        for path in models:
            yield from cases_of(read(path), for_lane(lane_name))
        return
    if ops:
        known = grid.known_ops()
        unknown = [op for op in ops if op not in known]
        if unknown:
            raise AssayError(
                f"the probe has no cases for {', '.join(unknown)}",
                fix="`assay probe --list-ops` names those it has",
            )
    yield from grid.cases(ops or None)


def _header(lane_name: str, runtime: dict[str, Any], session: dict[str, Any]) -> dict[str, Any]:
    return {
        "lane": lane_name,
        **runtime,
        "provenance": "measured",
        "made_by": f"assay {__version__}: assay probe --lane {lane_name}",
        "host": {"os": platform.system(), "machine": platform.machine(), "python": platform.python_version()},
        "tolerance": {
            "float": "1e-2 of the output's largest magnitude",
            "quantized": "2 steps",
            "integer_and_bool": "0",
        },
        "behaviour": {"max_partitions": 1, "folds_float16_constants": True, **session.get("behaviour", {})},
        **{
            key: session.get(key)
            for key in ("behaviour_evidence", "adapter", "adapter_kind", "adapter_evidence", "browser")
        },
    }
