"""From one measurement to the entry of a record: every figure with its unit, environment and evidence."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay import records
from assay.devices.base import DeviceFacts, JobOutcome
from assay.lanes.base import Lane, LaneFacts, RecordKind
from assay.measure.judge import Judged
from assay.models.artifact import Artifact
from assay.protocol.acceptance import Acceptance
from assay.protocol.statistics import Summary
from assay.records.privacy import scrub_command, scrub_values

Scalar = float | int | str | bool | None


@dataclass(frozen=True)
class Measured:
    """What one lane did with one signature of one model.

    Attributes:
        outcome: What the child left; None where it was not started, since no lane could be fed.
        facts: What log and API show.
        acceptance: Whether the run counts.
        summary: Statistics of its timings, None without.
        unstable: Why the timings cannot be trusted; empty if they can.
        attempts: Measurements made until this one was kept.
    """

    outcome: JobOutcome | None
    facts: LaneFacts
    acceptance: Acceptance
    summary: Summary | None = None
    unstable: Sequence[str] = ()
    attempts: int = 1


@dataclass(frozen=True)
class Context:
    """What was measured, and how.

    Attributes:
        artifact: The file.
        signature: Signature key; None where the file has none.
        nodes: Nodes in its graph; None where there is none to look into.
        lane: The lane.
        runtime_version: Version of the lane's runtime on the device, where no run tells.
        started: When, UTC.
        command: The command line.
        device: What the device is.
        in_page: Whether the device is known only by what its pages tell.
        inputs: How the inputs were made.
        provenance: `measured`, or `example` for a model that is not a real one.
        options: The lane options.
    """

    artifact: Artifact
    signature: str | None
    nodes: int | None
    lane: Lane
    runtime_version: str | None
    started: datetime.datetime
    command: Sequence[str]
    device: DeviceFacts
    in_page: bool
    inputs: Mapping[str, Any]
    provenance: str
    options: Mapping[str, Any]


def device_entry(context: Context, measured: Measured, judged: Judged | None) -> records.DeviceEntry:
    """The entry of a device-run record for one measurement."""
    observation = measured.outcome.observation if measured.outcome else None
    run = records.DeviceRun(
        accelerator=context.lane.name,
        context_length=None,
        decode_tokens_per_s=None,
        env=records.RunEnv(
            device=context.device.model,
            machine_label=context.device.name,
            os_build=context.device.os_build,
            runtime=context.lane.runtime,
            runtime_version=(observation.facts.get("runtime_version") if observation else None)
            or context.runtime_version
            or "unknown",
            soc=context.device.soc,
            vendor_sdk=None,
        ),
        prefill_tokens_per_s=None,
        ttft_ms=None,
        **_shared(context, measured, judged),
    )
    return records.DeviceEntry(run=run, **_beside(context, measured, judged))


def browser_entry(context: Context, measured: Measured, judged: Judged | None) -> records.BrowserEntry:
    """The entry of a browser-sweep record for one measurement.

    A browser that never opened its page has told nothing of itself: those fields say `unknown`.
    """
    observation = measured.outcome.observation if measured.outcome else None
    told: dict[str, Any] = dict((observation.facts.get("env") if observation else None) or {})
    unknown: dict[str, Any] = {
        "browser": "unknown",
        "browser_version": "unknown",
        "headless": not context.in_page,
        "litertjs_core_version": context.runtime_version or "unknown",
        "machine_label": context.device.name or "remote-browser",
        "os": "unknown",
    }
    # A null must not hide what is known without the page.
    told = {name: value for name, value in told.items() if value is not None or name not in unknown}
    env: dict[str, Any] = unknown | told
    if context.device.name:
        env["machine_label"] = context.device.name
    if adapter := env.get("webgpu_adapter"):
        env["webgpu_adapter"] = records.WebGpuAdapter(**adapter)
    run = records.BrowserRun(
        backend=context.lane.name, env=records.BrowserEnv(**env), **_shared(context, measured, judged)
    )
    return records.BrowserEntry(run=run, **_beside(context, measured, judged))


_ENTRIES: dict[RecordKind, Callable[[Context, Measured, Judged | None], Any]] = {
    "device_run": device_entry,
    "browser_sweep": browser_entry,
}


def append_run(
    out: Path, model_id: str, context: Context, measured: Measured, judged: Judged | None
) -> tuple[records.DeviceEntry | records.BrowserEntry, Path]:
    """Write one measurement down in the kind of record that its lane has.

    Args:
        out: Folder of records.
        model_id: The model.
        context: What was measured, and how.
        measured: What the lane did.
        judged: What is said of its outputs; None where there are none.

    Returns:
        The entry, and the file that it was added to.
    """
    entry = _ENTRIES[context.lane.record](context, measured, judged)
    if isinstance(entry, records.BrowserEntry):
        return entry, records.append_browser_run(out, model_id, entry)
    return entry, records.append_device_run(out, model_id, context.device.name, entry)


def _shared(context: Context, measured: Measured, judged: Judged | None) -> dict[str, Any]:
    """Fields that device runs and browser runs have in common."""
    facts, summary, acceptance = measured.facts, measured.summary, measured.acceptance
    verdict = judged.verdict if judged else None
    evidence = list(dict.fromkeys([*facts.evidence, *acceptance.evidence]))
    delegated, total = facts.delegated_ops, facts.total_ops
    if facts.full_delegation and total is None and context.nodes is not None:
        # The log counts only what it splits; of a graph taken whole, the file knows the count.
        delegated = total = context.nodes
        evidence.append(f"file: {total} nodes in the graph that was taken whole")
    return {
        "date": context.started.date().isoformat(),
        "delegated_ops": delegated,
        "error": scrub_values(acceptance.error),
        "evidence": scrub_values(evidence),
        "failure_class": acceptance.failure.value if acceptance.failure else None,
        "full_delegation": facts.full_delegation if acceptance.failure is None else None,
        "latency_p50_ms": _rounded(summary.p50_ms) if summary else None,
        "loads": bool(acceptance.loads),
        "max_abs_diff": verdict.max_abs_diff if verdict else None,
        "max_rel_diff": verdict.max_rel_diff if verdict else None,
        "metrics": scrub_values(metrics(context, measured, judged)),
        "output_match": judged.output_match if judged else None,
        "peak_mem_mb": _over_baseline(measured),
        "provenance": context.provenance,
        "runs": acceptance.runs,
        "signature": context.signature,
        "total_ops": total,
    }


def _beside(context: Context, measured: Measured, judged: Judged | None) -> dict[str, Any]:
    """What entries of both kinds of record keep beside the run."""
    observation = measured.outcome.observation if measured.outcome else None
    facts = measured.facts
    return {
        "artifact": records.RecordArtifact(
            file=context.artifact.path.name,
            sha256=context.artifact.sha256,
            size_mb=context.artifact.size_mb,
            size_bytes=context.artifact.size_bytes,
        ),
        "signature": context.signature,
        "command": scrub_command(context.command),
        "started_at": context.started.isoformat(timespec="seconds"),
        "host": scrub_values(
            {**context.device.host, "adapter": facts.adapter, "adapter_kind": facts.adapter_kind}
        ),
        "samples_ms": (
            [round(sample, 4) for sample in observation.samples_ms] if observation and measured.summary else []
        ),
        "refused_ops": [records.RefusedOp(**dataclasses.asdict(refusal)) for refusal in facts.refusals],
        "verdict": judged.to_dict() if judged else None,
        "inputs": scrub_values(dict(context.inputs)),
    }


def metrics(context: Context, measured: Measured, judged: Judged | None) -> dict[str, Scalar]:
    """What schema 1.2 has no field for: flat, with the unit in each name."""
    facts, summary = measured.facts, measured.summary
    figures: dict[str, Scalar] = {"file_sha256": context.artifact.sha256, **facts.metrics}
    if facts.adapter is not None:
        figures |= {"adapter": facts.adapter, "adapter_kind": facts.adapter_kind}
    observation = measured.outcome.observation if measured.outcome else None
    if observation is not None:
        figures |= {
            "threads": observation.facts.get("threads"),
            "load_ms": _rounded(observation.load_ms),
            "first_run_ms": _rounded(observation.first_run_ms),
            "peak_process_mb": _rounded(observation.peak_mb),
            "model_time_s": _rounded(observation.facts.get("model_time_s")),
        }
    if summary is not None and observation is not None:
        figures |= {
            "iterations": summary.iterations,
            "warmup_runs": observation.warmup_runs,
            "time_budget_hit": observation.budget_hit,
            "latency_min_ms": _rounded(summary.min_ms),
            "latency_max_ms": _rounded(summary.max_ms),
            "latency_mean_abs_dev_ms": _rounded(summary.mad_ms),
            "latency_ci95_low_ms": _rounded(summary.ci95_low_ms),
            "latency_ci95_high_ms": _rounded(summary.ci95_high_ms),
            "unstable": bool(measured.unstable),
            "unstable_because": "; ".join(measured.unstable) or None,
            "quiet_attempts": measured.attempts,
            "others_cores": _rounded(observation.state.get("others_cores")),
        }
    if judged is not None:
        figures |= judged.metrics()
    return figures


def _over_baseline(measured: Measured) -> float | None:
    observation = measured.outcome.observation if measured.outcome else None
    if observation is None or observation.peak_mb is None or observation.baseline_mb is None:
        return None
    return round(max(observation.peak_mb - observation.baseline_mb, 0.0), 3)


def _rounded(value: float | None) -> float | None:
    """Three decimals: microseconds are as fine as these clocks tell."""
    return None if value is None else round(value, 3)
