"""When a measurement counts: from what a child left behind to loaded, ran, and why not. Knows no lane."""

import re
import signal
from collections.abc import Callable
from dataclasses import dataclass

from assay.evidence import litert_log
from assay.records.failure import FailureClass

LAST_LINES = 12
"""So many of the log's last lines are kept as evidence of a failed run."""

LINE_LIMIT = 500
"""Longer lines are cut: a record is no place for a dump."""

# Where in the runtime's sources an error was raised: the log has it, one sentence need not.
_PLACE = re.compile(r"(?:RuntimeError: )?ERROR: \[\S+\]")

_NOISE = re.compile(r"^(?:INFO|WARNING: \[model_load|VERBOSE|I\d{4} )")


@dataclass(frozen=True)
class Acceptance:
    """Whether a run is accepted.

    Attributes:
        loads: True if the model was loaded, False if not, None if it never came to that.
        runs: True if every inference asked for was made.
        failure: Why the run failed, or None.
        error: One sentence for it, or None.
        evidence: Log lines, word for word, that show the failure; empty for an accepted run.
    """

    loads: bool | None
    runs: bool
    failure: FailureClass | None
    error: str | None
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class Ending:
    """How a child process ended.

    Attributes:
        stage: The stage it had begun last; None if it wrote nothing.
        loaded: True if the model was loaded.
        error: The exception it reported, or None.
        error_class: The failure class that the lane itself gave it, or None.
        returncode: Exit code; negative for a signal.
        timed_out: True if the time limit ended it.
        out_of_memory: True if the memory limit ended it.
        flooded: True if its log grew without bound, which ended it.
        lost: Why the device could not be reached any more, or None.
    """

    stage: str | None
    loaded: bool
    error: str | None
    error_class: FailureClass | None
    returncode: int
    timed_out: bool
    out_of_memory: bool
    flooded: bool
    lost: str | None = None


def last_lines(log: str) -> tuple[str, ...]:
    """The log's last lines that say more than that all is well, cut to a bearable length."""
    lines = [line.strip()[:LINE_LIMIT] for line in log.splitlines() if line.strip()]
    return tuple([line for line in lines if not _NOISE.match(line)][-LAST_LINES:])


Explain = Callable[[str], tuple[FailureClass, str] | None]
"""The failure class that an error or a log shows, and the line that shows it."""


def accept(
    ending: Ending, log: str, lane_failure: FailureClass | None, explain: Explain = litert_log.failure
) -> Acceptance:
    """Judge one measurement.

    Args:
        ending: How the child ended.
        log: Its log.
        lane_failure: A failure that the lane reads from the log although the calls reported success, such as a
            silent fallback to the CPU.
        explain: How the lane's errors and log show a failure.
    """
    failure, error, shown = _cause(ending, log, lane_failure, explain)
    loads = True if ending.loaded else None if ending.stage in (None, "start") else False
    if failure is None:
        return Acceptance(loads, True, None, None, ())
    lines = list(last_lines(log))
    if shown and shown[:LINE_LIMIT] not in lines:
        lines.insert(0, shown[:LINE_LIMIT])
    return Acceptance(loads, False, failure, error, tuple(lines))


def _cause(
    ending: Ending, log: str, lane_failure: FailureClass | None, explain: Explain
) -> tuple[FailureClass | None, str | None, str | None]:
    during = f"during {ending.stage or 'start'}"
    if ending.lost is not None:
        return FailureClass.DEVICE_UNREACHABLE, f"the device was lost {during}: {ending.lost}", None
    if ending.timed_out:
        return FailureClass.TIMED_OUT, f"the time limit was reached {during}; the process was killed", None
    if ending.out_of_memory:
        return FailureClass.OUT_OF_MEMORY, f"the memory limit was reached {during}; the process was killed", None
    if ending.flooded:
        return FailureClass.CRASHED, f"the log grew without bound {during}; the process was killed", None
    if ending.error is not None:
        return _reported(ending, log, explain)
    if ending.returncode < 0:
        name = _signal_name(-ending.returncode)
        hint = ", as the system does when memory runs out" if name == "SIGKILL" else ""
        return FailureClass.CRASHED, f"the process died of {name} {during}{hint}", None
    if ending.returncode != 0 or ending.stage != "done":
        return FailureClass.CRASHED, f"the process ended with exit code {ending.returncode} {during}", None
    if lane_failure is not None:
        return lane_failure, f"the calls reported success, the log shows {lane_failure.value}", None
    return None, None, None


def _reported(ending: Ending, log: str, explain: Explain) -> tuple[FailureClass, str, str | None]:
    error = ending.error or ""
    # The message is about this failure; the log may hold older complaints, so it is asked second.
    found = explain(error) or explain(log)
    failure = ending.error_class or (found[0] if found else None)
    if failure is None:
        failure = FailureClass.RUN_FAILED if ending.loaded else FailureClass.LOAD_FAILED
    return failure, _one_line(error), found[1] if found else None


def _one_line(error: str) -> str:
    lines = [_PLACE.sub("", line).strip(" └") for line in error.splitlines()]
    return "; ".join(line for line in lines if line and not line.startswith("See instructions"))[:LINE_LIMIT]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
