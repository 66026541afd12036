"""The child process of a probe on the native engine: `python -m assay.probe.worker CASES.json RESULTS.jsonl`.

It forks a process for each batch of cases, after the runtime is imported and before a graphics environment
exists: a crash costs a fork, not a start. What it writes, line by line: `session` (adapter and behaviour of the
delegate), `begin` before a case is tried, `signature` once that is known, `again` for one that is to be tried
alone, `done` with the outcome, also for a case that its process did not survive.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import importlib
import json
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from assay.evidence import litert_log
from assay.graph.writer import write
from assay.linting.signature import signature_of
from assay.probe.behaviour import experiments, wide_layers
from assay.probe.cases import Array, Case, Result, build, probed
from assay.probe.native import Attempt, NativeSession, without_names
from assay.probe.outcome import Outcome
from assay.probe.reference import Reference, complete, difference, inputs_of, tolerance

_FATAL = re.compile(
    r"^(?:F\d{4} .*|.*Check fail.*|.*Assertion .* failed.*|terminate called.*|.*Fatal Python error.*)$"
)
_STAMP = re.compile(r"^[IWEF]\d{4} [\d:.]+ +\d+ ")
#: Words of LiteRT.js that say why it does not load a model: no type for its inputs, an engine that ended.
_EXPLAIN = ("Element type", "Aborted(")
#: What the graphics layer says of a texture that is too large, and the part of the largest value that a layer may
#: be off by before it counts as lost: half precision is right to a few thousandths.
_TEXTURE = "exceeded maximum texture size"
_LOST = 0.05
_PARENT = os.getppid()
_UNRESOLVED = "Encountered unresolved custom op"

Say = Callable[[dict[str, Any]], None]


def signature_text(case: Case) -> str:
    """The signature of a case whose output shapes are known, as lint sees it in a file."""
    model = build(case)
    subgraph = model.subgraphs[0]
    return str(signature_of(model, subgraph, probed(model, case.op)))


def judge(case: Case, reference: Reference, attempt: Attempt) -> dict[str, Any]:
    """Status, reason and numbers of an attempt."""
    if attempt.taken is False:
        reasons = [reason for op, reason in attempt.reasons if op in (case.op, "")]
        if not reasons:
            return {"status": "unclear", "reason": None}
        return {"status": "refused", "reason": without_names(reasons[0]) or None, "scope": attempt.scope}
    if attempt.taken is None:
        unresolved = [line for line in attempt.evidence if _UNRESOLVED in line]
        if unresolved:
            # No kernel and no delegate knows it: a model with it loads on no lane of this runtime.
            return {"status": "failed", "reason": unresolved[0].removeprefix("ERROR: ")}
        if attempt.error is not None:
            return {"status": "invalid", "reason": " ".join(attempt.error.split())}
        return {"status": "unclear", "reason": None}
    if attempt.error is not None:
        return {"status": "failed", "reason": f"{attempt.stage}: {' '.join(attempt.error.split())}"}
    if attempt.outputs is None:
        return {"status": "supported", "reason": None}
    expected = reference.trusted(case)
    if expected is None:
        return {"status": "supported", "reason": None}
    gap = difference(expected, attempt.outputs)
    limit = tolerance(case, expected)
    facts: dict[str, Any] = {"reference": "cpu"}
    if gap != float("inf"):
        facts["max_abs_diff"] = float(f"{gap:.3g}")
    if gap <= limit:
        return {"status": "supported", "reason": None, **facts}
    if not reference.confirmed(case, limit):
        # The CPU's own kernels do not agree with each other on this one: nobody knows the right numbers.
        return {"status": "supported", "reason": None}
    return {"status": "wrong", "reason": f"differs from the CPU by {gap:.3g}, {limit:.3g} allowed", **facts}


def measure(case: Case, session: Session, say: Say) -> Outcome:
    """Try one case; its signature is said before the lane gets it, so that a crash has one."""
    finished, data, reference = complete(case)
    date = _today()
    if data is None:
        return Outcome(case.id, case.op, None, "invalid", reference.error, date=date)
    signature = signature_text(finished)
    say({"signature": signature})
    attempt = session.attempt(data, inputs_of(finished), finished)
    facts = judge(finished, reference, attempt)
    return Outcome(case.id, case.op, signature, evidence=attempt.evidence, date=date, **facts)


def _survey(cases: list[Case], say: Say) -> None:
    for case in cases:
        say({"begin": case.id})
        complete(case)


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


class Session(Protocol):
    """A lane that is held ready for one small model after the other."""

    def attempt(self, data: bytes, inputs: list[Array], case: Case, *, run: bool = True) -> Attempt:
        """Load a model, and run it once if the accelerator took all of it and `run` is set."""
        ...


def try_cases(cases: list[Case], session: Session, say: Say) -> None:
    """Try cases in this process."""
    for position, case in enumerate(cases):
        say({"begin": case.id})
        outcome = measure(case, session, say)
        unexplained = outcome.status == "invalid" and not any(word in (outcome.reason or "") for word in _EXPLAIN)
        if position and unexplained and outcome.signature is not None:
            # Some words the runtime says once in a process only: what failed without a reason is tried alone.
            say({"again": case.id})
        else:
            say({"done": outcome.to_json()})
        os.ftruncate(2, 0)


def behave(session: Session, said: Callable[[], str], facts: dict[str, Any], say: Say) -> None:
    """See how the delegate cuts graphs.

    Args:
        session: The lane.
        said: What it logged during the last attempt.
        facts: Adapter and the like, said along.
        say: Takes the result.
    """
    behaviour: dict[str, Any] = {}
    evidence: dict[str, list[str]] = {}
    for experiment in experiments():
        session.attempt(write(experiment.model), [], Case("", (), ()), run=False)
        report = litert_log.delegation(said())
        taken = report.delegated if report is not None else None
        if taken in experiment.meanings:
            behaviour[experiment.name] = experiment.meanings[taken]
        evidence[experiment.name] = list(report.lines) if report is not None else ["no node is named as refused"]
    behaviour["weights_texture"], evidence["weights_texture"] = _largest_texture(session, said)
    say({"session": {"behaviour": behaviour, "behaviour_evidence": evidence, **facts}})


def _largest_texture(session: Session, said: Callable[[], str]) -> tuple[int | None, list[str]]:
    """The side in texels beyond which a layer's weights are lost (None if there is none), and what shows it."""
    right: list[str] = []
    for layer in wide_layers():
        shape = layer.expected.shape
        attempt = session.attempt(write(layer.model), [layer.given], Case("CONV_2D", (), (Result(shape=shape),)))
        words = [line for line in litert_log.graphics_errors(said()) if _TEXTURE in line][:1]
        if attempt.error is not None:
            # Without such words it says nothing about textures, whatever it is.
            limit = layer.limit if words else None
            return limit, [*words, f"a 1x1 convolution with {shape[-1]} outputs: {attempt.error}"]
        if attempt.outputs is not None:
            gap = float(np.abs(attempt.outputs[0] - layer.expected).max())
            if gap > _LOST * float(np.abs(layer.expected).max()):
                wide = f"a 1x1 convolution with {shape[-1]} outputs: off by {gap:.3g} and no error"
                return layer.limit, [*words, wide]
            right = [f"a 1x1 convolution with {shape[-1]} outputs is right"]
    return None, right


def _native_batch(cases: list[Case], say: Say, log: Path) -> None:
    try_cases(cases, NativeSession(log), say)


def _native_behaviour(say: Say, log: Path) -> None:
    session = NativeSession(log)
    session.attempt(write(experiments()[0].model), [], Case("", (), ()), run=False)
    adapter = litert_log.adapter(log.read_text(errors="replace"))
    facts = {
        "adapter": f"{adapter.name} ({adapter.backend})" if adapter else None,
        "adapter_kind": None if adapter is None else "software" if adapter.software else "hardware",
        "adapter_evidence": _STAMP.sub("", adapter.line) if adapter else None,
    }
    behave(session, session.said, facts, say)


def _fork(work: Callable[[Say], None], log: Path, results: Path, limit_s: float) -> int:
    """Do something in a process of its own; its wait status, or SIGKILL's if it hung."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with results.open("a") as file:
                work(lambda document: _write(file, document))
            code = 0
        except BaseException:
            # What goes wrong here is a fault of the probe itself: it has to be seen.
            traceback.print_exc()
        finally:
            os._exit(code)
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        time.sleep(0.02)
        if os.getppid() != _PARENT:
            # It was killed, and nobody else would end what goes on here.
            os.kill(pid, signal.SIGKILL)
            os._exit(1)
        if time.time() - max(results.stat().st_mtime, log.stat().st_mtime) > limit_s:
            os.kill(pid, signal.SIGKILL)
            return os.waitpid(pid, 0)[1]


def _write(file: Any, document: dict[str, Any]) -> None:
    file.write(json.dumps(document) + "\n")
    file.flush()


def _unfinished(results: Path) -> tuple[set[str], set[str], str | None, str | None]:
    """Ids of finished cases and of those to be tried alone; id and signature of the one begun and not finished."""
    finished: set[str] = set()
    alone: set[str] = set()
    at = signature = None
    for line in results.read_text().splitlines():
        document = json.loads(line)
        if "begin" in document:
            at, signature = document["begin"], None
        elif "signature" in document:
            signature = document["signature"]
        elif "again" in document:
            alone.add(document["again"])
            at = None
        elif "done" in document:
            finished.add(document["done"]["case"])
            at = None
    return finished, alone - finished, at, signature


def _death(case: Case, signature: str | None, status: int, log: Path) -> tuple[Outcome, bool]:
    """The outcome of a case that its process did not survive, and whether the log says why.

    A case that had no signature yet died in the CPU's own kernel: no lane is to blame, and none can run it.
    """
    said = log.read_text(errors="replace")
    fatal = [_STAMP.sub("", line.strip()) for line in said.splitlines() if _FATAL.match(line.strip())][:3]
    last = [line for line in said.splitlines() if line.strip()][-1:]
    ended = f"signal {signal.Signals(os.WTERMSIG(status)).name}" if os.WIFSIGNALED(status) else " ".join(last)
    reason = re.sub(r"0x[0-9a-f]{4,}", "0x...", fatal[0] if fatal else ended)
    kind = "crash" if signature is not None else "invalid"
    outcome = Outcome(case.id, case.op, signature, kind, reason, evidence=[*fatal, ended], date=_today())
    return outcome, bool(fatal)


def _survivors(cases: list[Case], results: Path, log: Path, limit_s: float) -> list[Case]:
    """The cases that the CPU's own kernels survive; the others get their outcome.

    A lane that is slow to start would be started anew for each case that takes its process along before the lane
    has seen it.
    """
    left = list(cases)
    alive: list[Case] = []
    with tempfile.TemporaryDirectory(dir=results.parent) as folder:
        notes = Path(folder) / "survey.jsonl"
        while left:
            notes.write_text("")
            status = _fork(functools.partial(_survey, left), log, notes, limit_s)
            if status == 0:
                alive += left
                break
            begun = len(notes.read_text().splitlines())
            *before, last = left[: max(begun, 1)]
            alive += before
            left = left[len(before) + 1 :]
            if _fork(functools.partial(_survey, [last]), log, notes, limit_s) == 0:
                # What was before it in its process was to blame.
                alive.append(last)
            else:
                with results.open("a") as file:
                    _write(file, {"done": _death(last, None, status, log)[0].to_json()})
            os.ftruncate(2, 0)
    return alive


def supervise(
    source: Path,
    results: Path,
    batch: Callable[[list[Case], Say], None],
    behaviour: Callable[[Say], None],
    *,
    size: int = 300,
    limit_s: float = 60.0,
    survey: bool = False,
) -> int:
    """Try all cases in forked processes, whatever some of them do to theirs.

    Args:
        source: The cases, as JSON.
        results: The file to write to, line by line; the processes' standard error goes beside it, to `.log`.
        batch: Tries cases, in the forked process.
        behaviour: Says how the delegate behaves, in a forked process.
        size: Cases a process.
        limit_s: Seconds without a sign of life after which a process is killed: the case at hand hangs.
        survey: Find the cases that the CPU's kernels do not survive before the lane is started for a batch.

    Returns:
        0, or 1 if processes end before their first case.
    """
    cases = {case.id: case for case in (Case.from_json(item) for item in json.loads(source.read_text()))}
    log = results.with_suffix(".log")
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    results.touch()
    _import_runtime()
    _fork(behaviour, log, results, limit_s)
    os.ftruncate(2, 0)
    suspects: set[str] = set()
    alone: set[str] = set()
    surveyed: set[str] = set()
    while cases:
        portion = [case for key, case in cases.items() if key not in alone][:size]
        if not portion or portion[0].id in suspects:
            portion = (portion or list(cases.values()))[:1]
        if survey and (new := [case for case in portion if case.id not in surveyed]):
            surveyed.update(case.id for case in new)
            alive = {case.id for case in _survivors(new, results, log, limit_s)}
            gone = {case.id for case in new} - alive
            cases = {key: case for key, case in cases.items() if key not in gone}
            continue
        before = results.stat().st_size
        status = _fork(functools.partial(batch, portion), log, results, limit_s)
        finished, alone, at, signature = _unfinished(results)
        if at is not None:
            outcome, certain = _death(cases[at], signature, status, log)
            if certain or at in suspects:
                with results.open("a") as file:
                    _write(file, {"done": outcome.to_json()})
                finished.add(at)
            suspects.add(at)
        elif results.stat().st_size == before:
            return 1
        cases = {key: case for key, case in cases.items() if key not in finished}
        os.ftruncate(2, 0)
    return 0


def main(arguments: list[str]) -> int:
    """Try all cases on the native engine."""
    source, results = map(Path, arguments[:2])
    log = results.with_suffix(".log")
    return supervise(
        source,
        results,
        functools.partial(_native_batch, log=log),
        functools.partial(_native_behaviour, log=log),
    )


def _import_runtime() -> None:
    with contextlib.suppress(ImportError):
        importlib.import_module("ai_edge_litert.compiled_model")
        importlib.import_module("ai_edge_litert.interpreter")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
